"""Many agents in one process, each nothing but its stream: what `fleet_load.py` starts, a few hundred a process.

Each has a connection of its own, over mutual TLS with a certificate of its own where there is a PKI; it says hello with
8 GPUs, qualifies (accepts its burn-in, reports a pass), sends telemetry of 8 GPUs every 10 s, with every metric set and
as many entries in its families as an H200 has, and findings; what is not acknowledged it sends again after a lost
connection, to which it comes back with the waits of the real agent. Telemetry is made once, so that the load weighs on
the controller and not on its makers: the numbers do not change.

Words on standard input, one answer a line on standard output:
`load SECONDS FINDINGS_A_SECOND`, `hoard FINDINGS_EACH`, `drain`.
"""

import argparse
import asyncio
import errno
import json
import random
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Any

import grpc

from fleetd.model.finding import BurninEnded, DeviceFault, FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Gpu, Hello, Place
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId, SpoolId
from fleetd.model.telemetry import FAMILIES, METRICS, GpuSample
from fleetd.pb.v1 import agent_pb2
from fleetd.pb.v1.agent_pb2_grpc import AgentLinkStub
from fleetd.ports import Spooled
from fleetd.uplink.channel import open_channel
from fleetd.uplink.codec import spooled_to_pb, telemetry_to_pb
from fleetd.uplink.config import HELLO_PATIENCE, TlsFiles, UplinkConfig
from fleetd.uplink.hello_codec import hello_to_pb

GPUS, TELEMETRY_S = 8, 10.0
ENTRIES = {"reason": 8, "block": 7, "link": 18, "metric": 0}
"""Of a family by its label: what NVML tells of an H200. A message of 8 GPUs then has 28 KB, most of it links."""
READY_WITHIN_S, DRAINED_WITHIN_S = 600.0, 120.0
CONNECT_EVERY_S = 0.04
KNOCK_EVERY_S, KNOCK_WITHIN_S = 1.0, 0.1
RETRY = UplinkConfig(insecure=True)
"""The real agent's waits."""


def host_name(number: int) -> HostName:
    """The same in the load and in the certificates."""
    return HostName(f"host-{number:05d}")


class Port:
    """Whether anybody listens: so that an attempt at a dead port is cheap.

    On a fleet each host pays for its own attempts. Here they would take both cores from the controller that starts. A
    port that was open is not knocked at again for a second: a knock costs the controller a connection.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._where = (host, int(port))
        self._open_until_s = 0.0

    def is_dead(self) -> bool:
        """Knock, unless somebody has answered just now."""
        if time.perf_counter() < self._open_until_s:
            return False
        with socket.socket() as knock:
            knock.settimeout(KNOCK_WITHIN_S)  # all agents stand still meanwhile; a full queue does not answer
            dead = knock.connect_ex(self._where) == errno.ECONNREFUSED
        if not dead:
            self._open_until_s = time.perf_counter() + KNOCK_EVERY_S
        return dead


class Agent:
    """One stream, and what it has to say on it."""

    def __init__(self, number: int, port: Port, address: str, pki: Path | None) -> None:
        self._port = port
        self.host = host_name(number)
        self._gpus = tuple(
            Gpu(gpu=GpuId(f"GPU-{number:06x}-{i}"), index=i, vendor="sim", sku="H200", pci_address=f"0000:{i:02x}:00.0")
            for i in range(GPUS)
        )
        self._boot = BootId(f"boot-{number}")
        self._address = address
        stem = None if pki is None else pki / "agents" / self.host
        self._tls = None if stem is None else TlsFiles(ca=f"{pki}/ca.crt", cert=f"{stem}.crt", key=f"{stem}.key")
        self._rng = random.Random(number)  # noqa: S311 - a load, not a secret
        self._call: Any = None
        self._welcome = False
        self._patience = asyncio.timeout(None)
        self._writing = asyncio.Lock()
        self._seq = 0
        self._waiting: dict[int, tuple[agent_pb2.AgentMessage, float]] = {}
        self.latencies_s: list[float] = []
        self.qualified = asyncio.Event()
        """Its burn-in has ended, and the controller has acknowledged that: nothing of it is under way any more."""
        self._burned = False
        self.attempts = 0
        """Connections begun, to a port where somebody listens."""
        self.connects = 0
        """Those of them that were welcomed."""
        self._telemetry = agent_pb2.AgentMessage(telemetry=telemetry_to_pb(self._samples()))

    @property
    def made(self) -> int:
        """Findings ever."""
        return self._seq

    @property
    def waiting(self) -> int:
        """Findings that are not acknowledged."""
        return len(self._waiting)

    async def run(self) -> None:
        """Connect for ever. Ends by an exception when the controller refuses: a failure of the bench."""
        failures = 0
        while True:
            connects = self.connects
            try:
                if not self._port.is_dead():
                    self.attempts += 1
                    channel = open_channel(self._address, self._tls, receive_max_bytes=1 << 20)
                    # The time-out is the outer one: a finding that is made while the channel closes still sets it.
                    async with asyncio.timeout(HELLO_PATIENCE * RETRY.answer_seconds) as self._patience, channel:
                        await self._serve(AgentLinkStub(channel))
            except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError, TimeoutError):
                pass
            self._call, self._welcome = None, False
            failures = 1 if self.connects > connects else failures + 1
            wait_s = min(RETRY.retry_max_seconds, RETRY.retry_first_seconds * 2 ** min(failures - 1, 30))
            await asyncio.sleep(wait_s * self._rng.uniform(0.5, 1.0))

    async def _serve(self, stub: Any) -> None:
        call = stub.Connect()
        hello = Hello(
            host=self.host,
            boot_id=self._boot,
            agent_version="bench",
            capabilities=("burnin",),
            inventory=self._gpus,
            place=Place(pool="bench"),
            at_s=time.time(),
        )
        await call.write(agent_pb2.AgentMessage(hello=hello_to_pb(hello, SpoolId("spool"))))
        welcome = await call.read()
        if welcome is grpc.aio.EOF:  # type: ignore[attr-defined]
            return
        if welcome.WhichOneof("kind") != "welcome":
            raise RuntimeError(f"{self.host}: {welcome}")
        self.connects += 1
        self._welcome = True
        self._acknowledged(welcome.welcome.last_seq)
        async with self._writing:  # in order: a later one before an earlier one would be taken for its repeat
            self._call = call
            for message, _ in list(self._waiting.values()):
                await call.write(message)
        while (message := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            match message.WhichOneof("kind"):
                case "ack":
                    self._acknowledged(message.ack.seq)
                case "run_burnin":
                    await self._burn(message.run_burnin)
                case "refused":
                    raise RuntimeError(f"{self.host}: {message}")

    def _acknowledged(self, seq: int) -> None:
        now_s = time.perf_counter()
        for known in [known for known in self._waiting if known <= seq]:
            self.latencies_s.append(now_s - self._waiting.pop(known)[1])
        self._expect_ack()
        if self._burned and not self._waiting:
            self.qualified.set()

    def _expect_ack(self) -> None:
        """Be as patient as the real agent: a controller that does not acknowledge the next finding is left."""
        if self._welcome and not self._patience.expired():
            until_s = asyncio.get_running_loop().time() + RETRY.answer_seconds
            self._patience.reschedule(until_s if self._waiting else None)

    async def _write(self, message: agent_pb2.AgentMessage) -> None:
        try:
            async with self._writing:  # gRPC takes one message of a stream at a time
                if self._call is not None:
                    await self._call.write(message)
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            pass  # the reader hears of it too

    async def _burn(self, order: agent_pb2.RunBurnin) -> None:
        await self._write(agent_pb2.AgentMessage(order_confirmed=agent_pb2.OrderConfirmed(order_id=order.id)))
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
        self._burned = True
        await self._send(ended)

    async def find(self) -> None:
        """See an error of the host, and tell it."""
        fault = DeviceFault(
            id=FindingId(f"{self.host}/{self._seq}"),
            host=self.host,
            boot_id=self._boot,
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
        message = agent_pb2.AgentMessage(finding=spooled_to_pb(Spooled(seq=self._seq, finding=finding)))
        self._waiting[self._seq] = (message, time.perf_counter())
        if len(self._waiting) == 1:
            self._expect_ack()
        await self._write(message)

    async def tell_telemetry(self) -> None:
        """Send telemetry in its rhythm until cancelled."""
        await asyncio.sleep(self._rng.uniform(0, TELEMETRY_S))
        while True:
            await self._write(self._telemetry)
            await asyncio.sleep(TELEMETRY_S)

    def _samples(self) -> tuple[GpuSample, ...]:
        readings: dict[str, Any] = {metric.name: 0.5 + n for n, metric in enumerate(METRICS)}
        for family in FAMILIES:
            count = ENTRIES[family.label or ""]
            readings[family.name] = tuple((f"{family.label}-{n}", 0.5 + n) for n in range(count))
        return tuple(GpuSample(gpu=gpu.gpu, at_s=time.time(), **readings) for gpu in self._gpus)


def say(**answer: Any) -> None:
    """One line."""
    print(json.dumps(answer), flush=True)  # noqa: T201 - the answer


async def work(address: str, first: int, count: int, pki: Path | None) -> None:
    """Bring the agents up, then do as standard input says."""
    rng = random.Random(first)  # noqa: S311 - a load, not a secret
    port = Port(address)
    agents = [Agent(first + n, port, address, pki) for n in range(count)]
    tasks = []
    for agent in agents:
        tasks.append(asyncio.create_task(agent.run()))
        await asyncio.sleep(CONNECT_EVERY_S)  # a calm beginning; `drain` is the storm
    await asyncio.wait_for(asyncio.gather(*(agent.qualified.wait() for agent in agents)), READY_WITHIN_S)
    tasks += [asyncio.create_task(agent.tell_telemetry()) for agent in agents]
    say(ready=count)
    while words := (await asyncio.to_thread(sys.stdin.readline)).split():
        for task in tasks:
            if task.done():
                task.result()  # refused: a failure of the bench
        for agent in agents:
            agent.latencies_s.clear()
        await obey(agents, words, rng)
        latencies = sorted(value for agent in agents for value in agent.latencies_s)
        say(
            latencies_s=latencies,
            unacknowledged=sum(agent.waiting for agent in agents),
            made=sum(agent.made for agent in agents),
            connects=sum(agent.connects for agent in agents),
            attempts=sum(agent.attempts for agent in agents),
        )
    for task in tasks:
        task.cancel()


async def obey(agents: list[Agent], words: list[str], rng: random.Random) -> None:
    """Carry out a line of standard input."""
    match words:
        case ["load", seconds, rate]:
            await load(agents, float(seconds), float(rate), rng)
            await drained(agents)
        case ["hoard", each]:
            for agent in agents:
                for _ in range(int(each)):
                    await agent.find()
        case ["drain"]:
            await drained(agents)


async def load(agents: list[Agent], seconds: float, rate: float, rng: random.Random) -> None:
    """Findings of agents drawn by lot, at a steady rate."""
    began, sent = time.perf_counter(), 0
    async with asyncio.TaskGroup() as making:  # a line that takes nothing does not hold back those of the others
        while (now := time.perf_counter() - began) < seconds:
            while sent < now * rate:
                making.create_task(rng.choice(agents).find())
                sent += 1
            await asyncio.sleep(0.01)


async def drained(agents: list[Agent]) -> None:
    """Wait until everything is acknowledged, for a while."""
    until = time.perf_counter() + DRAINED_WITHIN_S
    while any(agent.waiting for agent in agents) and time.perf_counter() < until:  # noqa: ASYNC110 - many agents, one look
        await asyncio.sleep(0.05)


def main() -> None:
    """Run the agents that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--pki", type=Path)
    asked = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(work(asked.address, asked.first, asked.count, asked.pki))


if __name__ == "__main__":
    main()
