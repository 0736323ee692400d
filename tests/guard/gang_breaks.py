"""Replays that break off on one rank, in every place where one can. Part of `gang_guard.py`, run by its ranks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from burnin.guard.state import Start

PLACES = ("before", "start", "forward", "backward", "heard 1", "heard 5", "heard 8")
"""`before`: where a replay puts back what it begins from. `heard N`: where the N-th fingerprint of a collective is
taken, just after the collective has begun."""


@contextmanager
def planted(rig: Any, place: str) -> Iterator[None]:
    """Raise at a place of the step that runs inside."""
    middle = getattr(rig.model, "module", rig.model)[2]
    ear, heard = rig.guard._replayer.shape._ear, 0
    begin = getattr(ear, "begin", None)

    def fail(*_: Any) -> None:
        raise ValueError(f"planted: {place}")

    def hear(tensor: torch.Tensor) -> Any:
        nonlocal heard
        heard += 1
        if place == f"heard {heard}":
            raise torch.OutOfMemoryError(f"planted: {place}")
        return begin(tensor)

    if place == "start":
        raise torch.OutOfMemoryError(f"planted: {place}")
    handles = []
    if place == "forward":
        handles.append(middle.register_forward_pre_hook(fail))
    if place == "backward":
        handles.append(middle.register_forward_hook(lambda _module, _given, out: out.register_hook(fail) and None))
    ear.begin = hear
    try:
        yield
    finally:
        ear.begin = begin
        for handle in handles:
            handle.remove()


def refuse_once() -> None:
    """Have no memory for what the next replay begins from."""
    restore = Start.restore

    def refuse(*_: Any, **__: Any) -> None:
        Start.restore = restore  # type: ignore[method-assign]
        raise torch.OutOfMemoryError("planted: before")

    Start.restore = refuse  # type: ignore[method-assign]


def places(rig: Any) -> tuple[str, ...]:
    """Where a replay of this job can break off: one of DDP does without collectives until one has worked."""
    return PLACES[:4] if rig.shape == "ddp" else PLACES


def train(rig: Any, *, broken: bool) -> dict[str, Any]:
    """Two steps for each place, the second a checked one, whose replay breaks off on the last rank; and two more."""
    inner, losses, slowest_s = rig.run, [], 0.0
    place = ""

    def run(batch: list[torch.Tensor]) -> torch.Tensor:
        if place and rig.calls == 1 and rig.rank == rig.world - 1:
            with planted(rig, place):
                return inner(batch)  # type: ignore[no-any-return]
        return inner(batch)  # type: ignore[no-any-return]

    rig.run = run
    if rig.guard.ledger.steps % 2:
        rig.step()
    for one in (*places(rig), ""):
        losses.append(rig.step())
        place = one if broken else ""
        if place == "before" and rig.rank == rig.world - 1:
            refuse_once()
        begun_s = time.monotonic()
        losses.append(rig.step())
        slowest_s = max(slowest_s, time.monotonic() - begun_s)
        place = ""
    return {"losses": losses, "slowest_s": slowest_s, **rig.guard.report()}
