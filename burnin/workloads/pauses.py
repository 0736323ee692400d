"""Waiting inside a workload: for a while, or for a moment of the host's monotonic clock that all GPUs share.

Waits are `select` on nothing: a child has no event loop, and a thread that sleeps keeps no GPU busy. The watchdog is
fed meanwhile.
"""

import select
import time

from burnin.workloads import Context

FEED_EVERY_S = 0.25
"""A long wait is cut into pieces of this, so that the watchdog hears of each."""
SPIN_S = 200e-6
"""The last part of a wait for a moment is spent looking at the clock: the kernel wakes a sleeper some 50 µs late."""


def now_s() -> float:
    """The host's monotonic clock, the same in all processes (Linux: `perf_counter` and `monotonic` are one clock)."""
    return time.perf_counter()


def rest(ctx: Context, seconds: float) -> None:
    """Leave the GPU idle for so long; a simulated one is only told."""
    ctx.senses.passed(seconds, busy=False)
    if ctx.backend == "sim":
        ctx.alive()
        return
    end_s = now_s() + seconds
    while (left_s := end_s - now_s()) > 0:
        select.select((), (), (), min(left_s, FEED_EVERY_S))
        ctx.alive()


def until(ctx: Context, moment_s: float) -> None:
    """Wait for a moment, to some microseconds; returns at once when it has passed."""
    while (left_s := moment_s - now_s()) > 0:
        if left_s > SPIN_S:
            select.select((), (), (), min(left_s - SPIN_S, FEED_EVERY_S))
            ctx.alive()
