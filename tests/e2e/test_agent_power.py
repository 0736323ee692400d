"""A real agent, a real power guard, one C library under both: what holds the power, and what happens at every end."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent_bench import AgentBench, agent
from tests.powerguard.governor_bench import tuned
from tests.powerguard.guard_bench import SAFE, WAIT_S, Bench, until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library"),
]
BOOST = 671.999
"""0.96 of 700 W, as whole milliwatts rounded down."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # a socket's path has 108 characters
        yield Path(short)


def end(host: AgentBench, number: signal.Signals) -> None:
    assert host.process is not None
    host.signal(number)
    host.process.wait(WAIT_S)


def test_a9_an_agent_boosts_hands_over_and_its_death_is_the_safe_cap(folder: Path) -> None:
    (folder / "guard").mkdir()
    guard = Bench(folder / "guard", words=("--hand-over-max", "60"))  # an agent may take long to start
    power = {"mode": "boost", "envelope": "h200", "set_point": str(tuned(folder / "point.json"))}
    power |= {"guard": str(folder / "guard" / "guard.sock"), "settle_seconds": 0.01, "hand_over_seconds": 60.0}
    try:
        guard.start()
        with agent(folder, gpus=2, start=False, power=power) as host:
            host.environ |= {name: guard.environ[name] for name in ("FAKE_NVML", "LD_LIBRARY_PATH")}
            host.start()
            guard.until(BOOST)
            host.until(lambda told: [g["mode"] for g in told["power"]["gpus"]] == ["boost"] * 2, "both boost")
            text = host.metrics()[1]
            assert 'fleetd_power_mode{gpu="GPU-0",mode="boost"} 1.0' in text
            assert "fleetd_power_lease_live 1.0" in text
            assert host.cli("power", "status", "--socket", str(host.status), "--guard", power["guard"]).returncode == 0
            # A planned stop, as in an upgrade: the limits stay, and the next agent takes them over.
            end(host, signal.SIGTERM)
            assert guard.limits() == [BOOST, BOOST]
            host.start()
            until(lambda: guard.ask(do="status")["holder_pid"] is not None, "the next agent has the lease")
            assert guard.ask(do="status")["falls_total"] == {}
            end(host, signal.SIGKILL)
            guard.until(SAFE)
            assert "is gone" in guard.ask(do="status")["fallen"]
    finally:
        guard.close()


def test_lost_power_smoothing_in_the_kernel_log_ends_boost_and_its_return_allows_it(folder: Path) -> None:
    (folder / "guard").mkdir()
    guard, log = Bench(folder / "guard"), folder / "kern.log"
    log.touch()

    def kernel(xid: int) -> None:
        with log.open("a") as file:
            file.write(f"Nov 30 14:00:00 h1 kernel: NVRM: Xid (PCI:0000:0b:00): {xid}, power smoothing event\n")

    def modes(told: dict[str, Any]) -> list[str]:
        return [gpu["mode"] for gpu in told["power"]["gpus"]]

    power = {"mode": "boost", "envelope": "h200", "set_point": str(tuned(folder / "point.json"))}
    power |= {"guard": str(folder / "guard" / "guard.sock"), "settle_seconds": 0.01}
    try:
        guard.start()
        with agent(folder, gpus=2, start=False, power=power, kernel_log={"source": str(log)}) as host:
            host.environ |= {name: guard.environ[name] for name in ("FAKE_NVML", "LD_LIBRARY_PATH")}
            host.start()
            host.until(lambda told: modes(told) == ["boost"] * 2, "both boost")
            kernel(163)
            host.until(lambda told: modes(told) == ["safe", "boost"], "the one whose smoothing dropped out is safe")
            assert "XID 163" in host.ask()["power"]["gpus"][0]["why"]
            assert 'fleetd_power_smoothing_lost{gpu="GPU-0"} 1.0' in host.metrics()[1]
            kernel(162)
            host.until(lambda told: modes(told) == ["boost"] * 2, "it is back")
            kernel(163)  # within the quarter of an hour in which the catalogue takes it for a repetition
            host.until(lambda told: modes(told) == ["safe", "boost"], "it dropped out again")
            end(host, signal.SIGKILL)
            host.start()
            host.until(lambda told: modes(told) == ["safe", "boost"], "a restart forgets nothing")
            assert "XID 163" in host.ask()["power"]["gpus"][0]["why"]
    finally:
        guard.close()
