"""What the guard needs of the machine: time, a scheduling class, pidfds, systemd's socket. All of it Linux."""

import ctypes
import os
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SO_PEERPIDFD = 77
"""Linux 6.5, of the generic socket.h; Python does not name it yet."""
_MCL_CURRENT_AND_FUTURE = 3
_PRIORITY = 10
"""Above all ordinary work, below the kernel's own real-time threads (50)."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def now_s() -> float:
    """CLOCK_MONOTONIC in seconds: one clock for all processes of the host, so a lease can count from when it was sent.

    (Of a time namespace: an agent in another one is refused, see `lease`.)
    """
    return time.monotonic()  # noqa: TID251 - the guard is its own process and hands time to everything else in it


def wall_s() -> float:
    """Seconds since the epoch, for the state file."""
    return time.time()  # noqa: TID251 - as above


def boot_id(path: Path = _BOOT_ID) -> str:
    """The kernel's boot id; "" where it has none."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def become_realtime() -> str:
    """Take a real-time class and keep all memory resident; returns "", or what was not permitted.

    A guard that waits for its turn behind a busy host, or for a page from a swap disk, is late when it counts. It
    sleeps except for some tens of wake-ups a second, so it takes nothing from anybody.
    """
    lacking = []
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except (OSError, AttributeError) as error:
        lacking.append(f"no real-time class: {error}")
    try:
        if ctypes.CDLL(None, use_errno=True).mlockall(_MCL_CURRENT_AND_FUTURE) != 0:
            lacking.append(f"memory not locked: {os.strerror(ctypes.get_errno())}")
    except (OSError, AttributeError) as error:
        lacking.append(f"memory not locked: {error}")
    return "; ".join(lacking)


def wants_to_run(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether a thread of the process is running or waits for a processor (proc(5), state R).

    One that was stopped (T), sleeps (S) or is gone does not.
    """
    try:
        tasks = list((proc / str(pid) / "task").iterdir())
    except OSError:
        return False
    for task in tasks:
        try:
            state = (task / "stat").read_text(encoding="ascii", errors="replace").rpartition(") ")[2][:1]
        except OSError:
            continue  # this thread has just ended
        if state == "R":
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who is on the other end of a Unix socket."""

    pid: int
    uid: int
    pidfd: int
    """Readable once the process has ended; to be closed by whoever holds it."""


def peer(connection: socket.socket) -> Peer:
    """Name the other end. Raises OSError when it has already gone."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    try:
        pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)  # of the very process, whatever its number
    except OSError:
        pidfd = os.pidfd_open(pid)  # before Linux 6.5; its end is told by the closed connection, too
    return Peer(pid=pid, uid=uid, pidfd=pidfd)


def notify(state: str, environ: Mapping[str, str]) -> None:
    """Tell systemd (sd_notify(3)); silent without it, and when it does not listen."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
            channel.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
    except OSError:
        return  # the guard goes on guarding


def watchdog_s(environ: Mapping[str, str]) -> float | None:
    """How long systemd waits for a sign of life; None: it does not."""
    usec = environ.get("WATCHDOG_USEC", "")
    ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(usec) / 1e6 if usec.isdigit() and ours else None


def fingerprint() -> tuple[tuple[str, int, int], ...]:
    """What the program on disk is now: (name, inode, time of change) of each of its files."""
    found = []
    for file in sorted(Path(__file__).parent.glob("*.py")):
        try:
            status = file.stat()
        except FileNotFoundError:
            continue  # replaced right now
        found.append((file.name, status.st_ino, status.st_mtime_ns))
    return tuple(found)
