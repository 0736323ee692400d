"""Looking after a ledger: pruning its oldest part, copying it while a controller writes it, putting a copy in place."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec
import sqlalchemy as sa

from fleetd.durable import settle
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.ports import StoreError
from fleetd.stores import codec, upgrade
from fleetd.stores.file import engine_of, one_line
from fleetd.stores.rows import upsert
from fleetd.stores.schema import anchor, baseline, findings, fleet, hosts, journal, orders

PAGE = 2000
"""Entries pruned in one transaction: a controller waits for it no longer than for a slow disk (tens of ms)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was taken away."""

    entries: int
    findings: int
    orders: int
    kept: int
    """Entries of that time that stay, because something open rests on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pinned:
    """What something open rests on, however old it is."""

    evidence: frozenset[str]
    """Findings behind holds, charges, strikes, marks and proofs."""
    at_s: frozenset[float]
    """When holds, charges, incidents, tripped budgets and the kill switch came about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """What pruning reads of an entry."""

    at_s: float
    host: Host | None
    fleet: FleetRecord | None


def prune(path: Path, *, before_s: float, go_on: Callable[[], bool] = lambda: True) -> Pruned:
    """Prune a ledger in a file, see `prune_by`. Raises StoreError."""
    engine = engine_of(path, read_only=False)
    try:
        return prune_by(lambda: _transaction(engine, path), str(path), before_s=before_s, go_on=go_on)
    finally:
        engine.dispose()


def prune_by(
    transaction: Callable[[], AbstractContextManager[sa.Connection]],
    where: str,
    *,
    before_s: float,
    go_on: Callable[[], bool] = lambda: True,
) -> Pruned:
    """Take entries, findings and finished orders away that are older than a wall time, beside a running controller.

    What stays whatever its age: the newest entry; hosts, the fleet's record, spools and open orders as they are; the
    entries and findings that open holds, charges, incidents and strikes rest on. Where the journal now begins, its
    chain and the hosts as they were then are kept, so that it can still be checked, rehearsed and reported on.

    Args:
        transaction: begins one in which nobody else prunes.
        where: names the ledger in messages.
        before_s: what is older than this wall time goes.
        go_on: asked after each page; the ledger is whole wherever it ends.

    Raises:
        StoreError: also for a journal that is damaged: it is left as it is, so that nothing hides the damage.
    """
    with transaction() as connection:
        try:
            upgrade.check(connection)
        except StoreError as error:
            raise StoreError(f"{where}: {error}") from error
        pinned = _pinned(connection)
        kept = _sweep(connection, pinned)
    entries = evidence = carried_out = 0
    while True:
        with transaction() as connection:
            page = _prune_page(connection, where, before_s, pinned)
        entries, evidence = entries + page.entries, evidence + page.findings
        carried_out, kept = carried_out + page.orders, kept + page.kept
        if page.entries + page.kept < PAGE or not go_on():
            return Pruned(entries=entries, findings=evidence, orders=carried_out, kept=kept)


@contextmanager
def _transaction(engine: sa.Engine, path: Path) -> Iterator[sa.Connection]:
    if not path.exists():
        raise StoreError(f"{path}: there is no such file")
    try:
        with engine.execution_options(immediate=True).begin() as connection:
            yield connection
    except sa.exc.SQLAlchemyError as error:
        raise StoreError(one_line(path, error)) from error


def _pinned(connection: sa.Connection) -> _Pinned:
    evidence: set[str] = set()
    times: set[float] = set()
    for body in connection.execute(sa.select(hosts.c.body)).scalars():
        host = codec.load_host(body)
        for hold in (*host.holds, *(charge.hold for charge in host.charges)):
            evidence.update(hold.evidence)
            times.add(hold.at_s)
        evidence.update(strike.finding for strike in host.strikes)
        evidence.update(mark.finding for mark in host.marks)
        evidence.update([host.proof] if host.proof is not None else [])
    text = connection.execute(sa.select(fleet.c.body)).scalar()
    record = FleetRecord() if text is None else codec.load_fleet(text)
    times.update(incident.opened_at_s for incident in record.incidents)
    times.update(tripped.at_s for tripped in record.tripped)
    times.update([record.stopped.at_s] if record.stopped is not None else [])
    return _Pinned(evidence=frozenset(evidence), at_s=frozenset(times))


def _sweep(connection: sa.Connection, pinned: _Pinned) -> int:
    """Take away what an earlier pruning left for the sake of something that has ended since; returns what stays."""
    begins = connection.execute(sa.select(anchor.c.position)).scalar()
    if begins is None:
        return 0
    old = connection.execute(sa.select(journal.c.id, journal.c.at_s).where(journal.c.id <= begins)).all()
    _delete_findings(connection, begins, pinned)
    return _delete(connection, [(row.id, row.at_s) for row in old], pinned)[1]


def _prune_page(connection: sa.Connection, where: str, before_s: float, pinned: _Pinned) -> Pruned:
    """Take the oldest page of the journal away, up to a time and never its newest entry."""
    begins = connection.execute(sa.select(anchor)).first()
    first = 0 if begins is None else begins.position
    newest = connection.execute(sa.select(sa.func.max(journal.c.id))).scalar() or 0
    query = sa.select(journal.c.id, journal.c.body).where(journal.c.id > first, journal.c.id < newest)
    rows: list[tuple[int, float]] = []
    last: str | None = None
    stood: dict[str, Host] = {}
    record = FleetRecord() if begins is None else codec.load_fleet(begins.fleet)
    for row in connection.execute(query.order_by(journal.c.id).limit(PAGE)):
        if last is not None or begins is None:
            follows = codec.follows(row.body, last)
        else:
            follows = codec.follows_anchor(row.body, begins.digest)
        if not follows:
            raise StoreError(
                f"{where}: entry {row.id} of the journal does not follow from the one before it: not pruned"
            )
        body = _read(where, row.id, row.body)
        if body.at_s >= before_s:
            break
        rows.append((row.id, body.at_s))
        last = row.body
        if body.host is not None:
            stood[body.host.name] = body.host
        record = body.fleet if body.fleet is not None else record
    if not rows or last is None:
        return Pruned(entries=0, findings=0, orders=0, kept=0)
    on = connection.dialect
    if stood:
        rows_of_hosts = [{"host": host.name, "body": codec.dump_host(host)} for host in stood.values()]
        connection.execute(upsert(on, baseline, "body"), rows_of_hosts)
    cut, at_s = rows[-1]
    values = {"position": cut, "at_s": at_s, "digest": codec.anchor_of(last), "fleet": codec.dump_fleet(record)}
    connection.execute(upsert(on, anchor, *values), [{"id": 1, **values}])
    gone, kept = _delete(connection, rows, pinned)
    done = sa.and_(orders.c.position <= cut, orders.c.done.is_(other=True))
    return Pruned(
        entries=gone,
        findings=_delete_findings(connection, cut, pinned),
        orders=connection.execute(sa.delete(orders).where(done)).rowcount,
        kept=kept,
    )


def _read(where: str, position: int, text: str) -> _Body:
    try:
        return msgspec.json.decode(text, type=_Body)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{where}: entry {position} of the journal cannot be read: {error}; not pruned") from error


def _delete(connection: sa.Connection, rows: list[tuple[int, float]], pinned: _Pinned) -> tuple[int, int]:
    """Delete journal entries that nothing rests on; returns how many are gone, and how many stay."""
    if not rows:
        return 0, 0
    low, high = rows[0][0], rows[-1][0]
    between = sa.select(findings.c.position, findings.c.id).where(findings.c.position.between(low, high))
    rests = {row.position for row in connection.execute(between) if row.id in pinned.evidence}
    open_orders = sa.select(orders.c.position).where(orders.c.done.is_(other=False), orders.c.position <= high)
    rests.update(connection.execute(open_orders).scalars())
    gone = [{"position": n} for n, at_s in rows if n not in rests and at_s not in pinned.at_s]
    if gone:
        connection.execute(sa.delete(journal).where(journal.c.id == sa.bindparam("position")), gone)
    return len(gone), len(rows) - len(gone)


def _delete_findings(connection: sa.Connection, cut: int, pinned: _Pinned) -> int:
    """Delete findings up to a position that nothing rests on; those that something rested on before are few."""
    old = connection.execute(sa.select(findings.c.id).where(findings.c.position <= cut))
    gone = [{"finding": found} for found in old.scalars() if found not in pinned.evidence]
    if gone:
        connection.execute(sa.delete(findings).where(findings.c.id == sa.bindparam("finding")), gone)
    return len(gone)


# ── copies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def copy(source: Path, to: Path) -> None:
    """Copy a ledger as it is at one moment, also while a controller writes it, to a file that does not exist yet.

    The copy is read whole before it gets its name. Raises StoreError.
    """
    if to.exists():
        raise StoreError(f"{to}: there is a file of this name already; name another one")
    part = to.with_name(f".{to.name}.part")
    try:
        part.unlink(missing_ok=True)
        reading = sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)
        with closing(reading), closing(sqlite3.connect(part)) as new:
            reading.backup(new)  # in one go: a snapshot in WAL mode, it holds no writer up and none makes it begin anew
            new.execute("PRAGMA journal_mode = DELETE")  # one file, whole without its companions
            said = new.execute("PRAGMA quick_check(1)").fetchone()[0]
            tables = new.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables:
            raise StoreError(f"{source}: an empty file, no ledger")  # such as a copy that found no room leaves
        if said != "ok":
            raise StoreError(f"{source}: damaged, {' '.join(str(said).split())}; an older backup may be whole")
        settle(part, to)
    except sqlite3.Error as error:
        raise StoreError(one_line(source, error)) from error
    except OSError as error:
        raise StoreError(f"{to}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def put_in_place(copied: Path, path: Path, *, aside: str) -> Path | None:
    """Give a ledger the name of another, which is kept under its name and `aside`; returns that, None without one.

    Whoever opens `path` in between finds no ledger, never half of two. Raises StoreError.
    """
    kept: Path | None = None
    wal = Path(f"{copied}-wal")
    if wal.exists() and wal.stat().st_size:
        raise StoreError(f"{copied}: its last entries are still beside it: something has it open")
    try:
        # The file before its log: SQLite drops a log without a file, and would play one on a file that is not its own.
        for suffix in ("", "-wal", "-shm"):
            part = Path(f"{path}{suffix}")
            if part.exists():
                kept = Path(f"{path}.{aside}")
                part.replace(f"{kept}{suffix}")
        settle(copied, path)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; the ledger that was there lies beside it") from error
    return kept
