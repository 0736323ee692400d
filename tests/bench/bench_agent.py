"""What the agent costs on a host of 8 GPUs: `python tests/bench/bench_agent.py [SECONDS]` (no GPU needed).

The real `fleetd agent`, its helper process and the real nvidia-ml-py on the fake library: CPU share of a core and PSS
summed over all processes at 1 Hz, the latency of /metrics, and a soak at 20 samples a second whose PSS must be flat.
Targets: 1 % of a core, 80 MiB, p99 below 50 ms. The fake answers in microseconds, so the driver's own CPU is not in it.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Self

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.fakelibs.nvidia_fake import Scenario, build, environ

GPUS = 8
SETTLE_S = 15.0
SCRAPES = 200
TICKS = os.sysconf("SC_CLK_TCK")


def processes(root: int) -> list[int]:
    """A process and all its descendants."""
    found = [root]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").iterdir():
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


def wait(seconds: float) -> None:
    """Let the agent work."""
    threading.Event().wait(seconds)


def scrape(port: int) -> tuple[float, int]:
    """Seconds and bytes of one /metrics."""
    began_s = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        size = len(response.read())
    return time.perf_counter() - began_s, size


class Run:
    """One agent from start to end."""

    def __init__(self, folder: Path, interval_s: float) -> None:
        scenario = Scenario(folder / "nvml.scenario", gpus=GPUS)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "state").mkdir()
        config = {
            "apiVersion": "fleetd/v1",
            "kind": "Agent",
            "host": "bench",
            "state_dir": str(folder / "state"),
            "devices": {"backend": "nvidia"},
            "sampler": {"interval_seconds": interval_s},
            "kernel_log": {"source": "off"},
            "status": {"socket": str(folder / "agent.sock")},
            "uplink": {"address": "127.0.0.1:9", "insecure": True},
            "exporter": {"listen": f"127.0.0.1:{self.port}"},
        }
        (folder / "agent.yaml").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "fleetd", "agent", "--config", str(folder / "agent.yaml")]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env=environ(scenario, build()), stdout=log, stderr=log)
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

    def share(self, seconds: float) -> float:
        """CPU share of a core over some time."""
        pids = processes(self.process.pid)
        before_s, began_s = cpu_s(pids), time.perf_counter()
        wait(seconds)
        return (cpu_s(pids) - before_s) / (time.perf_counter() - began_s)


def main() -> None:
    seconds = float(sys.argv[1] if len(sys.argv) > 1 else 60)
    with tempfile.TemporaryDirectory() as folder, Run(Path(folder), 1.0) as run:
        share, pids = run.share(seconds), processes(run.process.pid)
        print(f"1 Hz, {GPUS} GPUs: {100 * share:.2f} % of a core, PSS {pss_mib(pids):.1f} MiB in {len(pids)} processes")  # noqa: T201
        times = sorted(scrape(run.port) for _ in range(SCRAPES))
        p99_s = times[int(0.99 * len(times))][0]
        print(f"/metrics: p50 {1e3 * times[len(times) // 2][0]:.1f} ms, p99 {1e3 * p99_s:.1f} ms, {times[0][1]} bytes")  # noqa: T201
    with tempfile.TemporaryDirectory() as folder, Run(Path(folder), 0.05) as run:
        before = pss_mib(processes(run.process.pid))
        share = run.share(seconds)
        after = pss_mib(processes(run.process.pid))
        print(f"20 Hz for {seconds:.0f} s: PSS {before:.1f} → {after:.1f} MiB, {100 * share:.1f} % of a core")  # noqa: T201


if __name__ == "__main__":
    main()
