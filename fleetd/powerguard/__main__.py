"""`python -m fleetd.powerguard serve|restore`. Exit codes: 0 good, 1 a GPU could not be written, 2 usage, 3 cannot."""

import argparse
import json
import os
import pwd
import socket
import sys
from pathlib import Path

from fleetd.powerguard.guard import Guard
from fleetd.powerguard.hands import Hands
from fleetd.powerguard.machine import become_realtime, boot_id, now_s, wall_s
from fleetd.powerguard.restore import locked, restore
from fleetd.powerguard.serve import INHERIT, Service, keep_over_exec, listen
from fleetd.powerguard.vendors import vendors

CANNOT = 3


def main(words: list[str] | None = None) -> int:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(prog="fleetd-powerguard", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("serve", "restore"):
        command = commands.add_parser(name)
        command.add_argument("--state", type=Path, required=True, help="the guard's state file, on a disk")
        if name == "serve":
            command.add_argument("--socket", type=Path, required=True, help="where it listens")
            command.add_argument("--user", type=int, action="append", default=[], help="uid that may use it, too")
            command.add_argument("--user-name", action="append", default=[], help="the same by name")
            command.add_argument("--hand-over-max", type=float, default=10.0, help="seconds, at most")
        else:
            command.add_argument("--to", choices=("safe", "prior"), default="safe")
    asked = parser.parse_args(words)
    try:
        if asked.command == "restore":
            return _restore(asked.state, asked.to)
        with locked(asked.state):
            return _serve(asked)
    except BlockingIOError:
        sys.stderr.write(f"powerguard: {asked.state}: another guard is using it; ask that one\n")
    except OSError as error:
        sys.stderr.write(f"powerguard: {error}\n")
    return CANNOT


def _uid(name: str) -> int:
    """Raises OSError: there is no such user."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise OSError(f"there is no user {name}") from error


def _restore(state: Path, to: str) -> int:
    errors = restore(state, to)
    if not state.exists():
        sys.stderr.write(f"powerguard: {state}: there is none: no GPU was ever declared here, and nothing was set\n")
    for gpu, why in errors.items():
        sys.stderr.write(f"powerguard: {gpu}: {why}\n")
    return 1 if errors else 0


def _serve(asked: argparse.Namespace) -> int:
    told = json.loads(os.environ.pop(INHERIT, "{}"))
    lacking = become_realtime()
    hands = Hands(vendors())
    guard = Guard(
        state=asked.state, hands=hands, boot=boot_id(), wall_s=wall_s, hand_over_max_s=max(0.0, asked.hand_over_max)
    )
    if told:
        listener = socket.socket(fileno=told["listener"])
        keep_over_exec([listener.fileno()], keep=False)
        listener.settimeout(0)
    else:
        listener = listen(asked.socket)
    uids = frozenset({0, os.geteuid(), *asked.user, *map(_uid, asked.user_name)})
    service = Service(guard, listener=listener, ready_fd=hands.ready_fd, uids=uids, lacking=lacking)
    if told:
        service.inherit(told)
    if guard.lease is None:
        guard.reconcile(now_s())
    return service.run(lambda: guard.finished(hands.finished()), os.environ)


if __name__ == "__main__":
    sys.exit(main())
