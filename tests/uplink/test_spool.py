"""The spool and the orders on disk: durable, bounded, and alive after damage."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fleetd.model.finding import Severity
from fleetd.ports import StoreError
from fleetd.uplink.orders import SqliteOrders
from fleetd.uplink.spool import SqliteSpool

Open = Callable[..., SqliteSpool]


@pytest.fixture
def spool_of(tmp_path: Path) -> Iterator[Open]:
    opened = []

    def open_spool(name: str = "spool.db", *, seed: int = 0, **options: int) -> SqliteSpool:
        spool = SqliteSpool(tmp_path / name, rng=random.Random(seed), **options)  # noqa: S311 - names a spool
        opened.append(spool)
        return spool

    yield open_spool
    for spool in opened:
        spool.close()


def ids(spool: SqliteSpool) -> list[str]:
    return [item.finding.id for item in spool.pending(after_seq=0, limit=1000)]


def test_what_was_appended_is_there_after_a_restart(spool_of: Open, make: Any) -> None:
    first = spool_of()
    sent = [make.fault("a"), make.fault("b")]
    assert [first.append(finding) for finding in sent] == [1, 2]
    first.close()
    again = spool_of(seed=99)
    assert again.id == first.id
    assert [(item.seq, item.finding) for item in again.pending(after_seq=0, limit=9)] == list(enumerate(sent, 1))
    assert again.pending(after_seq=1, limit=9)[0].seq == 2
    assert again.pending(after_seq=0, limit=1)[0].seq == 1


def test_a_fact_counts_once_also_after_it_was_acknowledged(spool_of: Open, make: Any) -> None:
    spool = spool_of(max_acknowledged=2)
    assert [spool.append(make.fault(name)) for name in "aba"] == [1, 2, 1]
    spool.acknowledge(1)
    assert (spool.append(make.fault("a")), ids(spool), spool.depth) == (1, ["b"], 1)
    for name in "cd":
        spool.append(make.fault(name))
    spool.acknowledge(4)
    # Two are remembered; of the older one nobody knows any more, and it is a new fact.
    assert [spool.append(make.fault(name)) for name in "dca"] == [4, 3, 5]


def test_numbers_are_never_given_again(spool_of: Open, make: Any) -> None:
    spool = spool_of()
    spool.append(make.fault("a"))
    spool.acknowledge(1)
    spool.close()
    assert spool_of().append(make.fault("b")) == 2


def test_a_full_spool_drops_the_oldest_info_and_then_the_oldest(spool_of: Open, make: Any) -> None:
    spool = spool_of(max_findings=3)
    spool.append(make.fault("a"))
    spool.append(make.fault("i", severity=Severity.INFO))
    spool.append(make.fault("b"))
    with capture_logs() as logs:
        spool.append(make.fault("c"))
        assert ids(spool) == ["a", "b", "c"]
        spool.append(make.fault("j", severity=Severity.INFO))  # itself the only one that may go
        assert ids(spool) == ["a", "b", "c"]
        spool.append(make.fault("d"))
    assert ids(spool) == ["b", "c", "d"]
    assert (spool.dropped_total, spool.depth) == (3, 3)
    assert [entry["event"] for entry in logs] == ["findings_dropped"] * 3


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()) | st.integers(0, 20), max_size=25))
def test_it_stays_bounded_and_in_order_whatever_happens(spool_of: Open, make: Any, steps: list[Any]) -> None:
    spool = spool_of(f"{uuid.uuid4()}.db", max_findings=4, max_acknowledged=3)  # hypothesis seeds `random`
    highest = 0
    for step in steps:
        if isinstance(step, int):
            spool.acknowledge(min(step, highest))
        else:
            name, info = step
            seq = spool.append(make.fault(name, severity=Severity.INFO if info else Severity.ERROR))
            highest = max(highest, seq)
        pending = spool.pending(after_seq=0, limit=100)
        seqs = [item.seq for item in pending]
        assert seqs == sorted(set(seqs))
        assert len(seqs) == spool.depth <= 4
        assert len({item.finding.id for item in pending}) == len(pending)


def test_waiting_ends_with_the_next_finding(spool_of: Open, make: Any) -> None:
    async def scenario() -> None:
        spool = spool_of()
        waiting = asyncio.create_task(spool.wait(after_seq=0))
        await asyncio.sleep(0)
        assert not waiting.done()
        spool.append(make.fault("a"))
        await waiting
        await spool.wait(after_seq=0)
        later = asyncio.create_task(spool.wait(after_seq=1))
        await asyncio.sleep(0)
        assert not later.done()
        spool.append(make.fault("b"))
        await later

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_killed_it_has_what_append_returned_for(tmp_path: Path, spool_of: Open) -> None:
    """A child appends until it is killed; every number that it reported must be there, and no half one."""
    code = f"""
import random
from dataclasses import replace
from pathlib import Path
from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.uplink.spool import SqliteSpool
spool = SqliteSpool(Path({str(tmp_path / "spool.db")!r}), rng=random.Random(1))
fault = DeviceFault(id="", host="h", boot_id="b", at_s=1.0, why="w", code="c", gpu=None, index=None,
                    scope=Scope.HOST, severity=Severity.ERROR, fault_class=FaultClass.NONE)
number = 0
while True:
    number += 1
    print(spool.append(replace(fault, id=f"f{{number}}")), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(20):
            assert child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        reported = 20 + sum(1 for _ in child.stdout)
    spool = spool_of()
    assert reported <= spool.depth <= reported + 1
    assert ids(spool) == [f"f{number}" for number in range(1, spool.depth + 1)]


@pytest.mark.parametrize("damage", [b"", b"this is no database" * 500])
def test_a_corrupted_file_is_set_aside_and_a_new_spool_begun(
    tmp_path: Path, spool_of: Open, make: Any, damage: bytes
) -> None:
    first = spool_of()
    for number in range(200):
        first.append(make.fault(f"f{number}"))
    first.close()
    path = tmp_path / "spool.db"
    content = bytearray(path.read_bytes())
    if damage:
        content[: len(damage)] = damage
    else:  # every page but the first, as a bad disk would
        content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with capture_logs() as logs:
        second = spool_of(seed=1)
    assert [entry["event"] for entry in logs] == ["database_set_aside"]
    assert second.id != first.id
    assert second.depth == 0
    assert second.append(make.fault("a")) == 1
    assert (tmp_path / "spool.db.corrupt").read_bytes() == bytes(content)


def test_a_file_put_back_from_a_copy_loses_nothing_new(spool_of: Open, make: Any) -> None:
    spool = spool_of()
    spool.append(make.fault("a"))
    spool.append(make.fault("b"))
    with capture_logs() as logs:
        spool.acknowledge(50)  # the controller has numbers that this file never gave
    assert [entry["event"] for entry in logs] == ["spool_went_back"]
    assert [item.seq for item in spool.pending(after_seq=50, limit=9)] == [51, 52]
    assert spool.append(make.fault("c")) == 53
    spool.acknowledge(53)
    assert spool.depth == 0


def test_one_process_has_the_file(spool_of: Open, tmp_path: Path) -> None:
    spool_of()
    with pytest.raises(StoreError, match=r"spool\.db is in use by another process"):
        spool_of()
    del tmp_path


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("PRAGMA user_version = 9", "has schema 9 and this version of fleetd knows schema 1"),
        ("PRAGMA application_id = 7", "is a database of another program"),
    ],
)
def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path, spool_of: Open, statement: str, line: str) -> None:
    spool_of().close()
    connection = sqlite3.connect(tmp_path / "spool.db")
    connection.execute(statement)
    connection.close()
    with pytest.raises(StoreError, match=line):
        spool_of()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, spool_of: Open) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/spool\.db: (Not a directory|File exists)"):
        spool_of("file/spool.db")


def test_an_entry_that_cannot_be_read_does_not_block_the_others(tmp_path: Path, spool_of: Open, make: Any) -> None:
    spool = spool_of()
    spool.append(make.fault("a"))
    spool.append(make.fault("b"))
    spool.close()
    connection = sqlite3.connect(tmp_path / "spool.db", isolation_level=None)
    connection.execute("UPDATE finding SET body = '{}' WHERE id = 'a'")
    connection.close()
    again = spool_of()
    assert ids(again) == ["b"]
    assert (again.dropped_total, again.depth) == (1, 1)


def test_text_that_is_not_utf8_is_kept_readable(spool_of: Open, make: Any) -> None:
    spool = spool_of()
    spool.append(make.fault("a", why="bad\udc80byte\n"))
    assert spool.pending(after_seq=0, limit=1)[0].finding.why == "bad byte "


def test_orders_are_accepted_once_and_survive_a_restart(tmp_path: Path, make: Any) -> None:
    orders = SqliteOrders(tmp_path / "orders.db", max_closed=1)
    first, second, third = (make.order(name) for name in ("h01/1", "h01/2", "h01/3"))
    assert [orders.accept(order) for order in (first, second, first)] == [True, True, False]
    orders.close_order(first.id)
    orders.close_order(first.id)
    orders.close_order("never heard of")
    orders.close()
    again = SqliteOrders(tmp_path / "orders.db", max_open=2, max_closed=1)
    assert again.open() == (second,)
    assert [again.accept(order) for order in (first, second, third)] == [False, False, True]
    with pytest.raises(StoreError, match="2 orders wait already, order h01/4 is not accepted"):
        again.accept(make.order("h01/4"))
    again.close_order(second.id)
    again.close_order(third.id)
    assert again.open() == ()
    assert again.accept(second)  # one closed order is remembered, this one is forgotten
    again.close()
