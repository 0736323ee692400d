"""A disk that is full, or read-only: said, and retried by whoever still has it; nothing is half written or dropped."""

import asyncio
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import structlog

from fleetd.actuators.dryrun import DryRun
from fleetd.controller.controller import Controller
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName, SpoolId
from fleetd.ports import Peer, StoreError
from fleetd.stores.sql import SqlStore
from fleetd.system import RealClock, run_blocking
from tests.stores.ledgers import Ledgerer, burnin, hello

H1 = HostName("h1")


class Disk:
    """How far the file may grow, on whichever of the store's connections."""

    def __init__(self, store: SqlStore) -> None:
        self._pages = 2**30
        self._store = store
        sa.event.listen(store._engine, "checkout", self._limit)

    def _limit(self, connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {self._pages}")

    def room(self, pages: int | None) -> None:
        """Let the file grow by so many pages and no more, as on a full disk; None: as it likes."""
        self._pages = 2**30
        with self._store._guarded() as connection:
            now: int = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        self._pages = 2**30 if pages is None else now + pages


def test_a_full_disk_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    made = Ledgerer()
    made.join(0.0, ["h1"])
    with closing(SqlStore(tmp_path / "fleet.db")) as store:
        store.commit(made.entries)
        before = store.load()
        disk = Disk(store)
        disk.room(3)
        more = Ledgerer()
        more.join(100.0, [f"n{n}" for n in range(50)])
        with pytest.raises(StoreError, match=r"fleet\.db: database or disk is full"):
            store.commit(more.entries)
        assert store.load() == before
        disk.room(None)
        store.commit(more.entries)
        assert len(store.load().hosts) == 51


def test_while_the_disk_is_full_nothing_is_acknowledged_and_nothing_is_lost_afterwards(tmp_path: Path) -> None:
    """The agent keeps what is not acknowledged, and sends it again: it counts once."""

    async def scene() -> None:
        store = SqlStore(tmp_path / "fleet.db")
        controller = Controller(
            store=store,
            actuator=DryRun(tmp_path / "orders.jsonl", run_blocking=run_blocking),
            policy=Ledgerer().replay.policy,
            clock=RealClock(),
            run_blocking=run_blocking,
            dispatcher=DispatcherConfig(),
        )
        controller.load()
        task = asyncio.create_task(controller.run())
        spool = SpoolId("s")
        await controller.intake.hello(Peer(name="h1", role="agent"), hello("h1").hello, spool)
        finding = replace(burnin("h1", "h1/bad", 1.0).finding, why="w" * 20_000)  # no page that is there has the room
        disk = Disk(store)
        disk.room(0)
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                with pytest.raises(StoreError, match="full"):
                    await controller.intake.finding(H1, spool, 1, finding)
        assert [log["event"] for log in logs] == ["the ledger refused; nothing was decided"] * 3
        assert controller.judge.store_errors_total == 3
        assert controller.judge.hosts[H1].state is Lifecycle.QUALIFYING
        assert not store.findings_known([finding.id])
        disk.room(None)
        assert await controller.intake.finding(H1, spool, 1, finding) == 1
        assert controller.judge.hosts[H1].state is Lifecycle.QUARANTINED
        assert await controller.intake.finding(H1, spool, 1, finding) == 1  # resent: a repetition
        assert len(store.findings(H1, limit=9)) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        store.close()

    structlog.reset_defaults()
    asyncio.run(scene())


WRITE = """
import resource, signal, sys
from pathlib import Path
from fleetd.ports import StoreError
from fleetd.stores.sql import SqlStore
from tests.stores.ledgers import Ledgerer
store = SqlStore(Path(sys.argv[1]))
made = Ledgerer()
made.join(0.0, ["h1"])
store.commit(made.entries)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
more = Ledgerer()
more.join(100.0, [f"n{n}" for n in range(100)])
try:
    store.commit(more.entries)
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print([host.name for host in store.load().hosts])
store.commit(more.entries)
print(len(store.load().hosts))
"""


def test_a_file_that_may_not_grow_is_said_and_goes_on_when_it_may(tmp_path: Path) -> None:
    """The kernel's own limit, which fails the write itself as a quota does."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", WRITE, tmp_path / "fleet.db"],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    said, hosts, total = done.stdout.splitlines()
    assert said.startswith(f"{tmp_path / 'fleet.db'}: ")
    assert (hosts, total) == ("['h1']", "101")


def test_a_ledger_that_became_read_only_is_one_line(tmp_path: Path) -> None:
    made = Ledgerer()
    made.join(0.0, ["h1"])
    with closing(SqlStore(tmp_path / "fleet.db")) as store:
        store.commit(made.entries)
        with store._guarded() as connection:
            connection.exec_driver_sql("PRAGMA query_only = ON")  # what SQLite answers on a file system gone read-only
        with pytest.raises(StoreError, match=r"fleet\.db: attempt to write a readonly database"):
            store.commit(made.entries)
        with pytest.raises(StoreError, match="readonly"):
            store.finish_order(made.entries[0].orders[0].id, "done")


READ_ONLY = """
mount -t tmpfs -o size=4m none "$1" && cp "$2" "$1/fleet.db" && mount -o remount,ro "$1" &&
exec "$3" -c 'import sys; from pathlib import Path; from fleetd.stores.sql import SqlStore
try: SqlStore(Path(sys.argv[1]))
except Exception as error: print(type(error).__name__, error)' "$1/fleet.db"
"""


def test_a_read_only_file_system_is_one_line_at_the_start(tmp_path: Path) -> None:
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    mounts = 'mount -t tmpfs none "$1"'
    (tmp_path / "m").mkdir()
    may = subprocess.run([*namespace, "sh", "-c", mounts, "sh", tmp_path / "m"], capture_output=True, check=False)
    if may.returncode != 0:
        pytest.skip("mounting in a user namespace is not allowed here")
    SqlStore(tmp_path / "fleet.db").close()
    done = subprocess.run(
        [*namespace, "sh", "-c", READ_ONLY, "sh", tmp_path / "m", tmp_path / "fleet.db", sys.executable],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout.startswith("StoreError ")
    assert "fleet.db: " in done.stdout
    assert len(done.stdout.splitlines()) == 1
