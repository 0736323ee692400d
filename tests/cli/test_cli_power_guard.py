"""`fleetd power status` and `restore` against a real guard, and without one."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetd.agent.status_document import SCHEMA
from fleetd.agent.status_socket import StatusSocket
from tests.powerguard.guard_bench import BOOST, PRIOR, ROOT, SAFE, Bench

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        made.close()


def fleetd(bench: Bench, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "fleetd", "power", *words, "--guard", str(bench.socket)]
    environ = {**bench.environ, "PYTHONPATH": str(ROOT), "FLEETD_AGENT_SOCKET": str(bench.folder / "no-agent.sock")}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_status_and_restore_through_the_guard(bench: Bench) -> None:
    bench.start()
    bench.hold()
    done = fleetd(bench, "status", "--json", "-")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["governor"] is None
    assert "no agent at" in told["missing"][0]
    assert (told["guard"]["live"], len(told["guard"]["gpus"])) == (True, 2)
    assert "lease live for" in fleetd(bench, "status").stdout
    assert bench.limits() == [BOOST, BOOST]
    done = fleetd(bench, "restore", "--to", "prior")
    assert (done.returncode, done.stderr) == (0, "")
    assert bench.limits() == [PRIOR, PRIOR]


def test_one_of_two_is_not_restored_and_named(bench: Bench) -> None:
    bench.start()
    bench.hold()
    bench.scenario.put(1, {"error.SetPowerManagementLimit": 15})
    done = fleetd(bench, "restore")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "GPU-1: limit: power limit: GPU lost (15)"
    assert bench.limits() == [SAFE, BOOST]
    done = fleetd(bench, "status")
    assert done.returncode == 1
    assert "GPU-1  guard: limit: power limit: GPU lost (15)" in done.stdout


def test_without_guard_the_state_file_is_enough(bench: Bench) -> None:
    bench.start()
    bench.hold()
    assert bench.guard is not None
    bench.guard.kill()
    bench.guard.wait()
    state = ["--state", str(bench.state)]
    assert fleetd(bench, "restore", *state).returncode == 0
    assert bench.limits() == [SAFE, SAFE]
    bench.state.unlink()
    done = fleetd(bench, "restore", *state)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "nothing was ever set" in done.stderr
    assert fleetd(bench, "status").returncode == 3


def test_status_shows_what_the_agent_says_of_a_gpu(bench: Bench) -> None:
    seen = {"windows_watts": {"20ms": 913.0, "1s": 690.0}, "swing_watts": 780.0}
    gpu = {"gpu": "GPU-0", "mode": "safe", "set_watts": {"limit": 630.0}, "enforced_watts": 630.0, "writer": ""}
    gpu |= {"why": "power smoothing dropped out (XID 163)", "clock_limit_hertz": 1.41e9, "seen": seen}
    power = {"allowed": "boost", "envelope": "h200", "set_point": "in use", "tbp_watts": 700.0, "gpus": [gpu]}

    async def case() -> "subprocess.CompletedProcess[str]":
        agent = StatusSocket(bench.folder / "agent.sock", lambda: {"schema": SCHEMA, "power": power})
        await agent.start()
        try:
            return await asyncio.to_thread(fleetd, bench, "status", "--socket", str(bench.folder / "agent.sock"))
        finally:
            await agent.close()

    done = asyncio.run(case())
    assert done.returncode == 0, done.stderr
    line = "GPU-0  safe  limit 630 W, enforced 630 W, clock at most 1410 MHz: power smoothing dropped out (XID 163)"
    assert line in done.stdout
    assert "  last minute, of 700 W: 20ms 1.30, 1s 0.99; swing 780 W" in done.stdout
