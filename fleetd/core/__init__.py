"""The decisions: pure functions of (time, state, input, configuration) that answer with a `Step` and its why.

What belongs here: plain Python over `fleetd.model`. It imports nothing that reads a clock, a disk, a socket or a die.
Always true: the same inputs give the same step, down to the ids of its orders.
"""
