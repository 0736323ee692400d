"""Many hosts, their leases and a controller on virtual time, over a line that loses, delays and reorders.

Judged is what the GPUs are really held to, and never what anybody's books say.
"""

import asyncio
import random
from typing import Any

import pytest

from fleetd.controller.power import PowerBudgets
from fleetd.controller.power_config import PowerTree
from fleetd.model.ids import HostName
from fleetd.model.power_lease import Ask, Grant
from fleetd.sim.clock import SimClock
from fleetd.sim.loop import run
from tests.agent.power_hosts import MOST, SAFE, PowerHost, declared

HOSTS, BUDGET = 6, 30_000.0


class Fleet:
    """Six hosts in two racks, which want now much, now little; agents and controller are killed again and again."""

    def __init__(self, seed: int, tree: PowerTree) -> None:
        self.rng, self.clock, self.tree = random.Random(seed), SimClock(), tree  # noqa: S311 - weather
        self.hosts = [PowerHost(HostName(f"h{n}"), self.clock, self.rng, write_s=1.8) for n in range(HOSTS)]
        self.budgets: PowerBudgets | None = PowerBudgets(tree, clock=self.clock)
        self.started_s = 0.0
        self.worst = 0.0
        self.raised = self.lowered = self.crashes = self.restarts = 0
        self.stray: list[dict[str, Any]] = []

    async def play(self, seconds: float) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: self.stray.append(context))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in (self._audit(), self._controller())]
            tasks += [group.create_task(self._host(host)) for host in self.hosts]
            await self.clock.sleep_s(seconds)
            for task in tasks:
                task.cancel()
        assert self.stray == []

    async def _audit(self) -> None:
        while True:
            for area in self.tree.areas:
                inside = {h.name for h in self.tree.hosts if area.parent is None or h.area == area.name}
                drawn = sum(host.watts for host in self.hosts if host.name in inside)
                self.worst = max(self.worst, drawn / area.budget_watts)
                assert drawn <= area.budget_watts + 1e-6, f"{area.name} at {self.clock.elapsed_s():.3f} s: {drawn} W"
            await self.clock.sleep_s(0.1)

    async def _controller(self) -> None:
        while True:
            await self.clock.sleep_s(self.rng.expovariate(1 / 300))
            self.budgets, self.crashes = None, self.crashes + 1
            await self.clock.sleep_s(self.rng.expovariate(1 / 10))
            self.budgets, self.started_s = PowerBudgets(self.tree, clock=self.clock), self.clock.elapsed_s()

    async def _host(self, host: PowerHost) -> None:
        while True:
            loops = [asyncio.create_task(loop) for loop in (host.govern(), self._ask(host), self._wish(host))]
            try:
                await self.clock.sleep_s(self.rng.expovariate(1 / 400))
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)
            await self.clock.sleep_s(self.rng.uniform(0.0, 2.0))  # the power guard's patience
            host.start()
            self.restarts += 1
            await self.clock.sleep_s(self.rng.uniform(0.0, 5.0))

    async def _wish(self, host: PowerHost) -> None:
        while True:
            host.wish = self.rng.choice((450.0, 700.0))
            await self.clock.sleep_s(self.rng.expovariate(1 / 60))

    async def _ask(self, host: PowerHost) -> None:
        while True:
            self._send(self._at_controller, host, await host.lease.next_ask())

    def _send(self, arrive: object, host: PowerHost, message: object) -> None:
        """A message is lost, is doubled, is late by more than a lease's life, or comes soon."""
        for _ in range(self.rng.choices((0, 1, 2), (0.1, 0.8, 0.1))[0]):
            late_s = self.rng.uniform(0.0, 150.0) if self.rng.random() < 0.1 else self.rng.expovariate(10.0)
            asyncio.get_running_loop().call_later(late_s, arrive, host, message)  # type: ignore[arg-type]

    def _at_controller(self, host: PowerHost, ask: Ask) -> None:
        if self.budgets is None:
            return
        answer = self.budgets.ask(host.name, ask)
        if not isinstance(answer, Grant):
            return
        if self.started_s and self.clock.elapsed_s() - self.started_s < self.tree.ttl_s:
            assert answer.watts <= max(ask.holds_watts, SAFE), "raised by a controller that has just started"
        self.raised += answer.watts > ask.holds_watts
        self.lowered += answer.watts < ask.holds_watts
        self._send(lambda h, a: h.lease.answered(a), host, answer)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_in_force_never_adds_up_to_more_than_a_budget(seed: int) -> None:
    async def story() -> Fleet:
        fleet = Fleet(seed, declared(HOSTS, budget=BUDGET, racks=2))
        await fleet.play(4000.0)
        return fleet

    fleet = run(story())
    # It is no feat to keep a budget that nobody is given, nor with nobody ever lowered or killed.
    assert fleet.worst > 0.95
    assert min(fleet.raised, fleet.lowered) > 30
    assert min(fleet.crashes, fleet.restarts) > 0


def test_with_enough_for_all_everybody_gets_all() -> None:
    async def story() -> list[float]:
        fleet = Fleet(1, declared(HOSTS, budget=2.0 * HOSTS * MOST))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(host.govern()) for host in fleet.hosts]
            tasks += [group.create_task(fleet._ask(host)) for host in fleet.hosts]
            await fleet.clock.sleep_s(400.0)
            for task in tasks:
                task.cancel()
        return [host.in_force for host in fleet.hosts]

    # Of each share a watt is kept back, for firmware that rounds.
    assert run(story()) == [699.0] * HOSTS
