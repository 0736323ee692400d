"""The guard's process: its socket, the agent's pidfd, signals, systemd. It turns them into calls of `Guard`."""

import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fleetd.powerguard.guard import Guard
from fleetd.powerguard.lease import Lease
from fleetd.powerguard.machine import Peer, fingerprint, notify, now_s, peer, wants_to_run, watchdog_s
from fleetd.powerguard.wire import BadRequest, receive, send

STATUS_SCHEMA = "fleetd.powerguard.status/1"
CONNECTIONS_MAX = 8
PACKETS_PER_TURN_MAX = 256
_TURN_S = 1.0
"""Longest sleep: signs of life for systemd, and a look whether the program was replaced."""
_END_S = 2.0
"""How long the last fall may take when the guard is told to end."""
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_END = frozenset({signal.SIGTERM, signal.SIGINT})
INHERIT = "FLEETD_POWERGUARD_INHERIT"
"""Environment variable by which a guard that replaces itself tells the next what it holds."""


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    peer: Peer


class Service:
    """One guard on one socket, until it is told to end."""

    def __init__(
        self, guard: Guard, *, listener: socket.socket, ready_fd: int, uids: frozenset[int], lacking: str
    ) -> None:
        """Serve nothing yet.

        Args:
            guard: decides.
            listener: a bound, listening SOCK_SEQPACKET socket.
            ready_fd: readable when writes have ended (`Hands.ready_fd`).
            uids: users that may connect.
            lacking: what of the real-time class was not permitted; "": nothing.
        """
        self._guard, self._listener, self._uids, self._lacking = guard, listener, uids, lacking
        self._ready_fd = ready_fd
        self._hands_ended: Callable[[], None] = lambda: None
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        self._holder: _Connection | None = None
        guard.starved = lambda: self._holder is not None and wants_to_run(self._holder.peer.pid)
        self._program = fingerprint()
        self._replaced = False
        self._looked_s = self._told_s = now_s()
        self._asked: set[int] = set()

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, hands_ended: Callable[[], None], environ: Mapping[str, str]) -> int:
        """Serve until SIGTERM or SIGINT; SIGHUP replaces the process by the program as it is on disk."""
        self._hands_ended = hands_ended
        wake = self._signals()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._ready_fd, selectors.EVENT_READ, hands_ended)
        self._selector.register(wake, selectors.EVENT_READ, lambda: wake.recv(64))
        beat_s = watchdog_s(environ)
        notify("READY=1", environ)
        while not self._asked & _END:
            if signal.SIGHUP in self._asked and self._guard.idle:
                self._replace_process(environ)
            self._turn(self._turn_s(beat_s))
            if beat_s is not None and now_s() - self._told_s >= beat_s / 4:
                self._told_s = now_s()
                notify("WATCHDOG=1", environ)
        notify("STOPPING=1", environ)
        self._guard.fall(now_s(), "stop", "the guard was told to end")
        until_s = now_s() + _END_S
        while not self._guard.idle and now_s() < until_s:
            self._turn(0.05)
        return 0 if self._guard.idle and not self._guard.errors else 1

    def _turn_s(self, beat_s: float | None) -> float:
        due_s, now = self._guard.next_s(), now_s()
        wait_s = _TURN_S if beat_s is None else min(_TURN_S, beat_s / 4)
        return wait_s if due_s is None else max(0.0, min(wait_s, due_s - now + 0.0005))

    def _turn(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            key.data()
        # Everything that has arrived is read by now: a guard that was late itself takes nobody's lease away.
        now = now_s()
        self._guard.tick(now)
        if now - self._looked_s >= _TURN_S:
            self._looked_s, self._replaced = now, fingerprint() != self._program

    def _signals(self) -> socket.socket:
        ours, wake = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (ours, wake):
            end.settimeout(0)
        signal.set_wakeup_fd(ours.detach())
        for number in _SIGNALS:
            signal.signal(number, lambda number, _frame: self._asked.add(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # what came while the program was replaced comes now
        return wake

    # ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(0)
        try:
            other = peer(connection)
        except OSError:
            connection.close()
            return
        if other.uid not in self._uids or len(self._connections) >= CONNECTIONS_MAX:
            why = "too many connections" if other.uid in self._uids else f"user {other.uid} may not use the power guard"
            send(connection, {"ok": False, "why": why})
            connection.close()
            os.close(other.pidfd)
            return
        self._take(_Connection(connection, other))

    def _take(self, one: _Connection) -> None:
        self._connections[one.socket.fileno()] = one
        self._selector.register(one.socket, selectors.EVENT_READ, lambda: self._read(one))

    def _hold(self, one: _Connection) -> None:
        if self._holder is not one:
            self._holder = one
            self._selector.register(one.peer.pidfd, selectors.EVENT_READ, lambda: self._gone(one))

    def _gone(self, one: _Connection) -> None:
        """The other end has ended, or hung up."""
        if self._connections.pop(one.socket.fileno(), None) is None:
            return
        self._selector.unregister(one.socket)
        one.socket.close()
        if one is self._holder:
            self._selector.unregister(one.peer.pidfd)
            self._holder = None
            lease, now = self._guard.lease, now_s()
            if lease is not None and lease.hand_over_until_s < now:
                self._guard.fall(now, "gone", f"the agent (process {one.peer.pid}) is gone")
        os.close(one.peer.pidfd)

    def _read(self, one: _Connection) -> None:
        for _ in range(PACKETS_PER_TURN_MAX):
            try:
                body = receive(one.socket)
            except BlockingIOError:
                return
            except BadRequest as error:
                send(one.socket, {"ok": False, "why": f"that is no request: {error}"})
                continue
            if body is None:
                self._gone(one)
                return
            self._answer(one, body)
            if one.socket.fileno() < 0:
                return

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, one: _Connection, body: dict[str, Any]) -> None:
        def later(reply: dict[str, Any]) -> None:
            if one.socket.fileno() >= 0:
                send(one.socket, {"seq": body.get("seq"), **reply})

        try:
            reply = self._carry_out(one, body, later)
        except BadRequest as error:
            reply = {"ok": False, "why": f"that is no request: {error}"}
        quiet = body["do"] == "renew" and body.get("quiet") is True
        if reply is not None and not (quiet and reply["ok"]):
            later(reply)

    def _carry_out(
        self, one: _Connection, body: dict[str, Any], later: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any] | None:
        """The answer; None: it comes later. Raises BadRequest."""
        guard, now, do = self._guard, now_s(), body["do"]
        why: str | None
        if do == "status":
            return {"ok": True, "why": "", **self.status()}
        if do == "restore":
            if body.get("to") not in ("safe", "prior"):
                raise BadRequest("to: safe or prior")
            if body["to"] == "prior" and one.peer.uid not in {0, os.geteuid()}:
                return {"ok": False, "why": "limits may only be raised without a lease by root"}
            guard.restore(now, body["to"], later)
            return None
        if self._holder is not None and self._holder is not one:
            return {"ok": False, "why": f"process {self._holder.peer.pid} holds the lease"}
        if do == "arm":
            if not (why := guard.arm(now, body)):
                self._hold(one)
                locked = {} if guard.plan is None else guard.plan.locked()
                return {"ok": True, "why": "", "program_replaced": self._replaced, "clocks": locked}
        elif self._holder is None:
            why = guard.fallen or "arm first"
        else:
            why = self._carry_out_for_holder(body, later)
        return None if why is None else {"ok": not why, "why": why, "program_replaced": self._replaced}

    def _carry_out_for_holder(self, body: dict[str, Any], later: Callable[[dict[str, Any]], None]) -> str | None:
        """Say "" when it is done, else why not; None: the answer comes later. Raises BadRequest."""
        guard, now = self._guard, now_s()
        match body["do"]:
            case "renew":
                return guard.renew(now, body)
            case "set":
                return guard.put(now, body, later) or None
            case "hand_over":
                return guard.hand_over(now, body)
            case "disarm":
                guard.fall(now, "disarm", "the agent gave the lease back", answer=later)
                return None
            case unknown:
                raise BadRequest(f"do: {unknown!r:.40} is not known")

    def status(self) -> dict[str, Any]:
        """All there is to know, for people and for the agent's metrics."""
        guard, now = self._guard, now_s()
        plan, lease = guard.plan, guard.lease
        return {
            "schema": STATUS_SCHEMA,
            "pid": os.getpid(),
            "holder_pid": None if self._holder is None else self._holder.peer.pid,
            "live": lease is not None and lease.live(now),
            "left_seconds": None if lease is None else round(lease.until_s - now, 3),
            "fallen": guard.fallen,
            "plan_reason": None if plan is None else plan.reason,
            "gpus": [] if plan is None else [asdict(gpu) for gpu in plan.gpus.values()],
            "errors": guard.errors,
            "renewed_total": guard.renewed_total,
            "starved_total": guard.starved_total,
            "falls_total": guard.falls_total,
            "refusals_total": guard.refusals_total,
            "program_replaced": self._replaced,
            "lacking": self._lacking,
        }

    # ── replacing the program without a lapse ───────────────────────────────────────────────────────────────────────

    def _replace_process(self, environ: Mapping[str, str]) -> None:
        """Start the program that is on disk in this very process, with sockets and lease. Returns only on error.

        What the agent sends meanwhile waits in its socket, and a lease counts from when its renewal was sent.
        """
        self._asked.discard(signal.SIGHUP)
        if failed := self._guard.save():
            sys.stderr.write(f"powerguard: the program was not replaced: {failed}\n")
            return
        guard, holder = self._guard, self._holder
        told: dict[str, Any] = {"listener": self._listener.fileno(), "renewed_total": guard.renewed_total}
        kept = [self._listener.fileno()]
        if guard.lease is not None:
            told["lease"] = asdict(guard.lease)  # without a holder: one agent is being replaced by the next
            if holder is not None:
                told |= {"holder": holder.socket.fileno(), "peer": asdict(holder.peer)}
                kept += [holder.socket.fileno(), holder.peer.pidfd]
        # In the next program a signal would find no handler yet, and end it without a fall: it waits instead.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        if self._asked & _END:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            return
        keep_over_exec(kept, keep=True)
        notify("RELOADING=1", environ)
        signal.set_wakeup_fd(-1)
        try:
            os.execve(sys.executable, [*sys.orig_argv], {**environ, INHERIT: json.dumps(told)})  # noqa: S606 - itself
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            keep_over_exec(kept, keep=False)
            sys.stderr.write(f"powerguard: the program was not replaced: {error}\n")

    def inherit(self, told: dict[str, Any]) -> None:
        """Go on where the process before the replacement stopped."""
        self._guard.renewed_total = int(told.get("renewed_total", 0))
        if "holder" in told:
            other = Peer(**told["peer"])
            keep_over_exec([told["holder"], other.pidfd], keep=False)
            one = _Connection(socket.socket(fileno=told["holder"]), other)
            if self._guard.plan is None:  # what is not known cannot be let fall: the agent has to declare it anew
                one.socket.close()
                os.close(other.pidfd)
                return
            one.socket.settimeout(0)
            self._take(one)
            self._hold(one)
        if "lease" not in told or self._guard.plan is None:
            return
        now = now_s()
        # What waits in the socket is read before anything can lapse; at least until then it lives.
        lease = Lease(**told["lease"])
        self._guard.lease = replace(lease, hand_over_until_s=max(lease.hand_over_until_s, now))
        self._guard.fallen = ""


def keep_over_exec(fds: Sequence[int], *, keep: bool) -> None:
    """Say whether descriptors outlive the program that opened them."""
    for fd in fds:
        os.set_inheritable(fd, keep)


def listen(path: Path, mode: int = 0o660) -> socket.socket:
    """Listen at a path, in place of a guard that was killed. Raises OSError."""
    path.unlink(missing_ok=True)  # nobody listens there: this process holds the lock of the state file
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.fchmod(channel.fileno(), mode)
    channel.bind(str(path))
    path.chmod(mode)
    channel.listen(CONNECTIONS_MAX)
    channel.settimeout(0)
    return channel
