"""A power guard over a fake vendor library: the real process, and an agent that is only its side of the socket."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from fleetd.sim.vendorlibs import amd
from fleetd.sim.vendorlibs.scenario import Scenario
from tests.fakelibs import amd_fake, nvidia_fake
from tests.reading import text_of

ROOT = Path(__file__).parents[2]
SAFE, PRIOR, BOOST = 630.0, 700.0, 690.0
MOVING = "600000 ~ 90000"
"""Milliwatts, on their way up and down: no two looks see the same."""
WAIT_S = 60.0
"""Patience of a test on a busy machine; never a judgement."""

_HOLDER = """
import json, select, socket, sys, time
channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
channel.connect(sys.argv[1])
channel.settimeout(60)
def ask(**body):
    channel.send(json.dumps({"sent_s": time.monotonic(), **body}).encode())
    return json.loads(channel.recv(65536))
arm = json.loads(sys.argv[2])
limits = {gpu["gpu"]: json.loads(sys.argv[3]) for gpu in arm["gpus"]}
for _ in range(100):  # a short lease may lapse between the two on a busy machine
    answers = [ask(do="arm", **arm), ask(do="set", limits=limits, reason="test")]
    if answers[1]["ok"] or "lapsed" not in answers[1]["why"]:
        break
for answer in answers:
    print(json.dumps(answer), flush=True)
while True:
    select.select([], [], [], min(0.1, arm["ttl_s"] / 4))
    ask(do="renew")
"""
"""An agent that renews from a thread of its own process, as the governor's does."""


def nvidia(folder: Path, gpus: int) -> tuple[Scenario, dict[str, str]]:
    # The draw moves, as a sensor's does: one that stands still is stale.
    part = {**nvidia_fake.H200, "Processes": 0, "CurrentClocksEventReasons": 0x04, "PowerUsage": MOVING}
    scenario = nvidia_fake.Scenario(folder / "nvml.scenario", gpus=gpus, part=part)
    scenario.put("lib", {"record": 1})
    return scenario, nvidia_fake.environ(scenario, nvidia_fake.build())


def declared(gpus: int, *, ttl_s: float = 60.0, grace_s: float = 0.05) -> dict[str, Any]:
    """What an agent arms with; its lease lives longer than a test, unless the test is about its end."""
    limit = {"prior_watts": PRIOR, "safe_watts": SAFE, "ceiling_watts": PRIOR}
    entries = [
        {"gpu": f"GPU-{n}", "vendor": "nvidia", "pci": f"00000000:{n * 16 + 11:02X}:00.0", "limits": {"limit": limit}}
        for n in range(gpus)
    ]
    return {"ttl_s": ttl_s, "grace_s": grace_s, "gpus": entries}


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds that nobody announces."""
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s, f"not within {WAIT_S:g} s: {what}"
        select.select([], [], [], 0.0005)


class Bench:
    """A guard, and what it does to the fake GPUs."""

    def __init__(self, folder: Path, *, gpus: int = 2, words: tuple[str, ...] = ()) -> None:
        self.folder, self.gpus, self.words = folder, gpus, words
        self.scenario, self.environ = nvidia(folder, gpus)
        self.environ["PYTHONPATH"] = str(ROOT)
        self.socket = Path(os.path.relpath(folder / "guard.sock"))
        self.state = folder / "state.json"
        self.guard: subprocess.Popen[str] | None = None
        self.children: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", "fleetd.powerguard", "serve", "--state", str(self.state)]
        command += ["--socket", str(self.socket), *self.words]
        ready = self.folder / "notify"
        ready.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            notified.bind(os.path.relpath(ready))
            notified.settimeout(WAIT_S)
            environ = {**self.environ, "NOTIFY_SOCKET": str(Path(os.path.relpath(ready)).absolute())}
            self.guard = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
            self.children.append(self.guard)
            assert notified.recv(100) == b"READY=1"

    def hold(self, watts: float = BOOST, **lease: float) -> subprocess.Popen[str]:
        """Start an agent that has armed the guard and raised the limits; its lease is long, on a busy machine."""
        words = [
            str(self.socket),
            json.dumps(declared(self.gpus, **lease)),
            json.dumps({"limit": watts}),
        ]
        command = [sys.executable, "-c", _HOLDER, *words]
        agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.children.append(agent)
        assert agent.stdout is not None
        for _ in range(2):
            answer = json.loads(agent.stdout.readline())
            assert answer["ok"], answer
        return agent

    def limits(self) -> list[float]:
        """What the driver would tell, in watts."""
        files = (Path(f"{self.scenario.file}.{n}.limit") for n in range(self.gpus))
        return [int(text) / 1000 if (text := text_of(file)) else PRIOR for file in files]

    def clocks(self) -> list[int | None]:
        """Highest clocks that are locked, in MHz; None: none is."""
        files = (Path(f"{self.scenario.file}.{n}.clock") for n in range(self.gpus))
        return [int(text) if (text := text_of(file)) else None for file in files]

    def until_free(self, *gpus: int) -> None:
        """Wait for the clocks of GPUs, or of all, to be free."""
        until(lambda: not any(self.clocks()[gpu] for gpu in gpus or range(self.gpus)), "the clocks are free")

    def foreign(self, watts: float, gpu: int = 0) -> None:
        """Another program sets a limit through the driver."""
        file = Path(f"{self.scenario.file}.{gpu}.limit")
        fresh = file.with_suffix(".foreign")
        fresh.write_text(f"{watts * 1000:.0f}\n")
        fresh.replace(file)

    def until(self, watts: float, within_s: float = WAIT_S) -> float:
        """Wait for every GPU to have this limit; returns the seconds it took."""
        began = time.monotonic()
        while self.limits() != [watts] * self.gpus:
            assert time.monotonic() - began < within_s, f"{self.limits()} after {within_s} s, not {watts}"
            select.select([], [], [], 0.0005)
        return time.monotonic() - began

    def ask(self, **body: Any) -> dict[str, Any]:
        """Ask as somebody else than the agent; a guard that replaces itself drops such a connection."""
        end_s = time.monotonic() + WAIT_S
        while time.monotonic() < end_s:
            with suppress(ConnectionError), Client(self.socket) as client:
                return client.ask(**body)
            select.select([], [], [], 0.005)
        raise AssertionError("the guard hangs up again and again")

    def sets(self) -> list[tuple[int, float]]:
        return [(int(gpu), int(mw) / 1000) for gpu, mw in (line.split() for line in self.scenario.lines(".sets"))]

    def lines(self, call: str) -> list[str]:
        """Calls of a kind, as the library wrote them down."""
        return [line for line in self.scenario.lines(".calls") if line.endswith(f" {call}")]

    def close(self) -> None:
        self.scenario.let_go()
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
            child.wait()
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()


class AmdBench(Bench):
    """The same over the fake AMD SMI: MI350X with two limiters."""

    def __init__(self, folder: Path, *, gpus: int = 2) -> None:
        super().__init__(folder, gpus=gpus)
        caps = {"power_cap": 1_000_000_000, "default_power_cap": 1_000_000_000, "min_power_cap": 100_000_000}
        part = {**amd_fake.MI300X, "asic_info.market_name": "AMD Instinct MI350X", "process_list": 0}
        part |= {"metrics_info.firmware_timestamp": "1 + 100000000"}
        for info, most in (("power_cap_info", 1_000_000_000), ("power_cap_info_1", 1_360_000_000)):
            part |= {f"{info}.{name}": value for name, value in caps.items()} | {f"{info}.max_power_cap": most}
        part |= {"power_cap_info_1.power_cap": 1_360_000_000, "power_info.power_limit": 1_000_000_000}
        self.scenario = amd_fake.Scenario(folder / "amd.scenario", gpus=gpus, part=part)
        library = amd_fake.build(nvidia_fake.LIBRARIES)
        self.environ = {**amd.environ(self.scenario.file, library, os.environ), "PYTHONPATH": str(ROOT)}

    def pair(self, gpu: int = 0) -> list[float]:
        """PPT0 and PPT1 as they were set last, in watts."""
        return [int(Path(f"{self.scenario.file}.{gpu}.cap{n}").read_text()) / 1e6 for n in range(2)]


class Client:
    """The agent's side of the socket, in this process."""

    def __init__(self, path: Path) -> None:
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(WAIT_S)
        self._channel.connect(str(path))

    def tell(self, **body: Any) -> None:
        self._channel.send(json.dumps({"sent_s": time.monotonic(), **body}).encode())

    def ask(self, **body: Any) -> dict[str, Any]:
        self.tell(**body)
        if not (packet := self._channel.recv(1 << 16)):
            raise ConnectionResetError("the guard hung up without an answer")
        answer: dict[str, Any] = json.loads(packet)
        return answer

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
