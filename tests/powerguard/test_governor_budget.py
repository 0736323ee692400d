"""A lease of the fleet's power budgets, down to the limits of a C library: cap, lapse, what is told of it."""

import asyncio
import shutil
from pathlib import Path

import pytest

from fleetd.agent.power_lease import PowerLease
from fleetd.exporter.power import PowerCollector
from fleetd.model.ids import HostName
from fleetd.model.power_lease import Ask, Grant
from fleetd.system import RealClock
from tests.powerguard.governor_bench import SUSTAINED, Governed, governed, run, tuned
from tests.powerguard.guard_bench import SAFE, WAIT_S

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library")

BASE = 1500.0
HELD = BASE + 2 * SAFE


def lease(allowed: str = "boost") -> PowerLease:
    return PowerLease(
        host=HostName("h01"), epoch=1, base_watts=BASE, safe_cap_watts=SAFE, allowed=allowed, clock=RealClock()
    )


def grant(held: PowerLease, watts: float, *, ttl_s: float = 60.0) -> Ask:
    """The next question, at once, and what it is answered."""
    held._due_s = 0.0
    ask = held._ask()
    assert ask is not None
    held.answered(Grant(host="h01", epoch=1, seq=ask.seq, watts=watts, ttl_s=ttl_s, max_watts=3000.0))
    return ask


async def limits(host: Governed, watts: float) -> None:
    async with asyncio.timeout(WAIT_S):
        while host.guard.limits() != pytest.approx([watts, watts], abs=0.1):
            await host.governor.turn()
        await host.governor.turn()  # which reads back what the last one wrote


def test_the_governor_boosts_as_far_as_the_lease_lets_it_and_falls_when_it_lapses(tmp_path: Path) -> None:
    async def case() -> None:
        held = lease()
        async with governed(tmp_path, set_point=tuned(tmp_path / "point.json"), budget=held) as host:
            await host.until("safe", "no lease of the power budget: it has not been asked for yet")
            await limits(host, SAFE)
            first = grant(held, BASE + 2 * 651.0)
            assert (first.demand_watts, first.uncapped) == (pytest.approx(BASE + 2 * SUSTAINED), "")
            await host.until("boost")
            await limits(host, 650.0)
            # Lower: told when it has been read back, not before.
            grant(held, BASE + 2 * 641.0)
            await host.governor.turn()
            await limits(host, 640.0)
            await host.governor.turn()
            ask = grant(held, BASE + 2 * 700.0)
            assert (ask.applied_seq, ask.holds_watts) == (2, BASE + 2 * 641.0)
            await limits(host, SUSTAINED)
            grant(held, BASE + 2 * 700.0, ttl_s=0.2)
            found = await host.until("safe", "no lease of the power budget: the controller has not answered")
            await limits(host, SAFE)
            assert found.writer == ""
            status = host.governor.status().budget
            assert status is not None
            assert (status.lapses_total, status.gpu_watts, status.in_force_watts) == (1, None, pytest.approx(HELD))
            shown = {s.name: s.value for f in PowerCollector(host.governor.status).collect() for s in f.samples}
            assert shown["fleetd_power_budget_lease_live"] == 0.0
            assert shown["fleetd_power_budget_cap_watts"] == HELD

    run(case())


def test_a_gpu_that_cannot_be_written_makes_the_host_uncapped(tmp_path: Path) -> None:
    async def case() -> None:
        held = lease("safe")
        async with governed(tmp_path, mode="safe", budget=held) as host:
            host.guard.scenario.put(1, {"error.SetPowerManagementLimit": 4})
            await host.governor.turn()
            await host.governor.turn()
            ask = held._ask()
            assert ask is not None
            assert ask.uncapped == f"its limits allow {BASE + SAFE + 700.0:g} W, its cap is {HELD:g} W"
            host.guard.scenario.put(1, {"error.SetPowerManagementLimit": None})
            await limits(host, SAFE)
            await host.governor.turn()
            ask = held._ask()
            assert ask is not None
            assert ask.uncapped == ""

    run(case())


def test_a_host_that_only_observes_says_that_it_holds_no_cap(tmp_path: Path) -> None:
    async def case() -> None:
        held = lease("observe")
        async with governed(tmp_path, mode="observe", budget=held) as host:
            await host.governor.turn()
            ask = held._ask()
            assert ask is not None
            assert ask.uncapped == "its governor only observes (`power: mode`)"
            assert host.guard.sets() == []

    run(case())
