"""What is read of the kubelet: messages of its APIs, generated."""
