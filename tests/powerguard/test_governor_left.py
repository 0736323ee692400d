"""The governor when a GPU comes late, stops answering, or must be left alone while it is raised; and when it ends."""

import asyncio
import math
import shutil
from pathlib import Path

import pytest

from fleetd.agent.power_lease import PowerLease
from fleetd.model.ids import HostName
from fleetd.model.power_lease import Grant
from tests.powerguard.governor_bench import SUSTAINED, Governed, governed, run, tuned
from tests.powerguard.guard_bench import PRIOR, SAFE, WAIT_S, AmdBench
from tests.powerguard.test_governor_sensors import HandClock, Host, silent

gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library")


async def limits(host: Governed, *watts: float) -> None:
    async with asyncio.timeout(WAIT_S):
        while host.guard.limits() != pytest.approx(watts, abs=0.1):
            await host.governor.turn()


@gcc
def test_a_gpu_that_may_be_governed_later_keeps_no_other_from_being_lowered(tmp_path: Path) -> None:
    async def case() -> None:
        point = tuned(tmp_path / "point.json")
        async with governed(tmp_path, set_point=point) as host:
            host.guard.scenario.put(1, {"mig.0": "MIG-1"})
            await host.until("boost")
            await limits(host, SUSTAINED, PRIOR)
            host.guard.scenario.put(1, {"mig.0": None})
            point.unlink()
            await host.until("safe", "there is no such file")
            assert host.guard.limits()[0] == SAFE, "in the same turn, whatever the guard knows of the other"
            await limits(host, SAFE, SAFE)

    run(case())


@gcc
def test_mig_that_is_switched_on_in_boost_takes_back_what_was_raised(tmp_path: Path) -> None:
    async def case() -> None:
        point = tuned(tmp_path / "point.json", clock_hertz=1.5e9)
        async with governed(tmp_path, set_point=point) as host:
            await host.until("boost", place=1)
            await limits(host, SUSTAINED, SUSTAINED)
            host.guard.scenario.put(1, {"mig.0": "MIG-1"})
            found = await host.gpu(1)
            assert (found.mode, host.guard.limits()[1]) == ("safe", SAFE)
            assert "MIG is on" in found.why
            assert host.governor._line.clocks.keys() == {"GPU-0"}, "its clock is free again, too"
            found = await host.gpu(1)
            assert (found.mode, found.set_watts) == ("observe", {"limit": SAFE})
            await host.until("boost", place=0)

    run(case())


def test_a_driver_that_falls_silent_in_boost_is_lowered_unseen_and_never_raised() -> None:
    host = Host().boosting()
    host.sensor = silent
    assert host.turn() == "safe"
    assert host.line.limits["GPU-0"] == {"limit": 630.0}, "the guard may write where nothing can be read"
    host.line.limits["GPU-0"]["limit"] = 500.0  # meanwhile somebody lowers it
    for _ in range(5):
        host.turn()
    assert host.line.limits["GPU-0"] == {"limit": 500.0}


class LastTurnClock(HandClock):
    """A turn is the last one before somebody stops the agent."""

    async def sleep_s(self, seconds: float) -> None:
        raise asyncio.CancelledError(f"stopped while it slept for {seconds:g} s")


@pytest.mark.parametrize(
    ("ttl_s", "does"), [(math.inf, "hand_over 10"), (60.0, "hand_over 10"), (4.0, "hand_over 4"), (0.0, "disarm")]
)
def test_limits_are_handed_over_for_no_longer_than_the_lease_of_the_budget_lives(ttl_s: float, does: str) -> None:
    clock = LastTurnClock()
    held = PowerLease(
        host=HostName("h01"), epoch=1, base_watts=1500.0, safe_cap_watts=630.0, allowed="boost", clock=clock
    )
    host = Host(clock=clock, budget=None if ttl_s == math.inf else held, hand_over_s=10.0)
    host.turn()
    ask = held._ask()
    if ask is not None and ttl_s:
        held.answered(Grant(host="h01", epoch=1, seq=ask.seq, watts=2200.0, ttl_s=ttl_s, max_watts=2300.0))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(host.governor.run())
    assert host.line.did[-1] == does


@gcc
def test_amd_without_one_of_its_limiters_is_left_alone_and_taken_back_if_it_was_raised(tmp_path: Path) -> None:
    async def case() -> None:
        name = "mi350x-platform"
        point = tmp_path / "point.json"
        async with governed(tmp_path, vendor="amd", envelope=name, set_point=point) as host:
            assert isinstance(host.guard, AmdBench)
            host.guard.scenario.put(1, {"status.power_cap_info_1": 2})
            firmware = host.inventory[0].firmware
            assert firmware is not None
            tuned(point, name=name, firmware=firmware, raw_watts=1300.0)
            await host.until("boost")
            await host.gpu()
            alone = host.governor.status().gpus[1]
            assert (alone.mode, alone.why) == (
                "observe",
                "the driver does not tell ppt1, so that no write could be checked",
            )
            assert host.guard.pair()[0] > 900.0
            host.guard.scenario.put(0, {"status.power_cap_info_1": 2})
            found = await host.gpu()
            assert (found.mode, host.guard.pair()[0]) == ("safe", 900.0)
            found = await host.gpu()
            assert found.mode == "safe", "the other one cannot be taken back"
            assert "ppt1: not supported" in found.why
            host.guard.scenario.put(0, {"status.power_cap_info_1": None})
            await host.until("boost")
            assert {line.split()[0] for line in host.guard.scenario.lines(".sets")} == {"0"}

    run(case())
