"""Stopping a process for a while, as a debugger or a paused machine does; and waiting for the end of one."""

import os
import select
import signal
from pathlib import Path

STOPS_MAX = 20
LOOKS = 200
LOOK_S = 0.001
GONE_S = 60.0
"""Patience with an end on a busy machine; never a judgement."""


def stop(pid: int) -> None:
    """Stop a process, and see that it is: once in some hundreds it went on after one SIGSTOP, we do not know why."""
    for _ in range(STOPS_MAX):
        os.kill(pid, signal.SIGSTOP)
        for _ in range(LOOKS):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T":
                return
            select.select([], [], [], LOOK_S)
    raise AssertionError(f"the kernel does not stop process {pid}")


def ends(pid: int, seconds: float = GONE_S) -> bool:
    """Whether a process, a child of ours or not, has ended or does so in time; one that waits to be reaped has."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)
