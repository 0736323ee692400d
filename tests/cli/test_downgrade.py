"""State that a newer version wrote: refused with the reason, and left as it is, by controller and agent alike."""

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleetd.stores.sql import SqlStore
from fleetd.uplink.orders import SqliteOrders
from fleetd.uplink.spool import SqliteSpool

HEAD = "apiVersion: fleetd/v1\nexporter: {listen: '127.0.0.1:0'}\n"


def start(noun: str, config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "fleetd", noun, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def content(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def test_a_controller_does_not_touch_the_ledger_of_a_newer_one(tmp_path: Path) -> None:
    ledger = tmp_path / "fleet.db"
    SqlStore(ledger).close()
    with closing(sqlite3.connect(ledger)) as database:
        database.execute("UPDATE alembic_version SET version_num = '0099'")
        database.execute("CREATE TABLE of_the_future (what TEXT)")
        database.commit()
    before = content(ledger)
    config = tmp_path / "controller.yaml"
    config.write_text(
        f"{HEAD}kind: Controller\nstate_dir: {tmp_path}\nserver: {{listen: '127.0.0.1:0', insecure: true}}\n"
    )
    done = start("controller", config)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith(f"fleetd: {ledger}: schema 0099 was written by a newer fleetd")
    assert "a ledger is never downgraded" in line
    assert content(ledger) == before


def databases(folder: Path) -> Iterator[tuple[str, Path]]:
    SqliteSpool(folder / "spool.db", rng=random.Random(1)).close()  # noqa: S311 - names a spool
    yield "spool", folder / "spool.db"
    SqliteOrders(folder / "orders.db").close()
    yield "orders", folder / "orders.db"


@pytest.mark.parametrize("which", ["spool", "orders"])
def test_an_agent_does_not_touch_what_a_newer_one_has_to_say(which: str, tmp_path: Path) -> None:
    path = dict(databases(tmp_path))[which]
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    before = content(path)
    config = tmp_path / "agent.yaml"
    config.write_text(
        f"{HEAD}kind: Agent\nstate_dir: {tmp_path}\ndevices: {{backend: sim}}\nstatus: {{socket: {tmp_path / 's'}}}\n"
        "uplink: {address: '127.0.0.1:1', insecure: true}\n"
    )
    done = start("agent", config)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith(f"fleetd: {path} has schema 99 and this version of fleetd knows schema ")
    assert "run the version that wrote it" in line
    assert content(path) == before
