"""Generated from protos/fleetd/pb/kubelet/v1; never edited."""
