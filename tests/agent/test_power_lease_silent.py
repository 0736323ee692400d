"""A GPU that no longer tells its limit may still draw what it was let: no lease that lapses makes that room free."""

import math
from dataclasses import replace

import pytest

from fleetd.agent.power_lease import OVER_S, PowerCap
from fleetd.controller import power
from fleetd.controller.power import PowerBudgets
from fleetd.controller.power_config import PowerTree
from fleetd.core.power.books import HostPower
from fleetd.core.power.lease import Lease
from fleetd.core.power.tree import Area
from fleetd.model.ids import HostName
from fleetd.model.power import GpuPower
from fleetd.model.power_lease import Ask, Grant, NoGrant
from tests.agent.power_hosts import BASE, GPUS, MOST, SAFE, SAFE_CAP
from tests.agent.test_power_lease import H0, Bench, HandClock

HELD = 699.0
"""What a grant of everything lets each GPU have."""


def lapsed(bench: Bench, how: str) -> Ask:
    """The first host's question after its lease lapsed, while the last of its GPUs is silent or gone since boost."""
    host = bench.hosts[0]
    bench.exchange(host)
    assert host.in_force == HELD

    def turn() -> None:
        cap: PowerCap
        shown: tuple[GpuPower, ...]
        cap, shown, want = host.begin_turn()
        last = (replace(shown[-1], set_watts={}, enforced_watts=None),) if how == "silent" else ()
        host.end_turn(cap, (*shown[:-1], *last), want)

    turn()
    bench.clock.now_s += 61.0
    turn()  # writes the safe caps
    turn()  # reads them back
    bench.clock.now_s += OVER_S + 0.1
    turn()
    ask = bench.ask(host)
    assert ask is not None
    return ask


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_a_gpu_that_is_silent_or_gone_since_boost_is_reckoned_with(how: str) -> None:
    bench = Bench(budget=SAFE + MOST)
    ask = lapsed(bench, how)
    most = BASE + (GPUS - 1) * SAFE_CAP + HELD
    assert ask.uncapped == f"its limits allow {most:g} W, its cap is {SAFE:g} W (G7 does not tell, last {HELD:g} W)"
    bench.budgets.ask(H0, ask)
    bench.exchange(bench.hosts[1])
    assert BASE + GPUS * bench.hosts[1].in_force + most <= SAFE + MOST
    # It answers again, at the safe cap.
    host = bench.hosts[0]
    host.turn()
    ask_again = bench.ask(host)
    assert ask_again is not None
    assert ask_again.uncapped == ""


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_a_lower_cap_is_not_told_while_a_gpu_may_still_be_above_it(how: str) -> None:
    bench = Bench(budget=2 * SAFE + 2400.0)
    host, other = bench.hosts
    bench.exchange(host)
    assert host.in_force == HELD
    bench.exchange(other)
    bench.clock.now_s += 20.0
    host.turn()
    ask = bench.ask(host)
    assert ask is not None
    lower = bench.budgets.ask(H0, ask)
    assert isinstance(lower, Grant)
    host.lease.answered(lower)
    for _ in range(3):
        cap, shown, want = host.begin_turn()
        last = (replace(shown[-1], set_watts={}, enforced_watts=None),) if how == "silent" else ()
        host.end_turn(cap, (*shown[:-1], *last), want)
    assert host.in_force < HELD, "the others have come down"
    told = host.lease._lease
    assert told is not None
    assert told.applied_seq < lower.seq


def test_names_that_nobody_knows_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "TOLD_MAX", 3)
    bench = Bench()
    bench.hosts[0].turn()
    ask = bench.ask(bench.hosts[0])
    assert ask is not None
    for n in range(10):
        answer = bench.budgets.ask(HostName(f"stranger-{n}"), ask)
        assert isinstance(answer, NoGrant)
        assert answer.why == f"stranger-{n} is not in the controller's power tree"
    assert len(bench.budgets._told) == 3


def test_a_safe_cap_that_is_the_trees_but_for_its_last_bit_is_the_trees() -> None:
    base_watts, safe_cap_watts, declared_watts = 1999.2, 784.2, 8272.8
    asked_watts = base_watts + GPUS * safe_cap_watts
    assert asked_watts > declared_watts, "by the last bit only"
    clock = HandClock()
    hosts = (HostPower(name="h0", area="rack", safe_watts=declared_watts, max_watts=9000.0),)
    tree = PowerTree(areas=(Area(name="rack", budget_watts=declared_watts),), hosts=hosts, ttl_s=60.0, grace_s=5.0)
    budgets = PowerBudgets(tree, clock=clock)
    lease = Lease(host="h0", epoch=1, safe_watts=asked_watts)
    answer = budgets.ask(H0, lease.ask(clock.elapsed_s(), 9000.0))
    assert isinstance(answer, Grant)
    assert lease.receive(clock.elapsed_s(), answer)
    more = Lease(host="h0", epoch=2, safe_watts=declared_watts + 0.01)
    assert isinstance(budgets.ask(H0, more.ask(clock.elapsed_s(), 9000.0)), NoGrant)


@pytest.mark.parametrize(("ttl_s", "taken"), [(120.0, True), (120.1, False), (1e18, False), (math.nan, False)])
def test_a_lease_for_longer_than_any_is_not_taken(ttl_s: float, taken: bool) -> None:
    lease = Lease(host="h0", epoch=1, safe_watts=SAFE)
    seq = lease.ask(0.0, MOST).seq
    assert lease.receive(1.0, Grant(host="h0", epoch=1, seq=seq, watts=MOST, ttl_s=ttl_s, max_watts=MOST)) is taken
