"""The simulated spool and orders against the real ones: the same calls, the same answers, also after a restart."""

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.ids import BootId, FindingId, HostName, OrderId, SpoolId
from fleetd.model.order import RunBurnin
from fleetd.sim.disk import File, OrderRecord, SimOrders, SimSpool, SpoolRecord
from fleetd.sim.life import Life
from fleetd.uplink.orders import SqliteOrders
from fleetd.uplink.spool import SqliteSpool

MAX_FINDINGS = 4
NAMES = random.Random(1)  # noqa: S311 - names a new spool
IDS = st.integers(0, 9)


def finding(number: int) -> DeviceFault:
    return DeviceFault(
        id=FindingId(f"f{number}"),
        host=HostName("h1"),
        boot_id=BootId("b1"),
        at_s=1.0,
        why="w",
        code="c",
        gpu=None,
        index=None,
        scope=Scope.HOST,
        severity=Severity.INFO if number % 3 == 0 else Severity.ERROR,
        fault_class=FaultClass.NONE,
    )


def order(number: int) -> RunBurnin:
    return RunBurnin(
        id=OrderId(f"o{number}"),
        host=HostName("h1"),
        issued_at_s=0.0,
        why="w",
        level="smoke",
        boot_id=BootId("b1"),
        not_after_s=9.0,
    )


def life() -> Life:
    return Life("h1", fuse=None, on_end=lambda: None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["append", "acknowledge", "reopen"]), IDS), max_size=25))
def test_spools(calls: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, file = Path(folder) / "spool.db", File[SpoolRecord](lambda: 0.0)
        real = SqliteSpool(path, rng=NAMES, max_findings=MAX_FINDINGS)
        twin = SimSpool(SpoolId("twin"), file, life(), max_findings=MAX_FINDINGS)
        for what, number in calls:
            match what:
                case "append":
                    assert twin.append(finding(number)) == real.append(finding(number))
                case "acknowledge":
                    twin.acknowledge(number)
                    real.acknowledge(number)
                case _:
                    real.close()
                    real = SqliteSpool(path, rng=NAMES, max_findings=MAX_FINDINGS)
                    twin = SimSpool(SpoolId("twin"), file, life(), max_findings=MAX_FINDINGS)
            assert twin.depth == real.depth
            for after in (0, number):
                assert twin.pending(after_seq=after, limit=3) == real.pending(after_seq=after, limit=3)
        real.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["accept", "close", "reopen"]), IDS), max_size=25))
def test_orders(calls: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, file = Path(folder) / "orders.db", File[OrderRecord](lambda: 0.0)
        real, twin = SqliteOrders(path), SimOrders(file, life())
        for what, number in calls:
            match what:
                case "accept":
                    assert twin.accept(order(number)) == real.accept(order(number))
                case "close":
                    twin.close_order(OrderId(f"o{number}"))
                    real.close_order(OrderId(f"o{number}"))
                case _:
                    real.close()
                    real, twin = SqliteOrders(path), SimOrders(file, life())
            assert twin.open() == real.open()
        real.close()
