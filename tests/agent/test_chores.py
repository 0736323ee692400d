"""Orders from the controller: accepted on disk, carried out one at a time, told once, over restarts too."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetd.agent.chores import Chores, ChoresConfig
from fleetd.model.finding import BurninEnded, FaultClass, Verdict
from fleetd.model.ids import BootId, HostName, OrderId
from fleetd.model.order import RecallBurnin, RunBurnin
from fleetd.ports import BurnerError
from tests.agent.fakes_agent import BOOT, HOST, FakeBurner, FakeClock, FakeOrders, FakeSpool, order, report

CULPRIT = {"gpu": "GPU-5", "index": 5, "class": "chip-persistent", "why": "7 against 1"}


class Bench:
    def __init__(self, folder: Path, outcome: Any = None, **config: Any) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.orders, self.spool = FakeOrders(), FakeSpool()
        self.burner = FakeBurner(lambda _: report() if outcome is None else outcome)
        self.config = ChoresConfig(**config)
        self.start()

    def start(self) -> None:
        """As a restart does: everything that is not on disk is forgotten."""
        self.chores = Chores(
            host=HOST,
            boot_id=BOOT,
            orders=self.orders,
            burner=self.burner,
            spool=self.spool,
            clock=self.clock,
            reports=self.folder,
            config=self.config,
        )

    async def until(self, *, closed: int) -> None:
        task = asyncio.create_task(self.chores.run())
        while len(self.orders.done) < closed:
            self.orders.closed.clear()
            waiter = asyncio.create_task(self.orders.closed.wait())
            await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        await self.kill(task)

    async def kill(self, task: "asyncio.Task[None]") -> None:
        task.cancel()
        await asyncio.wait({task})

    def ended(self) -> list[BurninEnded]:
        return [finding for finding in self.spool.findings if isinstance(finding, BurninEnded)]


def burnt(folder: Path, outcome: Any = None) -> tuple[Bench, BurninEnded]:
    async def case() -> Bench:
        bench = Bench(folder, outcome)
        assert await bench.chores.accept(order()) == ""
        await bench.until(closed=1)
        return bench

    bench = asyncio.run(case())
    (finding,) = bench.ended()
    return bench, finding


def test_a_pass_becomes_a_finding_and_the_order_is_closed(tmp_path: Path) -> None:
    bench, finding = burnt(tmp_path)
    assert (finding.id, finding.order_id, finding.host, finding.boot_id) == (
        "h1/1/burnin/ended",
        "h1/1/burnin",
        HOST,
        BOOT,
    )
    assert (finding.verdict, finding.fault_class, finding.culprits) == (Verdict.PASS, FaultClass.NONE, ())
    assert (finding.level, finding.seed, finding.vote_key, finding.why) == ("smoke", 7, "key", "all tests passed")
    assert bench.orders.open() == ()
    assert bench.chores.runs_total == {"pass": 1, "fail": 0, "not_judged": 0}
    assert bench.chores.findings_total == 1


def test_a_fail_names_its_culprits_and_the_worst_class(tmp_path: Path) -> None:
    transient = {"gpu": "GPU-2", "index": 2, "class": "chip-transient", "why": "once"}
    _, finding = burnt(tmp_path, report(verdict="fail", why="", culprits=[transient, CULPRIT]))
    assert (finding.verdict, finding.fault_class) == (Verdict.FAIL, FaultClass.CHIP_PERSISTENT)
    assert [(c.gpu, c.index, c.fault_class, c.why) for c in finding.culprits] == [
        ("GPU-2", 2, FaultClass.CHIP_TRANSIENT, "once"),
        ("GPU-5", 5, FaultClass.CHIP_PERSISTENT, "7 against 1"),
    ]
    assert finding.why == "GPU 2 (chip-transient): once; GPU 5 (chip-persistent): 7 against 1"


@pytest.mark.parametrize(
    ("extra", "fault_class"),
    [
        ({}, FaultClass.CONFIGURATION),
        ({"class": "software-nondeterminism"}, FaultClass.SOFTWARE_NONDETERMINISM),
        (
            {"tests": [{"id": "step", "class": "software-nondeterminism"}, {"id": "health"}]},
            FaultClass.SOFTWARE_NONDETERMINISM,
        ),
    ],
)
def test_a_fail_without_a_culprit_blames_what_the_gpus_share(
    tmp_path: Path, extra: dict[str, Any], fault_class: FaultClass
) -> None:
    _, finding = burnt(tmp_path, report(verdict="fail", **extra))
    assert (finding.verdict, finding.fault_class, finding.culprits) == (Verdict.FAIL, fault_class, ())


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (BurnerError("the burn-in ended with exit code 2: no such level"), "no such level"),
        ("", "unreadable"),
        ("{", "unreadable"),
        (json.dumps(report())[:-5], "unreadable"),
        ("[]", "unreadable"),
        (b"\xff\xfe".decode("latin-1"), "unreadable"),
        (report(verdict="splendid"), "unreadable"),
        (report(seed="seven"), "unreadable"),
        ({k: v for k, v in report().items() if k != "culprits"}, "missing required field `culprits`"),
        (report(schema="fleetd.burnin.report/2"), "do not match"),
        (report(level="self"), "level 'self'"),
        (report(culprits=[CULPRIT]), "its verdict is pass"),
        (report(verdict="fail", culprits=[{**CULPRIT, "class": "none"}]), "class none"),
        (report(verdict="fail", culprits=[{**CULPRIT, "class": "evil"}]), "unreadable"),
        (report(verdict="fail", culprits=[CULPRIT] * 300), "300 culprits"),
        (" " * (9 << 20), "more than 8388608 bytes"),
    ],
)
def test_no_report_or_one_that_cannot_be_believed_is_not_judged(tmp_path: Path, outcome: Any, why: str) -> None:
    bench, finding = burnt(tmp_path, outcome)
    assert (finding.verdict, finding.fault_class, finding.culprits) == (Verdict.NOT_JUDGED, FaultClass.NONE, ())
    assert why in finding.why
    assert bench.chores.burner_errors_total + bench.chores.report_errors_total == 1
    assert bench.chores.runs_total["not_judged"] == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"host": HostName("h2")}, "the order is for host h2, this is h1"),
        ({"boot_id": BootId("boot-0")}, "the order is for boot boot-0, this is boot boot-1"),
        ({"not_after_s": 1.7e9 + 940.0}, "the order ran out 60 s ago"),
        ({"id": OrderId("x" * 201)}, "more than 200 characters"),
    ],
)
def test_an_order_that_must_not_begin_is_refused_and_leaves_no_trace(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        assert why in await bench.chores.accept(order(**changes))
        assert bench.orders.accepted == {}
        assert bench.chores.refused_total == 1

    asyncio.run(case())


def test_an_order_sent_again_is_confirmed_again_and_carried_out_once(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        assert await bench.chores.accept(order(not_after_s=1.7e9 + 1010.0)) == ""
        bench.clock.now_s += 60.0  # it waits on disk, so its time is not an excuse to refuse it now
        assert await bench.chores.accept(order(not_after_s=1.7e9 + 1010.0)) == ""
        bench.clock.now_s -= 60.0
        await bench.until(closed=1)
        assert await bench.chores.accept(order()) == ""
        assert bench.orders.open() == ()
        assert bench.burner.burnt == ["h1/1/burnin"]

    asyncio.run(case())


def test_orders_run_one_at_a_time_in_order_and_only_a_few_may_wait(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path, waiting_max=2)
        assert await bench.chores.accept(order(1)) == ""
        assert await bench.chores.accept(order(2)) == ""
        assert "2 burn-ins are waiting" in await bench.chores.accept(order(3))
        await bench.until(closed=2)
        assert bench.burner.burnt == ["h1/1/burnin", "h1/2/burnin"]
        assert bench.burner.running_max == 1

    asyncio.run(case())


def test_an_order_that_comes_while_it_waits_wakes_it(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        task = asyncio.create_task(bench.chores.run())
        await asyncio.sleep(0)
        assert await bench.chores.accept(order()) == ""
        await asyncio.wait_for(bench.orders.closed.wait(), 60)
        await bench.kill(task)

    asyncio.run(case())


def test_killed_during_the_burnin_it_runs_again_after_the_restart(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        await bench.chores.accept(order())
        bench.burner.hold = asyncio.Event()
        task = asyncio.create_task(bench.chores.run())
        await bench.burner.started.wait()
        await bench.kill(task)
        assert bench.ended() == []
        bench.burner.hold = None
        bench.start()
        await bench.until(closed=1)
        assert len(bench.burner.burnt) == 2
        assert [finding.verdict for finding in bench.ended()] == [Verdict.PASS]

    asyncio.run(case())


def test_killed_after_the_report_it_uses_it_after_the_restart(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        await bench.chores.accept(order())
        bench.spool.refuse = 1_000_000  # the report is on disk, the finding is not
        task = asyncio.create_task(bench.chores.run())
        await bench.spool.refused.wait()
        await bench.kill(task)
        bench.spool.refuse = 0
        bench.clock.now_s += 1e7  # long past its time: the run is over, so it counts
        bench.start()
        await bench.until(closed=1)
        assert len(bench.burner.burnt) == 1
        assert [finding.verdict for finding in bench.ended()] == [Verdict.PASS]

    asyncio.run(case())


@pytest.mark.parametrize(
    ("changes", "seconds", "why"),
    [({"boot_id": BootId("boot-0")}, 0.0, "this is boot boot-1"), ({}, 2e6, "ran out")],
)
def test_an_open_order_that_may_no_longer_begin_ends_without_a_judgement(
    tmp_path: Path, changes: dict[str, Any], seconds: float, why: str
) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        bench.orders.accept(order(**changes))
        bench.clock.now_s += seconds
        await bench.until(closed=1)
        (finding,) = bench.ended()
        assert (finding.verdict, bench.burner.burnt) == (Verdict.NOT_JUDGED, [])
        assert why in finding.why

    asyncio.run(case())


def test_a_disk_that_refuses_is_waited_for_with_back_off_and_nothing_runs_twice(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path, BurnerError("no report"))
        await bench.chores.accept(order())
        bench.spool.refuse = 8
        await bench.until(closed=1)
        assert bench.clock.sleeps == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
        assert len(bench.burner.burnt) == 1
        assert len(bench.ended()) == 1

    asyncio.run(case())


def test_an_order_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        bench.orders.refuse = 1
        assert "disk full" in await bench.chores.accept(order())
        assert bench.chores.store_errors_total == 1

    asyncio.run(case())


def test_only_the_newest_reports_stay(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path, reports_kept=2, waiting_max=9)
        (tmp_path / "recalled.resume").touch()
        for number in range(5):
            await bench.chores.accept(order(number))
        await bench.until(closed=5)

    asyncio.run(case())
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert not list(tmp_path.glob("*.resume"))


def test_a_configuration_that_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="waiting_max"):
        ChoresConfig(waiting_max=0)


# ── recalls ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class EndlessBurner:
    """Runs until it is ended, and remembers that."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended: list[OrderId] = []

    async def burn(self, order: RunBurnin, _report: Path) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(order.id)


def recall(name: str = "h1/1/burnin") -> RecallBurnin:
    return RecallBurnin(order_id=OrderId(name), why="automation is stopped by ann: roll-out")


def test_a_running_burnin_is_recalled_and_the_next_one_begins(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        endless = EndlessBurner()
        bench.chores._burner = endless
        first, second = order(), replace(order(), id=OrderId("h1/2/burnin"))
        assert [await bench.chores.accept(o) for o in (first, second)] == ["", ""]
        task = asyncio.create_task(bench.chores.run())
        await endless.begun.wait()
        bench.chores.recall(recall("h1/9/burnin"))  # nobody knows it
        bench.chores.recall(recall("h1/2/burnin"))  # it waits
        bench.chores.recall(recall())
        bench.chores.recall(recall())  # told again after a new connection
        while len(bench.orders.done) < 2:
            bench.orders.closed.clear()
            await bench.orders.closed.wait()
        assert endless.ended == [first.id]  # the second never began
        assert [(f.verdict, f.why) for f in bench.ended()] == [
            (Verdict.NOT_JUDGED, "recalled: automation is stopped by ann: roll-out"),
            (Verdict.NOT_JUDGED, "recalled before it began: automation is stopped by ann: roll-out"),
        ]
        bench.chores.recall(recall())  # it has ended
        endless.begun.clear()
        assert await bench.chores.accept(replace(order(), id=OrderId("h1/3/burnin"))) == ""
        await endless.begun.wait()
        await bench.kill(task)  # an agent that ends takes its burn-in with it, and reports nothing
        assert endless.ended == [first.id, "h1/3/burnin"]
        assert len(bench.ended()) == 2

    asyncio.run(case())
