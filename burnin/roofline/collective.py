"""How long a collective between the GPUs of one host takes, by algorithm, and what bounds it. Pure.

Latency and bandwidth: an algorithm is a number of steps, one after the other, and of bytes that each GPU sends. The
library is taken to choose the fastest algorithm. A size is, as in the vendors' benchmarks, that of the buffer which a
rank holds in full (all-reduce, broadcast, all-to-all), of the gathered output (all-gather), of the input
(reduce-scatter).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from burnin.parts.part import Part
from burnin.spec import SpecError

GPUS_MAX = 8
"""On one host of the parts that are known."""
BYTES_MAX = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """What one algorithm does."""

    name: str
    steps: int
    sent: float
    """By each GPU, as a multiple of the size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCollective:
    """What a collective should take."""

    part: str
    operation: str
    size_bytes: int
    gpus: int
    seconds: float
    bytes_per_second: float
    """Size by time."""
    bus_bytes_per_second: float
    """What a link would have to carry in a ring: to compare with the links' bandwidth at any number of GPUs."""
    algorithm: str
    bound: str
    links_bytes_per_second: float
    """That each GPU can send at most."""
    seconds_by: Mapping[str, float]
    """Algorithm → seconds."""
    unknown: tuple[str, ...]
    """What is left out; with anything in it, this is a ceiling."""


def _all_reduce(n: int) -> tuple[Algorithm, ...]:
    return (
        Algorithm(name="ring", steps=2 * (n - 1), sent=2 * (n - 1) / n),
        # Two trees, in each of which every GPU is an inner node for half of the data: up once and down twice a half.
        Algorithm(name="tree", steps=2 * math.ceil(math.log2(n)), sent=2.0),
        Algorithm(name="direct", steps=2, sent=2 * (n - 1) / n),
        Algorithm(name="direct, one shot", steps=1, sent=float(n - 1)),
    )


def _half(n: int) -> tuple[Algorithm, ...]:
    share = (n - 1) / n
    return (Algorithm(name="ring", steps=n - 1, sent=share), Algorithm(name="direct", steps=1, sent=share))


def _broadcast(n: int) -> tuple[Algorithm, ...]:
    return (
        Algorithm(name="ring", steps=n - 1, sent=1.0),  # in pieces, one behind the other
        Algorithm(name="tree", steps=math.ceil(math.log2(n)), sent=1.0),
        Algorithm(name="direct", steps=1, sent=float(n - 1)),
    )


def _all_to_all(n: int) -> tuple[Algorithm, ...]:
    return (Algorithm(name="direct", steps=1, sent=(n - 1) / n),)


OPERATIONS = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _half,
    "all_gather": _half,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
}
BUS_SHARE = {"all_reduce": 2.0, "broadcast": None}
"""Of (n - 1)/n, what a ring carries; None: all of the size. 1 for the others."""


def expect_collective(part: Part, operation: str, *, size_bytes: int, gpus: int) -> ExpectedCollective:
    """The time of one collective among many that run back to back.

    Args:
        part: what all GPUs are.
        operation: a key of `OPERATIONS`.
        size_bytes: see the module.
        gpus: how many take part.

    Raises:
        SpecError: unknown operation, or a size or a number of GPUs that makes no sense.
    """
    if operation not in OPERATIONS:
        raise SpecError(f"collective {operation!r} is not known; there are {', '.join(OPERATIONS)}")
    if not 0 < size_bytes <= BYTES_MAX:
        raise SpecError(f"a collective of {size_bytes} bytes: 1 to {BYTES_MAX}")
    if not 1 < gpus <= GPUS_MAX:
        raise SpecError(f"a collective of {gpus} GPUs: 2 to {GPUS_MAX}, on one host")
    fit = part.peer_fitted
    links = part.peer.links if part.peer.topology == "switch" else min(part.peer.links, gpus - 1)
    most = links * part.peer.link_bytes_per_second
    reached = most * (fit.share if fit is not None else 1.0)
    launch, step = (fit.launch_seconds, fit.step_seconds or 0.0) if fit is not None else (0.0, 0.0)
    ways = {one.name: one for one in OPERATIONS[operation](gpus)}
    times = {name: launch + one.steps * step + one.sent * size_bytes / reached for name, one in ways.items()}
    best = min(times, key=times.__getitem__)
    carried = ways[best].sent * size_bytes / reached
    share = BUS_SHARE.get(operation, 1.0)
    bus = size_bytes * (1.0 if share is None else share * (gpus - 1) / gpus)
    return ExpectedCollective(
        part=part.name,
        operation=operation,
        size_bytes=size_bytes,
        gpus=gpus,
        seconds=times[best],
        bytes_per_second=size_bytes / times[best],
        bus_bytes_per_second=bus / times[best],
        algorithm=best,
        bound="links" if carried > times[best] / 2 else "latency",
        links_bytes_per_second=most,
        seconds_by=times,
        unknown=_unknown(part, gpus),
    )


def _unknown(part: Part, gpus: int) -> tuple[str, ...]:
    fit = part.peer_fitted
    if fit is None:
        return ("latency", "share of the links that collectives reach")
    missing = ["latency of a step"] if fit.step_seconds is None else []
    return tuple(missing + ([f"anything beyond {fit.gpus} GPUs"] if gpus > fit.gpus else []))
