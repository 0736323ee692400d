"""S36: an agent that leaks restarts itself before the kernel kills something, and not in a loop."""

import asyncio

import pytest

from fleetd.agent.memory import INTERVAL_S, STUCK, TIMES, YOUNG_S, MemoryConfig, MemoryWatch
from tests.agent.fakes_agent import FakeClock

LIMIT = 100 << 20


class Leaking:
    def __init__(self, clock: FakeClock) -> None:
        self.held = {"agent": 40.0 * 2**20, "helper": 30.0 * 2**20}
        self.restarts = 0
        self.clock = clock
        self.watch = MemoryWatch(
            config=MemoryConfig(limit_bytes=LIMIT), clock=clock, read=lambda: dict(self.held), restart=self._restart
        )

    def _restart(self) -> None:
        self.restarts += 1

    def look(self, times: int) -> None:
        for _ in range(times):
            self.watch.look()
            self.clock.now_s += INTERVAL_S


def test_s36_an_agent_that_leaks_restarts_itself_before_the_memory_limit() -> None:
    leaking = Leaking(FakeClock())
    leaking.look(50)
    assert leaking.restarts == 0
    assert leaking.watch.resident_bytes == leaking.held
    leaking.held["helper"] = 80.0 * 2**20
    leaking.look(TIMES - 1)
    assert leaking.restarts == 0, "a burst is no leak"
    leaking.look(1)
    assert leaking.restarts == 1


def test_helpers_that_are_stuck_in_a_driver_are_no_reason_for_a_restart_that_would_only_add_to_them() -> None:
    leaking = Leaking(FakeClock())
    leaking.held[STUCK] = 7 * 40.0 * 2**20
    leaking.look(50)
    assert leaking.restarts == 0
    assert leaking.watch.resident_bytes[STUCK] == 7 * 40.0 * 2**20, "but they are shown"


def test_a_burst_that_ends_is_forgotten() -> None:
    leaking = Leaking(FakeClock())
    leaking.look(50)
    for _ in range(5):
        leaking.held["agent"] = 200.0 * 2**20
        leaking.look(TIMES - 1)
        leaking.held["agent"] = 10.0 * 2**20
        leaking.look(1)
    assert leaking.restarts == 0


def test_a_limit_that_is_too_low_for_this_host_makes_no_restart_loop() -> None:
    leaking = Leaking(FakeClock())
    leaking.held["agent"] = 2.0 * LIMIT
    leaking.look(int(YOUNG_S / INTERVAL_S) - 1)
    assert leaking.restarts == 0


def test_it_looks_until_it_is_cancelled() -> None:
    async def story() -> None:
        clock = FakeClock(until_s=1000.0 + 2 * YOUNG_S)
        leaking = Leaking(clock)
        leaking.held["agent"] = 2.0 * LIMIT
        loop = asyncio.create_task(leaking.watch.run())
        await clock.reached.wait()
        assert leaking.restarts >= 1
        assert set(clock.sleeps) == {INTERVAL_S}
        loop.cancel()

    asyncio.run(story())


def test_a_limit_that_no_agent_can_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="limit_bytes: 1024 is below 64 MiB"):
        MemoryConfig(limit_bytes=1024)
