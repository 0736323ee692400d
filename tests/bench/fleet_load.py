# ruff: noqa: T201 - a bench prints
"""What agents cost a controller: `python tests/bench/fleet_load.py [AGENTS …] [--seconds S]` (500 and 2000 by default).

A real `fleetd controller` process on a ledger on disk, and agents that are nothing but their stream: each has a
connection of its own, says hello with 8 GPUs, qualifies (accepts its burn-in, reports a pass), sends telemetry of 8
GPUs with every metric set every 10 s, and findings that each lead to an order; 50 a second from 2,000 agents, as many
an agent from fewer. Measured over the window, after all have qualified:

- from sending a finding to its acknowledgement, which comes after finding, decision and order are on disk: p99 < 1 s;
- CPU of the controller: at most one core; its memory: below 600 MiB;
- CPU an agent: from the fewest to the most agents it must not grow by more than a fifth.

Exit code 1 when a target is missed. The agents need about a core themselves: on fewer than two free ones the latency is
that of the waiting for a core. Plain text on loopback: TLS costs at the handshake. An agent takes one descriptor
and one local port here, and one descriptor in the controller: `ulimit -n` above twice the agents (it is raised to the
hard limit), and as many in `net.ipv4.ip_local_port_range`.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import grpc
import yaml

from fleetd.config.shipped import policy_path
from fleetd.model.finding import BurninEnded, DeviceFault, FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Gpu, Hello, Place
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId, SpoolId
from fleetd.model.telemetry import GpuSample
from fleetd.pb.v1 import agent_pb2
from fleetd.pb.v1.agent_pb2_grpc import AgentLinkStub
from fleetd.ports import Spooled
from fleetd.uplink.channel import open_channel
from fleetd.uplink.codec import spooled_to_pb, telemetry_to_pb
from fleetd.uplink.hello_codec import hello_to_pb

GPUS, TELEMETRY_S = 8, 10.0
FINDINGS_PER_AGENT_S = 50.0 / 2000
AGENTS_A_PROCESS = 500
P99_MAX_S, CORES_MAX, MEMORY_MAX_MIB, GROWTH_MAX = 1.0, 1.0, 600.0, 1.2
TICKS = os.sysconf("SC_CLK_TCK")
READY_WITHIN_S = 400.0


# ── agents ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Agent:
    """One stream."""

    def __init__(self, number: int, address: str) -> None:
        self.host = HostName(f"host-{number:05d}")
        self._gpus = tuple(
            Gpu(gpu=GpuId(f"GPU-{number:06x}-{i}"), index=i, vendor="sim", sku="H200", pci_address=f"0000:{i:02x}:00.0")
            for i in range(GPUS)
        )
        self._number = number
        self._channel = open_channel(address, None, receive_max_bytes=1 << 20)
        self._call: Any = None
        self._writing = asyncio.Lock()
        self._seq = 0
        self._sent_s: dict[int, float] = {}
        self.latencies_s: list[float] = []
        self.qualified = asyncio.Event()
        self._telemetry = agent_pb2.AgentMessage(telemetry=telemetry_to_pb(self._samples()))

    def _samples(self) -> tuple[GpuSample, ...]:
        numbers = [f.name for f in fields(GpuSample) if f.metadata.get("kind") and f.metadata.get("label") is None]
        return tuple(
            GpuSample(gpu=gpu.gpu, at_s=time.time(), **{name: 0.5 + n for n, name in enumerate(numbers)})
            for gpu in self._gpus
        )

    async def run(self) -> None:
        """Say hello and answer whatever comes until cancelled."""
        self._call = AgentLinkStub(self._channel).Connect()  # type: ignore[no-untyped-call]
        hello = Hello(
            host=self.host,
            boot_id=BootId(f"boot-{self._number}"),
            agent_version="bench",
            capabilities=("burnin",),
            inventory=self._gpus,
            place=Place(pool="bench"),
            at_s=time.time(),
        )
        await self._write(agent_pb2.AgentMessage(hello=hello_to_pb(hello, SpoolId("spool"))))
        while (message := await self._call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            match message.WhichOneof("kind"):
                case "ack":
                    for seq in [seq for seq in self._sent_s if seq <= message.ack.seq]:
                        self.latencies_s.append(time.perf_counter() - self._sent_s.pop(seq))
                case "run_burnin":
                    await self._burn(message.run_burnin)
                case "refused" | "drain":
                    raise RuntimeError(str(message))
        raise RuntimeError(f"{self.host}: the controller ended the stream")

    async def _write(self, message: agent_pb2.AgentMessage) -> None:
        async with self._writing:  # gRPC takes one message of a stream at a time
            await self._call.write(message)

    async def _burn(self, order: agent_pb2.RunBurnin) -> None:
        confirmed = agent_pb2.OrderConfirmed(order_id=order.id)
        await self._write(agent_pb2.AgentMessage(order_confirmed=confirmed))
        ended = BurninEnded(
            id=FindingId(f"{order.id}/end"),
            host=self.host,
            boot_id=BootId(order.boot_id),
            at_s=time.time(),
            why="all agree",
            order_id=OrderId(order.id),
            level=order.level,
            verdict=Verdict.PASS,
            fault_class=FaultClass.NONE,
            seed=1,
            vote_key="",
            culprits=(),
        )
        await self._send(ended)
        self.qualified.set()

    async def find(self) -> None:
        """See an error of the host, and tell it."""
        fault = DeviceFault(
            id=FindingId(f"{self.host}/{self._seq}"),
            host=self.host,
            boot_id=BootId(f"boot-{self._number}"),
            at_s=time.time(),
            why="an error that no rule is about",
            code="bench.error",
            gpu=self._gpus[0].gpu,
            index=0,
            scope=Scope.GPU,
            severity=Severity.ERROR,
            fault_class=FaultClass.NONE,
        )
        await self._send(fault)

    async def _send(self, finding: BurninEnded | DeviceFault) -> None:
        self._seq += 1
        self._sent_s[self._seq] = time.perf_counter()
        pb = spooled_to_pb(Spooled(seq=self._seq, finding=finding))
        await self._write(agent_pb2.AgentMessage(finding=pb))

    async def tell_telemetry(self, start_in_s: float) -> None:
        """Send telemetry in its rhythm until cancelled."""
        await asyncio.sleep(start_in_s)
        while True:
            await self._write(self._telemetry)
            await asyncio.sleep(TELEMETRY_S)

    @property
    def waiting(self) -> int:
        """Findings that are not acknowledged."""
        return len(self._sent_s)


async def work(address: str, first: int, count: int, seconds: float) -> None:
    """Run agents in this process; says `ready`, waits for a line, then prints one JSON object."""
    rng = random.Random(first)  # noqa: S311 - a load, not a secret
    agents = [Agent(first + n, address) for n in range(count)]
    tasks = []
    for agent in agents:
        tasks.append(asyncio.create_task(agent.run()))
        await asyncio.sleep(0.01)  # they do not all come in the same instant: that is another bench
    await asyncio.wait_for(asyncio.gather(*(agent.qualified.wait() for agent in agents)), READY_WITHIN_S)
    tasks += [asyncio.create_task(agent.tell_telemetry(rng.uniform(0, TELEMETRY_S))) for agent in agents]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for agent in agents:
        agent.latencies_s.clear()
    began, sent = time.perf_counter(), 0
    while (now := time.perf_counter() - began) < seconds:
        while sent < now * count * FINDINGS_PER_AGENT_S:
            await rng.choice(agents).find()
            sent += 1
        await asyncio.sleep(0.01)
    for _ in range(300):
        if not any(agent.waiting for agent in agents):
            break
        await asyncio.sleep(0.1)
    latencies = sorted(value for agent in agents for value in agent.latencies_s)
    lost = sum(agent.waiting for agent in agents)
    print(json.dumps({"latencies_s": latencies, "sent": sent, "unacknowledged": lost}), flush=True)
    for task in tasks:
        if task.done():
            task.result()  # a stream that ended is a failure of the bench
        task.cancel()


# ── the controller ──────────────────────────────────────────────────────────────────────────────────────────────────


def configured(folder: Path, port: int) -> Path:
    """A controller's files: the default policy that tells a human of every error anew, so that each gives an order."""
    policy = yaml.safe_load(policy_path("default").read_text())
    policy["tell_again_seconds"] = 0.001
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
    config = {
        "apiVersion": "fleetd/v1",
        "kind": "Controller",
        "state_dir": str(folder),
        "policy": str(folder / "policy.yaml"),
        "server": {"listen": f"127.0.0.1:{port}", "insecure": True},
        "exporter": {"listen": "127.0.0.1:0"},
    }
    path = folder / "controller.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def cpu_s(pid: int) -> float:
    """CPU seconds of a process."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / TICKS


def memory_mib(pid: int) -> float:
    """The most resident memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def pages(ledger: Path) -> int:
    """Orders of the kind that the findings lead to, as they are on disk: else an acknowledgement proves little."""
    with closing(sqlite3.connect(ledger)) as database:
        return int(database.execute("SELECT count(*) FROM orders WHERE kind = 'Notify'").fetchone()[0])


def load(agents: int, seconds: float, port: int) -> dict[str, float]:
    """Measure one number of agents."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = (folder / "log").open("w")
        command = [sys.executable, "-m", "fleetd", "controller", "--config", str(configured(folder, port))]
        controller = subprocess.Popen(command, stdout=log, stderr=log)
        workers: list[subprocess.Popen[str]] = []
        try:
            while "listening" not in (folder / "log").read_text():
                if controller.poll() is not None:
                    sys.exit((folder / "log").read_text())
                threading.Event().wait(0.1)
            for first in range(0, agents, AGENTS_A_PROCESS):
                count = min(AGENTS_A_PROCESS, agents - first)
                words = ["--work", f"127.0.0.1:{port}", str(first), str(count), str(seconds)]
                workers.append(
                    subprocess.Popen(
                        [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                    )
                )
            for worker in workers:
                assert worker.stdout is not None
                if worker.stdout.readline() != "ready\n":
                    sys.exit("agents could not connect and qualify")
            threading.Event().wait(TELEMETRY_S)  # every agent has begun to send telemetry
            began, cpu = time.perf_counter(), cpu_s(controller.pid)
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write("go\n")
                worker.stdin.flush()
            threading.Event().wait(seconds)
            cores = (cpu_s(controller.pid) - cpu) / (time.perf_counter() - began)
            memory = memory_mib(controller.pid)
            results = [json.loads(worker.communicate()[0]) for worker in workers]
        finally:
            for process in (*workers, controller):
                process.terminate()
            for process in (*workers, controller):
                process.wait()
            log.close()
        orders = pages(folder / "fleet.db")
    latencies = sorted(value for found in results for value in found["latencies_s"])
    return {
        "agents": agents,
        "findings": len(latencies),
        "orders": orders,
        "unacknowledged": sum(found["unacknowledged"] for found in results),
        "p50_s": latencies[len(latencies) // 2],
        "p99_s": latencies[int(len(latencies) * 0.99)],
        "max_s": latencies[-1],
        "cores": cores,
        "memory_mib": memory,
        "cpu_an_agent": cores / agents,
    }


def main() -> None:
    """Measure each number of agents, and judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("agents", nargs="*", type=int, default=[500, 2000])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--port", type=int, default=17443)
    parser.add_argument("--work", nargs=4, metavar=("ADDRESS", "FIRST", "COUNT", "SECONDS"))
    asked = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if asked.work is not None:
        address, first, count, seconds = asked.work
        asyncio.run(work(address, int(first), int(count), float(seconds)))
        return
    good, found = True, []
    for agents in asked.agents:
        found.append(run := load(agents, asked.seconds, asked.port))
        print(
            f"{agents} agents, {run['findings']:.0f} findings in {asked.seconds:g} s: p50 {run['p50_s'] * 1e3:.0f} ms, "
            f"p99 {run['p99_s'] * 1e3:.0f} ms, max {run['max_s'] * 1e3:.0f} ms; {run['cores']:.2f} cores, "
            f"{run['memory_mib']:.0f} MiB; {run['cpu_an_agent'] * 1e6:.0f} µs of CPU an agent and second",
            flush=True,
        )
        good &= run["p99_s"] < P99_MAX_S and run["cores"] <= CORES_MAX and run["memory_mib"] < MEMORY_MAX_MIB
        good &= run["unacknowledged"] == 0
        if run["orders"] < run["findings"]:
            sys.exit(f"{run['findings']:.0f} findings led to {run['orders']:.0f} orders: this measures something else")
    growth = found[-1]["cpu_an_agent"] / found[0]["cpu_an_agent"]
    print(f"CPU an agent, {found[-1]['agents']:.0f} to {found[0]['agents']:.0f} agents: {growth:.2f} (<= {GROWTH_MAX})")
    sys.exit(not (good and growth <= GROWTH_MAX))


if __name__ == "__main__":
    main()
