"""One contract for every ledger: the memory reference and the databases answer alike."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetd.model.event import (
    AgentConnected,
    AgentSilent,
    AutomationResumed,
    AutomationStopped,
    BudgetRearmed,
    BurninAccepted,
    BurninRefused,
    Event,
    FindingReceived,
    FleetEvent,
    GpuSwapped,
    IncidentClosed,
    JobEnded,
    LedgerRestored,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepaired,
    OperatorRepairs,
    OperatorRetires,
    OutlierFound,
    Outvoted,
    Rejudged,
    TimePassed,
)
from fleetd.model.fact import Beginning, FactQuery
from fleetd.model.finding import BurninEnded, Culprit, DeviceFault, FaultClass, Finding, Scope, Severity, Verdict
from fleetd.model.fleet import Area, AreaKey, FleetRecord, Incident, IncidentKind, Stopped, Tripped
from fleetd.model.host import Gpu, Hello, Hold, Host, Lifecycle, PendingBurnin, Place, Strike
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry, SpoolProgress, StoreImage, WithheldOrder
from fleetd.model.order import Drain, Notify, Order, Quarantine, Release, RunBurnin
from fleetd.ports import Store, StoreError
from fleetd.stores import codec
from fleetd.stores.memory import MemoryStore
from fleetd.stores.postgres import PgStore
from fleetd.stores.sql import SqlStore

GPU = Gpu(gpu=GpuId("GPU-1"), index=0, vendor="sim", sku="simulated", pci_address=None)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Store
    if request.param == "memory":
        opened = MemoryStore()
    elif request.param == "sqlite":
        opened = SqlStore(tmp_path / "fleet.db")
    else:
        opened = PgStore(request.getfixturevalue("postgres").place())
    yield opened
    opened.close()


def _host(name: str = "h01", why: str = "because") -> Host:
    return Host(
        name=HostName(name),
        state=Lifecycle.QUARANTINED,
        why=why,
        since_s=1.5,
        boot_id=BootId("b1"),
        inventory=(GPU,),
        holds=(
            Hold(
                owner="fleetd",
                reason="r",
                evidence=(FindingId("f1"),),
                gpu=GPU.gpu,
                fault_class=FaultClass.CHIP_PERSISTENT,
                boot_id=BootId("b1"),
                at_s=2.0,
                proof_level="smoke",
            ),
        ),
        strikes=(Strike(gpu=GPU.gpu, finding=FindingId("f1"), at_s=3.0),),
        pending=PendingBurnin(order_id=OrderId("h01/1/burnin"), level="smoke", issued_at_s=1.0, not_after_s=9.0),
        proof=None,
        orders_issued=1,
        attempts=0,
        place=Place(pool="p1", rack="r1"),
    )


def _burnin(finding: str = "f1", host: str = "h01") -> BurninEnded:
    return BurninEnded(
        id=FindingId(finding),
        host=HostName(host),
        boot_id=BootId("b1"),
        at_s=4.0,
        why="gpu 5 disagrees",
        order_id=None,
        level="smoke",
        verdict=Verdict.FAIL,
        fault_class=FaultClass.CHIP_PERSISTENT,
        seed=2**63,
        vote_key="k",
        culprits=(Culprit(gpu=GPU.gpu, index=0, fault_class=FaultClass.CHIP_PERSISTENT, why="w"),),
    )


def _device(finding: str = "f2") -> DeviceFault:
    return DeviceFault(
        id=FindingId(finding),
        host=HostName("h01"),
        boot_id=BootId("b1"),
        at_s=5.0,
        why="gone",
        code="nvidia.xid.79",
        gpu=None,
        index=None,
        scope=Scope.HOST,
        severity=Severity.FATAL,
        fault_class=FaultClass.UNRESPONSIVE,
    )


def _entry(
    event: Event,
    *orders: Order,
    seq: int | None = None,
    host: str = "h01",
    why: str = "because",
    fleet: FleetRecord | None = None,
) -> JournalEntry:
    return JournalEntry(
        at_s=7.25,
        event=event,
        host=_host(host, why),
        orders=orders,
        withheld=(
            WithheldOrder(order=Notify(id=OrderId("n"), host=HostName(host), issued_at_s=1.0, why="w"), why="b"),
        ),
        refused=False,
        fleet=fleet,
        why=why,
        progress=None if seq is None else SpoolProgress(spool=SpoolId("s1"), seq=seq),
    )


def _received(finding: Finding) -> FindingReceived:
    return FindingReceived(host=finding.host, finding=finding)


QUARANTINE = Quarantine(id=OrderId("h01/2/quarantine"), host=HostName("h01"), issued_at_s=6.0, why="w")
RELEASE = Release(id=OrderId("h01/3/release"), host=HostName("h01"), issued_at_s=8.0, why="w")
BURNIN = RunBurnin(
    id=OrderId("h01/1/burnin"),
    host=HostName("h01"),
    issued_at_s=1.0,
    why="w",
    level="smoke",
    boot_id=BootId("b1"),
    not_after_s=9.0,
)
HELLO = Hello(
    host=HostName("h01"), boot_id=BootId("b1"), agent_version="0.1.0", capabilities=("burnin",), inventory=(GPU,)
)
EVENTS: tuple[Event, ...] = (
    AgentConnected(host=HostName("h01"), hello=HELLO),
    _received(_burnin()),
    _received(_device()),
    AgentSilent(host=HostName("h01"), since_s=1.0, away=1, known=9),
    BurninAccepted(host=HostName("h01"), order_id=OrderId("x")),
    BurninRefused(host=HostName("h01"), order_id=OrderId("x"), why="w"),
    OutlierFound(
        host=HostName("h01"),
        gpu=GPU.gpu,
        index=0,
        metric="sm_clock_hertz",
        value=1e9,
        median=1.5e9,
        z=-9.0,
        siblings=31,
    ),
    Outvoted(host=HostName("h01"), key="k", why="w"),
    JobEnded(host=HostName("h01"), job="j", ok=False, ran_seconds=1.5),
    OperatorQuarantined(host=HostName("h01"), who="operator:eve", reason="r", expires_at_s=9.0, drain=Drain.NOW),
    OperatorReleased(host=HostName("h01"), who="operator:eve", reason="r", override=True),
    OperatorBurnin(host=HostName("h01"), who="operator:eve", reason="r", level=None),
    OperatorRepairs(host=HostName("h01"), who="operator:eve", reason="r"),
    OperatorRepaired(host=HostName("h01"), who="operator:eve", reason="r"),
    GpuSwapped(host=HostName("h01"), who="operator:eve", reason="r", old=GpuId("GPU-1"), new=GpuId("GPU-2")),
    LedgerRestored(host=HostName("h01"), who="operator:eve", reason="r", orders_skipped=5),
    OperatorRetires(host=HostName("h01"), who="operator:eve", reason="r"),
    Rejudged(host=HostName("h01"), why="w", acquitted=None),
    TimePassed(host=HostName("h01"), connected=False),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_every_kind_of_entry_comes_back_as_it_was(store: Store, event: Event) -> None:
    entry = _entry(event, BURNIN, QUARANTINE, RELEASE)
    store.commit([entry])
    assert store.history(HostName("h01"), limit=10) == (entry,)


def test_an_empty_ledger_starts_an_empty_fleet(store: Store) -> None:
    assert store.load() == StoreImage(
        hosts=(), spools=(), open_orders=(), fleet=FleetRecord(), quarantines=(), recent=()
    )


def test_ends_of_jobs_are_kept_apart_and_push_no_finding_out(store: Store) -> None:
    ends = [_entry(JobEnded(host=HostName("h01"), job=f"j{n}", ok=True, ran_seconds=n)) for n in range(520)]
    store.commit([_entry(_received(_burnin())), *ends])
    image = store.load()
    assert [type(entry.event) for entry in image.recent] == [FindingReceived]
    assert image.job_ends == tuple(ends[-512:])
    assert image.jobs_heard == tuple(entry.event for entry in ends)
    late = replace(ends[0], at_s=ends[-1].at_s + 7201.0)
    store.commit([late])
    assert store.load().jobs_heard == (late.event,)


def test_the_image_holds_what_a_restart_needs(store: Store) -> None:
    store.commit(
        [_entry(_received(_burnin()), BURNIN, QUARANTINE, seq=3), _entry(_received(_device()), RELEASE, seq=4)]
    )
    store.finish_order(BURNIN.id, "accepted")
    store.finish_order(BURNIN.id, "accepted twice")
    image = store.load()
    assert image.hosts == (_host(),)
    assert image.spools == ((HostName("h01"), SpoolProgress(spool=SpoolId("s1"), seq=4)),)
    assert image.open_orders == (QUARANTINE, RELEASE)
    assert image.quarantines == ((6.0, HostName("h01")),)
    assert [entry.progress.seq for entry in image.recent if entry.progress] == [3, 4]
    first = store.orders(HostName("h01"), limit=10)[0]
    assert (first.order, first.done, first.result) == (BURNIN, True, "accepted")


def test_the_same_finding_and_order_count_once(store: Store) -> None:
    store.commit([_entry(_received(_burnin()), QUARANTINE, seq=1)])
    store.finish_order(QUARANTINE.id, "done")
    store.commit([_entry(_received(_burnin()), QUARANTINE, seq=2)])
    assert store.findings_known([FindingId("f1"), FindingId("f2"), FindingId("f1")]) == {"f1"}
    assert store.findings_known([]) == frozenset()
    assert store.findings(HostName("h01"), limit=10) == (_burnin(),)
    assert store.load().open_orders == ()


def test_many_findings_are_asked_for_at_once(store: Store) -> None:
    ids = [FindingId(f"f{n}") for n in range(1203)]
    store.commit([_entry(_received(_burnin(n)), seq=seq) for seq, n in enumerate(ids[::3], 1)])
    assert store.findings_known(ids) == set(ids[::3])


def test_newest_first_and_limits(store: Store) -> None:
    store.commit([_entry(_received(_burnin(f"f{n}")), why=f"w{n}", seq=n) for n in range(1, 6)])
    assert [f.id for f in store.findings(HostName("h01"), limit=2)] == ["f5", "f4"]
    assert [e.why for e in store.history(HostName("h01"), limit=2)] == ["w4", "w5"]
    assert store.reasons(HostName("h01"), limit=2) == ((7.25, "w4"), (7.25, "w5"))


RECORD = FleetRecord(
    tripped=(Tripped(key=AreaKey(area=Area.POOL, name="p1"), at_s=1.0, why="w", told_at_s=1.0),),
    stopped=Stopped(who="operator:eve", reason="r", at_s=2.0),
    incidents=(
        Incident(
            id="storm/fault:x/1",
            kind=IncidentKind.STORM,
            key="fault:x",
            opened_at_s=3.0,
            hosts=(HostName("h01"),),
            hosts_total=7,
            why="w",
            told_at_s=3.0,
        ),
    ),
    incidents_opened=1,
)


def test_the_fleets_record_stays_until_an_entry_changes_it(store: Store) -> None:
    store.commit([_entry(_received(_burnin()), fleet=RECORD)])
    store.commit([_entry(_received(_device()))])
    assert store.load().fleet == RECORD
    store.commit([_entry(_received(_device()), fleet=FleetRecord())])
    assert store.load().fleet == FleetRecord()


@pytest.mark.parametrize(
    "event",
    [
        BudgetRearmed(who="operator:eve", reason="r"),
        AutomationStopped(who="operator:eve", reason="r"),
        AutomationResumed(who="operator:eve", reason="r"),
        IncidentClosed(incident="storm/fault:x/1", who="operator:eve", reason="r", acquit=True),
    ],
    ids=lambda e: type(e).__name__,
)
def test_events_of_the_fleet_stand_in_the_journal_and_in_no_hosts_history(store: Store, event: FleetEvent) -> None:
    about_a_host = _entry(_received(_burnin()))
    about_all = JournalEntry(
        at_s=8.0, event=event, host=None, orders=(), withheld=(), refused=False, fleet=RECORD, why="w", progress=None
    )
    store.commit([about_a_host, about_all])
    assert [entry for _, entry in store.journal(after=0, limit=9)] == [about_a_host, about_all]
    ((position, _),) = store.journal(after=0, limit=1)
    assert [entry for _, entry in store.journal(after=position, limit=9)] == [about_all]
    assert store.history(HostName("h01"), limit=9) == (about_a_host,)
    assert [h.name for h in store.load().hosts] == ["h01"]


def test_facts_are_found_by_person_time_host_and_weight(store: Store) -> None:
    quiet = _entry(_received(_burnin("f9")), why="said twice")
    asked = _entry(OperatorReleased(host=HostName("h01"), who="eve", reason="r", override=True))
    stop = AutomationStopped(who="operator:eve", reason="r")
    fleet = JournalEntry(
        at_s=8.0, event=stop, host=None, orders=(), withheld=(), refused=False, fleet=RECORD, why="w", progress=None
    )
    store.commit([_entry(_received(_burnin()), QUARANTINE), quiet])
    store.commit([asked, fleet])
    found = store.facts(FactQuery(limit=9))
    assert [(f.position, f.event, f.was, f.now) for f in found] == [
        (1, "FindingReceived", "unknown", "quarantined; held by fleetd"),
        (2, "FindingReceived", "quarantined; held by fleetd", "quarantined; held by fleetd"),
        (3, "OperatorReleased", "quarantined; held by fleetd", "quarantined; held by fleetd"),
        (4, "AutomationStopped", "automation running", "automation stopped; 1 budgets tripped; 1 incidents open"),
    ]
    assert (found[0].orders, found[0].found_at_s, found[2].who, found[2].override) == (
        ("h01/2/quarantine",),
        4.0,
        "eve",
        True,
    )

    def positions(**query: Any) -> list[int]:
        return [fact.position for fact in store.facts(FactQuery(**{"limit": 9, **query}))]

    assert positions(notable=True) == [1, 3]  # the second finding changed nothing that a report counts
    assert positions(people=True) == [3, 4]
    assert positions(who="eve") == [3, 4]
    assert positions(event="FindingReceived", after=1) == [2]
    assert positions(since_s=8.0) == [4]
    assert positions(until_s=8.0, host=HostName("h01")) == [1, 2, 3]
    assert positions(host=HostName("h02")) == []
    assert positions(limit=2) == [1, 2]
    assert positions(newest=True) == [4, 3, 2, 1]
    assert positions(newest=True, limit=2) == [4, 3]
    assert positions(newest=True, before=3, host=HostName("h01")) == [2, 1]
    assert positions(newest=True, before=4, after=1, people=True) == [3]
    assert positions(before=3) == [1, 2]
    assert positions(newest=True, notable=True) == [3, 1]
    assert store.beginning() == Beginning()


def test_orders_of_one_decision_keep_their_order(store: Store) -> None:
    given = tuple(Release(id=OrderId(f"h01/{n}/x"), host=HostName("h01"), issued_at_s=1.0, why="w") for n in (9, 10, 8))
    store.commit([_entry(_received(_burnin()), *given)])
    assert store.load().open_orders == given
    assert [record.order for record in store.orders(HostName("h01"), limit=2)] == list(given[1:])


def test_a_claimed_order_is_carried_out_or_stays_open(store: Store) -> None:
    store.commit([_entry(_received(_burnin()), QUARANTINE, RELEASE)])
    left, done = store.claim(QUARANTINE.id), store.claim(RELEASE.id)
    assert left is not None
    assert done is not None
    left.let_go()
    done.finish("done\0 or so")
    done.let_go()
    assert store.load().open_orders == (QUARANTINE,)
    assert [record.done for record in store.orders(HostName("h01"), limit=9)] == [False, True]


def test_no_text_breaks_a_ledger(store: Store) -> None:
    why = "zero \0, quotes '\"\\, %s :x, \u2028 and \U0001f600"
    entry = _entry(_received(replace(_burnin(), why=why)), replace(QUARANTINE, why=why), why=why)
    store.commit([entry])
    assert store.history(HostName("h01"), limit=9) == (entry,)
    assert store.load().open_orders == entry.orders
    ((_, said),) = store.reasons(HostName("h01"), limit=9)
    assert said in {why, why.replace("\0", "\ufffd")}


def test_hosts_are_in_the_order_of_their_names_bytes(store: Store) -> None:
    names = ["h_1", "h-1", "H1", "h1", "h10", "h1.a"]
    store.commit([_entry(_received(_burnin(name, name)), host=name) for name in names])
    assert [host.name for host in store.load().hosts] == sorted(names)


def test_hosts_do_not_see_each_other(store: Store) -> None:
    store.commit([_entry(_received(_burnin("a", "h01"))), _entry(_received(_burnin("b", "h02")), host="h02")])
    assert [f.id for f in store.findings(HostName("h02"), limit=9)] == ["b"]
    assert [h.name for h in store.load().hosts] == ["h01", "h02"]


def test_a_ledger_survives_its_process(tmp_path: Path) -> None:
    first = SqlStore(tmp_path / "fleet.db")
    first.commit([_entry(_received(_burnin()), QUARANTINE, seq=1)])
    second = SqlStore(tmp_path / "fleet.db")  # the first was never closed: as after kill -9
    assert second.load().open_orders == (QUARANTINE,)
    first.close()
    second.close()


def test_a_ledger_that_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(StoreError, match=r"fleet\.db: file is not a database") as refused:
        SqlStore(path)
    assert "\n" not in str(refused.value)


def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    store = SqlStore(path)
    with store._guarded(write=True) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0099'")
    store.close()
    for read_only in (True, False):
        with pytest.raises(StoreError, match="schema 0099 was written by a newer fleetd"):
            SqlStore(path, read_only=read_only)


def test_a_ledger_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open database file"):
        SqlStore(tmp_path / "nowhere" / "fleet.db")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=30)
@given(text=st.text(max_size=60))
def test_a_text_that_is_no_entry_is_a_store_error(text: str) -> None:
    with pytest.raises(StoreError, match="cannot read"):
        codec.load_entry(text)


def test_an_entry_of_no_time_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="cannot read"):
        codec.load_entry('{"at_s":"noon"}')
