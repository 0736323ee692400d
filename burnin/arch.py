"""What differs between GPU architectures and decides which tests exist and with which numbers: one table. Torch-free.

A new part is a line here. What nobody has measured is None, and whoever needs it takes the cautious way.
"""

import re
from dataclasses import dataclass

UNMEASURED_FP8_BITS = 13
"""Sums below 2**13 are exact even where the matrix unit keeps 14 bits between two additions to the accumulator, as
Hopper's fast accumulation was measured to do; no part is known to keep fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture."""

    name: str
    pattern: str
    """Of the name that the library gives: `sm_90`, `gfx942:sramecc+:xnack-`."""
    lanes: int
    """Threads that execute in lockstep (warp, wavefront)."""
    fp8: tuple[str, ...]
    """Formats of the matrix units, in the words of `burnin.workloads.plans.DTYPES`."""
    tf32: bool
    fp8_magnitude: int | None
    """Largest a for which products of fp8 integers in [-a, a] were measured to be exact up to K = 8192, with default
    accumulation (`burnin.workloads.fp8bound`); None: not measured."""
    measured_on: str
    """Where that was measured; empty if nowhere."""
    unit: str
    """How a program learns on which multiprocessor it runs: `nvidia` (%smid), `amd` (HW_ID and XCC_ID), or empty."""


_OCP = ("fp8e4m3", "fp8e5m2")
_FNUZ = ("fp8e4m3fnuz", "fp8e5m2fnuz")


def _nvidia(name: str, pattern: str, *, fp8: tuple[str, ...] = (), magnitude: int | None = None, on: str = "") -> Arch:
    return Arch(
        name=name,
        pattern=pattern,
        lanes=32,
        fp8=fp8,
        tf32=True,
        fp8_magnitude=magnitude,
        measured_on=on,
        unit="nvidia",
    )


def _amd(name: str, pattern: str, *, fp8: tuple[str, ...] = (), tf32: bool = False) -> Arch:
    return Arch(
        name=name,
        pattern=pattern,
        lanes=64,
        fp8=fp8,
        tf32=tf32,
        fp8_magnitude=None,
        measured_on="",
        unit="amd" if fp8 else "",  # XCC_ID exists since gfx940
    )


ARCHS: tuple[Arch, ...] = (
    _nvidia("Ampere", r"sm_8[0-8]$"),
    _nvidia("Ada", r"sm_89$", fp8=_OCP),
    _nvidia("Hopper", r"sm_90", fp8=_OCP, magnitude=16, on="H200, CUDA 13.0"),
    _nvidia("Blackwell", r"sm_1[0-2]\d", fp8=_OCP),
    _amd("CDNA 3", r"gfx942", fp8=_FNUZ, tf32=True),
    _amd("CDNA 4", r"gfx950", fp8=_OCP),
    _amd("other AMD", r"gfx"),
)
"""The first pattern that matches counts."""
UNKNOWN = Arch(name="unknown", pattern="", lanes=32, fp8=(), tf32=False, fp8_magnitude=None, measured_on="", unit="")
"""What everybody has."""


def arch_of(name: str) -> Arch:
    """Return the facts of an architecture by the library's name for it (`sm_90`, `gfx942:…`)."""
    return next((arch for arch in ARCHS if re.match(arch.pattern, name)), UNKNOWN)
