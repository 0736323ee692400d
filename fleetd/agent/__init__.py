"""The agent's loops on a host: sample the GPUs, carry out ordered burn-ins, keep the line to the controller.

What belongs here: loops and the pure decisions in them. It imports core, ports and model; adapters are handed in.
Always true: a loop catches its port's error, counts it, backs off and goes on; anything else ends the process.
"""
