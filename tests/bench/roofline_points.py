"""What `bench_roofline.py` reads of a measurement: its points, and whether it is one to fit to. No GPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnin.roofline.kernels import Gemm

FEW = 40
"""With fewer points the constants of small products cannot be told apart; they stay null, and nothing is held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured product."""

    name: str
    kind: str
    data: str
    gemm: Gemm
    seconds: float
    clock_hertz: float | None
    watts: float | None


def points_of(report: Mapping[str, Any]) -> list[Point]:
    """The points of a measurement's JSON."""
    return [
        Point(
            name=raw["name"],
            kind=raw["kind"],
            data=raw["data"],
            gemm=Gemm(m=raw["m"], n=raw["n"], k=raw["k"], dtype=raw["dtype"], output_bytes=raw["output_bytes"]),
            seconds=raw["seconds"],
            clock_hertz=raw["clock_hertz"],
            watts=raw["watts"],
        )
        for raw in report["points"]
    ]


def is_few(report: Mapping[str, Any]) -> bool:
    """Whether all points are needed for the fit, so that there is nothing to score."""
    return len(report["points"]) < FEW and not is_fresh(report)


def is_fresh(report: Mapping[str, Any]) -> bool:
    """Whether no point may be fitted to: all are held out."""
    return bool(report.get("set") == "fresh")
