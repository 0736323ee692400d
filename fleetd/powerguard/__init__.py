"""The power guard: a small process of its own that alone writes power limits, and outlives whoever asked for them.

What belongs here: the lease, the state file, the writes. It imports the standard library only, and of fleetd nothing
but itself. Always true: without a live lease every GPU goes to its declared safe cap, and no fall ever raises a limit.
"""
