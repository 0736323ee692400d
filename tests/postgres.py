"""A throw-away PostgreSQL: a cluster of its own on a Unix socket and a loopback port, gone with the test run."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import closing
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fleetd.loopback import free_ports
from fleetd.stores.place import PgPlace

if TYPE_CHECKING:
    import psycopg

_OWNER = "postgres"
READY_SECONDS = 60.0


def _binaries() -> Path | None:
    """Debian keeps them out of the way, one folder a version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    one = shutil.which("initdb")
    return None if one is None else Path(one).resolve().parent


def _user() -> str | None:
    """Whom the server runs as: it refuses to run as root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    return _OWNER if _OWNER in {entry.pw_name for entry in pwd.getpwall()} else None


BINARIES = _binaries()
REASON = (
    "no PostgreSQL is installed (package `postgresql`)"
    if BINARIES is None
    else "root cannot run PostgreSQL, and there is no user `postgres`"
    if _user() is None
    else ""
)
"""Why there is none here; empty: there is."""


class Cluster:
    """A running server, and a new ledger on it whenever one is asked for."""

    def __init__(self, *, synced: bool = False) -> None:
        """Make and start it; `synced`: it waits for the disk, as a real one does."""
        assert BINARIES is not None
        # Not below pytest's folders: they are root's, and their names are too long for a socket.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        (self.port,) = free_ports(1)
        self._numbers = count(1)
        self._user = _user()
        if os.geteuid() == 0:
            shutil.chown(self.folder, self._user, self._user)
        options = ["--auth=trust", f"--username={_OWNER}", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        self._run("initdb", *options, "-D", str(self.folder / "data"))
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "on" if synced else "off",
            "max_connections": "200",
        }
        words = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._start = ("-w", "-t", f"{READY_SECONDS:.0f}", "-l", str(self.folder / "log"), "-o", words)
        self._ctl("start", *self._start)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ctl("stop", "-w", "-m", "immediate")  # there is nothing to keep
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self) -> None:
        """Let it crash, and recover."""
        self._ctl("restart", "-m", "immediate", *self._start)

    def _ctl(self, verb: str, *words: str) -> None:
        self._run("pg_ctl", verb, "-D", str(self.folder / "data"), *words)

    def _run(self, program: str, *words: str) -> None:
        assert BINARIES is not None
        user: dict[str, Any] = (
            {"user": self._user, "group": self._user, "extra_groups": []} if os.geteuid() == 0 else {}
        )
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([BINARIES / program, *words], check=True, cwd=self.folder, **quiet, **user)

    def url(self, database: str, *, schema: str = "public", port: int | None = None) -> str:
        """How a database is reached: by the socket, or by a port of the loopback."""
        where = f"?host={self.folder}&port={self.port}" if port is None else ""
        at = "" if port is None else f"127.0.0.1:{port}"
        path = f"{'&' if where else '?'}options=-csearch_path%3D{schema}"
        return f"postgresql://{_OWNER}@{at}/{database}{where}{path}"

    def connect(self, database: str = "postgres") -> "psycopg.Connection[tuple[object, ...]]":
        """A connection to look, or to do harm, with."""
        import psycopg  # noqa: PLC0415 - whether there is a PostgreSQL is asked where there is no psycopg, too

        return psycopg.connect(self.url(database), autocommit=True)

    def place(self, *, port: int | None = None) -> PgPlace:
        """A new and empty ledger: a schema of its own."""
        schema = f"ledger_{next(self._numbers)}"
        with closing(self.connect()) as connection:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
        return PgPlace(url=self.url("postgres", schema=schema, port=port))
