"""What a fleet is worth: a fold over the facts of a journal into sums by kind of host, and the rates that follow.

Everything is a sum over hosts and time, so that the groups of any division add up to the whole (`Sums.__add__`); rates
and percentiles are only taken of sums. `DEFINITIONS` says in words what each figure counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from math import ceil, floor
from typing import Literal

from fleetd.core.invariants import SERVING
from fleetd.model.fact import BEGINNING, Fact, Kind
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName

DAY_S = 86400.0
HOUR_S = 3600.0
MAX_DAYS = 4000
"""Longest window; the series by day has one entry a day."""

DEFINITIONS = {
    "host_days": "days of hosts in the fleet: from the first time that a host serves users until it is retired",
    "availability_ratio": "share of the host days in which the host served users (healthy or on probation)",
    "unplanned_ratio": "share of the host days out of service that no person asked for; the rest out of service is "
    "planned: it began with an operator's own hold, repair or burn-in, and no policy's hold came on top",
    "failures": "times a host left service unplanned",
    "mtbf_seconds": "time that hosts served users, divided by failures; `mtbf_gpu_seconds`: of their GPUs",
    "job_failures_per_1000_job_hours": "ends of jobs that failed, per 1,000 hours of jobs on hosts; a job on several "
    "hosts counts on each, with its failure and its hours",
    "job_failures_per_1000_gpu_days": "the same failures per 1,000 days of GPUs of hosts in the fleet",
    "swaps_per_1000_gpu_days": "GPUs that operators reported as swapped, per 1,000 days of GPUs in the fleet",
    "false_quarantines_per_10000_host_days": "quarantines by a policy that a person overrode without the proof that "
    "was asked for, per 10,000 host days",
    "detect_seconds": "from when the host saw the evidence (its clock) to the decision that took it out of service",
    "quarantine_seconds": "from leaving service to the hold of a policy",
    "return_seconds": "from leaving service unplanned to serving users again",
}

Division = Literal["vendor", "sku", "pool"]
DIVISIONS: tuple[Division, ...] = ("vendor", "sku", "pool")

_PLANNED = frozenset({"OperatorQuarantined", "OperatorRepairs", "OperatorRetires", "OperatorBurnin"})
"""Events by which a person takes a host out of service."""


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


def report(facts: Iterable[Fact], *, since_s: float, until_s: float) -> Report:
    """Fold the facts of a journal, from its beginning and in its order, into the report on a window.

    Facts before the window say how hosts stood at its start; those behind it are not counted.

    Raises:
        ValueError: the window is empty, or longer than `MAX_DAYS`.
    """
    if not 0 < until_s - since_s <= MAX_DAYS * DAY_S:
        raise ValueError(f"a report is on a window of time of at most {MAX_DAYS} days, not {until_s - since_s:.0f} s")
    fold = _Fold(since_s, until_s)
    for fact in facts:
        if fact.at_s >= until_s:
            continue  # a later one can still be inside: the wall clock may have been set back
        fold.take(fact)
    return fold.finish()


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


# ── the fold ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, kw_only=True)
class _Host:
    """A host as the last fact left it."""

    at_s: float
    """Up to here its time is counted."""
    state: Lifecycle
    kind: Kind
    gpus: int
    held: bool
    """By a policy."""
    in_fleet: bool = False
    out_since_s: float | None = None
    planned: bool = False


@dataclass(slots=True)
class _Tally:
    """Sums that grow."""

    numbers: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def sums(self) -> Sums:
        kept: dict[str, object] = {name: tuple(values) for name, values in self.times.items()}
        whole = {f.name for f in fields(Sums) if f.type == "int" or f.type is int}
        kept |= {name: int(value) if name in whole else value for name, value in self.numbers.items()}
        return Sums(**kept)  # type: ignore[arg-type]  # names are those of the fields


class _Fold:
    def __init__(self, since_s: float, until_s: float) -> None:
        self._since_s = since_s
        self._until_s = until_s
        self._first_s: float | None = None
        self._hosts: dict[HostName, _Host] = {}
        self._tallies: dict[Kind, _Tally] = defaultdict(_Tally)
        days = ceil((until_s - since_s) / DAY_S)
        self._days = [[0.0, 0.0, 0.0] for _ in range(days)]  # host seconds, unplanned seconds, quarantines

    def take(self, fact: Fact) -> None:
        """Count what one fact says."""
        if self._first_s is None:
            self._first_s = fact.at_s
        if fact.host is None or fact.state is None or fact.refused:
            return
        host = self._hosts.get(fact.host)
        if host is None:
            self._hosts[fact.host] = host = _Host(
                at_s=fact.at_s, state=Lifecycle.NEW, kind=fact.kind, gpus=fact.gpus, held=False
            )
            if fact.event == BEGINNING:
                self._begin(host, fact)
                return
        self._advance(host, fact.at_s)
        if self._since_s <= fact.at_s:
            self._count(host, fact)
        self._move(host, fact)

    def finish(self) -> Report:
        """The report, with the time of every host up to the end of the window."""
        for host in self._hosts.values():
            self._advance(host, self._until_s)
        named = ((kind, tally.sums()) for kind, tally in self._tallies.items())
        return Report(
            since_s=self._since_s,
            until_s=self._until_s,
            known_from_s=self._first_s,
            groups=tuple(sorted(named, key=lambda item: [(w is None, w or "") for w in _words(item[0])])),
            days=tuple(
                Day(
                    at_s=self._since_s + n * DAY_S,
                    host_seconds=host_s,
                    unplanned_seconds=unplanned_s,
                    quarantines=int(quarantines),
                )
                for n, (host_s, unplanned_s, quarantines) in enumerate(self._days)
            ),
        )

    @staticmethod
    def _begin(host: _Host, fact: Fact) -> None:
        """How a host stood where a pruned journal begins; since when, nobody knows any more."""
        assert fact.state is not None  # noqa: S101 - `take` has looked
        host.state, host.held = fact.state, fact.held_by_us
        unproven = {Lifecycle.NEW, Lifecycle.RETIRED} | (set() if fact.held_by_us else {Lifecycle.QUALIFYING})
        host.in_fleet = fact.state not in unproven
        if host.in_fleet and fact.state not in SERVING:
            host.out_since_s = fact.at_s
            host.planned = not fact.held_by_us and fact.state in {Lifecycle.QUARANTINED, Lifecycle.REPAIRING}

    def _advance(self, host: _Host, at_s: float) -> None:
        """Count the time of a host up to now."""
        begin_s, end_s = max(host.at_s, self._since_s), min(at_s, self._until_s)
        host.at_s = max(host.at_s, at_s)
        if not host.in_fleet or end_s <= begin_s:
            return
        seconds, serving = end_s - begin_s, host.state in SERVING
        numbers = self._tallies[host.kind].numbers
        numbers["host_seconds"] += seconds
        numbers["gpu_seconds"] += seconds * host.gpus
        if serving:
            numbers["serving_seconds"] += seconds
            numbers["serving_gpu_seconds"] += seconds * host.gpus
        unplanned = not serving and not host.planned
        if unplanned:
            numbers["unplanned_seconds"] += seconds
        for day, part_s in self._by_day(begin_s, end_s):
            self._days[day][0] += part_s
            self._days[day][1] += part_s * unplanned

    def _by_day(self, begin_s: float, end_s: float) -> Iterator[tuple[int, float]]:
        first, last = self._day(begin_s), self._day(end_s)
        for day in range(first, last + 1):
            day_s = self._since_s + day * DAY_S
            yield day, max(min(end_s, day_s + DAY_S) - max(begin_s, day_s), 0.0)

    def _day(self, at_s: float) -> int:
        return min(floor((at_s - self._since_s) / DAY_S), len(self._days) - 1)

    def _count(self, host: _Host, fact: Fact) -> None:
        """Count what happened, on the host as it was before."""
        tally = self._tallies[fact.kind]
        if fact.job_ok is not None:
            tally.numbers["jobs"] += 1
            tally.numbers["jobs_failed"] += not fact.job_ok
            tally.numbers["job_seconds"] += fact.job_seconds
        tally.numbers["swaps"] += fact.event == "GpuSwapped"
        tally.numbers["repairs"] += fact.event == "OperatorRepaired"
        tally.numbers["overturned"] += fact.override and host.held
        taken = fact.held_by_us and not host.held
        if taken:
            tally.numbers["quarantines"] += 1
            self._days[self._day(fact.at_s)][2] += 1
        leaves = host.state in SERVING and fact.state not in SERVING
        if leaves and fact.event not in _PLANNED:
            tally.numbers["failures"] += 1
            if fact.found_at_s is not None:  # clocks differ: what was seen in our future took no time
                tally.times["detect_seconds"].append(max(fact.at_s - fact.found_at_s, 0.0))
        elif taken and host.out_since_s is not None and host.planned:
            tally.numbers["failures"] += 1  # a person looked, and a policy found something
        if taken and (leaves or (host.out_since_s is not None and not host.planned)):
            out_since_s = fact.at_s if host.out_since_s is None else host.out_since_s
            tally.times["quarantine_seconds"].append(max(fact.at_s - out_since_s, 0.0))
        if fact.state in SERVING and host.out_since_s is not None and not host.planned:
            tally.times["return_seconds"].append(max(fact.at_s - host.out_since_s, 0.0))

    @staticmethod
    def _move(host: _Host, fact: Fact) -> None:
        """Leave the host as the fact says."""
        assert fact.state is not None  # noqa: S101 - `take` has looked
        if fact.state is Lifecycle.RETIRED:
            host.in_fleet, host.out_since_s = False, None
        elif fact.state in SERVING:
            host.in_fleet, host.out_since_s, host.planned = True, None, False
        elif host.state in SERVING:
            host.out_since_s, host.planned = fact.at_s, fact.event in _PLANNED
        elif fact.held_by_us and not host.held:
            host.planned = False
        host.state, host.held, host.kind, host.gpus = fact.state, fact.held_by_us, fact.kind, fact.gpus


def _words(kind: Kind) -> tuple[str | None, ...]:
    return kind.vendor, kind.sku, kind.pool
