"""Which blocks of GPU memory are there at the peak of a step, and how two steps differ in that."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

ENTRIES = 200_000
"""Of the allocator's history; a step of the benchmark makes a few thousand."""
SHOWN = 40


def live_at_peak(events: Iterable[Mapping[str, Any]]) -> Counter[int]:
    """Return how many blocks of each size, in bytes as they were asked for, are there when most is.

    Blocks from before the first event are not in it: they are the same for both steps, unless one is given back.

    Args:
        events: of `torch.cuda.memory._snapshot()["device_traces"]`: action, addr and size.
    """
    live: dict[int, int] = {}
    now = most = 0
    peak: Counter[int] = Counter()
    for event in events:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"]
            now += event["size"]
        elif event["action"] == "free_completed":
            now -= live.pop(event["addr"], event["size"])
        if now > most:
            most, peak = now, Counter(live.values())
    return peak


def peak_of(step: Callable[[], object]) -> dict[str, Any]:
    """Run a step on a GPU; return its peaks, and what was there.

    `allocated`: bytes of the blocks that the allocator gave out, `requested`: bytes that were asked for. The difference
    is the allocator's: it rounds up to 512 bytes, and gives a cached block above 1 MiB whole if what would be left of
    it is at most 1 MiB, so that it depends on what was freed before.
    """
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    memory: Any = torch.cuda.memory
    memory._record_memory_history("all", context=None, stacks="python", max_entries=ENTRIES)
    try:
        step()
        torch.cuda.synchronize()
        stats, history = torch.cuda.memory_stats(), memory._snapshot()["device_traces"]
    finally:
        memory._record_memory_history(None)
    return {
        "allocated": stats["allocated_bytes.all.peak"],
        "requested": stats["requested_bytes.all.peak"],
        "live": live_at_peak(history[torch.cuda.current_device()]),
    }


def difference(plain: dict[str, Any], guarded: dict[str, Any]) -> dict[str, Any]:
    """What the guarded step has more at its peak, and what the plain one has more: {bytes: blocks}, the largest."""
    more, less = guarded["live"] - plain["live"], plain["live"] - guarded["live"]
    return {
        "extra_bytes": guarded["allocated"] - plain["allocated"],
        "extra_requested_bytes": guarded["requested"] - plain["requested"],
        "more": dict(sorted(more.items(), reverse=True)[:SHOWN]),
        "less": dict(sorted(less.items(), reverse=True)[:SHOWN]),
    }
