"""A whole fleet in one process on virtual time: real agents, the real controller, simulated everything else.

What belongs here: machines, the control room, timetables, the checks after every world. It wires adapters of `sim`.
Always true: the same seed gives the same journal, byte for byte; whatever was planted, the checks hold.
"""
