"""One real `fleetd agent` on the fake NVIDIA library, with a service manager's socket that listens to it."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fleetd.agent.status_client import NoAnswer, ask
from fleetd.loopback import free_ports
from tests.fakelibs.nvidia_fake import H200, Scenario, build, environ
from tests.stopping import ends

WAIT_S = 60.0
HEALTHY = {
    **H200,
    "CurrentClocksEventReasons": 0,
    "RemappedRows.1": 0,
    "RemappedRows.2": 0,
    "field.163/7": 0,
    "field.165/7": 1,
}
"""The same part without what is wrong with it."""


class AgentBench:
    """The agent, what it is told and what it says. Times are the monotonic clock's."""

    def __init__(self, folder: Path, *, gpus: int, defines: tuple[str, ...], config: Mapping[str, Any]) -> None:
        self.folder = folder
        self.scenario = Scenario(folder / "nvml.scenario", gpus=gpus, part=HEALTHY)
        self.library = build(*defines)
        self.status = folder / "a.sock"
        (self.port,) = free_ports(1)
        (folder / "state").mkdir(exist_ok=True)
        self.file = folder / "agent.yaml"
        self.config = {
            "apiVersion": "fleetd/v1",
            "kind": "Agent",
            "host": "h1",
            "state_dir": str(folder / "state"),
            "kernel_log": {"source": "off"},
            "status": {"socket": str(self.status)},
            "uplink": {"address": "127.0.0.1:9", "insecure": True},
            "exporter": {"listen": f"127.0.0.1:{self.port}"},
            **config,
        }
        self.configure()
        self.said: list[tuple[float, str]] = []
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(folder / "n"))
        self.environ = {**environ(self.scenario, self.library), "NOTIFY_SOCKET": str(folder / "n")}
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, **changes: Any) -> None:
        """Write the configuration."""
        self.file.write_text(yaml.safe_dump({**self.config, **changes}))

    def start(self, **extra: str) -> None:
        """Start it; the socket tells when it is ready."""
        command = [sys.executable, "-m", "fleetd", "agent", "--config", str(self.file)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, env={**self.environ, **extra}, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def hears(self, beginning: str, *, within_s: float = WAIT_S) -> float:
        """Wait until the agent tells the service manager something new that begins so; returns when it did."""
        end_s = time.monotonic() + within_s
        while (left_s := end_s - time.monotonic()) > 0:
            self.notify.settimeout(left_s)
            try:
                state = self.notify.recv(4096).decode()
            except TimeoutError:
                break
            self.said.append((time.monotonic(), state))
            if state.startswith(beginning):
                return self.said[-1][0]
        raise AssertionError(f"not told within {within_s} s: {beginning}; {self.said}; {self.log()}")

    def ask(self) -> dict[str, Any]:
        return ask(self.status, timeout_s=WAIT_S)

    def until(self, holds: Callable[[dict[str, Any]], bool], what: str, *, within_s: float = WAIT_S) -> float:
        """Wait until the agent's status is so; returns how long that took."""
        began_s = time.monotonic()
        found: object = None
        pause = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # nobody writes to it: a wait between two questions
        with pause:
            pause.settimeout(0.05)
            while time.monotonic() - began_s < within_s:
                try:
                    found = self.ask()
                    if holds(found):
                        return time.monotonic() - began_s
                except NoAnswer as error:
                    found = error
                try:
                    pause.recv(1)
                except TimeoutError:
                    continue
        raise AssertionError(f"not within {within_s} s: {what}; {found}; {self.log()}")

    def metrics(self) -> tuple[float, str]:
        """Seconds that a scrape took, and its text."""
        began_s = time.monotonic()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=WAIT_S) as response:
            text = response.read().decode()
        return time.monotonic() - began_s, text

    def cli(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Another command, which talks to this agent."""
        command = [sys.executable, "-m", "fleetd", *words]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=200, check=False)

    def check(self) -> "subprocess.CompletedProcess[str]":
        """`fleetd check`; asked again where the agent has had no processor for its tenth of a second."""
        end_s = time.monotonic() + WAIT_S
        while True:
            done = self.cli("check", "--socket", str(self.status))
            if "does not answer within" not in done.stderr or time.monotonic() > end_s:
                return done

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def logged(self, event: str) -> list[dict[str, Any]]:
        whole = [line for line in self.log().splitlines(keepends=True) if line.endswith("\n")]
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def stop(self) -> tuple[int, float]:
        """SIGTERM; the exit code, and how long it took."""
        assert self.process is not None
        began_s = time.monotonic()
        self.process.terminate()
        return self.process.wait(timeout=WAIT_S), time.monotonic() - began_s

    def close(self) -> None:
        self.scenario.let_go()
        if self.process is not None and self.process.poll() is None:
            self.stop()
        self.notify.close()
        for pid in map(int, self.scenario.lines(".starts")):  # helpers end by themselves once they are let go
            assert ends(pid), f"process {pid} does not end"


@contextmanager
def agent(
    folder: Path, *, gpus: int = 3, defines: tuple[str, ...] = (), start: bool = True, **config: Any
) -> Iterator[AgentBench]:
    bench = AgentBench(folder, gpus=gpus, defines=defines, config=config)
    try:
        if start:
            bench.start()
            bench.hears("READY=1")
        yield bench
    finally:
        bench.close()
