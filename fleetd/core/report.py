"""What a fleet was worth: a fold over the facts of a journal into the sums of a window of time, by kind of host."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from math import ceil, floor

from fleetd.core.invariants import SERVING
from fleetd.core.sums import DAY_S, MAX_DAYS, Day, Report, Sums
from fleetd.model.fact import BEGINNING, Fact, Kind
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName

_PLANNED = frozenset({"OperatorQuarantined", "OperatorRepairs", "OperatorRetires", "OperatorBurnin"})
"""Events by which a person takes a host out of service."""


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
        # An override that leaves a hold of ours in place has not overturned the quarantine.
        tally.numbers["overturned"] += fact.override and host.held and not fact.held_by_us
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
