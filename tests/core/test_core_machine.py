"""A small fleet under any sequence of events: a state machine that replays itself and checks what is always true."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fleetd.core.earlier import knows
from fleetd.core.fleet import FLEET, Fleet
from fleetd.core.invariants import AUTOMATIC, EARLIER, OUT_OF_SERVICE
from fleetd.core.limits import Jobs, Outliers, Returns, Share, Silence, Storm
from fleetd.core.policy import Budget, Budgets, Count, Policy, Proof, Rule, Stage, When
from fleetd.core.replay import Replay, Taken
from fleetd.core.step import Step
from fleetd.model.event import (
    AgentSilent,
    AnyEvent,
    AutomationResumed,
    AutomationStopped,
    BudgetRearmed,
    BurninAccepted,
    BurninRefused,
    Event,
    IncidentClosed,
    JobEnded,
    OperatorBurnin,
    OperatorEvent,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepairs,
    OperatorRetires,
    OutlierFound,
    SchedulerDiffers,
    TimePassed,
)
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.fleet import Area
from fleetd.model.host import Host, Lifecycle, Place
from fleetd.model.ids import GpuId, HostName, OrderId
from fleetd.model.journal import JournalEntry, StoreImage
from fleetd.model.order import Order, Quarantine, RunBurnin
from tests.core.make_core import BAD, ERROR, FATAL, ONCE, POLICY, REST, SOFT, TWICE, burnt, fault, hello

BUDGET = Budget(max_ratio=0.5, at_least=1, max_in_window=2, window_seconds=300)
WATCHED = replace(TWICE, name="watched", stage=Stage.RECOMMEND)
COUNTED = Rule(
    name="counted",
    when=When(scope=(Scope.APP,), count=Count(at_least=2, within_seconds=500)),
    then=ONCE.then,
)
THE_POLICY: Policy = replace(
    POLICY,
    budgets=Budgets(
        quarantines=BUDGET,
        quarantines_by={Area.RACK: replace(BUDGET, max_ratio=0.4)},
        burnins=Share(max_ratio=0.0, at_least=1),
    ),
    proofs={**POLICY.proofs, FaultClass.LINK: "manual", FaultClass.MEMORY: Proof(level="qualify", after_reboot=True)},
    returns=Returns.AUTOMATIC,
    probation_seconds=100.0,
    storm=Storm(hosts_at_least=2, within_seconds=100.0),
    silence=Silence(after_seconds=60, partition_at_least=2, partition_ratio=0.3),
    outliers=Outliers(),
    jobs=Jobs(failures_at_least=2, within_seconds=500, elsewhere_max_ratio=0.5),
    rules=(BAD, TWICE, WATCHED, ONCE, SOFT, COUNTED, FATAL, ERROR, REST),
)

names = st.sampled_from(["h1", "h2", "h3"])
boots = st.sampled_from(["b1", "b2", "b3"])
gpus = st.sampled_from(["G0", "G1", "G9"])
classes = st.sampled_from(FaultClass)
people = st.sampled_from(["ann", "bob"])
ids = st.integers(0, 30).map(str)


class Fold(RuleBasedStateMachine):
    """Three hosts, one controller without crashes; the model is the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.replay = Replay(THE_POLICY)
        self.journal: list[tuple[float, Taken]] = []
        self.orders: list[Order] = []
        self.ordered: list[tuple[float, HostName]] = []

    @property
    def hosts(self) -> dict[HostName, Host]:
        return self.replay.hosts

    def send(self, event: AnyEvent) -> None:
        tripped, record = {t.key for t in self.replay.fleet.record.tripped}, self.replay.fleet.record
        out = self.replay.fleet.count(FLEET)
        for taken in self.replay.play(self.now_s, event):
            step = taken.step
            self.orders += [*step.orders, *(w.order for w in step.withheld)]
            self.ordered += [(self.now_s, o.host) for o in step.orders if isinstance(o, Quarantine)]
            self.journal.append((self.now_s, taken))
            assert step.why
            if step.state is not None and not step.refused:
                self._check(taken.before, taken.event, step, stopped=self.replay.fleet.record.stopped is not None)
                if any(isinstance(o, Quarantine) for o in step.orders) and not isinstance(taken.event, OperatorEvent):
                    assert FLEET not in tripped or isinstance(event, BudgetRearmed)
                    assert out.held < max(1, out.hosts // 2) or len(self.journal) > 1
                    assert record.stopped is None or isinstance(event, AutomationResumed)

    def _check(self, before: Host | None, event: object, step: Step[Host], *, stopped: bool) -> None:
        assert step.state is not None
        by_operator = isinstance(event, OperatorEvent)
        quarantines = sum(isinstance(o, Quarantine) for o in step.orders)
        assert quarantines <= 1
        assert step.state.attempts <= THE_POLICY.qualify.attempts + 1
        if before is not None and not by_operator:
            foreign = [h for h in before.holds if h.owner not in AUTOMATIC and h.expires_at_s is None]
            kept = [h for h in step.state.holds if h.owner not in AUTOMATIC and h.expires_at_s is None]
            assert kept == foreign
            assert {h.owner for h in before.holds if h.owner == EARLIER} <= {h.owner for h in step.state.holds}
        if before is not None and before.state in OUT_OF_SERVICE and not by_operator and before.proof is None:
            assert step.state.held or step.state.proof is not None or isinstance(event, TimePassed)
        if quarantines and not by_operator:
            assert not stopped
            if not isinstance(event, SchedulerDiffers):  # it closes again what is held, for whatever reason
                assert all(h.evidence and h.fault_class.is_hardware for h in step.state.holds)
                fleet = self.replay.fleet.count(FLEET)
                assert fleet.held <= max(1, fleet.hosts // 2) or before is None
        if stopped and not by_operator:
            assert not any(isinstance(o, RunBurnin) for o in step.orders)
        if before is not None and before.held and not step.state.held:
            assert not step.state.gone or isinstance(event, TimePassed), "no release by proof while a GPU is gone"
        newly = before is None or (before.state is not Lifecycle.HEALTHY and before.silent is None)
        if step.state.state is Lifecycle.HEALTHY and newly:
            assert step.state.proof is not None

    # ── what can happen ─────────────────────────────────────────────────────────────────────────────────────────────

    @rule(
        host=names,
        boot=boots,
        gpus=st.integers(0, 3),
        first=st.integers(0, 1),
        rack=st.none() | st.sampled_from(["r1", "r2"]),
        off_s=st.none() | st.sampled_from([-3600.0, 0.0, 3600.0]),
    )
    def connects(self, *, host: str, boot: str, gpus: int, first: int, rack: str | None, off_s: float | None) -> None:
        at_s = None if off_s is None else self.now_s + off_s
        said = hello(host, boot, gpus, first, place=Place(rack=rack), at_s=at_s)
        self.send(replace(said, hello=replace(said.hello, driver_version=None if boot == "b1" else boot)))

    @rule(
        host=names,
        verdict=st.sampled_from(Verdict),
        blamed=st.lists(st.tuples(gpus, classes), max_size=2),
        finding=ids,
        level=st.sampled_from(["smoke", "smoke", "qualify"]),
        boot=boots,
        ours=st.booleans(),
        key=st.sampled_from(["", "k"]),
        fingerprint=st.sampled_from(["x", "x", "y"]),
    )
    def burns(
        self,
        *,
        host: str,
        verdict: Verdict,
        blamed: list[tuple[str, FaultClass]],
        finding: str,
        level: str,
        boot: str,
        ours: bool,
        key: str,
        fingerprint: str,
    ) -> None:
        known, order = self.hosts.get(HostName(host)), None
        if ours and known is not None and known.pending is not None and known.boot_id is not None:
            order, level, boot = known.pending.order_id, known.pending.level, known.boot_id
            finding = order
            blamed = [] if verdict is Verdict.PASS else blamed
        ballots = (("b", fingerprint),) if verdict is Verdict.PASS else ()
        self.send(
            burnt(
                verdict,
                *blamed,
                order=order,
                id=finding,
                host=host,
                boot=boot,
                level=level,
                at_s=self.now_s,
                vote_key=key,
                ballots=ballots,
            )
        )

    @rule(
        host=names,
        fault_class=classes,
        severity=st.sampled_from(Severity),
        gpu=st.none() | gpus,
        scope=st.sampled_from(Scope),
        finding=ids,
        boot=boots,
    )
    def faults(
        self,
        *,
        host: str,
        fault_class: FaultClass,
        severity: Severity,
        gpu: str | None,
        scope: Scope,
        finding: str,
        boot: str,
    ) -> None:
        self.send(fault(fault_class, severity, id=finding, host=host, boot=boot, gpu=gpu, scope=scope, at_s=self.now_s))

    @rule(host=names, number=st.integers(1, 9), refuses=st.booleans())
    def answers(self, host: str, number: int, refuses: bool) -> None:
        order = OrderId(f"{host}/{number}/burnin")
        event: Event = BurninAccepted(host=HostName(host), order_id=order)
        self.send(BurninRefused(host=HostName(host), order_id=order, why="busy") if refuses else event)

    @rule(host=names, away=st.integers(1, 3))
    def falls_silent(self, host: str, away: int) -> None:
        self.send(AgentSilent(host=HostName(host), since_s=self.now_s - 60, away=away, known=3))

    @rule(host=names, gpu=gpus)
    def stands_out(self, host: str, gpu: str) -> None:
        told = {"index": 0, "metric": "sm_clock_hertz", "value": 1.0, "median": 2.0, "z": -9.0, "siblings": 31}
        self.send(OutlierFound(host=HostName(host), gpu=GpuId(gpu), **told))

    @rule(host=names, job=st.sampled_from("abc"), ok=st.booleans(), ran_s=st.sampled_from([1.0, 9000.0]))
    def ends_a_job(self, host: str, job: str, ok: bool, ran_s: float) -> None:
        self.send(JobEnded(host=HostName(host), job=job, ok=ok, ran_seconds=ran_s))

    @rule(host=names, number=st.integers(0, 40))
    def scheduler_differs(self, host: str, number: int) -> None:
        order = OrderId(f"{host}/{number}/quarantine") if number else None
        before = self.hosts.get(HostName(host))
        self.send(SchedulerDiffers(host=HostName(host), closed=order is not None, order_id=order))
        if before is not None and order is not None and before.state is not Lifecycle.RETIRED:
            after = self.hosts[HostName(host)]
            assert knows(after, order)
            assert knows(before, order) or after.held, "what the ledger does not know is never opened"

    @rule(host=names, who=people, expires_s=st.none() | st.sampled_from([-5.0, 50.0]))
    def operator_takes(self, host: str, who: str, expires_s: float | None) -> None:
        at_s = None if expires_s is None else self.now_s + expires_s
        self.send(OperatorQuarantined(host=HostName(host), who=who, reason="fan", expires_at_s=at_s))

    @rule(host=names, who=people, override=st.booleans())
    def operator_gives_back(self, host: str, who: str, override: bool) -> None:
        self.send(OperatorReleased(host=HostName(host), who=who, reason="done", override=override))

    @rule(host=names, who=people, level=st.none() | st.sampled_from(["smoke", "qualify"]))
    def operator_burns(self, host: str, who: str, level: str | None) -> None:
        self.send(OperatorBurnin(host=HostName(host), who=who, reason="repaired", level=level))

    @rule(host=names, who=people, for_good=st.booleans())
    def operator_repairs_or_retires(self, host: str, who: str, for_good: bool) -> None:
        repairs = OperatorRepairs(host=HostName(host), who=who, reason="r")
        self.send(OperatorRetires(host=HostName(host), who=who, reason="old") if for_good else repairs)

    @rule(host=names, seconds=st.sampled_from([-3600.0, 1.0, 60.0, 400.0, 3600.0]), connected=st.booleans())
    def time_passes(self, host: str, seconds: float, connected: bool) -> None:
        self.now_s += seconds
        self.send(TimePassed(host=HostName(host), connected=connected))

    @rule()
    def human_rearms(self) -> None:
        self.send(BudgetRearmed(who="ann", reason="r"))

    @rule(stop=st.booleans())
    def human_stops_or_resumes(self, stop: bool) -> None:
        self.send(AutomationStopped(who="ann", reason="r") if stop else AutomationResumed(who="ann", reason="r"))

    @rule(acquit=st.booleans())
    def human_closes_an_incident(self, acquit: bool) -> None:
        for incident in self.replay.fleet.record.incidents[:1]:
            self.send(IncidentClosed(incident=incident.id, who="ann", reason="r", acquit=acquit))

    # ── what is always true ─────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def order_ids_are_unique(self) -> None:
        assert len({o.id for o in self.orders}) == len(self.orders)
        assert all(o.not_after_s > o.issued_at_s and o.boot_id for o in self.orders if isinstance(o, RunBurnin))

    @invariant()
    def the_ledgers_image_gives_the_same_fleet(self) -> None:
        entries = tuple(_entry(at_s, taken) for at_s, taken in self.journal)
        image = StoreImage(
            hosts=tuple(self.hosts[name] for name in sorted(self.hosts)),
            spools=(),
            open_orders=(),
            fleet=self.replay.fleet.record,
            quarantines=tuple(self.ordered),
            recent=tuple(entry for entry in entries if not isinstance(entry.event, JobEnded)),
            job_ends=tuple(entry for entry in entries if isinstance(entry.event, JobEnded)),
        )
        expected, built = self.replay.fleet.snapshot(), Fleet.of(image, THE_POLICY).snapshot()
        expected["record"] = built["record"] = None  # an empty record is the same as none
        assert built == expected

    def teardown(self) -> None:
        """Replay the journal: the same hosts, the same steps."""
        again = Replay(THE_POLICY)
        for now_s, taken in self.journal:
            assert again.take(now_s, taken.event).step == taken.step
        assert again.hosts == self.hosts
        assert again.fleet.snapshot() == self.replay.fleet.snapshot()


def _entry(at_s: float, taken: Taken) -> JournalEntry:
    step = taken.step
    return JournalEntry(
        at_s=at_s,
        event=taken.event,
        host=step.state,
        orders=step.orders,
        withheld=step.withheld,
        refused=step.refused,
        fleet=step.fleet,
        why=step.why,
        progress=None,
    )


TestFleet = Fold.TestCase
TestFleet.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
