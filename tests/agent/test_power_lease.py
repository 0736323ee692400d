"""One host's lease: what is asked when, what is told to be in force, and what it must not claim."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from fleetd.agent.power_burner import GRANT_WAIT_S, GrantedBurner, needs_grant
from fleetd.agent.power_epoch import next_epoch
from fleetd.agent.power_lease import ALL_WATTS, OVER_S, STALE_S
from fleetd.controller.power import PowerBudgets
from fleetd.controller.power_config import GRACE_MAX_S, TTL_MAX_S, PowerTree
from fleetd.model.host import POWER_LEASES, Hello
from fleetd.model.ids import BootId, HostName, OrderId
from fleetd.model.order import RunBurnin
from fleetd.model.power_lease import Answer, Ask, Grant, NoGrant
from fleetd.ports import BurnerError
from tests.agent.power_hosts import GPUS, MOST, SAFE, SAFE_CAP, PowerHost, declared

H0, H1 = HostName("h0"), HostName("h1")
SETTLED_S = (TTL_MAX_S + GRACE_MAX_S) * 1.02


class HandClock:
    """Time moves when the test says so, and when somebody waits."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall_s(self) -> float:
        return self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


class Bench:
    """Hosts and a controller on one clock; nothing happens by itself."""

    def __init__(self, *, hosts: int = 2, budget: float = 2 * MOST, **wishes: object) -> None:
        self.clock = HandClock()
        self.tree = declared(hosts, budget=budget)
        self.budgets = self.controller(self.tree)
        self.hosts = [self.host(f"h{n}", **wishes) for n in range(hosts)]

    def controller(self, tree: PowerTree | None, *, settled: bool = True) -> PowerBudgets:
        budgets = PowerBudgets(tree, clock=self.clock)
        if settled:
            self.clock.now_s += SETTLED_S
        return budgets

    def host(self, name: str, **wishes: object) -> PowerHost:
        rng = random.Random(name)  # noqa: S311 - not used: turns take no time
        return PowerHost(HostName(name), self.clock, rng, **wishes)  # type: ignore[arg-type]

    def ask(self, host: PowerHost) -> Ask | None:
        return host.lease._ask()

    def exchange(self, host: PowerHost) -> Answer | None:
        """A turn, a question if one is due, its answer, and the turns that follow from it."""
        host.turn()
        ask = self.ask(host)
        answer = None if ask is None else self.budgets.ask(host.name, ask)
        if answer is not None:
            host.lease.answered(answer)
        host.turn()
        host.turn()
        return answer


def test_nothing_is_asked_before_the_governor_has_turned_nor_when_it_stops() -> None:
    bench = Bench()
    host = bench.hosts[0]
    assert bench.ask(host) is None
    host.turn()
    assert bench.ask(host) == Ask(
        host="h0", epoch=1, seq=1, demand_watts=MOST, applied_seq=0, holds_watts=SAFE, safe_watts=SAFE
    )
    bench.clock.now_s += STALE_S + 1.0
    assert bench.ask(host) is None
    assert host.lease.status().why == "the governor does not turn"


def test_a_grant_reaches_the_gpus_and_lapses_to_the_safe_cap_with_the_reason() -> None:
    bench = Bench()
    host = bench.hosts[0]
    grant = bench.exchange(host)
    assert isinstance(grant, Grant)
    assert (grant.watts, grant.whole, grant.why) == (MOST, True, "")
    assert (host.mode, host.in_force) == ("boost", 699.0), "a watt is kept back for firmware that rounds"
    assert (host.lease.status().left_s, host.lease.status().why) == (60.0, "")
    bench.clock.now_s += 60.0
    host.turn()
    assert (host.mode, host.in_force) == ("safe", SAFE_CAP)
    assert "no lease of the power budget: the controller has not answered" in host.why
    assert host.lease.lapses_total == 1


def test_a_lower_cap_is_told_by_a_turn_that_began_under_it_and_read_it_back() -> None:
    bench = Bench(budget=2 * SAFE + 2000.0)
    first, second = bench.hosts
    assert isinstance(bench.exchange(first), Grant)
    assert first.in_force > 600.0
    bench.exchange(second)
    bench.clock.now_s += 20.0
    first.turn()
    turn = first.begin_turn()  # a turn that may still raise, by the cap as it was
    bench.clock.now_s += 1.0
    ask = bench.ask(first)
    assert ask is not None
    lower = bench.budgets.ask(H0, ask)
    assert isinstance(lower, Grant)
    first.lease.answered(lower)
    assert lower.watts < ask.holds_watts
    first.end_turn(*turn)
    assert bench.ask(first) is None
    first.turn()  # reads the old limit, writes the new one
    assert bench.ask(first) is None, "it may only be told when it has been read back"
    first.turn()
    told = bench.ask(first)
    assert told is not None, "what it frees is waited for: it is told at once"
    assert told.applied_seq == lower.seq
    assert first.watts <= lower.watts


def test_a_raise_waits_for_the_confirmed_decrease() -> None:
    bench = Bench(budget=2 * SAFE + 2000.0)
    first, second = bench.hosts
    bench.exchange(first)
    for host in (second, first, second):
        bench.clock.now_s += 20.0
        bench.exchange(host)
        assert first.watts + second.watts <= 2 * SAFE + 2000.0
    bench.exchange(first)
    bench.clock.now_s += 20.0
    bench.exchange(second)
    assert first.watts == pytest.approx(second.watts, abs=GPUS)
    assert first.watts + second.watts > 2 * SAFE + 2000.0 - 2 * 2 * GPUS


def test_gpus_that_take_no_limit_are_reckoned_with_at_the_hosts_maximum() -> None:
    bench = Bench(budget=SAFE + MOST)
    first, second = bench.hosts
    bench.exchange(first)
    first.stuck = True
    bench.clock.now_s += 61.0  # the lease lapses, and its limits stay up
    first.turn()
    bench.clock.now_s += OVER_S + 0.1
    first.turn()
    ask = bench.ask(first)
    assert ask is not None
    assert ask.uncapped == f"its limits allow {first.watts:g} W, its cap is {SAFE:g} W"
    bench.budgets.ask(H0, ask)
    bench.exchange(second)
    assert second.in_force == SAFE_CAP, "there is room for one only"
    use = bench.budgets.use()
    assert use is not None
    assert [h.reserved_watts for h in use.hosts] == [MOST, SAFE]
    first.stuck = False
    for _ in range(3):
        bench.clock.now_s += 20.0
        bench.exchange(first)
    assert first.in_force == 549.0, "half of what there is"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"allowed": "observe"}, "its governor only observes (`power: mode`)"),
        ({"dark": True}, "a GPU does not tell its limit"),
    ],
)
def test_a_host_that_holds_no_cap_says_so_with_its_first_question(change: dict[str, object], why: str) -> None:
    bench = Bench(**change)
    host = bench.hosts[0]
    answer = bench.exchange(host)
    use = bench.budgets.use()
    assert use is not None
    assert (use.hosts[0].uncapped, use.hosts[0].reserved_watts) == (why, MOST)
    assert isinstance(answer, Grant)
    assert answer.whole, "it is reserved anyway, and fits"
    assert host.lease.status().why == why


def test_a_fresh_host_whose_limits_are_still_those_of_the_driver_is_uncapped_until_they_fell() -> None:
    bench = Bench()
    host = bench.hosts[0]
    host.in_force, host.stuck = 700.0, True
    host.turn()
    ask = bench.ask(host)
    assert ask is not None
    assert "its limits allow 6600 W" in ask.uncapped
    host.stuck = False
    host.turn()
    host.turn()
    ask = bench.ask(host)
    assert ask is not None, "news that changes the answer are told at once"
    assert ask.uncapped == ""


def test_gpus_that_come_later_are_not_paid_for() -> None:
    bench = Bench()
    host = bench.hosts[0]
    bench.exchange(host)
    cap, shown, _ = host.begin_turn()
    host.lease.turned(cap, (*shown, replace(shown[0], gpu="G8")))  # type: ignore[arg-type]
    ask = bench.ask(host)
    assert ask is not None
    assert ask.uncapped == "9 GPUs, and the lease was begun for 8: restart the agent"


def test_questions_come_every_third_of_a_lease_and_at_once_when_something_is_new() -> None:
    bench = Bench()
    host = bench.hosts[0]
    bench.exchange(host)
    host.turn()
    assert bench.ask(host) is None
    host.wish = 500.0
    host.turn()
    ask = bench.ask(host)
    assert ask is not None
    assert ask.demand_watts == 5000.0
    for late_s in (4.0, 4.0, 4.0, 4.0, 3.9):
        bench.clock.now_s += late_s
        host.turn()
        assert bench.ask(host) is None
    bench.clock.now_s += 0.2
    assert bench.ask(host) is not None


def test_who_gets_no_lease_and_why() -> None:
    bench = Bench()
    stranger = bench.host("h9")
    assert bench.exchange(stranger) == NoGrant(why="h9 is not in the controller's power tree", budgets=True)
    assert stranger.lease.status().why == "h9 is not in the controller's power tree"
    bench.clock.now_s += 20.0
    bench.budgets = bench.controller(None)
    none = bench.exchange(bench.hosts[0])
    assert isinstance(none, NoGrant)
    assert not none.budgets
    assert bench.budgets.use() is None


def test_a_safe_cap_above_what_the_tree_reserves_is_refused_and_reserved_at_the_maximum() -> None:
    bench = Bench()
    low = replace(bench.tree, hosts=tuple(replace(h, safe_watts=SAFE - 1.0) for h in bench.tree.hosts))
    bench.budgets = bench.controller(low)
    answer = bench.exchange(bench.hosts[0])
    assert isinstance(answer, NoGrant)
    assert "draws up to 4200 W, more than its safe_watts of 4199 W" in answer.why
    use = bench.budgets.use()
    assert use is not None
    assert use.hosts[0].reserved_watts == MOST


def test_an_agent_that_does_not_ask_holds_no_cap() -> None:
    bench = Bench()
    hello = Hello(host=H0, boot_id=BootId("b"), agent_version="0", capabilities=("burnin",), inventory=())
    bench.budgets.hello(hello)
    bench.budgets.hello(replace(hello, host=H1, capabilities=("burnin", POWER_LEASES)))
    use = bench.budgets.use()
    assert use is not None
    assert [h.reserved_watts for h in use.hosts] == [MOST, SAFE]
    assert "asks for no power lease" in use.hosts[0].uncapped
    bench.exchange(bench.hosts[0])  # it was upgraded
    use = bench.budgets.use()
    assert use is not None
    assert use.hosts[0].uncapped == ""


def test_a_controller_that_has_just_started_renews_and_raises_nobody() -> None:
    bench = Bench(budget=2 * SAFE + 2000.0)
    first, second = bench.hosts
    bench.exchange(first)
    held = first.in_force
    bench.budgets = bench.controller(bench.tree, settled=False)
    for _ in range(6):
        bench.clock.now_s += 20.0
        for host in (second, first):
            bench.exchange(host)
        assert (first.in_force, second.in_force) == (held, SAFE_CAP)
    assert "just started" in second.lease.status().why
    for _ in range(6):
        bench.clock.now_s += 20.0
        for host in (second, first):
            bench.exchange(host)
    assert second.in_force > SAFE_CAP


def test_an_earlier_start_of_the_agent_is_not_answered() -> None:
    bench = Bench()
    host = bench.hosts[0]
    host.turn()
    old = bench.ask(host)
    assert old is not None
    host.start()
    bench.exchange(host)
    answer = bench.budgets.ask(H0, old)
    assert isinstance(answer, NoGrant)
    assert "a later start" in answer.why


def test_the_number_of_a_start_grows_also_when_the_clock_goes_back_or_the_disk_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "epoch"
    first = next_epoch(path, wall_s=1000.0)
    assert next_epoch(path, wall_s=500.0) == first + 1
    path.write_text("no number")
    assert next_epoch(path, wall_s=1001.0) > first
    for damaged in (f"{1 << 70}", "-5", "9" * 5000):  # numbers that no message could carry
        path.write_text(damaged)
        assert next_epoch(path, wall_s=1002.0) == 1_002_000
    assert next_epoch(tmp_path / "none" / "epoch", wall_s=2.0) == 2000


# ── burn-ins ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Burner:
    """Takes down what was asked of the lease while it burned."""

    def __init__(self, host: PowerHost) -> None:
        self.host, self.demands = host, []  # type: ignore[var-annotated]

    async def burn(self, order: RunBurnin, report: Path) -> None:
        del order, report
        self.demands.append(self.host.lease.status().demand_watts)


def burnin(level: str, bench: Bench, *, not_after_s: float = 1e9) -> RunBurnin:
    return RunBurnin(
        id=OrderId("h0/1"),
        host=H0,
        issued_at_s=bench.clock.now_s,
        why="new",
        level=level,
        boot_id=BootId("b"),
        not_after_s=not_after_s,
    )


def burn(bench: Bench, level: str, **wishes: float) -> Burner:
    """Run one burn-in while the host asks and its governor turns."""
    host = bench.hosts[0]
    burner = Burner(host)
    granted = GrantedBurner(burner, host.lease, clock=bench.clock)

    async def story() -> None:
        task = asyncio.create_task(granted.burn(burnin(level, bench, **wishes), Path("report.json")))
        while not task.done():
            bench.exchange(host)
            await asyncio.sleep(0)
        await task

    asyncio.run(story())
    return burner


def test_which_levels_need_the_hosts_whole_power() -> None:
    levels = ("self", "smoke", "quick", "qualify", "burnin", "soak", "idle")
    assert [level for level in levels if needs_grant(level)] == ["qualify", "burnin", "soak", "idle"]


def test_a_burnin_begins_with_a_grant_of_everything_and_gives_it_back() -> None:
    bench = Bench(wish=450.0)
    assert burn(bench, "qualify").demands == [ALL_WATTS]
    bench.exchange(bench.hosts[0])
    assert bench.hosts[0].lease.status().demand_watts == SAFE + GPUS * 50.0


def test_without_room_it_is_not_begun_and_says_why() -> None:
    bench = Bench(budget=2 * SAFE + 2000.0)
    bench.exchange(bench.hosts[1])
    began_s = bench.clock.now_s
    with pytest.raises(BurnerError, match=r"qualify was not begun: no lease of all .* within 300 s: .* the budgets"):
        burn(bench, "qualify")
    assert bench.clock.now_s - began_s == pytest.approx(GRANT_WAIT_S, abs=5.0)


def test_an_order_that_runs_out_meanwhile_is_not_begun() -> None:
    bench = Bench()
    with pytest.raises(BurnerError, match="ran out while it waited for power"):
        burn(bench, "qualify", not_after_s=bench.clock.now_s - 1.0)


def test_small_levels_and_fleets_without_budgets_wait_for_nothing() -> None:
    bench = Bench(wish=450.0)
    assert burn(bench, "smoke").demands != [ALL_WATTS]
    bench.budgets = bench.controller(None)
    assert burn(bench, "qualify").demands == [ALL_WATTS]
