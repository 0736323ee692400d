"""The real world: clocks, threads, entropy, signals, systemd and the log. The only module that touches them.

Everything here is handed to the rest of the daemon as a value, so that tests and simulated fleets hand in their own.
"""

import asyncio
import concurrent.futures
import ctypes
import gc
import os
import pwd
import random
import secrets
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TextIO, TypeVar

import structlog

from fleetd.model.ids import BootId, HostName

_T = TypeVar("_T")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class RealClock:
    """The `Clock` port on the machine's clocks."""

    def wall_s(self) -> float:
        """Seconds since the epoch; may jump."""
        return time.time()  # noqa: TID251 - here is where real time comes in

    def elapsed_s(self) -> float:
        """Monotonic seconds; never goes back."""
        return time.monotonic()  # noqa: TID251 - here is where real time comes in

    async def sleep_s(self, seconds: float) -> None:
        """Wait; cancellable."""
        await asyncio.sleep(seconds)  # noqa: TID251 - here is where real time comes in


def entropy() -> random.Random:
    """A generator seeded from the operating system; for jitter and seeds, not for secrets."""
    return random.Random(int.from_bytes(os.urandom(32)))  # noqa: S311, TID251 - no secret is drawn from it


def secret() -> str:
    """A text that nobody can guess: 256 bits from the operating system in 43 characters that fit into a URL."""
    return secrets.token_urlsafe(32)


async def run_blocking(function: Callable[[], _T]) -> _T:
    """Run a blocking function on a thread of the event loop's default pool (bounded by asyncio: CPUs + 4, at most 32).

    A cancelled caller stops waiting, the function runs on: hand in only what ends by itself.
    """
    return await asyncio.to_thread(function)


def thread_of_its_own(name: str) -> Callable[[Callable[[], object]], Awaitable[object]]:
    """Make a `RunBlocking` with one thread, for one who is never to wait for what others run.

    It runs one function at a time, and otherwise is like `run_blocking`. The thread ends with what is returned.
    """
    thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(function: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(thread, function)

    return run


async def run_on_daemon(function: Callable[[], _T]) -> _T:
    """Run a blocking function on a thread of its own that the end of the process does not wait for.

    For reads that the kernel may keep waiting without end. A cancelled caller stops waiting, the function runs on: see
    to it that only so many are started.
    """
    done: concurrent.futures.Future[_T] = concurrent.futures.Future()

    def work() -> None:
        try:
            done.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            done.set_exception(error)

    done.set_running_or_notify_cancel()  # so that a cancelled caller does not cancel the result under the thread
    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(done)


def boot_id(path: Path = _BOOT_ID) -> BootId:
    """The kernel's boot id.

    Where the kernel has none, every process start counts as a boot of its own: then an order or a proof from before
    a restart is refused, which is the safe side (facts of different boots must never mix).
    """
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    return BootId(text or f"process-{uuid.uuid4()}")


def host_name() -> HostName:
    """The name that the kernel gives this host; a configuration may name it otherwise."""
    return HostName(socket.gethostname())


def user_name(uid: int) -> str | None:
    """The name of a user; None: there is no such user. May block: names may come over the network."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def resident_bytes(pid: int, proc: Path = Path("/proc")) -> float:
    """Resident memory of a process; 0 once it is gone. Takes no lock of it: also of one that hangs in a driver."""
    try:
        pages = int((proc / str(pid) / "statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


_M_ARENA_MAX = -8
"""glibc's number of the parameter (malloc.h)."""


def few_arenas(count: int = 2) -> bool:
    """Let the C library's allocator keep few arenas; returns whether it took that.

    By default every thread may have one of its own, and memory that it gives back stays there: a daemon with many
    short-lived threads grows for hours although nothing is leaked. Not by `MALLOC_ARENA_MAX`: children inherit it.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, count))
    except (OSError, AttributeError):
        return False  # another C library; its allocator is its own affair


GC_THRESHOLDS = (10_000, 20, 20)
"""New objects before the youngest are looked at, and how many such looks before the older ones are, and all are."""


def few_full_collections() -> None:
    """Let the garbage collector look at everything more rarely: for a process with millions of objects that stay.

    It stops everything meanwhile, for 0.1 s a million objects and more. By default a controller of 5,000 agents stood
    still for 0.65 s every few seconds, and no finding was faster than that. What was made until now stays for good.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets. Call it inside the running event loop, on the main thread."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def reload_on_signal() -> asyncio.Event:
    """An event that SIGHUP sets. Call it inside the running event loop, on the main thread."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    return asked


class Systemd:
    """The service manager's notification socket; silent when the process was not started by one.

    Protocol: sd_notify(3). Nothing here raises: a service manager that is gone must not take the agent with it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Take `os.environ`, of which NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are read."""
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        usec = environ.get("WATCHDOG_USEC", "")
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s: float | None = int(usec) / 1e6 if self._address and ours and usec.isdigit() else None
        """The service manager restarts the process after this many seconds without a sign of life; None: never."""

    def notify(self, state: str) -> None:
        """Send `READY=1`, `STOPPING=1`, `WATCHDOG=1`, `STATUS=…`, or several of them separated by newlines."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
                channel.sendto(state.encode(), self._address)
        except OSError as error:
            structlog.get_logger(__name__).warning("systemd_not_notified", state=state, error=str(error))


def setup_logging(stream: TextIO = sys.stderr, *, limit: structlog.typing.Processor | None = None) -> None:
    """Log to `stream`: one JSON object a line into a pipe or file, coloured text on a terminal; `limit` drops lines."""
    terminal = stream.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            *(() if limit is None else (limit,)),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info if not terminal else _unchanged,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )


def _unchanged(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Leave an exception for the console renderer, which prints it better."""
    return event
