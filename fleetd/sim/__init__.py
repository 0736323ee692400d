"""Simulated parts of a fleet: what stands behind the ports where there is no hardware.

What belongs here: seeded adapters that behave like the real ones. They import the ports, the vocabulary and
burn-in's words only.
Always true: the same seed, clock and calls give the same readings. Apart stands `vendorlibs`: fake vendor libraries
for real processes, which are driven by a file and by the machine's clock.
"""
