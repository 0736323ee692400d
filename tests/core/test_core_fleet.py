"""What a host owes to the others: budgets by area, storms, histories by serial and slot, ballots, silence."""

from dataclasses import replace

import pytest

from fleetd.core.fleet import FLEET
from fleetd.core.limits import Outliers, Returns, Share, Silence, Storm
from fleetd.core.policy import Action, Budget, Budgets, Policy, Proof, Repair
from fleetd.core.repair import advise
from fleetd.core.silence import is_partition
from fleetd.core.waiting import next_due_s
from fleetd.model.event import (
    AgentSilent,
    AutomationResumed,
    AutomationStopped,
    BudgetRearmed,
    FindingReceived,
    IncidentClosed,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    OutlierFound,
    Outvoted,
    TimePassed,
)
from fleetd.model.finding import FaultClass, Severity, Verdict
from fleetd.model.fleet import Area, IncidentKind
from fleetd.model.host import Lifecycle, Mark, Place
from fleetd.model.ids import FindingId, GpuId, HostName
from fleetd.model.order import Notify, Quarantine, RunBurnin
from tests.core.make_core import H1, POLICY, Driven, burnt, fault, hello

PERSISTENT, MEMORY = FaultClass.CHIP_PERSISTENT, FaultClass.MEMORY
WIDE = Budget(max_ratio=1.0, at_least=1, max_in_window=99, window_seconds=1000)
NARROW = Budget(max_ratio=0.5, at_least=1, max_in_window=99, window_seconds=1000)
ROOMY: Policy = replace(POLICY, budgets=Budgets(quarantines=WIDE))


def bad(host: str = "h1", n: int = 0, *, gpu: str = "G0", boot: str = "b1", key: str = "") -> FindingReceived:
    return burnt(Verdict.FAIL, (gpu, PERSISTENT), order=None, id=f"{host}/bad{n}", host=host, boot=boot, vote_key=key)


def state(d: Driven, host: str) -> Lifecycle:
    return d.replay.hosts[HostName(host)].state


def kinds(orders: tuple[object, ...]) -> list[type]:
    return [type(order) for order in orders]


# ── budgets by area ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "area", [Area.POOL, Area.RACK, Area.NVLINK_DOMAIN, Area.POWER_DOMAIN, Area.JOB], ids=lambda a: a.value
)
def test_an_area_has_its_own_budget_and_trips_alone(area: Area) -> None:
    budgets = Budgets(quarantines=WIDE, quarantines_by={area: NARROW})
    d = Driven(policy=replace(POLICY, budgets=budgets))
    d.others(2, held=1, **{area.value: "a"})
    d.send(hello(place=Place(**{area.value: "a"})))
    d.replay.play(0, hello("z", first=50, place=Place(**{area.value: "b"})))
    step = d.send(bad())
    assert (state(d, "h1"), kinds(step.orders)) == (Lifecycle.SUSPECT, [Notify])
    assert f"{area} `a` is used up: 1 of 3 hosts" in step.why
    assert [str(t.key) for t in d.fleet.record.tripped] == [f"{area} `a`"]
    d.replay.play(0, bad("z", gpu="G50"))
    assert state(d, "z") is Lifecycle.QUARANTINED


def test_the_sku_of_a_host_comes_from_its_inventory() -> None:
    d = Driven(policy=replace(POLICY, budgets=Budgets(quarantines=WIDE, quarantines_by={Area.SKU: NARROW})))
    d.others(1, held=1)
    d.send(hello())
    assert "sku `simulated` is used up" in d.send(bad()).why


def test_hosts_whose_place_is_not_known_are_nobodys_neighbours() -> None:
    none = Budget(max_ratio=0.0, at_least=0, max_in_window=0, window_seconds=1)
    d = Driven(policy=replace(POLICY, budgets=Budgets(quarantines=WIDE, quarantines_by={Area.RACK: none})))
    d.send(hello())
    d.send(bad())
    assert state(d, "h1") is Lifecycle.QUARANTINED


def test_a_host_that_moves_to_another_rack_counts_there() -> None:
    d = Driven()
    d.send(hello(place=Place(rack="r1")))
    d.send(hello(boot="b2", place=Place(rack="r2")))
    counts = {str(key): count.hosts for key, count in d.fleet.snapshot()["counts"].items()}  # type: ignore[attr-defined]
    assert counts == {"fleet": 1, "rack `r2`": 1, "sku `simulated`": 1}


def test_releases_pass_a_tripped_budget() -> None:
    d = Driven().healthy().others(1, held=1)
    d.send(bad())
    assert d.fleet.record.tripped
    d.replay.play(0, OperatorReleased(host=HostName("o0"), who="ann", reason="cured", override=False))
    assert state(d, "o0") is Lifecycle.HEALTHY
    assert d.fleet.record.tripped  # room alone re-arms nothing
    assert kinds(d.send(bad(n=1)).orders) == []


def test_after_rearming_the_current_state_is_judged_and_not_the_backlog() -> None:
    d = Driven().healthy().others(3, held=2)
    d.send(bad())
    d.replay.play(0, bad("o2", gpu="G104"))
    for held in ("o0", "o1"):
        d.replay.play(0, OperatorReleased(host=HostName(held), who="ann", reason="cured", override=False))
    # o2 has rebooted and proven itself since: what was withheld from it is history.
    (hi,) = d.replay.play(0, hello("o2", "b2", first=104))
    pending = hi.step.state.pending  # type: ignore[union-attr]
    assert pending is not None
    d.replay.play(0, burnt(Verdict.PASS, order=pending.order_id, id="o2/p", host="o2", boot="b2"))
    taken = d.tell(BudgetRearmed(who="ann", reason="looked"))
    assert [(t.event.host, kinds(t.step.orders)) for t in taken[1:]] == [("h1", [Quarantine])]  # type: ignore[union-attr]
    assert (state(d, "h1"), state(d, "o2")) == (Lifecycle.QUARANTINED, Lifecycle.HEALTHY)
    assert d.known.holds[0].evidence == ("h1/bad0",)


def test_a_charged_suspect_must_prove_what_its_class_asks_for() -> None:
    policy = replace(POLICY, proofs={**POLICY.proofs, PERSISTENT: "qualify", MEMORY: "manual"})
    d = Driven(policy=policy).healthy().others(1, held=1)
    d.send(bad())
    (order,) = d.send(hello(boot="b2")).orders
    assert isinstance(order, RunBurnin)
    assert order.level == "qualify"
    d.send(burnt(Verdict.PASS, order=order.id, id="p", boot="b2", level="qualify"))
    assert (state(d, "h1"), d.known.charges) == (Lifecycle.HEALTHY, ())
    d.send(burnt(Verdict.FAIL, ("G0", MEMORY), order=None, id="m", boot="b2"))
    d.send(hello(boot="b3"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p3", boot="b3"))
    assert state(d, "h1") is Lifecycle.SUSPECT  # an operator decides about memory
    assert "it is charged" in d.send(OperatorReleased(host=H1, who="a", reason="r", override=False)).why


def test_burnins_on_hosts_that_serve_have_a_budget_and_wait_in_it() -> None:
    budgets = Budgets(quarantines=WIDE, burnins=Share(max_ratio=0.0, at_least=1))
    d = Driven(policy=replace(POLICY, budgets=budgets)).healthy().others(2)
    d.replay.play(0, fault(MEMORY, Severity.ERROR, id="x", host="o0", gpu="G100"))
    step = d.send(fault(MEMORY, Severity.ERROR, id="y"))
    assert (step.orders, d.known.due is not None) == ((), True)
    assert next_due_s(d.known, d.policy) == 60
    d.send(TimePassed(host=H1), at_s=60)
    assert next_due_s(d.known, d.policy) == 180  # each wait is twice as long as the last
    pending = d.replay.hosts[HostName("o0")].pending
    assert pending is not None
    d.replay.play(60, burnt(Verdict.PASS, order=pending.order_id, id="o0/p", host="o0"))
    assert kinds(d.send(TimePassed(host=H1), at_s=180).orders) == [RunBurnin]
    assert d.fleet.count(FLEET).tested == 1
    d.replay.play(180, hello("o1", "b2", first=102))  # a reboot has disturbed the users already: no budget
    assert d.replay.hosts[HostName("o1")].pending is not None


# ── the kill switch ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_kill_switch_stops_everything_automatic_at_once_and_nothing_else() -> None:
    d = Driven(policy=ROOMY).healthy().others(1)
    d.tell(AutomationStopped(who="ann", reason="roll-out"))
    step = d.send(bad())
    assert (state(d, "h1"), kinds(tuple(w.order for w in step.withheld))) == (Lifecycle.SUSPECT, [Quarantine])
    step = d.send(hello(boot="b2"))
    assert (step.orders, d.known.due is not None) == ((), True)
    assert kinds(d.send(OperatorBurnin(host=H1, who="ann", reason="r", level=None)).orders) == [RunBurnin]
    assert d.tell(AutomationStopped(who="bob", reason="too"))[0].step.refused
    assert not d.tell(AutomationResumed(who="ann", reason="done"))[0].step.refused
    assert state(d, "h1") is Lifecycle.QUARANTINED  # judged as it is: still charged


def test_rearming_a_budget_does_not_override_the_kill_switch() -> None:
    d = Driven().healthy().others(3, held=2)
    d.send(bad())
    d.replay.play(0, OperatorReleased(host=HostName("o0"), who="ann", reason="cured", override=False))
    d.tell(AutomationStopped(who="ann", reason="roll-out"))
    d.tell(BudgetRearmed(who="ann", reason="looked"))
    assert state(d, "h1") is Lifecycle.SUSPECT
    d.tell(AutomationResumed(who="ann", reason="done"))
    assert state(d, "h1") is Lifecycle.QUARANTINED


# ── storms ──────────────────────────────────────────────────────────────────────────────────────────────────────────

STORMY: Policy = replace(ROOMY, storm=Storm(hosts_at_least=3, within_seconds=100))


@pytest.mark.parametrize("kernels", [True, False])
def test_the_same_fault_on_many_hosts_is_one_incident(kernels: bool) -> None:
    d = Driven(policy=STORMY).others(6)

    def hit(n: int, at_s: float) -> list[type]:
        gpu = f"G{100 + 2 * n}"
        event = bad(f"o{n}", gpu=gpu, key="k")
        if not kernels:
            event = fault(MEMORY, Severity.FATAL, id=f"o{n}/x", host=f"o{n}", gpu=gpu)
        return kinds(d.replay.play(at_s, event)[0].step.orders)

    assert [hit(n, 10.0 * n) for n in range(5)] == [[Quarantine], [Quarantine], [Notify], [], []]
    (incident,) = d.fleet.record.incidents
    assert (incident.kind, incident.hosts_total) == (IncidentKind.STORM, 5)
    assert [state(d, f"o{n}") for n in range(2, 5)] == [Lifecycle.SUSPECT] * 3
    # A day later it is still the same incident: only a human closes it.
    assert hit(5, 86_400.0) == [Notify]


def test_hosts_of_an_incident_are_acquitted_or_judged_as_they_are() -> None:
    for acquit, after in ((True, Lifecycle.SUSPECT), (False, Lifecycle.QUARANTINED)):
        d = Driven(policy=STORMY).others(3)
        for n in range(3):
            d.replay.play(0, bad(f"o{n}", gpu=f"G{100 + 2 * n}", key="k"))
        (incident,) = d.fleet.record.incidents
        taken = d.tell(IncidentClosed(incident=incident.id, who="ann", reason="driver", acquit=acquit))
        assert (state(d, "o2"), len(taken)) == (after, 2)
        assert kinds(taken[1].step.orders) == ([RunBurnin] if acquit else [Quarantine])
        assert len(d.replay.hosts[HostName("o2")].marks) == (0 if acquit else 1)  # an acquittal leaves no history
        # What happened before it was closed does not open the next one.
        d.replay.play(0, bad("o2", 9, gpu="G104", key="k"))
        assert d.fleet.record.incidents == ()


def test_old_faults_and_repeats_of_one_host_make_no_storm() -> None:
    d = Driven(policy=STORMY).others(3)
    for n, at_s in enumerate((0.0, 60.0, 120.0)):
        d.replay.play(at_s, bad(f"o{n}", gpu=f"G{100 + 2 * n}", key="k"))
    assert d.fleet.record.incidents == ()
    assert [state(d, f"o{n}") for n in range(3)] == [Lifecycle.QUARANTINED] * 3


# ── histories ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_hold_of_a_gpu_follows_its_serial_to_another_host() -> None:
    d = Driven(policy=replace(ROOMY, proofs={**POLICY.proofs, PERSISTENT: "qualify"}))
    d.send(hello())
    d.send(bad())
    d.replay.play(0, hello("h2", first=50))
    h2 = d.replay.hosts[HostName("h2")]
    assert h2.pending is not None
    d.replay.play(0, burnt(Verdict.PASS, order=h2.pending.order_id, id="h2/p", host="h2"))
    (moved,) = d.replay.play(0, hello("h2", gpus=2, first=0))
    assert kinds(moved.step.orders) == [Notify, Notify, RunBurnin]  # claimed twice; two GPUs are gone
    assert moved.step.orders[2].level == "qualify"  # type: ignore[union-attr]
    assert "comes with an open hold" in moved.step.why
    assert state(d, "h2") is Lifecycle.QUALIFYING


def test_strikes_follow_the_serial() -> None:
    d = Driven(policy=ROOMY)
    transient = FaultClass.CHIP_TRANSIENT
    d.send(hello())
    d.send(burnt(Verdict.FAIL, ("G0", transient), order=None, id="f1", at_s=10))
    d.replay.play(0, hello("h2"))
    d.replay.play(0, burnt(Verdict.FAIL, ("G0", transient), order=None, id="f2", at_s=20, host="h2"))
    assert state(d, "h2") is Lifecycle.QUARANTINED


def mark(gpu: str | None, at_s: float, slot: str = "#0") -> Mark:
    serial = None if gpu is None else GpuId(gpu)
    return Mark(gpu=serial, slot=slot, finding=FindingId(f"{gpu}{at_s}"), fault_class=PERSISTENT, at_s=at_s)


@pytest.mark.parametrize(
    ("of_gpu", "of_host", "action", "words"),
    [
        ([mark("G", 90)], [mark("G", 90)], Action.RESET_GPU, "condemnation 1"),
        ([mark("G", 80), mark("G", 90)], [mark("G", 90)], Action.REBOOT, "condemnation 2"),
        ([mark("G", 1), mark("G", 90)], [mark("G", 90)], Action.RESET_GPU, "condemnation 1"),
        ([mark("G", 70), mark("G", 80), mark("G", 90)], [mark("G", 90)], Action.REPLACE, "used up"),
        ([mark("G", 90)], [mark("F", 80), mark("G", 90)], Action.REPLACE, "suspect the slot"),
        ([mark("G", 90)], [mark("F", 80, "#1"), mark("G", 90)], Action.RESET_GPU, "condemnation 1"),
        ([mark("G", 90)], [mark(f"F{n}", 80 + n, f"#{n + 1}") for n in range(6)] + [mark("G", 90)],
         Action.REPLACE, "suspect the host"),
    ],
)  # fmt: skip
def test_what_is_tried_next(of_gpu: list[Mark], of_host: list[Mark], action: Action, words: str) -> None:
    repair = Repair(resets=1, reboots=1, window_seconds=50, host_at_most=6)
    advice = advise(repair, now_s=100, gpu=GpuId("G"), slot="#0", of_gpu=of_gpu, of_host=of_host)
    assert (advice.action, words in advice.why) == (action, True)
    host = advise(repair, now_s=100, gpu=None, slot=None, of_gpu=(), of_host=[mark(None, 90)])
    assert host.action is Action.REBOOT


def test_attempts_are_used_up_over_hosts_and_then_no_proof_brings_it_back_by_itself() -> None:
    policy = replace(ROOMY, returns=Returns.AUTOMATIC)
    d = Driven(policy=policy)
    d.send(hello())
    for n, expected in enumerate(("reset_gpu", "reboot", "replace"), start=1):
        step = d.send(bad(n=n, boot=f"b{n}"))
        assert f"recommended: {expected}" in step.why
        d.send(hello(boot=f"b{n + 1}"))
        d.send(burnt(Verdict.PASS, order=d.pending, id=f"p{n}", boot=f"b{n + 1}"))
        assert d.known.state is (Lifecycle.HEALTHY if expected != "replace" else Lifecycle.QUARANTINED)
    assert kinds(step.orders) == [Quarantine, Notify]
    assert "an operator may release the host (condemnation 3" in d.known.why


# ── ballots across hosts ────────────────────────────────────────────────────────────────────────────────────────────


def run(d: Driven, host: str, fingerprint: str, n: int) -> tuple[object, ...]:
    """A burn-in of a host passes with this fingerprint; returns what follows from it."""
    d.replay.play(0, OperatorBurnin(host=HostName(host), who="a", reason="r", level=None))
    pending = d.replay.hosts[HostName(host)].pending
    assert pending is not None
    event = burnt(Verdict.PASS, order=pending.order_id, id=f"{host}/b{n}", host=host, ballots=(("k", fingerprint),))
    return d.replay.play(0, event)


def test_a_host_that_agrees_with_itself_and_not_with_the_fleet_is_found() -> None:
    d = Driven().others(5)
    for n in range(3):
        run(d, f"o{n}", "right", 0)
    taken = run(d, "o3", "wrong", 0)
    assert (len(taken), state(d, "o3")) == (1, Lifecycle.SUSPECT)
    assert d.replay.hosts[HostName("o3")].proof is None
    run(d, "o3", "right", 1)
    assert state(d, "o3") is Lifecycle.HEALTHY


def test_a_host_that_voted_first_is_found_when_the_fleet_overrules_it() -> None:
    d = Driven().others(5)
    run(d, "o4", "wrong", 0)
    run(d, "o0", "right", 0)
    run(d, "o1", "right", 0)
    assert state(d, "o4") is Lifecycle.HEALTHY  # two of three are no majority of three hosts
    run(d, "o2", "right", 0)
    assert state(d, "o4") is Lifecycle.SUSPECT
    assert "3 of 4 hosts agree" in d.replay.hosts[HostName("o4")].why
    assert len(run(d, "o3", "right", 0)) == 1  # it is not outvoted a second time


# ── outliers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_outlier_must_show_that_it_computes_right() -> None:
    d = Driven(policy=replace(POLICY, outliers=None)).healthy()
    found = OutlierFound(
        host=H1, gpu=GpuId("G0"), index=0, metric="sm_clock_hertz", value=1e9, median=1.5e9, z=-9, siblings=31
    )
    assert d.send(found).orders == ()  # nobody asked for it
    d.policy = replace(POLICY, outliers=Outliers())
    step = d.send(found)
    assert (state(d, "h1"), kinds(step.orders)) == (Lifecycle.SUSPECT, [RunBurnin])
    d.send(burnt(Verdict.PASS, order=d.pending, id="p2"))
    assert state(d, "h1") is Lifecycle.HEALTHY


# ── silence ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("away", "known", "partition"), [(1, 1, False), (3, 15, True), (3, 16, False), (2, 2, False)])
def test_how_many_are_a_partition(away: int, known: int, partition: bool) -> None:
    assert is_partition(Silence(), away=away, known=known) == partition


def silence(host: str = "h1", away: int = 1) -> AgentSilent:
    return AgentSilent(host=HostName(host), since_s=0, away=away, known=10)


def test_a_lost_host_is_no_healthy_host_and_a_returning_one_is_again_what_it_was() -> None:
    d = Driven().healthy()
    step = d.send(silence(), at_s=300)
    assert (state(d, "h1"), kinds(step.orders)) == (Lifecycle.SUSPECT, [Notify])
    assert d.send(silence(), at_s=600).state is d.host
    step = d.send(hello(), at_s=700)
    assert (state(d, "h1"), step.orders) == (Lifecycle.HEALTHY, ())
    d.send(silence(), at_s=1000)
    (order,) = d.send(hello(boot="b2")).orders
    assert isinstance(order, RunBurnin)


def test_what_is_decided_while_the_agent_is_away_stands_when_it_is_back() -> None:
    d = Driven().healthy()
    d.send(silence(), at_s=300)
    d.send(Outvoted(host=H1, key="k", why="three others"))
    d.send(hello(), at_s=400)
    assert (state(d, "h1"), d.known.silent) == (Lifecycle.SUSPECT, None)


def test_a_dead_host_that_is_given_back_to_its_users_is_told_to_be_lost() -> None:
    d = Driven().healthy()
    d.send(OperatorQuarantined(host=H1, who="ann", reason="fan", expires_at_s=1000.0))
    assert d.send(silence(), at_s=300).orders == ()  # ann may have switched it off
    d.send(TimePassed(host=H1, connected=False), at_s=1001)
    assert state(d, "h1") is Lifecycle.HEALTHY
    step = d.send(silence(), at_s=1100)
    assert (state(d, "h1"), kinds(step.orders)) == (Lifecycle.SUSPECT, [Notify])
    assert d.send(silence(), at_s=1400).state is d.host
    d.send(hello(), at_s=1500)
    assert state(d, "h1") is Lifecycle.HEALTHY


def test_many_silent_agents_at_once_are_a_partition_and_nobody_is_blamed() -> None:
    d = Driven().others(4)
    orders = [d.replay.play(300, silence(f"o{n}", away=4))[0].step.orders for n in range(4)]
    assert [kinds(o) for o in orders] == [[Notify], [], [], []]
    assert [state(d, f"o{n}") for n in range(4)] == [Lifecycle.HEALTHY] * 4
    (incident,) = d.fleet.record.incidents
    assert (incident.kind, incident.hosts_total) == (IncidentKind.PARTITION, 4)
    d.tell(IncidentClosed(incident=incident.id, who="fleetd", reason="back", acquit=True))
    d.replay.play(900, silence("o3", away=1))  # the one that stays away is lost
    assert state(d, "o3") is Lifecycle.SUSPECT


# ── proofs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_proof_may_be_asked_for_after_a_reboot() -> None:
    d = Driven(policy=replace(ROOMY, proofs={PERSISTENT: Proof(level="smoke", after_reboot=True)}))
    d.send(hello())
    assert "after a reboot" in d.send(bad()).why
    d.send(OperatorBurnin(host=H1, who="a", reason="r", level=None))
    step = d.send(burnt(Verdict.PASS, order=d.pending, id="p1"))
    assert "must come after a reboot" in step.why
    assert d.send(OperatorReleased(host=H1, who="a", reason="r", override=False)).refused
    d.send(hello(boot="b2"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p2", boot="b2"))
    assert not d.send(OperatorReleased(host=H1, who="a", reason="r", override=False)).refused
