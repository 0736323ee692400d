"""The main job with real processes, real gRPC and mutual TLS; then the same with everything killed once."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetd.loopback import HostPlan, Loopback
from fleetd.model.host import Host, Lifecycle
from fleetd.ports import PortError
from fleetd.sim.vendorlibs import amd, nvidia
from fleetd.system import RealClock
from tests.e2e.cable import Cable
from tests.reading import lines_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

BAD = HostPlan(name="bad", gpus=4, fault="gpu=2,fault=F03,rate=0.3")
GOOD = HostPlan(name="good", gpus=4)
LAST = r"demo: quarantined h02, culprit gpu index 5 \(chip-[a-z]+\), 2 hosts healthy"
AGENT_RSS_BYTES_MAX = 80 << 20


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Iterator[Loopback]:
    with Loopback(tmp_path, (GOOD, BAD), now_s=RealClock().wall_s()) as fleet:
        yield fleet


def hosts(fleet: Loopback) -> dict[str, Host]:
    async def ask() -> dict[str, Host]:
        async with fleet.desk() as desk:
            return {host.name: host for host in await desk.hosts()}

    try:
        return asyncio.run(ask())
    except PortError:
        return {}  # the controller is away


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    async def poll() -> None:
        clock = RealClock()
        deadline_s = clock.elapsed_s() + seconds
        while not await asyncio.to_thread(holds):
            assert clock.elapsed_s() < deadline_s, f"not within {seconds:.0f} s: {what}"
            await clock.sleep_s(0.1)

    asyncio.run(poll())


def state(fleet: Loopback, name: str) -> Lifecycle | None:
    host = hosts(fleet).get(name)
    return host.state if host else None


def recorded(fleet: Loopback) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in lines_of(fleet.folder / "controller" / "orders.jsonl")]
    return [(line["verb"], line["host"]) for line in lines]


def burning(fleet: Loopback, host: str) -> list[int]:
    """Processes of burn-ins of a host of this fleet that run now."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        ours = any(str(fleet.folder).encode() in word for word in words)
        if ours and b"burnin" in words and f"--host={host}".encode() in words:
            found.append(int(entry.name))
    return found


def demo(folder: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "fleetd", "demo", "--dir", str(folder)]
    return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


@pytest.mark.timeout(600)
def test_the_demo_finds_the_gpu_that_goes_bad_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    result = demo(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.fullmatch(LAST, result.stdout.splitlines()[-1])
    assert "fleetd_gpu_held" in result.stdout
    # Found by its counters, then proven by a burn-in that was ordered for them.
    assert "h02 suspect: gpu 5 (SIM-h02-05) is accused of memory: telemetry.ecc.uncorrected" in result.stdout
    assert 'fleetd_gpu_ecc_uncorrected_total{gpu="SIM-h02-05"} 3.0' in result.stdout
    assert len(list(folder.rglob("h02/burnin/*.json"))) == 2
    # What only the vendors' bindings can have told: what the fake libraries call part and driver.
    shown = re.findall(
        r'fleetd_gpu_info{gpu="SIM-(h0.)-05".*sku="([^"]+)",vendor="(\w+)".*driver="([^"]+)"', result.stdout
    )
    assert shown == [
        ("h01", "NVIDIA H200", "nvidia", nvidia.DRIVER),
        ("h02", "NVIDIA H200", "nvidia", nvidia.DRIVER),
        ("h03", "AMD Instinct MI300X", "amd", amd.MI300X["driver_info.driver_version"]),
    ]


@pytest.mark.timeout(600)
def test_without_gcc_the_demo_says_so_and_goes_on_with_simulated_gpus(tmp_path: Path) -> None:
    result = demo(tmp_path / "demo", PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gcc, which builds them, is not installed" in result.stdout.splitlines()[0]
    assert "going on with GPUs that are simulated" in result.stdout.splitlines()[0]
    assert re.fullmatch(LAST, result.stdout.splitlines()[-1])


def test_everything_killed_once_and_the_host_is_quarantined_exactly_once(fleet: Loopback) -> None:
    with Cable(fleet.port) as cable:
        fleet.write_agent(BAD.name, port=cable.port)
        fleet.start_all()

        wait_until(lambda: bool(burning(fleet, BAD.name)), "a burn-in of the bad host runs")
        fleet.kill(BAD.name)
        wait_until(lambda: not burning(fleet, BAD.name), "no burn-in outlives its agent")
        fleet.start(BAD.name)

        wait_until(lambda: bool(burning(fleet, BAD.name)), "the restarted agent goes on with its order")
        fleet.kill("controller")
        cable.cut()  # before the controller is back, so that the burn-in cannot end too soon
        fleet.start("controller")

        wait_until(lambda: bool(hosts(fleet)), "the controller is back with its ledger")
        report = fleet.folder / BAD.name / "burnin"
        wait_until(lambda: any(report.glob("*.json")), "the burn-in ends while the link is down")
        assert state(fleet, BAD.name) is not Lifecycle.QUARANTINED
        cable.mend()

        wait_until(lambda: state(fleet, BAD.name) is Lifecycle.QUARANTINED, "the bad host is quarantined")
        wait_until(lambda: state(fleet, GOOD.name) is Lifecycle.HEALTHY, "the good host is healthy")
        fleet.kill("controller")
        fleet.start("controller")
        fleet.kill(BAD.name)
        fleet.start(BAD.name)
        wait_until(
            lambda: f'fleetd_host_connected{{host="{BAD.name}"}} 1.0' in fleet.metrics("controller"), "connected"
        )

    assert recorded(fleet).count(("quarantine", BAD.name)) == 1
    assert ("quarantine", GOOD.name) not in recorded(fleet)
    (hold,) = hosts(fleet)[BAD.name].holds
    assert hold.gpu == hosts(fleet)[BAD.name].inventory[2].gpu


def test_the_agent_is_small_and_the_operator_sees_what_happened(fleet: Loopback) -> None:
    fleet.start_all()
    wait_until(lambda: state(fleet, BAD.name) is Lifecycle.QUARANTINED, "the bad host is quarantined")
    assert rss_bytes(fleet.pid(BAD.name)) <= AGENT_RSS_BYTES_MAX
    assert "fleetd_gpu_power_watts{" in fleet.metrics(BAD.name)
    assert f'fleetd_host_state{{host="{BAD.name}",state="quarantined"}} 1.0' in fleet.metrics("controller")

    shown = fleetd(fleet, "host", "show", BAD.name)
    assert shown.returncode == 0
    assert "held by fleetd" in shown.stdout
    refused = fleetd(fleet, "host", "release", BAD.name, "--reason", "I want it back")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "burn-in" in refused.stderr
    released = fleetd(fleet, "host", "release", BAD.name, "--reason", "end of the test", "--override")
    assert released.returncode == 0
    wait_until(lambda: recorded(fleet)[-1] == ("release", BAD.name), "the release is carried out")
    assert "end of the test" in fleetd(fleet, "host", "explain", BAD.name).stdout
    assert fleet.stop(BAD.name) == 0
    assert fleet.stop("controller") == 0


def fleetd(fleet: Loopback, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(fleet.command(*words), capture_output=True, text=True, timeout=200, check=False)


def rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
