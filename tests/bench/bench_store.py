# ruff: noqa: T201 - a bench prints
"""A large ledger: how long a controller takes to start on it, and how long a host's page takes.

    python tests/bench/bench_store.py [HOSTS [ENTRIES]]

Makes a ledger of 10,000 hosts with 8 GPUs each and 1,000,000 entries (a few minutes, about 4 GiB, removed afterwards),
then measures in processes of their own: the start of a controller on it up to the moment at which it could serve, and
the page of a host: its state, newest findings and why (`fleetd host show`, `fleetd host explain`), through the desk.
Exit code 1 when a target is missed. Times are wall times: on a machine that is busy with other things look at the CPU
time beside them. The file is dropped from the cache before the start where that is allowed.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa
import structlog

from fleetd.actuators.dryrun import DryRun
from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.controller.controller import Controller
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.core.judgement import judge
from fleetd.core.replay import Replay
from fleetd.model.event import AgentConnected, Event, FindingReceived, JobEnded
from fleetd.model.finding import BurninEnded, DeviceFault, FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Gpu, Hello, Host, Place
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, SpoolId
from fleetd.model.journal import JournalEntry, SpoolProgress
from fleetd.stores import codec
from fleetd.stores.schema import findings, journal
from fleetd.stores.sql import SqlStore
from fleetd.system import RealClock, run_blocking

READY_S, PAGE_S = 10.0, 0.2
PAGES = 50
BATCH = 2000
FINDINGS_READ = 50_000
"""The first copies are read again as they are written: a mistake in making them is no figure."""
SPOOL = SpoolId("spool")


def hello(n: int) -> AgentConnected:
    name = HostName(f"host-{n:05d}")
    gpus = tuple(
        Gpu(gpu=GpuId(f"GPU-{n:08x}-{i}"), index=i, vendor="nvidia", sku="H200", pci_address=f"0000:{i:02x}:00.0")
        for i in range(8)
    )
    place = Place(pool=f"pool-{n % 4}", rack=f"rack-{n // 16}")
    said = Hello(
        host=name,
        boot_id=BootId(f"boot-{n}"),
        agent_version="0.1.0",
        capabilities=("burnin",),
        inventory=gpus,
        place=place,
    )
    return AgentConnected(host=name, hello=said)


def passed(host: Host, at_s: float) -> FindingReceived:
    assert host.pending is not None
    assert host.boot_id is not None
    finding = BurninEnded(
        id=FindingId(f"{host.pending.order_id}/end"),
        host=host.name,
        boot_id=host.boot_id,
        at_s=at_s,
        why="all agree",
        order_id=host.pending.order_id,
        level=host.pending.level,
        verdict=Verdict.PASS,
        fault_class=FaultClass.NONE,
        seed=1,
        vote_key="k",
        culprits=(),
    )
    return FindingReceived(host=host.name, finding=finding)


def fault(host: Host, n: int, at_s: float) -> FindingReceived:
    assert host.boot_id is not None
    finding = DeviceFault(
        id=FindingId(f"{host.name}/fault/{n}"),
        host=host.name,
        boot_id=host.boot_id,
        at_s=at_s,
        why="application fault in the kernel log",
        code="nvidia.xid.31",
        gpu=host.inventory[n % 8].gpu,
        index=n % 8,
        scope=Scope.APP,
        severity=Severity.WARNING,
        fault_class=FaultClass.NONE,
    )
    return FindingReceived(host=host.name, finding=finding)


class Writer:
    """Judges events and writes them in large transactions; the disk is not waited for, which only making it may."""

    def __init__(self, path: Path) -> None:
        self.store = SqlStore(path)
        sa.event.listen(self.store._engine, "checkout", lambda c, *_: c.execute("PRAGMA synchronous = OFF"))
        self.replay = Replay(load_policy(policy_path("default")))
        self.written = 0
        self._batch: list[JournalEntry] = []

    def write(self, at_s: float, event: Event, seq: int | None = None) -> Host:
        # Judged as a controller does; the replay's own set of known findings is not needed here and would only grow.
        before = self.replay.hosts.get(event.host)
        step = judge(now_s=at_s, host=before, event=event, fleet=self.replay.fleet, policy=self.replay.policy)
        self.replay.fleet.apply(now_s=at_s, before=before, event=event, step=step)
        self.replay.fleet.commit()
        self.replay.hosts[event.host] = step.state
        progress = None if seq is None else SpoolProgress(spool=SPOOL, seq=seq)
        entry = JournalEntry(
            at_s=at_s, event=event, host=step.state, orders=step.orders, withheld=step.withheld, refused=step.refused,
            fleet=step.fleet, why=step.why, progress=progress,
        )  # fmt: skip
        self._batch.append(entry)
        self.written += 1
        if len(self._batch) >= BATCH:
            self.flush()
        return step.state

    def flush(self) -> None:
        if self._batch:
            self.store.commit(self._batch)
            with self.store._guarded(write=True) as connection:
                connection.exec_driver_sql("UPDATE orders SET done = 1, result = 'done' WHERE done = 0")
        self._batch = []


def make(path: Path, hosts: int, entries: int) -> None:
    """Every host joins, qualifies, has an application fault and a job, all judged; then the same over and over.

    The rest are copies of the last two of each host with another time and id, chained as a controller does: a fault and
    a job that change no host. So a million of them take minutes, and the ledger is whole (`fleetd store check`).
    """
    writer = Writer(path)
    first_s = time.time() - 90 * 86400.0
    names = []
    for n in range(hosts):
        host = writer.write(first_s, hello(n))
        host = writer.write(first_s + 60.0, passed(host, first_s + 59.0), seq=1)
        writer.write(first_s + 61.0, fault(host, 0, first_s + 61.0), seq=2)
        writer.write(first_s + 62.0, JobEnded(host=host.name, job=f"{host.name}/job/0", ok=True, ran_seconds=7200.0))
        names.append(host.name)
    writer.flush()
    with writer.store._guarded(write=True) as connection:
        copied(connection, names, begin_s=first_s + 63.0, step_s=89 * 86400.0 / entries, last=entries)
    writer.store.close()


def copied(connection: sa.Connection, names: list[HostName], *, begin_s: float, step_s: float, last: int) -> None:
    """Fill the journal up to the position `last`."""
    query = sa.select(journal).order_by(journal.c.id)
    told: dict[tuple[str, str], tuple[str, str, str]] = {}
    position, before = 0, ""
    for row in connection.execute(query):
        position, before = row.id, row.body
        told[row.host, row.kind] = (row.body.partition(',"event"')[2], row.was, row.why)
    rows: list[dict[str, object]] = []
    found: list[dict[str, object]] = []
    while position < last:
        position += 1
        name, at_s = names[position * 7919 % len(names)], begin_s + position * step_s
        kind, word = ("FindingReceived", "fault") if position % 2 else ("JobEnded", "job")
        body, was, why = told[name, kind]
        body = body.replace(f"{name}/{word}/0", f"{name}/{word}/{position}")
        before = codec.chained(f'{{"at_s":{at_s!r},"event"{body}', before)
        rows.append(
            {"id": position, "host": name, "kind": kind, "body": before, "at_s": at_s, "who": None, "was": was}
            | {"notable": kind == "JobEnded", "why": why}
        )
        if kind == "FindingReceived":
            entry = codec.load_entry(before) if position < FINDINGS_READ else None
            assert entry is None or isinstance(entry.event, FindingReceived)
            text = body[body.index('"finding":') + len('"finding":') : body.index('},"host"') + 1]
            found.append({"id": f"{name}/fault/{position}", "position": position, "host": name, "body": text})
        if len(rows) >= BATCH or position == last:
            connection.execute(sa.insert(journal), rows)
            connection.execute(sa.insert(findings), found)
            rows, found = [], []


MEASURE = "--measure"


def measure(path: Path, hosts: int) -> None:
    """In a process of its own: start, then ask for pages; prints one JSON object."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    began = time.perf_counter()
    store = SqlStore(path)
    opened = time.perf_counter()
    controller = Controller(
        store=store,
        actuator=DryRun(path.parent / "orders.jsonl", run_blocking=run_blocking),
        policy=load_policy(policy_path("default")),
        clock=RealClock(),
        run_blocking=run_blocking,
        dispatcher=DispatcherConfig(),
    )
    controller.load()
    ready, cpu_s = time.perf_counter(), time.process_time()

    async def page(name: HostName) -> float:
        asked = time.perf_counter()
        await controller.desk.host(name)
        await controller.desk.explain(name)
        return time.perf_counter() - asked

    async def pages() -> list[float]:
        return [await page(HostName(f"host-{n * 104729 % hosts:05d}")) for n in range(PAGES)]

    seconds = asyncio.run(pages())
    page_cpu_s = (time.process_time() - cpu_s) / PAGES
    store.close()
    status = Path("/proc/self/status").read_text()
    rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    found = {
        "open_s": opened - began,
        "ready_s": ready - began,
        "rss_mib": rss / 1024,
        "page_p50_s": statistics.median(seconds),
    }
    print(json.dumps(found | {"cpu_s": cpu_s, "page_max_s": max(seconds), "page_cpu_s": page_cpu_s}))


def forget(path: Path) -> None:
    """Ask the kernel to drop the file from the page cache; it may keep it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    """Make, measure, judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("hosts", nargs="?", type=int, default=10_000)
    parser.add_argument("entries", nargs="?", type=int, default=1_000_000)
    parser.add_argument(MEASURE, dest="measure", type=Path)
    parser.add_argument("--folder", type=Path, help="Where the ledger is made; by default a temporary one.")
    asked = parser.parse_args()
    if asked.measure is not None:
        measure(asked.measure, asked.hosts)
        return
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        path = Path(folder) / "fleet.db"
        began = time.perf_counter()
        make(path, asked.hosts, asked.entries)
        size = path.stat().st_size / 2**30
        print(
            f"{asked.hosts} hosts, {asked.entries} entries: {size:.2f} GiB, made in {time.perf_counter() - began:.0f} s"
        )
        forget(path)
        command = [sys.executable, __file__, MEASURE, str(path), str(asked.hosts)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ready, cpu = f"{found['ready_s']:.2f} s", f"{found['cpu_s']:.2f} s of CPU"
    print(f"file opened and looked at: {found['open_s']:.2f} s; controller ready: {ready} ({cpu}; < {READY_S:g} s)")
    pages = f"median {found['page_p50_s'] * 1e3:.0f} ms, max {found['page_max_s'] * 1e3:.0f} ms"
    print(f"host page: {pages} ({found['page_cpu_s'] * 1e3:.0f} ms of CPU; < {PAGE_S * 1e3:g} ms)")
    print(f"memory: {found['rss_mib']:.0f} MiB")
    sys.exit(found["ready_s"] >= READY_S or found["page_max_s"] >= PAGE_S)


if __name__ == "__main__":
    main()
