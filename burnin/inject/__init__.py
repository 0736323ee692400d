"""Planted faults: models of broken hardware, applied to the output of a launch before its checksum is taken.

What belongs here: the models (`arithmetic`, `stores`), when they strike (`injector`), and the table (`faults`). They
know nothing of tests or votes. Always true: an injection that changed no byte has not fired.
"""

from burnin.inject.faults import FAULTS, Fault, check, eligible
from burnin.inject.injector import Injector, Scene, load_paused, scene
from burnin.inject.models import HOLE_PERIOD, TILE, WORD, Accumulator, Draw, SteppedAccumulator, stale_byte, tile_edges

__all__ = [
    "FAULTS",
    "HOLE_PERIOD",
    "TILE",
    "WORD",
    "Accumulator",
    "Draw",
    "Fault",
    "Injector",
    "Scene",
    "SteppedAccumulator",
    "check",
    "eligible",
    "load_paused",
    "scene",
    "stale_byte",
    "tile_edges",
]
