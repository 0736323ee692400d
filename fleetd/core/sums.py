"""What a report counts: sums over hosts and time, and the rates that follow from them.

Everything is a sum, so that the groups of any division add up to the whole (`Sums.__add__`); rates and percentiles are
only taken of sums. `DEFINITIONS` says in words what each figure counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import ceil
from typing import Literal

from fleetd.model.fact import Kind

DAY_S = 86400.0
HOUR_S = 3600.0
MAX_DAYS = 4000
"""Longest window; the series by day has one entry a day."""

DEFINITIONS = {
    "host_seconds": "time of hosts in the fleet (`host days`): from when a host first serves users until it is retired",
    "availability_ratio": "share of the host days in which the host served users (healthy or on probation)",
    "unplanned_ratio": "share of the host days out of service that no person asked for; the rest out of service is "
    "planned: it began with an operator's own hold, repair or burn-in, and no policy's hold came on top",
    "failures": "times a host left service unplanned",
    "mtbf_seconds": "time that hosts served users, divided by failures",
    "mtbf_gpu_seconds": "time that GPUs of hosts served users, divided by the failures of hosts",
    "job_failures_per_1000_job_hours": "ends of jobs that failed, per 1,000 hours of jobs on hosts; a job on several "
    "hosts counts on each, with its failure and its hours",
    "job_failures_per_1000_gpu_days": "the same failures per 1,000 days of GPUs of hosts in the fleet",
    "swaps_per_1000_gpu_days": "GPUs that operators reported as swapped, per 1,000 days of GPUs in the fleet",
    "quarantines": "holds of a policy that took a host from its users, or kept it from them",
    "overturned": "those of them that a person overrode without the proof that was asked for: `(false)`",
    "false_quarantines_per_10000_host_days": "quarantines by a policy that a person overrode without the proof that "
    "was asked for, per 10,000 host days",
    "detect_seconds": "from when the host saw the evidence (its clock) to the decision that took it out of service",
    "quarantine_seconds": "from leaving service to the hold of a policy",
    "return_seconds": "from leaving service unplanned to serving users again",
}

Division = Literal["vendor", "sku", "pool"]
DIVISIONS: tuple[Division, ...] = ("vendor", "sku", "pool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What is counted of some hosts over some time. Times in seconds."""

    host_seconds: float = 0.0
    gpu_seconds: float = 0.0
    serving_seconds: float = 0.0
    serving_gpu_seconds: float = 0.0
    unplanned_seconds: float = 0.0
    failures: int = 0
    quarantines: int = 0
    overturned: int = 0
    jobs: int = 0
    jobs_failed: int = 0
    job_seconds: float = 0.0
    swaps: int = 0
    repairs: int = 0
    detect_seconds: tuple[float, ...] = ()
    """Each, in no order that matters; the same below."""
    quarantine_seconds: tuple[float, ...] = ()
    return_seconds: tuple[float, ...] = ()

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Sums)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What follows from sums. None: there is nothing to divide by, or nothing of the kind happened."""

    availability_ratio: float | None
    unplanned_ratio: float | None
    mtbf_seconds: float | None
    mtbf_gpu_seconds: float | None
    job_failures_per_1000_job_hours: float | None
    job_failures_per_1000_gpu_days: float | None
    swaps_per_1000_gpu_days: float | None
    false_quarantines_per_10000_host_days: float | None
    detect_median_seconds: float | None
    detect_p90_seconds: float | None
    quarantine_median_seconds: float | None
    quarantine_p90_seconds: float | None
    return_median_seconds: float | None
    return_p90_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The fleet on one day (24 hours from the beginning of the window on)."""

    at_s: float
    host_seconds: float
    unplanned_seconds: float
    quarantines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A window of a fleet's life."""

    since_s: float
    until_s: float
    known_from_s: float | None
    """Wall time of the first fact; nothing is known of what was before. None: there is no fact."""
    groups: tuple[tuple[Kind, Sums], ...]
    """By vendor, SKU and pool together, in their order."""
    days: tuple[Day, ...]

    @property
    def whole(self) -> Sums:
        """Of all hosts."""
        return sum((sums for _, sums in self.groups), Sums())

    def by(self, division: Division) -> tuple[tuple[str | None, Sums], ...]:
        """The sums of the hosts of each vendor, SKU or pool, by name; None: not known."""
        found: dict[str | None, Sums] = {}
        for kind, sums in self.groups:
            name: str | None = getattr(kind, division)
            found[name] = found.get(name, Sums()) + sums
        return tuple(sorted(found.items(), key=lambda item: (item[0] is None, item[0] or "")))


def rates(sums: Sums) -> Rates:
    """The rates of sums."""
    gpu_days = sums.gpu_seconds / DAY_S
    return Rates(
        availability_ratio=_per(sums.serving_seconds, sums.host_seconds),
        unplanned_ratio=_per(sums.unplanned_seconds, sums.host_seconds),
        mtbf_seconds=_per(sums.serving_seconds, sums.failures),
        mtbf_gpu_seconds=_per(sums.serving_gpu_seconds, sums.failures),
        job_failures_per_1000_job_hours=_per(1000.0 * sums.jobs_failed, sums.job_seconds / HOUR_S),
        job_failures_per_1000_gpu_days=_per(1000.0 * sums.jobs_failed, gpu_days) if sums.jobs else None,
        swaps_per_1000_gpu_days=_per(1000.0 * sums.swaps, gpu_days),
        false_quarantines_per_10000_host_days=_per(10_000.0 * sums.overturned, sums.host_seconds / DAY_S),
        detect_median_seconds=percentile(sums.detect_seconds, 0.5),
        detect_p90_seconds=percentile(sums.detect_seconds, 0.9),
        quarantine_median_seconds=percentile(sums.quarantine_seconds, 0.5),
        quarantine_p90_seconds=percentile(sums.quarantine_seconds, 0.9),
        return_median_seconds=percentile(sums.return_seconds, 0.5),
        return_p90_seconds=percentile(sums.return_seconds, 0.9),
    )


def percentile(values: Iterable[float], ratio: float) -> float | None:
    """The smallest of the values that at least this share of them does not exceed (nearest rank); None without any."""
    ordered = sorted(values)
    return ordered[max(ceil(ratio * len(ordered)), 1) - 1] if ordered else None


def _per(value: float, divisor: float) -> float | None:
    return value / divisor if divisor > 0 else None
