"""A small fleet under any sequence of events: a state machine that replays itself and checks what is always true."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fleetd.core.budget import OUT_OF_SERVICE, FleetView, after, view_of
from fleetd.core.judgement import judge
from fleetd.core.lifecycle import FLEETD
from fleetd.core.policy import Budgets, QuarantineBudget, Stage
from fleetd.core.step import Step
from fleetd.model.event import BurninRefused, Event, OperatorQuarantined, OperatorReleased, TimePassed
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import Order, Quarantine, RunBurnin
from tests.core.make_core import BAD, ERROR, FATAL, ONCE, POLICY, REST, SOFT, TWICE, burnt, fault, hello

BUDGET = QuarantineBudget(max_ratio=0.5, at_least=1, max_in_window=2, window_seconds=300)
WATCHED = replace(TWICE, name="watched", stage=Stage.RECOMMEND)
THE_POLICY = replace(
    POLICY,
    budgets=Budgets(quarantines=BUDGET),
    proofs={**POLICY.proofs, FaultClass.LINK: "manual", FaultClass.MEMORY: "qualify"},
    rules=(BAD, TWICE, WATCHED, ONCE, SOFT, FATAL, ERROR, REST),
)

names = st.sampled_from(["h1", "h2", "h3"])
boots = st.sampled_from(["b1", "b2"])
gpus = st.sampled_from(["G0", "G1", "G9"])
classes = st.sampled_from(FaultClass)
people = st.sampled_from(["ann", "bob"])
ids = st.integers(0, 30).map(str)


class Fleet(RuleBasedStateMachine):
    """Three hosts, one controller without crashes; the model is the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.hosts: dict[HostName, Host] = {}
        self.view = FleetView()
        self.journal: list[tuple[float, Event | None, Step[Host] | None]] = []
        self.orders: list[Order] = []

    def send(self, event: Event) -> None:
        before = self.hosts.get(event.host)
        step = judge(now_s=self.now_s, host=before, event=event, fleet=self.view, policy=THE_POLICY)
        self._check(before, event, step)
        self.view = after(self.view, before=before, step=step, now_s=self.now_s, budget=BUDGET)
        if not step.refused:
            self.hosts[event.host] = step.state
        self.orders += [*step.orders, *(w.order for w in step.withheld)]
        self.journal.append((self.now_s, event, step))

    def _check(self, before: Host | None, event: Event, step: Step[Host]) -> None:
        by_operator = isinstance(event, OperatorQuarantined | OperatorReleased)
        quarantines = sum(isinstance(o, Quarantine) for o in step.orders)
        assert step.why
        assert quarantines <= 1
        assert step.state.attempts <= THE_POLICY.qualify.attempts
        if before is not None and not by_operator:
            foreign = [h for h in before.holds if h.owner != FLEETD]
            assert [h for h in step.state.holds if h.owner != FLEETD] == foreign
        if before is not None and before.state in OUT_OF_SERVICE and not by_operator:
            assert step.state.state in OUT_OF_SERVICE
        if quarantines and not by_operator:
            assert not self.view.tripped
            assert self.view.quarantined_now < max(1, self.view.hosts_known // 2)
            new = step.state.holds
            assert new
            assert all(h.evidence and h.fault_class.is_hardware for h in new)
        if step.state.state is Lifecycle.HEALTHY and (before is None or before.state is not Lifecycle.HEALTHY):
            assert step.state.proof is not None

    # ── what can happen ─────────────────────────────────────────────────────────────────────────────────────────────

    @rule(host=names, boot=boots, gpus=st.integers(0, 3), first=st.integers(0, 1))
    def connects(self, host: str, boot: str, gpus: int, first: int) -> None:
        self.send(hello(host, boot, gpus, first))

    @rule(
        host=names,
        verdict=st.sampled_from(Verdict),
        blamed=st.lists(st.tuples(gpus, classes), max_size=2),
        finding=ids,
        level=st.sampled_from(["smoke", "smoke", "qualify"]),
        boot=boots,
        ours=st.booleans(),
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
    ) -> None:
        known = self.hosts.get(HostName(host))
        order = None
        if ours and known is not None and known.pending is not None and known.boot_id is not None:
            order, level, boot = known.pending.order_id, known.pending.level, known.boot_id
            blamed = [] if verdict is Verdict.PASS else blamed
        self.send(burnt(verdict, *blamed, order=order, id=finding, host=host, boot=boot, level=level, at_s=self.now_s))

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

    @rule(host=names, number=st.integers(1, 5))
    def refuses(self, host: str, number: int) -> None:
        self.send(BurninRefused(host=HostName(host), order_id=OrderId(f"{host}/{number}/burnin"), why="busy"))

    @rule(host=names, who=people)
    def operator_takes(self, host: str, who: str) -> None:
        self.send(OperatorQuarantined(host=HostName(host), who=who, reason="fan"))

    @rule(host=names, who=people, override=st.booleans())
    def operator_gives_back(self, host: str, who: str, override: bool) -> None:
        self.send(OperatorReleased(host=HostName(host), who=who, reason="done", override=override))

    @rule(host=names, seconds=st.sampled_from([-50.0, 1.0, 60.0, 400.0]))
    def time_passes(self, host: str, seconds: float) -> None:
        self.now_s += seconds
        self.send(TimePassed(host=HostName(host)))

    @rule()
    def human_rearms(self) -> None:
        self.view = replace(self.view, tripped=False)
        self.journal.append((self.now_s, None, None))

    # ── what is always true ─────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def order_ids_are_unique(self) -> None:
        assert len({o.id for o in self.orders}) == len(self.orders)
        assert all(o.not_after_s > o.issued_at_s and o.boot_id for o in self.orders if isinstance(o, RunBurnin))

    @invariant()
    def the_view_counts_what_is_there(self) -> None:
        counted = view_of(
            self.hosts.values(), quarantined_at_s=self.view.quarantined_at_s, budget=BUDGET, tripped=self.view.tripped
        )
        assert counted == self.view

    def teardown(self) -> None:
        """Replay the journal: the same hosts, the same steps."""
        hosts: dict[HostName, Host] = {}
        view = FleetView()
        for now_s, event, expected in self.journal:
            if event is None or expected is None:
                view = replace(view, tripped=False)
                continue
            before = hosts.get(event.host)
            step = judge(now_s=now_s, host=before, event=event, fleet=view, policy=THE_POLICY)
            assert step == expected
            view = after(view, before=before, step=step, now_s=now_s, budget=BUDGET)
            if not step.refused:
                hosts[event.host] = step.state
        assert hosts == self.hosts


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
