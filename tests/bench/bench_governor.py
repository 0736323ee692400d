"""A16, the cost of the governor's loop: `python -m tests.bench.bench_governor [SECONDS] [GPUS] [MODE]`.

A governor of 8 GPUs runs as in an agent, over helper process, power guard and a fake vendor library. Printed: how long
a turn takes, and the processor time of the loop, of the line to the guard, of the helper and of the guard. The fake
library is dearer than the real one: it looks at its scenario file in every call. The guard is told apart: it is no part
of the loop, and its cost is that of the lease.
"""

import asyncio
import cProfile
import logging
import os
import pstats
import sys
import tempfile
import time
from pathlib import Path

import structlog

from tests.powerguard.governor_bench import Governed, governed, tuned

TURN_P99_S, CORE_RATIO = 0.02, 0.01
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
RING = " ".join(str(650_000 + 10_000 * (at % 7)) for at in range(24))


def cpu_s(pid: int) -> float:
    """User and system time of a process (proc(5)); in hundredths of a second, so only long runs tell small shares."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


async def measured(host: Governed, seconds: float) -> tuple[list[float], dict[str, float]]:
    """Durations of the turns, and shares of a core by process."""
    took: list[float] = []
    turn = host.governor.turn

    async def timed() -> None:
        began_s = time.perf_counter()
        await turn()
        took.append(time.perf_counter() - began_s)

    host.governor.turn = timed  # type: ignore[method-assign]
    running = asyncio.create_task(host.governor.run())
    await asyncio.sleep(min(5.0, seconds / 4))  # what is done once at the start is not the loop
    took.clear()
    guard = host.guard.guard
    others = {"helper": host.devices.helpers[0]} | ({} if guard is None else {"guard": guard.pid})
    before = {name: cpu_s(pid) for name, pid in others.items()}
    began_s, own_s, loop_s = time.monotonic(), time.process_time(), time.thread_time()
    await asyncio.sleep(seconds)
    wall_s = time.monotonic() - began_s
    shares = {"loop": (time.thread_time() - loop_s) / wall_s}
    shares |= {"line": (time.process_time() - own_s) / wall_s - shares["loop"]}
    shares |= {name: (cpu_s(pid) - before[name]) / wall_s for name, pid in others.items()}
    running.cancel()
    await asyncio.wait({running})
    return took, shares


async def case(seconds: float, gpus: int, mode: str, *, profile: cProfile.Profile | None) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        point = tuned(Path(folder) / "point.json")
        async with governed(Path(folder), gpus=gpus, mode=mode, set_point=point) as host:
            host.guard.scenario.put("lib", {"record": None})
            host.guard.scenario.put("*", {"ring": RING})
            if profile is not None:
                profile.enable()
            took, shares = await measured(host, seconds)
            if profile is not None:
                profile.disable()
            modes = {gpu.mode for gpu in host.governor.status().gpus}
    took.sort()
    p50, p99 = (took[min(len(took) - 1, int(ratio * len(took)))] for ratio in (0.5, 0.99))
    share = sum(value for name, value in shares.items() if name != "guard")
    print(f"{gpus} GPUs, {'/'.join(sorted(modes))}, {len(took)} turns: p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms")  # noqa: T201
    words = ", ".join(f"{name} {value:.2%}" for name, value in shares.items())
    targets = f"targets: p99 {TURN_P99_S * 1e3:.0f} ms, {CORE_RATIO:.0%}"
    print(f"of a core: {words}; without the guard {share:.2%}; {targets}")  # noqa: T201
    return p99 < TURN_P99_S and share <= CORE_RATIO


def main() -> int:
    """Exit code 1 when a target is missed; `PROFILE=1` prints where the loop's time goes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    gpus = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    mode = sys.argv[3] if len(sys.argv) > 3 else "boost"
    profile = cProfile.Profile() if os.environ.get("PROFILE") else None
    good = asyncio.run(case(seconds, gpus, mode, profile=profile))
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
