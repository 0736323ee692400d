"""The guard and numbers that no float holds, a state file that is lost meanwhile, a GPU that moves while it hangs."""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fleetd.powerguard.guard import Guard
from fleetd.powerguard.hands import Hands
from fleetd.powerguard.lease import Lease
from fleetd.powerguard.machine import Peer
from fleetd.powerguard.plan import Gpu, Limit, Plan, store
from fleetd.powerguard.serve import Service
from fleetd.powerguard.vendors import CannotWrite
from tests.powerguard.guard_bench import BOOST, PRIOR, SAFE, WAIT_S, Bench, Client, declared, until
from tests.reading import text_of

gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library")
HUGE = "1" + 400 * "0"
"""An integer of JSON's, and of Python's, but no float."""
ARM = '{"do": "arm", "sent_s": %s, "ttl_s": %s, "grace_s": 0, "gpus": [%s]}'
GPU = '{"gpu": "GPU-0", "vendor": "nvidia", "pci": "", "limits": {"limit": {"prior_watts": %s, "safe_watts": %s, '
GPU += '"ceiling_watts": %s}}}'


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.close()


@gcc
def test_numbers_that_no_float_holds_are_refused_and_end_no_guard(guarded: Bench) -> None:
    packets = (
        ARM % (HUGE, 1, ""),
        ARM % (0, HUGE, ""),
        *(ARM % (0, 1, GPU % tuple(HUGE if n == place else 600 for n in range(3))) for place in range(3)),
        '{"do": "restore", "to": ["safe"]}',
        '{"do": "restore", "to": {}}',
    )
    with Client(guarded.socket) as agent:
        for packet in packets:
            agent._channel.send(packet.encode())
            assert b"that is no request" in agent._channel.recv(1 << 16), packet
        assert agent.ask(do="arm", **declared(2, ttl_s=60.0))["ok"]
        for packet in (
            '{"do": "renew", "sent_s": %s}',
            '{"do": "hand_over", "seconds": %s}',
            '{"do": "renew", "sent_s": 0, "seen": {"GPU-0": {"limit": %s}}}',
            '{"do": "set", "sent_s": 0, "limits": {"GPU-0": {"limit": %s}}}',
            '{"do": "set", "sent_s": 0, "limits": {}, "clocks": {"GPU-0": %s}}',
        ):
            agent._channel.send((packet % HUGE).encode())
            assert b"that is no request" in agent._channel.recv(1 << 16), packet
    assert guarded.ask(do="status")["pid"]
    assert guarded.sets() == [] or all(watts <= SAFE for _, watts in guarded.sets())


@gcc
@pytest.mark.parametrize("words", [None, "{", '{"schema": "fleetd.powerguard.state/0"}'])
def test_a_state_file_that_is_lost_before_a_reload_costs_no_fall(guarded: Bench, words: str | None) -> None:
    agent = guarded.hold()
    if words is None:
        guarded.state.unlink()
    else:
        guarded.state.write_text(words)
    assert guarded.guard is not None
    before = guarded.ask(do="status")
    guarded.guard.send_signal(signal.SIGHUP)
    until(lambda: '"GPU-1"' in text_of(guarded.state), "the next program knows what to let fall")
    assert guarded.ask(do="status")["pid"] == before["pid"]
    assert guarded.limits() == [BOOST, BOOST], "nor the lease"
    agent.kill()
    guarded.until(SAFE)


@gcc
def test_what_cannot_be_kept_on_disk_is_not_handed_to_another_program(guarded: Bench) -> None:
    agent = guarded.hold()
    assert guarded.guard is not None
    guarded.state.unlink()
    guarded.state.mkdir()  # as good as a full disk: no file takes its place
    guarded.guard.send_signal(signal.SIGHUP)
    assert guarded.guard.stderr is not None
    assert "the program was not replaced" in guarded.guard.stderr.readline()
    agent.kill()
    guarded.until(SAFE)
    assert guarded.ask(do="status")["falls_total"] == {"gone": 1}, "the very process that knew what to do"


@gcc
@pytest.mark.parametrize("to", ["safe", "prior"])
def test_a_damaged_state_file_restores_nothing_and_says_so(tmp_path: Path, to: str) -> None:
    bench = Bench(tmp_path)
    bench.state.write_text("[" * 100_000)
    command = [sys.executable, "-P", "-m", "fleetd.powerguard", "restore", "--state", str(bench.state), "--to", to]
    done = subprocess.run(command, env=bench.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "the state file was damaged" in done.stderr
    assert "nothing is restored" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert bench.sets() == []


def test_a_lease_is_not_inherited_by_a_program_that_does_not_know_what_to_let_fall(tmp_path: Path) -> None:
    guard = Guard(state=tmp_path / "state.json", hands=Hands({}), boot="b", wall_s=time.time, hand_over_max_s=1.0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        service = Service(guard, listener=listener, ready_fd=0, uids=frozenset(), lacking="")
        peer = Peer(pid=os.getpid(), uid=os.geteuid(), pidfd=os.pidfd_open(os.getpid()))
        lease = Lease(ttl_s=60.0, grace_s=0.0, sent_s=0.0)
        service.inherit({"holder": os.dup(theirs.fileno()), "peer": asdict(peer), "lease": asdict(lease)})
        theirs.close()
        assert guard.lease is None
        assert ours.recv(1) == b"", "the agent is hung up on, and arms anew"


class Hanging:
    """A vendor whose first write hangs until it is let go."""

    def __init__(self) -> None:
        self.hangs, self.go = threading.Event(), threading.Event()
        self.wrote: list[tuple[str, float]] = []

    def write(self, gpu: str, pci: str, knob: str, watts: float) -> None:
        if not self.hangs.is_set():
            self.hangs.set()
            assert self.go.wait(WAIT_S)
        assert (gpu, knob) == ("GPU-0", "limit")
        self.wrote.append((pci, watts))

    def lock_clock(self, gpu: str, pci: str, hertz: float | None) -> None:
        raise AssertionError(gpu, pci, hertz)

    def close(self) -> None:
        self.wrote.clear()


def test_a_gpu_that_has_moved_while_a_raise_hangs_falls_after_it() -> None:
    vendor = Hanging()
    hands = Hands({"nvidia": vendor})
    gpu = Gpu(gpu="GPU-0", vendor="nvidia", pci="00000000:0B:00.0", limits={})
    hands.write(1, gpu, {"limit": PRIOR})
    assert vendor.hangs.wait(WAIT_S)
    hands.write(2, replace(gpu, pci="00000000:1B:00.0"), {"limit": SAFE})
    assert not select.select([hands.ready_fd], [], [], 0.1)[0], "else what was asked before would be written after it"
    vendor.go.set()
    while hands.busy:
        select.select([hands.ready_fd], [], [], 0.005)
    assert vendor.wrote == [("00000000:0B:00.0", PRIOR), ("00000000:1B:00.0", SAFE)]


class Failing:
    """A vendor that fails as often as it is told."""

    def __init__(self) -> None:
        self.fails, self.tries = 0, 0

    def write(self, gpu: str, pci: str, knob: str, watts: float) -> None:
        assert (gpu, pci, knob, watts) == ("GPU-0", "", "limit", SAFE)
        self.tries += 1
        if self.tries <= self.fails:
            raise CannotWrite("GPU lost")

    def lock_clock(self, gpu: str, pci: str, hertz: float | None) -> None:
        raise AssertionError(gpu, pci, hertz)

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(
    ("kind", "at_s"), [("gone", [0, 1, 3, 7, 15, 31, 63, 95, 127]), ("lapse", [0, 1, 3, 7, 15]), ("disarm", [0])]
)
def test_a_fall_that_failed_is_tried_again_unless_the_driver_is_to_be_let_go(
    tmp_path: Path, kind: str, at_s: list[int]
) -> None:
    vendor = Failing()
    hands = Hands({"nvidia": vendor})
    limit = Limit(prior_watts=PRIOR, safe_watts=SAFE, ceiling_watts=PRIOR, target_watts=BOOST)
    gpus = {"GPU-0": Gpu(gpu="GPU-0", vendor="nvidia", pci="", limits={"limit": limit})}
    store(tmp_path / "state.json", Plan(boot_id="b", reason="", written_at_s=0.0, gpus=gpus))
    guard = Guard(state=tmp_path / "state.json", hands=hands, boot="b", wall_s=time.time, hand_over_max_s=1.0)
    vendor.fails = len(at_s) - 1 if len(at_s) > 1 else 10
    tried: list[int] = []
    for now_s in range(200):
        before = vendor.tries
        if now_s == 0:
            guard.fall(0.0, kind, "it was time")
        guard.tick(float(now_s))
        while not guard.idle:
            select.select([hands.ready_fd], [], [], 0.1)
            guard.finished(hands.finished())
        tried += [now_s] * (vendor.tries - before)
    assert tried == at_s
    assert bool(guard.errors) == (kind == "disarm")


@gcc
def test_a_limit_that_could_not_be_taken_back_is_when_it_can(guarded: Bench) -> None:
    agent = guarded.hold()
    guarded.scenario.put(1, {"error.SetPowerManagementLimit": 15})
    agent.kill()
    until(lambda: guarded.ask(do="status")["errors"] != {}, "the one has failed")
    until(lambda: guarded.limits() == [SAFE, BOOST], "the other one is at its safe cap")
    guarded.scenario.put(1, {"error.SetPowerManagementLimit": None})
    guarded.until(SAFE)
    assert guarded.ask(do="status")["falls_total"] == {"gone": 1}
