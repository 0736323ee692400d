"""What the agent costs on a host of 8 GPUs: `python tests/bench/bench_agent.py [SECONDS] [VENDOR …]` (no GPU needed).

The real `fleetd agent` with everything that it does by default, its helper process and the vendor's real binding on a
fake library: CPU share of a core and PSS summed over all processes at 1 Hz, the latency of /metrics with DCGM's names,
and a soak at 20 samples a second in which it must not grow. 60 seconds by default; the long soak is 1800. Targets: 1 %
of a core, 80 MiB, p99 below 50 ms; exit code 1 when one is missed. The fake answers in microseconds: the driver's own
CPU is not in it.
"""

import contextlib
import dataclasses
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.fakelibs import amd_fake, nvidia_fake

GPUS = 8
SETTLE_S = 20.0
SCRAPES = 200
SCRAPE_S = 15.0
SHARE_MAX, PSS_MAX_MIB, P99_MAX_S, GROWTH_MAX_MIB = 0.01, 80.0, 0.05, 1.0
TICKS = os.sysconf("SC_CLK_TCK")


def processes(root: int) -> list[int]:
    """A process and all its descendants."""
    found = [root]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):  # a thread that has just ended: its children are its process's
                found += map(int, (task / "children").read_text().split())
    return found


def cpu_s(pids: list[int]) -> float:
    """CPU seconds that these processes have used."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS


def pss_mib(pids: list[int]) -> float:
    """Memory of these processes, shared pages shared out."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith("Pss:")) / 1024


def own_mib(pids: list[int]) -> float:
    """Memory that is these processes' alone and grows when they leak; what is shared changes with other processes."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    lines = (line for text in texts for line in text.splitlines() if line.startswith("Anonymous:"))
    return sum(int(line.split()[1]) for line in lines) / 1024


def wait(seconds: float) -> None:
    """Let the agent work."""
    threading.Event().wait(seconds)


def scrape(port: int) -> tuple[float, int]:
    """Seconds and bytes of one /metrics, asked for as Prometheus does."""
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4"
    began_s = time.perf_counter()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", "/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"})
        size = len(connection.getresponse().read())
    return time.perf_counter() - began_s, size


HEALTHY = {
    "nvidia": {"CurrentClocksEventReasons": 0, "RemappedRows.2": 0, "field.165/7": 1},
    "amd": {},
}
"""What the fakes' parts have wrong with them is put right: a healthy host is what is nearly always there."""


def fake(vendor: str, folder: Path) -> dict[str, str]:
    """Set up the fake library of a vendor; returns the environment for it."""
    if vendor == "nvidia":
        scenario = nvidia_fake.Scenario(folder / "scenario", gpus=GPUS)
        scenario.put("*", HEALTHY[vendor])
        return nvidia_fake.environ(scenario, nvidia_fake.build())
    home = amd_fake.build(folder)
    amd_fake.Scenario(folder / "scenario", gpus=GPUS)
    return {**os.environ, "ROCM_HOME": str(home), "FAKE_AMD_SMI": str(folder / "scenario")}


class Run:
    """One agent from start to end."""

    def __init__(self, folder: Path, vendor: str, interval_s: float) -> None:
        environ = fake(vendor, folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "state").mkdir()
        config = {
            "apiVersion": "fleetd/v1",
            "kind": "Agent",
            "host": "bench",
            "state_dir": str(folder / "state"),
            "devices": {"backend": vendor},
            "sampler": {"interval_seconds": interval_s},
            "kernel_log": {"source": "off"},
            "status": {"socket": str(folder / "agent.sock")},
            "uplink": {"address": "127.0.0.1:9", "insecure": True},
            "exporter": {"listen": f"127.0.0.1:{self.port}", "compat": "dcgm"},
        }
        (folder / "agent.yaml").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "fleetd", "agent", "--config", str(folder / "agent.yaml")]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        self.log = folder / "log"

    def __enter__(self) -> Self:
        wait(SETTLE_S)
        if self.process.poll() is not None:
            raise SystemExit(f"the agent ended: {self.log.read_text()}")
        return self

    def __exit__(self, *_: object) -> None:
        began_s = time.perf_counter()
        self.process.terminate()
        code = self.process.wait(timeout=10)
        print(f"SIGTERM: exit code {code} after {time.perf_counter() - began_s:.2f} s")  # noqa: T201

    def shares(self, seconds: float) -> list[float]:
        """CPU share of a core over some time, by process: the agent, its helper. Prometheus asks every 15 seconds."""
        pids = processes(self.process.pid)
        before_s, began_s = [cpu_s([pid]) for pid in pids], time.perf_counter()
        while (left_s := seconds - (time.perf_counter() - began_s)) > 0:
            scrape(self.port)
            wait(min(left_s, SCRAPE_S))
        passed_s = time.perf_counter() - began_s
        return [(cpu_s([pid]) - before) / passed_s for pid, before in zip(pids, before_s, strict=True)]


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What was measured, and what it may be."""

    name: str
    measured: float
    allowed: float
    unit: str

    def tell(self) -> bool:
        """Print it; whether it is kept."""
        kept = self.measured <= self.allowed
        print(f"  {self.name}: {self.measured:.2f} {self.unit} (at most {self.allowed:g}){'' if kept else '  MISSED'}")  # noqa: T201
        return kept


def measure(vendor: str, seconds: float) -> bool:
    """Measure one vendor's host; whether every target is kept."""
    print(f"{vendor}, {GPUS} GPUs, {seconds:.0f} s")  # noqa: T201
    with tempfile.TemporaryDirectory() as folder, Run(Path(folder), vendor, 1.0) as run:
        shares, pids = run.shares(seconds), processes(run.process.pid)
        print(f"  agent {100 * shares[0]:.2f} %, helper {100 * sum(shares[1:]):.2f} % of a core")  # noqa: T201
        pss = pss_mib(pids)
        times = sorted(scrape(run.port) for _ in range(SCRAPES))
        print(f"  /metrics: p50 {1e3 * times[len(times) // 2][0]:.1f} ms, {times[0][1]} bytes packed")  # noqa: T201
    kept = [
        Target("CPU at 1 Hz", 100 * sum(shares), 100 * SHARE_MAX, "% of a core").tell(),
        Target("PSS", pss, PSS_MAX_MIB, f"MiB in {len(pids)} processes").tell(),
        Target("/metrics p99", 1e3 * times[int(0.99 * len(times))][0], 1e3 * P99_MAX_S, "ms").tell(),
    ]
    with tempfile.TemporaryDirectory() as folder, Run(Path(folder), vendor, 0.05) as run:
        # The first third is for windows and caches, which are bounded, to fill up.
        share = sum(run.shares(seconds / 3))
        before = own_mib(processes(run.process.pid))
        share = (share + 2 * sum(run.shares(2 * seconds / 3))) / 3
        after = own_mib(processes(run.process.pid))
    print(f"  20 Hz: {before:.1f} → {after:.1f} MiB of its own, {100 * share:.1f} % of a core")  # noqa: T201
    kept.append(Target("growth at 20 Hz", after - before, GROWTH_MAX_MIB, "MiB").tell())
    return all(kept)


def main() -> None:
    """Measure the vendors that were asked for, else both."""
    seconds = float(sys.argv[1] if len(sys.argv) > 1 else 60)
    kept = [measure(vendor, seconds) for vendor in sys.argv[2:] or ("nvidia", "amd")]
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
