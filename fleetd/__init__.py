"""fleetd: the per-host agent and the central controller of a fleet of training GPUs.

What belongs here: the daemon. It may import the torch-free modules of `burnin` (`burnin.spec`, `burnin.vote`).
Always true: no module of this package imports torch, numpy or a vendor library when it is imported.
"""

__version__ = "0.1.0"
