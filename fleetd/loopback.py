"""A whole fleet of real processes on this machine: one controller and agents without GPUs, over mutual TLS.

A host's GPUs are simulated in its agent, or its agent reads a vendor's fake library through the vendor's real binding.

The demo shows it and the end-to-end tests break it: both start, kill and ask the same processes that users run.
"""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from fleetd.agent.status_socket import SOCKET_BYTES_MAX
from fleetd.burner import LEASH
from fleetd.sim.vendorlibs.host import FakeHost
from fleetd.sim.vendorlibs.libraries import cache
from fleetd.system import entropy
from fleetd.uplink.desk import DeskClient, DeskConfig
from fleetd.uplink.pki import DevPki, make_dev_pki

STOP_SECONDS = 20.0
"""How long a process may take to end after SIGTERM before it is killed: two seconds, where no other one computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """One host that has no hardware."""

    name: str
    gpus: int = 8
    fault: str | None = None
    """A planted fault, as in `fleetd burnin run --inject`; None: healthy."""
    seed: int = 1
    vendor: str | None = None
    """Whose fake library the agent reads (`vendorlibs.host.VENDORS`); None: devices that are simulated in the agent."""


_KERNELS_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_KERNELS_FIRST = 32768
"""Where the kernel begins unless it was told otherwise."""
_BELOW = 16384
"""So many ports below the kernel's own are chosen from, none of them privileged."""


def free_ports(count: int) -> tuple[int, ...]:
    """Return different ports of the loopback that nobody listens on, and that the kernel gives to nobody by itself.

    A port of the kernel's own range may become that of any outgoing connection before somebody listens on it, or while
    whoever listens is started again. Raises OSError when there are not so many.
    """
    found: list[int] = []
    first = _first_of_the_kernel()
    for port in entropy().sample(range(first - _BELOW, first), _BELOW):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return tuple(found)
    raise OSError(errno.EADDRINUSE, f"no {count} ports are free below {first}")


def _first_of_the_kernel() -> int:
    """The first port that the kernel gives away; where it gives away nearly all, its default is as good as any."""
    try:
        first = int(_KERNELS_PORTS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _KERNELS_FIRST
    return first if first - _BELOW >= 1024 else _KERNELS_FIRST  # noqa: PLR2004 - below it they are privileged


class Loopback:
    """Processes by name: `controller` and the hosts. Leaves no process behind; leaves its folder to be looked at."""

    def __init__(
        self,
        folder: Path,
        plans: Sequence[HostPlan],
        *,
        now_s: float,
        policy: str = "default",
        controller: Mapping[str, object] | None = None,
    ) -> None:
        """Write certificates and configurations into `folder`; starts nothing.

        Args:
            folder: an existing folder; becomes the state of all processes.
            plans: the hosts.
            now_s: wall time, seconds since the epoch (for the certificates).
            policy: a shipped policy or the path of one.
            controller: further keys of the controller's file.

        Raises:
            NoFakeLibrary: a host wants one that there is not; other hosts may still be tried in the same folder.
        """
        self.folder = folder
        self.plans = {plan.name: plan for plan in plans}
        self.port, *ports = free_ports(2 + len(self.plans))
        self.metrics_ports = dict(zip(("controller", *self.plans), ports, strict=True))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.fakes = {plan.name: self._fake(plan, plan.vendor) for plan in plans if plan.vendor is not None}
        """The hosts with a fake library, by name: their GPUs go bad through it."""
        wanted = DevPki(hosts=tuple(self.plans), operators=("demo",))
        make_dev_pki(folder / "pki", wanted, now_s=now_s)
        (folder / "logs").mkdir()
        self._write_controller(policy, controller or {})
        for name in self.plans:
            self.write_agent(name, port=self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── configuration ───────────────────────────────────────────────────────────────────────────────────────────────

    def _fake(self, plan: HostPlan, vendor: str) -> FakeHost:
        state = self.folder / plan.name
        state.mkdir(exist_ok=True)
        fake = FakeHost(state, host=plan.name, vendor=vendor, gpus=plan.gpus, libraries=cache())
        fake.burn_in(seed=plan.seed, inject=plan.fault)
        return fake

    def _write_controller(self, policy: str, more: Mapping[str, object]) -> None:
        state = self.folder / "controller"
        state.mkdir()
        pki = self.folder / "pki"
        self._write(
            "controller",
            {
                "apiVersion": "fleetd/v1",
                "kind": "Controller",
                "state_dir": str(state),
                "policy": policy,
                "server": {
                    "listen": f"127.0.0.1:{self.port}",
                    "ca": str(pki / "ca.crt"),
                    "cert": str(pki / "controller.crt"),
                    "key": str(pki / "controller.key"),
                },
                "exporter": {"listen": f"127.0.0.1:{self.metrics_ports['controller']}"},
                **more,
            },
        )

    def write_agent(self, name: str, *, port: int) -> None:
        """(Re)write the configuration of one agent; `port` is where it finds the controller on the loopback."""
        plan, pki, state = self.plans[name], self.folder / "pki", self.folder / name
        state.mkdir(exist_ok=True)
        if plan.name in self.fakes:
            hardware = self.fakes[plan.name].config
        else:
            fault = {} if plan.fault is None else {"fault": plan.fault}
            hardware = {"devices": {"backend": "sim", "gpus": plan.gpus, **fault}, "burner": {"seed": plan.seed}}
        self._write(
            name,
            {
                "apiVersion": "fleetd/v1",
                "kind": "Agent",
                "host": name,
                "state_dir": str(state),
                **hardware,
                **({"status": {"socket": str(self.socket(name))}} if self.socket(name) is not None else {}),
                "uplink": {
                    "address": f"127.0.0.1:{port}",
                    "ca": str(pki / "ca.crt"),
                    "cert": str(pki / "agents" / f"{name}.crt"),
                    "key": str(pki / "agents" / f"{name}.key"),
                },
                "exporter": {"listen": f"127.0.0.1:{self.metrics_ports[name]}"},
            },
        )

    def _write(self, name: str, body: dict[str, object]) -> None:
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(body, sort_keys=False))

    # ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, name: str) -> None:
        """Start the controller or the agent of a host; its log grows in `logs/NAME.log`.

        It is on a leash: a demo whose terminal is closed, or that is killed, leaves nothing behind.
        """
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", LEASH, str(os.getpid())),
                    *self.program(name),
                ],
                env=self.environ(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def program(self, name: str) -> list[str]:
        """The words that start a process: those that users type."""
        noun = "agent" if name in self.plans else "controller"
        return [sys.executable, "-m", "fleetd", noun, "--config", str(self.folder / f"{name}.yaml")]

    def socket(self, name: str) -> Path | None:
        """Where an agent answers `fleetd check`; None in a folder whose path is too long for a socket."""
        path = self.folder / f"{name}.sock"
        return path if len(os.fsencode(path)) <= SOCKET_BYTES_MAX else None

    def environ(self, name: str) -> dict[str, str]:
        """The environment of a process: on a host with a fake library it says where that is."""
        return self.fakes[name].environ(os.environ) if name in self.fakes else dict(os.environ)

    def start_all(self) -> None:
        """Start the controller and every agent; they find each other in any order."""
        for name in ("controller", *self.plans):
            self.start(name)

    def pid(self, name: str) -> int:
        """Return the process id of a process that was started."""
        return self._running[name].pid

    def alive(self, name: str) -> bool:
        """Whether a process that was started still runs."""
        return self._running[name].poll() is None

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL: it has no chance to save or to say anything."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self, name: str) -> int:
        """End a process with SIGTERM; returns its exit code. Kills it when it does not end in time."""
        process = self._running.pop(name)
        process.terminate()
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return process.wait()

    def close(self) -> None:
        """End everything that runs."""
        for fake in self.fakes.values():
            fake.scenario.let_go()  # a helper that a scenario makes hang could not end
        for process in self._running.values():
            process.terminate()
        for name in list(self._running):
            self.stop(name)

    # ── questions ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def desk_config(self) -> DeskConfig:
        """How the operator `demo` reaches the controller."""
        operator = self.folder / "pki" / "operators" / "demo"
        return DeskConfig(
            address=f"127.0.0.1:{self.port}",
            ca=str(self.folder / "pki" / "ca.crt"),
            cert=f"{operator}.crt",
            key=f"{operator}.key",
            insecure=False,
        )

    def desk(self) -> DeskClient:
        """Return an operator's client; use it as an asynchronous context manager."""
        return DeskClient(self.desk_config)

    def command(self, *words: str) -> list[str]:
        """Return the words of a `fleetd host …` command that asks this controller."""
        c = self.desk_config
        where = ["--controller", c.address, "--ca", str(c.ca), "--cert", str(c.cert), "--key", str(c.key)]
        return [sys.executable, "-m", "fleetd", *words, *where]

    def metrics(self, name: str) -> str:
        """Return what a process serves at /metrics; empty while it serves nothing."""
        try:
            with urlopen(f"http://127.0.0.1:{self.metrics_ports[name]}/metrics", timeout=10) as answer:
                text: str = answer.read().decode()
                return text
        except (URLError, OSError):
            return ""
