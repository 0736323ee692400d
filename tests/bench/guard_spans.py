"""Where the time of checked steps goes: the guard's parts, timed from outside, on the host and on the device.

A span is one call of one part. Its own time is without that of the spans inside it, so that the times of all parts add
up to that of the check. On the device it is the time between two marks in the queue: waiting for the host counts, too,
which is what makes a check dear.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from burnin.guard import ReplayGuard
from burnin.guard import check as check_module

PARTS = {
    "capture": "copies of micro-batch, buffers, random streams",
    "original": "the step itself",
    "replay": "the step again",
    "restore": "what a replay does besides running the step",
    "hash: queue": "looking at tensors and launching their fingerprints",
    "hash: wait": "waiting for the device, copying the values, digests not counted",
    "room": "asking for free memory",
    "ranks": "telling other ranks",
    "exact": "exact products, each `peer_every`-th check",
    "after update": "fingerprints of parameters and optimizer state after the update before a check",
    "rest": "comparing and everything else",
}


@dataclass
class Span:
    """One call."""

    part: str
    host_s: float = 0.0
    marks: list[Any] = field(default_factory=list)
    inside: list["Span"] = field(default_factory=list)

    def device_s(self) -> float:
        """Between its marks, that of the spans inside included; on a CPU all is the host's."""
        return self.marks[0].elapsed_time(self.marks[1]) / 1e3 if self.marks else self.host_s


class Spans:
    """Times one guard while it is `on`."""

    def __init__(self, guard: ReplayGuard) -> None:
        self.on = False
        self.tops: list[Span] = []
        self._open: list[Span] = []
        self._cuda = guard._replayer.device.type == "cuda"
        replayer, hasher, checker = guard._replayer, guard._hasher, guard._checker
        self._wrap(guard, "_check", "rest")
        self._wrap(replayer, "standing", "after update")
        self._wrap(replayer, "start", "capture")
        self._wrap(replayer, "run", "replay")
        self._wrap(replayer, "replay", "restore")
        self._wrap(replayer, "need_room", "room")
        self._wrap(hasher, "begin", "hash: queue")
        self._wrap(hasher, "read", "hash: wait")
        self._wrap(checker.ranks, "gather", "ranks")
        self._wrap(check_module, "exact_products", "exact")

    def _wrap(self, owner: Any, name: str, part: str) -> None:
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            inside = self._open[-1].part if self._open else ""
            if part == "after update" and inside:  # also looked at before the step: there it is hashing as any other
                return inner(*args, **kwargs)
            # The first run in a check is the step itself; those of replays are inside one.
            with self._span("original" if part == "replay" and inside == "rest" else part):
                return inner(*args, **kwargs)

        setattr(owner, name, timed)

    @contextmanager
    def _span(self, part: str) -> Iterator[None]:
        if not self.on:
            yield
            return
        span = Span(part)
        (self._open[-1].inside if self._open else self.tops).append(span)
        self._open.append(span)
        if self._cuda:
            span.marks = [torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)]
            span.marks[0].record()
        begun_s = time.perf_counter()
        try:
            yield
        finally:
            span.host_s = time.perf_counter() - begun_s
            if self._cuda:
                span.marks[1].record()
            self._open.pop()

    def told(self) -> dict[str, dict[str, float]]:
        """Milliseconds a check by part, and the sum; wait for the device before."""
        checks = sum(top.part == "rest" for top in self.tops)
        found = {part: {"calls": 0.0, "host_ms": 0.0, "device_ms": 0.0} for part in PARTS}
        left = list(self.tops)
        while left:
            span = left.pop()
            left += span.inside
            row = found[span.part]
            row["calls"] += 1 / checks
            row["host_ms"] += 1e3 * (span.host_s - sum(one.host_s for one in span.inside)) / checks
            row["device_ms"] += 1e3 * (span.device_s() - sum(one.device_s() for one in span.inside)) / checks
        total = {key: sum(row[key] for row in found.values()) for key in ("host_ms", "device_ms")}
        return {part: row for part, row in found.items() if row["calls"]} | {"all": {"calls": 1.0, **total}}


def table(told: dict[str, dict[str, float]]) -> str:
    """The same for people."""
    lines = [f"{'part of a check':16} {'calls':>6} {'host ms':>9} {'device ms':>10}"]
    lines += [
        f"{part:16} {row['calls']:6.1f} {row['host_ms']:9.3f} {row['device_ms']:10.3f}" for part, row in told.items()
    ]
    return "\n".join(lines)
