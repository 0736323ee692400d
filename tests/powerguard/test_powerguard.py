"""The guard as a process over a real C library: whatever is killed, limits fall to the safe cap, and none is raised."""

import json
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
from typing import Any

import pytest

from fleetd.powerguard.guard import STARVED_MAX_S
from fleetd.powerguard.plan import Gpu, Limit, Plan, store
from fleetd.powerguard.vendors import AmdSmi, CannotWrite, Nvml
from fleetd.sim.vendorlibs.amd import environ as amd_fake_environ
from tests.fakelibs import amd_fake
from tests.fakelibs.nvidia_fake import LIBRARIES
from tests.powerguard.guard_bench import BOOST, PRIOR, ROOT, SAFE, Bench, Client, declared, until
from tests.stopping import stop

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library")


_SPINNER = """
import json, socket, sys, time
channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
channel.connect(sys.argv[1])
arm = json.loads(sys.argv[2])
limits = {gpu["gpu"]: {"limit": 690.0} for gpu in arm["gpus"]}
raised = False
while not raised:  # the lease may lapse between the two on a busy machine
    for body in ({"do": "arm", **arm}, {"do": "set", "limits": limits}):
        channel.send(json.dumps({"sent_s": time.monotonic(), **body}).encode())
        raised = json.loads(channel.recv(65536))["ok"]
while True:
    pass
"""
"""An agent that is busy for ever and renews nothing."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def guarded(bench: Bench) -> Bench:
    bench.start()
    return bench


def test_it_starts_on_the_standard_library_alone() -> None:
    code = (
        "import sys, fleetd.powerguard.__main__\n"
        "print([m for m in sys.modules if m.partition('.')[0] not in sys.stdlib_module_names"
        " and not m.startswith('fleetd.powerguard') and m not in ('fleetd', '__main__')])"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a9_an_agent_that_is_killed(guarded: Bench) -> None:
    for _ in range(5):
        guarded.hold().kill()
        guarded.until(SAFE)
    status = guarded.ask(do="status")
    assert status["falls_total"] == {"gone": 5}
    assert "is gone" in status["fallen"]


def test_a9_an_agent_that_is_stopped_and_comes_back_raises_nothing(guarded: Bench) -> None:
    agent = guarded.hold(ttl_s=0.5)
    stop(agent.pid)
    guarded.until(SAFE)
    assert "the lease lapsed" in guarded.ask(do="status")["fallen"]
    os.kill(agent.pid, signal.SIGCONT)
    with Client(guarded.socket) as other:
        assert "holds the lease" in other.ask(do="arm", **declared(2))["why"], "its connection still stands"
    assert guarded.limits() == [SAFE, SAFE]


def test_a_holder_that_spins_without_renewing_has_little_longer_than_one_that_sleeps(guarded: Bench) -> None:
    words = [str(guarded.socket), json.dumps(declared(2, ttl_s=0.2))]
    guarded.children.append(subprocess.Popen([sys.executable, "-c", _SPINNER, *words], text=True))
    until(lambda: {(0, BOOST), (1, BOOST)} <= set(guarded.sets()), "it has raised both")
    guarded.until(SAFE)
    status = guarded.ask(do="status")
    assert status["starved_total"] >= 1
    told = re.fullmatch(r"the lease lapsed: last renewed (.*) s ago", status["fallen"])
    assert told, status["fallen"]
    assert float(told[1]) >= STARVED_MAX_S, "ten times its lease; it is told with three digits"


def test_a9_a_guard_that_is_killed_raises_nothing_and_reconciles(guarded: Bench) -> None:
    for _ in range(3):
        agent = guarded.hold()
        assert guarded.guard is not None
        guarded.guard.kill()
        guarded.guard.wait()
        agent.wait()
        assert guarded.limits() == [BOOST, BOOST]
        guarded.start()
        guarded.until(SAFE)
    by_gpu = [[watts for gpu, watts in guarded.sets() if gpu == n] for n in range(2)]
    assert by_gpu == [[BOOST, SAFE] * 3] * 2, "only the agents raised"


def test_a9_both_killed_and_no_guard_comes_back_the_static_limit_stands(guarded: Bench) -> None:
    agent = guarded.hold()
    assert guarded.guard is not None
    guarded.guard.kill()
    agent.kill()
    guarded.guard.wait()
    assert all(watts <= PRIOR for watts in guarded.limits())
    assert restore(guarded).returncode == 0
    assert guarded.limits() == [SAFE, SAFE]


def restore(bench: Bench, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "fleetd.powerguard", "restore", "--state", str(bench.state), *words]
    return subprocess.run(command, env=bench.environ, capture_output=True, text=True, check=False)


def test_a10_seven_of_eight_are_restored_and_the_eighth_is_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path, gpus=8)
    try:
        bench.start()
        agent = bench.hold()
        bench.scenario.put(5, {"error.SetPowerManagementLimit": 4})
        agent.kill()
        others = [SAFE] * 5 + [BOOST] + [SAFE] * 2
        until(lambda: bench.limits() == others, "all but one are at the safe cap")
        until(lambda: bench.ask(do="status")["errors"] != {}, "the one has failed")
        assert bench.ask(do="status")["errors"] == {"GPU-5": "limit: power limit: no permission (4)"}
        answer = bench.ask(do="restore", to="prior")
        assert not answer["ok"]
        assert list(answer["errors"]) == ["GPU-5"]
        assert [*bench.limits()[:5], *bench.limits()[6:]] == [PRIOR] * 7
        assert bench.guard is not None
        bench.guard.kill()
        bench.guard.wait()
        done = restore(bench)
        assert done.returncode == 1
        assert done.stderr == "powerguard: GPU-5: limit: power limit: no permission (4)\n"
        bench.scenario.put(5, {"error.SetPowerManagementLimit": None})
        assert restore(bench).returncode == 0
        assert bench.limits()[5] == SAFE, "it was remembered until it worked"
    finally:
        bench.close()


def test_a_driver_that_hangs_on_one_gpu_keeps_no_other_waiting(guarded: Bench) -> None:
    agent = guarded.hold()
    guarded.scenario.put(0, {"hang.SetPowerManagementLimit": 1})
    agent.kill()
    until(lambda: guarded.limits()[1] == SAFE, "the other one falls")
    until(lambda: guarded.ask(do="status")["errors"] != {}, "the hang is found")
    assert guarded.ask(do="status")["errors"] == {"GPU-0": "the driver hangs in a write"}
    guarded.scenario.let_go()
    guarded.until(SAFE)


def test_nothing_is_written_before_it_is_on_disk(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert agent.ask(do="arm", **declared(2))["ok"]
        assert guarded.state.exists()
        assert guarded.sets() == []
        guarded.folder.chmod(0o500)
        try:
            if os.geteuid() != 0:
                answer = agent.ask(do="set", limits={"GPU-0": {"limit": 690.0}}, reason="x")
                assert "nothing is written" in answer["why"]
        finally:
            guarded.folder.chmod(0o700)
        guarded.state.unlink()
        guarded.state.mkdir()  # so that not even root can put the file there
        answer = agent.ask(do="set", limits={"GPU-0": {"limit": 690.0}}, reason="x")
        assert not answer["ok"]
        assert "nothing is written without it" in answer["why"]
        assert guarded.sets() == []


def test_without_a_lease_or_above_the_ceiling_nothing_is_raised(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert not agent.ask(do="set", limits={"GPU-0": {"limit": 690.0}}, reason="x")["ok"]
        assert agent.ask(do="arm", **declared(2, ttl_s=60.0))["ok"]
        assert "ceiling" in agent.ask(do="set", limits={"GPU-0": {"limit": 701.0}}, reason="x")["why"]
        assert "not declared" in agent.ask(do="set", limits={"GPU-7": {"limit": 600.0}}, reason="x")["why"]
        assert "positive" in agent.ask(do="set", limits={"GPU-0": {"limit": float("nan")}}, reason="x")["why"]
        assert agent.ask(do="disarm")["ok"]
        assert not agent.ask(do="set", limits={"GPU-0": {"limit": 690.0}}, reason="x")["ok"]
    assert [watts for _, watts in guarded.sets()] == [SAFE, SAFE]


def test_a_fall_never_raises(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert agent.ask(do="arm", **declared(2, ttl_s=60.0))["ok"]
        assert agent.ask(do="set", limits={"GPU-0": {"limit": 500.0}, "GPU-1": {"limit": 690.0}}, reason="x")["ok"]
        assert agent.ask(do="renew", seen={"GPU-1": {"limit": 450.0}})["ok"]
        assert agent.ask(do="disarm")["ok"]
    assert guarded.limits() == [500.0, 450.0], "less was in force: written by us, or by somebody else"


def test_an_agent_is_replaced_without_a_lapse(guarded: Bench) -> None:
    old = Client(guarded.socket)
    assert old.ask(do="arm", **declared(2, ttl_s=60.0))["ok"]
    assert old.ask(do="set", limits={f"GPU-{n}": {"limit": BOOST} for n in range(2)}, reason="x")["ok"]
    assert old.ask(do="hand_over", seconds=1e6)["ok"]
    old.close()
    status = guarded.ask(do="status")
    assert status["live"]
    assert 0 < status["left_seconds"] <= 60.25
    with Client(guarded.socket) as new:
        assert new.ask(do="arm", **declared(2))["ok"]
        assert guarded.limits() == [BOOST, BOOST]
        assert guarded.ask(do="status")["falls_total"] == {}
    guarded.until(SAFE)


def test_a_hand_over_that_nobody_takes_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path, words=("--hand-over-max", "1.0"))
    limits = {f"GPU-{n}": {"limit": BOOST} for n in range(2)}
    try:
        bench.start()
        with Client(bench.socket) as old:

            def handed_over() -> bool:  # a lease shorter than the hand-over may lapse before it on a busy machine
                old.ask(do="arm", **declared(2, ttl_s=0.5))
                requests: tuple[dict[str, Any], ...] = ({"do": "set", "limits": limits}, {"do": "hand_over"})
                return all(old.ask(**one, reason="x", seconds=1e6)["ok"] for one in requests)

            until(handed_over, "it has raised, and handed over")
        bench.until(SAFE)
        assert bench.ask(do="status")["fallen"] == "nobody came after the hand-over"
    finally:
        bench.close()


def test_the_guard_replaces_itself_without_a_lapse(guarded: Bench) -> None:
    agent = guarded.hold()
    assert guarded.guard is not None
    for _ in range(2):
        before = guarded.ask(do="status")["renewed_total"]
        guarded.guard.send_signal(signal.SIGHUP)
        until(lambda: guarded.ask(do="status")["renewed_total"] >= before + 2, "it is renewed")  # noqa: B023
        status = guarded.ask(do="status")
        assert status["live"]
        assert (status["pid"], status["holder_pid"]) == (guarded.guard.pid, agent.pid)
        assert status["falls_total"] == {}
    assert guarded.limits() == [BOOST, BOOST]
    agent.kill()
    guarded.until(SAFE)


def test_a_program_that_was_replaced_is_told_until_it_runs(bench: Bench) -> None:
    package = bench.folder / "installed" / "fleetd"
    shutil.copytree(
        ROOT / "fleetd" / "powerguard", package / "powerguard", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "fleetd" / "__init__.py", package)
    bench.environ["PYTHONPATH"] = str(package.parent)
    bench.start()
    assert not bench.ask(do="status")["program_replaced"]
    fresh = package / "powerguard" / "fresh"
    fresh.write_text((package / "powerguard" / "lease.py").read_text() + "\n")
    fresh.replace(package / "powerguard" / "lease.py")
    until(lambda: bench.ask(do="status")["program_replaced"], "it has seen that its program was replaced")
    assert bench.guard is not None
    bench.guard.send_signal(signal.SIGHUP)
    until(lambda: not bench.ask(do="status")["program_replaced"], "it runs the new one")
    assert bench.ask(do="status")["pid"] == bench.guard.pid


def test_it_ends_at_the_safe_caps(guarded: Bench) -> None:
    guarded.hold()
    assert guarded.guard is not None
    guarded.guard.terminate()
    assert guarded.guard.wait() == 0
    assert guarded.limits() == [SAFE, SAFE]


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.04, 0.1])
def test_it_ends_at_the_safe_caps_also_while_it_replaces_itself(guarded: Bench, after_s: float) -> None:
    guarded.hold()
    assert guarded.guard is not None
    guarded.guard.send_signal(signal.SIGHUP)
    select.select([], [], [], after_s)  # before, in and after the moments in which the next program has no handlers
    guarded.guard.terminate()
    assert guarded.guard.wait() == 0
    assert guarded.limits() == [SAFE, SAFE]


def test_a_second_guard_is_refused(guarded: Bench) -> None:
    assert restore(guarded).returncode == 3
    assert "another guard" in restore(guarded).stderr


def test_a_damaged_state_file_is_kept_aside(bench: Bench) -> None:
    bench.state.write_text("{")
    bench.start()
    assert "damaged" in bench.ask(do="status")["fallen"]
    assert bench.state.with_suffix(".damaged").exists()
    bench.hold().kill()
    bench.until(SAFE)


def test_amd_has_two_limiters_in_microwatts(tmp_path: Path) -> None:
    part = {**amd_fake.MI300X, "power_cap_info.max_power_cap": 1_400_000_000}
    part |= {key.replace("info", "info_1"): value for key, value in part.items() if key.startswith("power_cap_info")}
    scenario = amd_fake.Scenario(tmp_path / "amd", gpus=2, part=part)
    limits = {
        "ppt1": Limit(prior_watts=1360.0, safe_watts=1000.0, ceiling_watts=1360.0, target_watts=1360.0),
        "ppt0": Limit(prior_watts=1000.0, safe_watts=900.0, ceiling_watts=1000.0, target_watts=1000.0),
    }
    gpus = {amd_fake.uuid_of(n): Gpu(gpu=amd_fake.uuid_of(n), vendor="amd", pci="", limits=limits) for n in range(2)}
    store(tmp_path / "state.json", Plan(boot_id="b", reason="r", written_at_s=0.0, gpus=gpus))
    environ = amd_fake_environ(scenario.file, amd_fake.build(LIBRARIES), os.environ) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "fleetd.powerguard", "restore", "--state", str(tmp_path / "state.json")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    by_gpu = [[line for line in scenario.lines(".sets") if line.startswith(str(n))] for n in range(2)]
    assert by_gpu == [[f"{n} 0 900000000", f"{n} 1 1000000000"] for n in range(2)], "the lower limiter first"


def test_a_restore_where_no_guard_ever_was_says_that_it_did_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "fleetd.powerguard", "restore", "--state", str(tmp_path / "state.json")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert f"{tmp_path / 'state.json'}: there is none: no GPU was ever declared here" in done.stderr
    assert not (tmp_path / "state.json").exists()


def test_renewals_of_another_clock_are_refused(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert "time namespace" in agent.ask(do="arm", **declared(2), sent_s=time.monotonic() + 1e4)["why"]


@pytest.mark.parametrize(
    "packet",
    [b"", b"{", b"[]", b"{}", b'{"do": 1}', b'{"do": "set"}', b'{"do": "arm"}', b"\xff" * 70_000, b"[" * 9_000],
)
def test_what_is_no_request_is_answered_and_does_no_harm(guarded: Bench, packet: bytes) -> None:
    with Client(guarded.socket) as agent:
        if packet:
            agent._channel.send(packet)
            assert b'"ok": false' in agent._channel.recv(1 << 16)
    assert guarded.ask(do="status")["ok"]


def test_a_quiet_renewal_is_answered_only_when_it_is_refused(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert agent.ask(do="arm", **declared(2, ttl_s=60.0))["ok"]
        agent.tell(do="renew", seq=1, quiet=True)
        agent.tell(do="renew", seq=2, quiet=True)
        assert agent.ask(do="renew", seq=3)["seq"] == 3, "the two before it were not answered"
        assert guarded.ask(do="status")["renewed_total"] == 3
        assert guarded.ask(do="restore", to="safe")["ok"]
        refused = agent.ask(do="renew", seq=4, quiet=True)
        assert (refused["seq"], refused["ok"]) == (4, False)
        assert "an operator restored" in refused["why"]


# ── locked clocks ───────────────────────────────────────────────────────────────────────────────────────────────────


def boosted(bench: Bench, agent: Client, hertz: float | None = 1.41e9) -> dict[str, Any]:
    """Arm, and have every GPU's limit raised with its clock locked."""
    entries = declared(bench.gpus, ttl_s=60.0)
    assert agent.ask(do="arm", **entries)["ok"]
    names = [gpu["gpu"] for gpu in entries["gpus"]]
    limits = {name: {"limit": BOOST} for name in names}
    return agent.ask(do="set", limits=limits, clocks=dict.fromkeys(names, hertz), reason="test")


def test_a_clock_is_locked_before_a_limit_goes_up_and_free_again_after_the_fall(guarded: Bench) -> None:
    guarded.foreign(500.0)
    guarded.foreign(500.0, 1)
    with Client(guarded.socket) as agent:
        assert boosted(guarded, agent)["ok"]
        assert (guarded.limits(), guarded.clocks()) == ([BOOST, BOOST], [1410, 1410])
        kept = {gpu["gpu"]: gpu["clock_hertz"] for gpu in json.loads(guarded.state.read_text())["gpus"]}
        assert kept == {"GPU-0": 1.41e9, "GPU-1": 1.41e9}
        calls = [line.split()[1] for line in guarded.scenario.lines(".calls") if line.startswith("0 ")]
        assert calls.index("SetGpuLockedClocks") < calls.index("SetPowerManagementLimit")
    guarded.until(SAFE)
    guarded.until_free()
    calls = [line.split()[1] for line in guarded.scenario.lines(".calls") if line.startswith("0 ")]
    assert calls[-1] == "ResetGpuLockedClocks", "the limit is down before the clock is free"
    assert guarded.scenario.lines(".clocks")[:2] in (["0 0 1410", "1 0 1410"], ["1 0 1410", "0 0 1410"])


def test_what_locked_a_clock_is_on_disk_so_that_the_next_guard_frees_it(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert boosted(guarded, agent)["ok"]
        assert guarded.guard is not None
        guarded.guard.kill()
        guarded.guard.wait()
        assert guarded.clocks() == [1410, 1410]
    guarded.start()
    guarded.until(SAFE)
    guarded.until_free()
    until(
        lambda: not any(gpu["clock_hertz"] for gpu in json.loads(guarded.state.read_text())["gpus"]),
        "that they are free is on disk",
    )
    assert guarded.ask(do="restore", to="safe")["ok"]
    assert len(guarded.lines("ResetGpuLockedClocks")) == 2, "a clock that is free is not freed again"


def test_without_permission_for_the_clock_the_limit_is_not_raised_and_is_free_of_others(guarded: Bench) -> None:
    guarded.scenario.put(1, {"error.SetGpuLockedClocks": 4})
    with Client(guarded.socket) as agent:
        answer = boosted(guarded, agent)
        assert answer["errors"] == {"GPU-1": "clock: locked clock: no permission (4)"}
        assert (guarded.limits(), guarded.clocks()) == ([BOOST, PRIOR], [1410, None])


def test_a_limit_that_cannot_be_lowered_keeps_its_clock_locked(guarded: Bench) -> None:
    with Client(guarded.socket) as agent:
        assert boosted(guarded, agent)["ok"]
        guarded.scenario.put(1, {"error.SetPowerManagementLimit": 4})
    guarded.until_free(0)
    assert guarded.clocks() == [None, 1410], "to free it would raise what may be drawn"
    assert restore(guarded).returncode == 3, "a guard runs"
    guarded.scenario.put(1, {"error.SetPowerManagementLimit": None})
    assert guarded.ask(do="restore", to="safe")["ok"]
    assert (guarded.limits(), guarded.clocks()) == ([SAFE, SAFE], [None, None])


@pytest.mark.parametrize("clocks", [[], {"GPU-9": None}, {"GPU-0": True}, {"GPU-0": 1410}, {"GPU-0": "fast"}])
def test_clocks_that_are_none_are_refused(guarded: Bench, clocks: object) -> None:
    with Client(guarded.socket) as agent:
        assert agent.ask(do="arm", **declared(2, ttl_s=60.0))["ok"]
        answer = agent.ask(do="set", limits={}, clocks=clocks, reason="test")
        assert not answer["ok"]
        assert "clocks" in answer["why"]
        assert guarded.scenario.lines(".clocks") == []


def test_a_driver_that_knows_no_locked_clocks_is_an_error_of_that_gpu_and_no_end_of_the_guard() -> None:
    class Old:
        nvmlDeviceGetHandleByUUID = staticmethod(lambda *_: 0)  # noqa: N815 - the library's name

    nvml = Nvml()
    nvml._open = Old()
    with pytest.raises(CannotWrite, match="this driver is too old"):
        nvml.lock_clock("GPU-0", "", 1.41e9)
    with pytest.raises(CannotWrite, match="no clock is locked"):
        AmdSmi().lock_clock("one", "0000:03:00.0", None)
