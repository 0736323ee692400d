"""Every place at which a process may be cut is cut once: whatever was going on, the story ends the same."""

import re
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from fleetd.agent.chores import Chores
from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.controller.dispatcher import Dispatcher
from fleetd.core.invariants import SERVING
from fleetd.model.finding import FaultClass, Severity
from fleetd.model.order import FleetOrder, Quarantine, RunBurnin
from fleetd.sim.disk import SimOrders
from fleetd.sim.gpu import Trouble
from fleetd.sim.life import Fuse
from fleetd.sim.wire import Weather
from fleetd.world.outcome import Outcome
from fleetd.world.settings import Settings
from fleetd.world.world import World

SECONDS = 1800.0
DEFAULT = load_policy(policy_path("default"))
ROOM_FOR_ALL = replace(DEFAULT.budgets.quarantines, at_least=3)
POLICY = replace(DEFAULT, budgets=replace(DEFAULT.budgets, quarantines=ROOM_FOR_ALL))
WEATHER = Weather(notice_s=(0.0, 2.0))
ENDS = {"h01": True, "h02": False, "h03": True, "h04": False}
"""Host → whether it serves users at the end."""


def play(fuse: Fuse) -> Outcome:
    """A bad host, one held for a while, one that needs a second look, one that fails while automation is stopped."""
    world = World(Settings(policy=POLICY, hosts=4, gpus=2, weather=WEATHER, sample_seconds=30.0), fuse=fuse)
    world.at(0).plant("h02", 1, Trouble.WRONG)
    world.at(300).quarantine("h01", "smells burnt")
    world.at(500).report("h03", "nvidia.xid.74", gpu=0, fault_class=FaultClass.LINK, severity=Severity.ERROR)
    world.at(800).release("h01", "was toast")
    world.at(900).stop_automation("a network change")
    world.at(950).plant("h04", 0, Trouble.MEMORY)
    world.at(1100).resume_automation("the change is done")
    world.expect(Quarantine, host="h04").times(1)
    world.expect(Quarantine, host="h02", why="chip-persistent").times(1)
    world.expect(Quarantine, host="h01", why="smells burnt").times(1)
    world.expect(Quarantine, host="h03").never()
    outcome = world.run(seconds=SECONDS)
    assert {host.name: host.state in SERVING for host in outcome.hosts} == ENDS
    assert outcome.drained == {"h02", "h04"}
    return outcome


@pytest.fixture(name="places", scope="module")
def _places() -> list[str]:
    uncut = Fuse()
    play(uncut)
    return uncut.passed


def test_every_kind_of_boundary_of_both_sides_is_there(places: list[str]) -> None:
    kinds = {re.sub(r"^h\d+", "agent", re.sub(r" \S*[\d/]\S*", "", place)) for place in places}
    writes = {
        f"{who}: {form.format(what)}"
        for who, what in (
            *(("agent", what) for what in ("accept", "close", "spool", "acknowledge")),
            *(("controller", what) for what in ("commit", "finish")),
        )
        for form in ("before {}", "{} written, not synced", "after {}")
    }
    acts = {"agent: before burn-in", "agent: after burn-in", "agent: confirm"}
    acts |= {"controller: before carrying out", "controller: after carrying out"}
    acts |= {"controller: before looking at what stands"}
    assert kinds == writes | acts


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("part", range(8))
def test_a_cut_anywhere_changes_nothing_that_counts(part: int, power: bool, places: list[str]) -> None:
    for cut_at in range(part, len(places), 8):
        try:
            play(Fuse(cut_at, power=power))
        except BaseException as error:
            raise AssertionError(f"cut at {cut_at} ({places[cut_at]})") from error


async def _close_before_telling(self: Chores, order: RunBurnin) -> None:
    """The mistake: the order is closed before its finding is on disk."""
    finding = await self._burn(order)
    self._orders.close_order(order.id)
    self._spool.append(finding)


def _accept_in_memory(self: SimOrders, order: RunBurnin) -> bool:
    """The mistake: the order is confirmed and only remembered."""
    new = order.id not in self._known
    self._apply(order)
    return new


def _finish_before_doing(self: Dispatcher, order: FleetOrder) -> Coroutine[Any, Any, bool]:
    """The mistake: the order is marked as done before the scheduler has it."""

    async def attempt() -> bool:
        self._store.finish_order(order.id, "done")
        await self._actuator.carry_out(order)
        return True

    return attempt()


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (Chores, "_carry_out", _close_before_telling),
        (SimOrders, "accept", _accept_in_memory),
        (Dispatcher, "_attempt", _finish_before_doing),
    ],
    ids=["close before telling", "accept in memory", "finish before doing"],
)
def test_a_wrong_order_of_things_is_found_by_the_cuts(
    owner: type, name: str, mistake: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    uncut = Fuse()
    play(uncut)  # as long as nothing is cut, nobody sees it
    assert any(_fails(Fuse(cut_at)) for cut_at in reversed(range(len(uncut.passed))))  # sooner found from the end


def _fails(fuse: Fuse) -> bool:
    try:
        play(fuse)
    except AssertionError:
        return True
    return False
