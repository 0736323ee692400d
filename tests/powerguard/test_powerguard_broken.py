"""The guard on a disk that fails, with many GPUs, while it is replaced, and with an old library."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetd.powerguard.plan import Gpu, Limit, Plan, store
from fleetd.powerguard.vendors import AmdSmi, CannotWrite
from tests.powerguard.guard_bench import BOOST, PRIOR, ROOT, SAFE, Bench, Client, declared, until

gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library")
LOWER = 400.0


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.close()


@gcc
def test_the_memory_of_a_host_of_many_gpus_is_within_what_its_service_may_take(tmp_path: Path) -> None:
    unit = (ROOT / "deploy" / "systemd" / "fleetd-powerguard.service").read_text()
    most = re.search(r"^MemoryMax=(\d+)M$", unit, re.MULTILINE)
    assert most is not None
    bench = Bench(tmp_path, gpus=16)
    try:
        bench.start()
        bench.hold()
        assert bench.guard is not None
        status = Path(f"/proc/{bench.guard.pid}/status").read_text()
        peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        assert peak is not None
        # The vendor's real library takes its part, too: half is left for it.
        assert int(peak[1]) < int(most[1]) * 1024 / 2, "with all memory locked, where that is permitted"
    finally:
        bench.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own that can be made read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "none", place], check=False).returncode != 0:
        pytest.skip("a disk can only be mounted by root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@gcc
@pytest.mark.parametrize("by", ["restore", "the next guard"])
def test_a_disk_that_has_become_read_only_keeps_no_limit_from_falling(tmp_path: Path, disk: Path, by: str) -> None:
    bench = Bench(tmp_path)
    bench.state = disk / "state.json"
    try:
        bench.start()
        bench.hold()
        assert bench.guard is not None
        bench.guard.kill()
        bench.guard.wait()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert bench.limits() == [BOOST, BOOST]
        if by == "restore":
            command = [sys.executable, "-P", "-m", "fleetd.powerguard", "restore", "--state", str(bench.state)]
            done = subprocess.run(command, env=bench.environ, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")
            assert bench.limits() == [SAFE, SAFE]
        else:
            bench.start()
            bench.until(SAFE)
            with Client(bench.socket) as agent:
                answer = agent.ask(do="arm", **declared(2))
            assert "Read-only file system" in answer["why"]
    finally:
        bench.close()


@gcc
def test_what_others_lowered_is_not_raised_by_a_fall_though_the_disk_took_nothing(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert agent.ask(do="arm", **declared(2))["ok"]
        assert agent.ask(do="set", limits={"GPU-0": {"limit": BOOST}}, reason="test")["ok"]
        guarded.state.unlink()
        guarded.state.mkdir()  # as good as a full disk: no file takes its place
        guarded.foreign(LOWER)
        assert agent.ask(do="renew", seen={"GPU-0": {"limit": LOWER}})["ok"]
        assert agent.ask(do="disarm")["ok"]
    assert guarded.limits()[0] == LOWER


@gcc
def test_what_others_lowered_while_there_was_no_lease_is_not_raised_by_a_later_fall(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert agent.ask(do="arm", **declared(2))["ok"]
        assert agent.ask(do="disarm")["ok"]
        assert guarded.limits() == [SAFE, SAFE]
        guarded.foreign(LOWER)
        found = declared(2)
        for entry, watts in zip(found["gpus"], guarded.limits(), strict=True):
            entry["limits"] = {"limit": {**entry["limits"]["limit"], "prior_watts": watts}}
        assert agent.ask(do="arm", **found)["ok"]
        assert agent.ask(do="disarm")["ok"]
        assert guarded.limits() == [LOWER, SAFE]
        assert agent.ask(do="restore", to="prior")["ok"]
    assert guarded.limits() == [PRIOR, PRIOR], "what was before fleetd is known as ever"


@gcc
def test_a_gpu_that_went_with_the_boot_before_is_accused_no_longer_once_an_agent_has_come(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    limit = Limit(prior_watts=PRIOR, safe_watts=SAFE, ceiling_watts=PRIOR, target_watts=BOOST)
    gone = Gpu(gpu="GPU-9", vendor="nvidia", pci="00000000:F0:00.0", limits={"limit": limit})
    store(bench.state, Plan(boot_id="another", reason="", written_at_s=0.0, gpus={"GPU-9": gone}))
    try:
        bench.start()
        until(lambda: bench.ask(do="status")["errors"].keys() == {"GPU-9"}, "it is missed")
        bench.hold()
        assert bench.ask(do="status")["errors"] == {}
    finally:
        bench.close()


@gcc
def test_a_guard_that_is_replaced_while_an_agent_is_keeps_the_limits(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert agent.ask(do="arm", **declared(2, ttl_s=5.0))["ok"]
        assert agent.ask(do="set", limits={f"GPU-{n}": {"limit": BOOST} for n in range(2)}, reason="test")["ok"]
        assert agent.ask(do="hand_over", seconds=7.0)["ok"]
    until(lambda: guarded.ask(do="status")["holder_pid"] is None, "the agent has gone")
    assert guarded.guard is not None
    asked_s = time.monotonic()
    with Client(guarded.socket) as other:
        guarded.guard.send_signal(signal.SIGHUP)
        assert select.select([other._channel], [], [], 60.0)[0], "it is hung up on by the program before"
    status = guarded.ask(do="status")
    if time.monotonic() - asked_s > 5.0:
        pytest.skip("the machine is too busy for a hand-over")
    assert (status["live"], status["falls_total"]) == (True, {})
    assert guarded.limits() == [BOOST, BOOST]
    guarded.until(SAFE)
    assert "hand-over" in guarded.ask(do="status")["fallen"]


@gcc
def test_no_question_is_so_deep_that_its_answer_ends_the_guard(guarded: Bench) -> None:
    guarded.hold()
    with Client(guarded.socket) as other:
        for depth in range(900, 1001):
            other._channel.send(b'{"do": "status", "seq": ' + b"[" * depth + b"]" * depth + b"}")
            assert b"that is no request" in other._channel.recv(1 << 16), depth
    assert guarded.ask(do="status")["live"]
    assert guarded.limits() == [BOOST, BOOST]


@gcc
def test_a_library_that_lacks_a_call_is_an_error_of_that_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libamd_smi.so"
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", library], check=True)
    with pytest.raises(CannotWrite, match=r"AMD SMI is too old: .*amdsmi_init"):
        AmdSmi().write("GPU-0", "", "ppt0", SAFE)
