"""The governor when a GPU comes late, stops answering, or must be left alone while it is raised."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.powerguard.governor_bench import SUSTAINED, Governed, governed, run, tuned
from tests.powerguard.guard_bench import PRIOR, SAFE
from tests.powerguard.test_governor_sensors import Host, silent

gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library")


async def limits(host: Governed, *watts: float) -> None:
    async with asyncio.timeout(30):
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
