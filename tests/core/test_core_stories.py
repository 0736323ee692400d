"""What others lived through, decided through the machine: stories S16, S21, S23 and S24, and a budget of nothing."""

from dataclasses import replace

import pytest

from fleetd.config import load_policy
from fleetd.config.faults import load_catalogue
from fleetd.config.shipped import policy_path
from fleetd.core.faults.live import LiveScan
from fleetd.core.fleet import Fleet
from fleetd.core.intent import void_since
from fleetd.core.limits import Jobs, Storm
from fleetd.core.policy import Budget, Budgets, Policy
from fleetd.core.step import Step
from fleetd.model.event import (
    BudgetRearmed,
    FindingReceived,
    JobEnded,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepairs,
    TimePassed,
)
from fleetd.model.finding import FaultClass, Severity, Verdict
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.journal import JournalEntry, StoreImage
from fleetd.model.order import Notify, Order, Quarantine, Release, RunBurnin
from tests.core.make_core import H1, POLICY, Driven, burnt, fault, hello, with_rules

PERSISTENT, MEMORY = FaultClass.CHIP_PERSISTENT, FaultClass.MEMORY
WIDE = Budget(max_ratio=1.0, at_least=1, max_in_window=99, window_seconds=1000)
DEFAULT = load_policy(policy_path("default"))


def kinds(orders: tuple[object, ...]) -> list[type]:
    return [type(order) for order in orders]


def only(step: Step[Host], kind: type) -> Order:
    (order,) = [order for order in step.orders if isinstance(order, kind)]
    return order


def released(*, override: bool = True) -> OperatorReleased:
    return OperatorReleased(host=H1, who="ann", reason="looked at it", override=override)


# ── S16: cancelled, and done all the same ───────────────────────────────────────────────────────────────────────────


def test_s16_a_quarantine_that_was_taken_back_is_void_when_its_turn_comes() -> None:
    d = Driven().healthy()
    quarantine = only(d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f")), Quarantine)
    assert void_since(quarantine, d.host) is None
    release = only(d.send(released()), Release)
    assert "cancelled" in (void_since(quarantine, d.host) or "")
    assert void_since(release, d.host) is None
    d.send(OperatorQuarantined(host=H1, who="bob", reason="fan"))
    assert "held again (operator:bob)" in (void_since(release, d.host) or "")
    assert "cancelled" in (void_since(quarantine, None) or "")


def test_s16_no_later_stage_follows_a_cancelled_one() -> None:
    """A repair begins while a burn-in is on its way: the burn-in must not start under somebody's hands."""
    d = Driven().healthy()
    first = only(d.send(OperatorBurnin(host=H1, who="ann", reason="sure?", level=None)), RunBurnin)
    assert void_since(first, d.host) is None
    d.send(OperatorRepairs(host=H1, who="bob", reason="new cable"))
    assert "nothing is run on it" in (void_since(first, d.host) or "")
    second = only(d.send(OperatorBurnin(host=H1, who="bob", reason="repaired", level=None)), RunBurnin)
    assert "nobody waits" in (void_since(first, d.host) or "")
    assert void_since(second, d.host) is None
    d.send(hello(boot="b2"))
    assert "rebooted" in (void_since(second, d.host) or "")


def test_s16_word_to_a_human_is_never_void() -> None:
    d = Driven(policy=with_rules()).healthy()
    notify = only(d.send(fault(FaultClass.CONFIGURATION, Severity.ERROR, id="x")), Notify)
    d.send(OperatorQuarantined(host=H1, who="bob", reason="fan"))
    assert void_since(notify, d.host) is None


# ── S21: the black hole ─────────────────────────────────────────────────────────────────────────────────────────────


def job(name: str, host: str = "h1", *, ok: bool = False, ran_s: float = 3.0) -> JobEnded:
    return JobEnded(host=HostName(host), job=name, ok=ok, ran_seconds=ran_s)


def fleet_of(others: int, limits: Jobs | None) -> Driven:
    return Driven(policy=replace(POLICY, jobs=limits)).healthy().others(others)


LIMITS = Jobs(failures_at_least=3, within_seconds=600, ran_at_most_seconds=60, elsewhere_max_ratio=0.25)


def test_s21_a_host_that_kills_job_after_job_is_suspected_and_burnt_in() -> None:
    d = fleet_of(4, LIMITS)
    for n in range(4):
        d.replay.play(100, job("good", f"o{n}", ok=True, ran_s=900))
    assert d.send(job("a"), at_s=110).orders == d.send(job("b"), at_s=120).orders == ()
    step = d.send(job("c"), at_s=130)
    assert (step.state.state, kinds(step.orders)) == (Lifecycle.SUSPECT, [Notify, RunBurnin])
    assert "3 different jobs failed fast here" in step.why
    assert step.state.proof is None
    step = d.send(burnt(Verdict.FAIL, ("G1", MEMORY), order=d.pending, id="f"))
    assert (step.state.state, kinds(step.orders)) == (Lifecycle.QUARANTINED, [Quarantine])


def test_s21_jobs_that_die_beside_the_burnin_do_not_bring_about_the_next_one() -> None:
    d = fleet_of(4, LIMITS)
    for name in "abcdefgh":
        d.send(job(name))
    assert (d.known.state, d.known.failed_jobs) == (Lifecycle.SUSPECT, ())
    d.send(burnt(Verdict.PASS, order=d.pending, id="p"))
    assert d.send(job("i")).state.state is Lifecycle.HEALTHY


def test_s21_the_shipped_policy_knows_the_black_hole() -> None:
    d = Driven(policy=DEFAULT).healthy()
    assert [d.send(job(name)).state.state for name in "abc"][-1] is Lifecycle.SUSPECT


@pytest.mark.parametrize(
    "ends",
    [
        [job("a"), job("a"), job("a"), job("a")],
        [job("a"), job("b", ran_s=61), job("c"), job("d", ok=True)],
        [job("a"), job("b"), job("a"), job("b")],
    ],
    ids=["one job again and again", "slow or well", "two jobs in turn"],
)
def test_s21_what_is_not_different_jobs_failing_fast_accuses_nobody(ends: list[JobEnded]) -> None:
    d = fleet_of(2, LIMITS)
    assert all(d.send(end).orders == () for end in ends)
    assert d.known.state is Lifecycle.HEALTHY


def test_s21_failures_outside_the_window_do_not_count() -> None:
    d = fleet_of(2, LIMITS)
    for n, at_s in enumerate((0.0, 100.0, 600.0, 1000.0)):
        d.send(job(f"j{n}"), at_s=at_s)
    assert d.known.state is Lifecycle.HEALTHY
    assert d.send(job("j9"), at_s=1100.0).state.state is Lifecycle.SUSPECT


def test_s21_jobs_that_fail_everywhere_blame_no_host() -> None:
    d = fleet_of(4, LIMITS)
    for n in range(4):
        d.replay.play(10, job(f"broken-{n}", f"o{n}"))
    for n in range(5):
        step = d.send(job(f"mine-{n}"), at_s=20 + n)
    assert (d.known.state, step.orders) == (Lifecycle.HEALTHY, ())
    assert "jobs fail fast on 4 of 4 other hosts too: no host is blamed" in step.why


def test_s21_one_job_that_fails_on_all_its_hosts_is_not_counted_against_any() -> None:
    d = fleet_of(4, LIMITS)
    for round_ in range(6):
        for host in ("o0", "h1"):
            d.replay.play(10 * round_, job(f"wide-{round_}", host))
        for n in range(1, 4):
            d.replay.play(10 * round_, job(f"good-{round_}", f"o{n}", ok=True))
    assert {h.state for h in d.replay.hosts.values()} == {Lifecycle.HEALTHY}


def test_s21_after_the_burnin_failures_count_anew_and_a_restart_forgets_none() -> None:
    d = fleet_of(4, LIMITS)
    for name in "abc":
        d.send(job(name))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p"))
    assert d.known.state is Lifecycle.HEALTHY
    assert d.send(job("d")).state.state is Lifecycle.HEALTHY
    ends = [job("x", f"o{n}") for n in range(4)]
    for end in ends:
        d.replay.play(d.now_s, end)
    said = d.send(job("e")).why
    entries = tuple(
        JournalEntry(
            at_s=d.now_s, event=e, host=None, orders=(), withheld=(), refused=False, fleet=None, why="w", progress=None
        )
        for e in (job("a"), job("b"), job("c"), job("d"), *ends, job("e"))
    )
    image = StoreImage(
        hosts=tuple(d.replay.hosts[name] for name in sorted(d.replay.hosts)),
        spools=(),
        open_orders=(),
        fleet=d.fleet.record,
        quarantines=(),
        recent=(),
        job_ends=entries,
    )
    assert "2 different jobs" in said
    assert Fleet.of(image, d.policy).job_ends_since(-1) == d.fleet.job_ends_since(-1)


def test_s21_without_the_policys_word_jobs_accuse_nobody() -> None:
    d = fleet_of(1, None)
    for n in range(9):
        assert d.send(job(f"j{n}")).orders == ()
    assert d.known.failed_jobs == ()


# ── S23: a driver that makes hosts look bad, and records of long ago ────────────────────────────────────────────────


def fatal(host: str = "h1", n: int = 0, *, boot: str = "b1") -> FindingReceived:
    return fault(MEMORY, Severity.FATAL, id=f"{host}/{n}", host=host, boot=boot, gpu=None, code="amd.ras.umc.ue")


@pytest.mark.parametrize("boot", ["b1", "long-ago"])
def test_s23_a_record_older_than_what_the_boot_has_proven_changes_nothing(boot: str) -> None:
    d = Driven().healthy()
    d.send(hello(boot="b2"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p2", boot="b2"))
    before = d.known
    step = d.send(fatal(boot=boot))
    assert (step.orders, step.withheld, step.state) == ((), (), before)
    assert "an old record, which changes nothing" in step.why
    assert d.fleet.sick("fault:amd.ras.umc.ue", -1) == frozenset()
    assert d.send(fatal(n=1, boot="b2")).state.state is Lifecycle.QUARANTINED


def test_s23_a_failed_burnin_of_an_earlier_boot_is_no_old_record() -> None:
    d = Driven().healthy()
    d.send(hello(boot="b2"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p2", boot="b2"))
    step = d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f", boot="b1"))
    assert step.state.state is Lifecycle.QUARANTINED


@pytest.mark.parametrize(("versions", "named"), [(("9.1", "9.1", "9.1"), True), (("9.1", "9.0", "9.1"), False)])
def test_s23_a_fault_of_many_hosts_with_one_driver_is_one_incident_that_names_it(
    versions: tuple[str, ...], named: bool
) -> None:
    policy: Policy = replace(
        POLICY, budgets=Budgets(quarantines=WIDE), storm=Storm(hosts_at_least=3, within_seconds=600)
    )
    d = Driven(policy=policy).healthy().others(9)
    for n, version in enumerate(versions):
        said = hello(f"o{n}", first=100 + 2 * n)
        d.replay.play(1, replace(said, hello=replace(said.hello, driver_version=version)))
    for n in range(2):
        d.replay.play(10 + n, fatal(f"o{n}"))
    (taken,) = d.replay.play(20, fatal("o2"))
    assert kinds(taken.step.orders) == [Notify]
    assert [type(w.order) for w in taken.step.withheld] == [Quarantine]
    (incident,) = d.fleet.record.incidents
    assert ("all with driver version 9.1" in incident.why) == named
    assert ("driver version" in incident.why) == named
    assert "3 hosts have the fault amd.ras.umc.ue" in incident.why


# ── S24: sticky or over-stated severity ─────────────────────────────────────────────────────────────────────────────


def test_s24_a_host_is_set_healthy_by_somebody_for_a_reason_and_nothing_sticks() -> None:
    d = Driven().healthy()
    d.send(fault(MEMORY, Severity.FATAL, id="x"))
    assert d.known.state is Lifecycle.QUARANTINED
    step = d.send(released())
    assert (step.state.state, kinds(step.orders)) == (Lifecycle.PROBATION, [Release])
    assert "operator:ann releases the host, overriding: looked at it" in step.why
    d.send(OperatorBurnin(host=H1, who="ann", reason="proof", level=None))
    after = d.send(burnt(Verdict.PASS, order=d.pending, id="p")).state
    assert (after.state, after.holds, after.charges, after.told, after.due) == (Lifecycle.HEALTHY, (), (), (), None)
    d.send(hello(boot="b2"))
    assert d.send(burnt(Verdict.PASS, order=d.pending, id="p2", boot="b2")).state.state is Lifecycle.HEALTHY
    d.send(TimePassed(host=H1), at_s=9e5)
    assert d.known.state is Lifecycle.HEALTHY


def test_s24_a_suspect_is_declared_fit_only_with_an_override() -> None:
    d = Driven().healthy()
    d.send(fault(MEMORY, Severity.ERROR, id="x"))
    assert d.known.state is Lifecycle.SUSPECT
    assert d.send(released(override=False)).refused
    assert d.send(released()).state.state is Lifecycle.PROBATION


def test_s24_the_same_number_is_as_bad_as_its_unit_and_bits_say() -> None:
    """Severity comes from (code, unit, status bits, text); the number alone says too much or too little."""
    head = "[  10.000000] NVRM: Xid (PCI:0000:d8:00): "
    link = "149, NETIR_MFDE_EVENT {0} XC0 i0 Link 00 (0x00000014 0x00000003 0x00000000 0x00000000)"
    worse = {}
    for said in ("Nonfatal", "Fatal"):
        (worse[said],) = LiveScan(load_catalogue()).read(head + link.format(said), now_s=0.0)
    assert worse["Nonfatal"].severity < worse["Fatal"].severity


# ── a budget of nothing ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "nothing",
    [
        Budget(max_ratio=0.0, at_least=0, max_in_window=9, window_seconds=1000),
        Budget(max_ratio=1.0, at_least=9, max_in_window=0, window_seconds=1000),
    ],
    ids=["no hosts", "no orders"],
)
def test_with_a_budget_of_0_every_quarantine_is_withheld_and_paged_and_releases_go_through(nothing: Budget) -> None:
    d = Driven(policy=replace(POLICY, budgets=Budgets(quarantines=nothing))).healthy().others(3)
    step = d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f"))
    assert (step.state.state, kinds(step.orders)) == (Lifecycle.SUSPECT, [Notify])
    assert [type(w.order) for w in step.withheld] == [Quarantine]
    assert step.state.charges
    assert not step.state.holds
    (told,) = d.replay.play(0, burnt(Verdict.FAIL, ("G100", PERSISTENT), order=None, id="g", host="o0"))
    assert [type(w.order) for w in told.step.withheld] == [Quarantine]  # of the next host, too
    d.now_s = 10
    rearmed = d.tell(BudgetRearmed(who="operator:ann", reason="try"))
    assert not any(isinstance(o, Quarantine) for taken in rearmed for o in taken.step.orders)
    assert d.fleet.record.tripped  # it trips again at once
    assert kinds(d.send(OperatorQuarantined(host=H1, who="ann", reason="by hand")).orders) == [Quarantine]
    step = d.send(released())
    assert (kinds(step.orders), step.state.held) == ([Release], False)
