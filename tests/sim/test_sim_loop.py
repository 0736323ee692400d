"""Virtual time: it jumps when nobody can run, it never passes while somebody can, and waiting for ever is an error."""

import asyncio
from datetime import timedelta

import pytest

from fleetd.sim.clock import EPOCH_S, SimClock
from fleetd.sim.loop import DeadlockError, run

YEAR_S = timedelta(days=365).total_seconds()


def test_a_year_passes_at_once() -> None:
    async def scene() -> float:
        await SimClock().sleep_s(YEAR_S)
        return asyncio.get_running_loop().time()

    assert run(scene()) == YEAR_S


def test_timers_fire_in_their_order_and_at_their_time() -> None:
    async def scene() -> list[tuple[str, float]]:
        clock, seen = SimClock(), list[tuple[str, float]]()

        async def wait(name: str, seconds: float) -> None:
            await clock.sleep_s(seconds)
            seen.append((name, clock.elapsed_s()))

        await asyncio.gather(wait("late", 30.0), wait("early", 10.0), wait("middle", 20.0))
        return seen

    assert run(scene()) == [("early", 10.0), ("middle", 20.0), ("late", 30.0)]


def test_no_time_passes_while_somebody_can_run() -> None:
    async def scene() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run(scene()) == 0.0


def test_timeouts_and_groups_of_asyncio_work() -> None:
    async def scene() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(SimClock().sleep_s(7.0))
        return asyncio.get_running_loop().time()

    assert run(scene()) == 12.0


def test_waiting_for_ever_is_reported_with_who_waits() -> None:
    async def scene() -> None:
        async def forever() -> None:
            await asyncio.Event().wait()

        await asyncio.create_task(forever(), name="the forgotten one")

    with pytest.raises(DeadlockError, match=r"2 tasks wait for ever: .*the forgotten one"):
        run(scene())


def test_a_clock_that_is_wrong_is_wrong_on_the_wall_only() -> None:
    async def scene() -> tuple[float, float]:
        clock = SimClock(skew_s=3600.0)
        await clock.sleep_s(10.0)
        clock.jump(-7200.0)
        return clock.wall_s(), clock.elapsed_s()

    assert run(scene()) == (EPOCH_S + 10.0 - 3600.0, 10.0)
