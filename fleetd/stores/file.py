"""The SQLite file under the ledger: how it is opened, whether it is whole, and who has it."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from fleetd.ports import StoreError

WHOLE_CHECK_BYTES = 256 << 20
"""A file up to this size is read whole when it is opened (about a second); of a larger one, what a start needs is.

The rest is looked at by `fleetd store check`, and the chain of the journal by everything that reads it.
"""
_BESIDE = ("journal", "wal", "shm")
"""Endings of what SQLite keeps beside a file."""
_START_TABLES = ("hosts", "fleet", "spools", "anchor", "alembic_version")


def engine_of(path: Path, *, read_only: bool) -> sa.Engine:
    """An engine on the file; every transaction is explicit, so that also tables change in one."""
    url = f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true" if read_only else f"sqlite:///{path}"
    engine = sa.create_engine(url, connect_args={"check_same_thread": False, "timeout": 10})
    sa.event.listen(engine, "connect", _on_read_only if read_only else _on_connect)
    sa.event.listen(engine, "begin", _on_begin)
    return engine


def _on_read_only(connection: Any, _record: object) -> None:
    connection.isolation_level = None


def _on_connect(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # BEGIN is ours
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an acknowledged finding survives a power cut
    cursor.close()


def _on_begin(connection: sa.Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def see_it_is_no_stump(path: Path) -> None:
    """Raise StoreError if the file is there and empty: SQLite would begin anew, and every hold would be forgotten."""
    try:
        empty = path.stat().st_size == 0
    except OSError:
        return  # there is none: a first start; or it cannot be looked at, which opening it will say
    if empty:
        raise StoreError(f"{path}: empty; restore a backup of it, or remove it to begin without any history")


def see_it_has_one_name(path: Path) -> None:
    """Raise StoreError if the name leads nowhere, or the file has a hard link.

    A link whose disk is not mounted would be taken for a first start, and every hold be forgotten. Of a file with two
    names, SQLite looks for the log beside the one by which it was opened: https://www.sqlite.org/howtocorrupt.html
    """
    try:
        names = path.stat().st_nlink
    except FileNotFoundError:
        if path.is_symlink():
            raise StoreError(
                f"{path}: leads to {path.readlink()}, which is not there: mount or restore it, or remove the link to "
                "begin without any history"
            ) from None
        return  # a first start
    except OSError:
        return  # opening it says why
    if names > 1 and path.is_file():
        raise StoreError(f"{path}: has another name (a hard link), under which its log would not be found: remove that")


def begin(path: Path) -> None:
    """Make a ledger if there is no file of that name: SQLite's first page, without any table, all at once.

    SQLite itself makes an empty file first. A first start that is killed or finds no room then would leave one, which
    nobody could tell from a ledger that was lost. Raises StoreError.
    """
    see_it_has_one_name(path)
    part = path.with_name(f".{path.name}.new")
    try:
        if path.exists():
            return
        for old in (part, *(Path(f"{part}-{kind}") for kind in _BESIDE)):
            old.unlink(missing_ok=True)
        # A ledger was taken away without its log, which would be played on the new one and may hold its last commits.
        for left in (Path(f"{path}-{kind}") for kind in _BESIDE):
            with suppress(FileNotFoundError):
                left.replace(f"{left}.left")
        with closing(sqlite3.connect(part)) as new:
            new.execute("PRAGMA journal_mode=WAL")
        part.rename(path)
    except sqlite3.Error as error:
        raise StoreError(one_line(path, error)) from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def see_it_is_whole(connection: sa.Connection, path: Path, *, everything: bool = False) -> None:
    """Raise StoreError if the file is damaged. A large one is only read whole when `everything` is asked for."""
    if everything or path.stat().st_size <= WHOLE_CHECK_BYTES:
        checks = ["PRAGMA quick_check(1)"]
    else:
        there = set(sa.inspect(connection).get_table_names())
        checks = [f"PRAGMA quick_check({table})" for table in _START_TABLES if table in there]
    for check in checks:
        said = connection.execute(sa.text(check)).scalar()
        if said != "ok":
            raise StoreError(f"{path}: damaged, {' '.join(str(said).split())}; restore a backup of it")


def one_line(where: Path | str, error: BaseException) -> str:
    """What a database said, in one line that names the ledger."""
    cause = getattr(error, "orig", None) or error
    return f"{where}: {' '.join(str(cause).split())}"


@contextmanager
def in_use(path: Path) -> Iterator[None]:
    """Have the ledger to oneself, as a controller and a restore do: neither may begin while the other has it.

    What counts is the file, not the name: two names of it are one ledger. Raises StoreError when somebody else has it,
    and when the file has a second name that cannot be followed.
    """
    see_it_has_one_name(path)
    lock = Path(f"{path.resolve()}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{lock}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise StoreError(f"{lock}: {error.strerror}") from error
            raise StoreError(f"{path}: a controller has this ledger: stop it first") from error
        yield
    finally:
        os.close(descriptor)
