"""Restoring without a guard: after it was killed, at boot, or by hand. GPU by GPU; one that fails stops no other."""

import errno
import fcntl
import selectors
from pathlib import Path
from typing import Any, TextIO

from fleetd.powerguard.guard import PATIENCE_S, Guard
from fleetd.powerguard.hands import Hands
from fleetd.powerguard.machine import boot_id, now_s, wall_s
from fleetd.powerguard.vendors import vendors


def locked(state: Path) -> TextIO:
    """The lock of the state file, as a context; two guards would undo each other's writes. Raises OSError.

    A disk that has become read-only, as one does after an error, must keep no limit from falling: the file that is
    there can be locked all the same.
    """
    path = state.with_suffix(".lock")
    try:
        file = path.open("a", encoding="ascii")
    except OSError as error:
        if error.errno != errno.EROFS or not path.exists():
            raise
        file = path.open(encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def restore(state: Path, to: str) -> dict[str, str]:
    """Write what the state file says; returns {gpu: why its limits are not what they should be}.

    Args:
        state: the guard's state file; without one there is nothing to do.
        to: `safe`, or `prior` for the limits that were in force before fleetd, which may be higher.

    Raises:
        BlockingIOError: a guard is running; it must be asked.
        OSError: the state file cannot be read, or is damaged.
    """
    with locked(state):
        return _restore(state, to)


def _restore(state: Path, to: str) -> dict[str, str]:
    hands = Hands(vendors())
    guard = Guard(state=state, hands=hands, boot=boot_id(), wall_s=wall_s, hand_over_max_s=0.0)
    if guard.damaged:
        raise OSError(f"{guard.damaged}; nothing is restored, and it is kept as {state.with_suffix('.damaged')}")
    answers: list[dict[str, Any]] = []
    guard.restore(now_s(), to, answers.append)
    with selectors.DefaultSelector() as selector:
        selector.register(hands.ready_fd, selectors.EVENT_READ)
        while not answers:
            selector.select(PATIENCE_S / 10)
            guard.finished(hands.finished())
            guard.tick(now_s())
    errors: dict[str, str] = answers[0]["errors"]
    if not errors and not answers[0]["ok"]:
        raise OSError(answers[0]["why"])
    return errors
