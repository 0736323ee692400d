"""Fakes behind the agent's ports: all in memory, time advances at once."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetd.model.finding import Finding
from fleetd.model.host import Gpu, Hello
from fleetd.model.ids import BootId, GpuId, HostName, OrderId, SpoolId
from fleetd.model.order import RecallBurnin, RunBurnin
from fleetd.model.telemetry import GpuSample
from fleetd.ports import BurnerError, DeviceError, Spool, Spooled, StoreError

HOST = HostName("h1")
BOOT = BootId("boot-1")


class FakeClock:
    """Sleeping takes no time; past `until_s` of the monotonic clock it takes for ever, and `reached` is set."""

    def __init__(self, *, until_s: float = float("inf")) -> None:
        self.now_s = 1000.0
        self.until_s = until_s
        self.reached = asyncio.Event()
        self.sleeps: list[float] = []

    def wall_s(self) -> float:
        return 1.7e9 + self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if self.now_s + seconds > self.until_s:
            self.reached.set()
            await asyncio.Event().wait()
        self.now_s += seconds
        await asyncio.sleep(0)


def gpu(index: int) -> Gpu:
    return Gpu(
        gpu=GpuId(f"GPU-{index}"), index=index, vendor="nvidia", sku="H200", pci_address=f"0000:{index:02x}:00.0"
    )


class FakeDevices:
    """Answers as `script(now_s)` says: the indices that answer, or an error; each call takes `call_s`."""

    def __init__(
        self, clock: FakeClock, script: Callable[[float], set[int] | DeviceError], *, gpus: int = 4, call_s: float = 0.0
    ) -> None:
        self.clock, self.script, self.gpus, self.call_s = clock, script, gpus, call_s
        self.troubles: Mapping[GpuId, str] = {}
        self.closed = False
        self.inventories = 0
        self.drivers: dict[int, str] = {}
        """Index → driver version."""

    async def inventory(self) -> tuple[Gpu, ...]:
        self.inventories += 1
        self._answering()
        return tuple(replace(gpu(n), driver_version=self.drivers.get(n)) for n in range(self.gpus))

    async def sample(self) -> tuple[GpuSample, ...]:
        answering = self._answering()
        self.clock.now_s += self.call_s
        self.troubles = {gpu(i).gpu: "GPU is lost" for i in range(self.gpus) if i not in answering}
        at_s = self.clock.wall_s()
        return tuple(GpuSample(gpu=gpu(i).gpu, at_s=at_s, power_watts=500.0 + i) for i in sorted(answering))

    def _answering(self) -> set[int]:
        answer = self.script(self.clock.now_s)
        if isinstance(answer, DeviceError):
            raise answer
        return answer

    async def close(self) -> str:
        self.closed = True
        return ""


class FakeSpool:
    """A spool whose disk can refuse."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.refuse = 0
        self.appended = asyncio.Event()
        self.refused = asyncio.Event()

    @property
    def id(self) -> SpoolId:
        return SpoolId("spool-1")

    def append(self, finding: Finding) -> int:
        if self.refuse:
            self.refuse -= 1
            self.refused.set()
            raise StoreError("disk full")
        ids = [kept.id for kept in self.findings]
        if finding.id not in ids:
            self.findings.append(finding)
            ids.append(finding.id)
        self.appended.set()
        return ids.index(finding.id) + 1

    def pending(self, *, after_seq: int, limit: int) -> tuple[Spooled, ...]:
        return tuple(Spooled(seq=n, finding=f) for n, f in enumerate(self.findings, 1) if n > after_seq)[:limit]

    def acknowledge(self, seq: int) -> None:
        del seq

    async def wait(self, *, after_seq: int) -> None:
        del after_seq
        await self.appended.wait()


class FakeOrders:
    """Orders that survive an agent, but not the test."""

    def __init__(self) -> None:
        self.accepted: dict[OrderId, RunBurnin] = {}
        self.done: set[OrderId] = set()
        self.refuse = 0
        self.closed = asyncio.Event()

    def accept(self, order: RunBurnin) -> bool:
        if self.refuse:
            self.refuse -= 1
            raise StoreError("disk full")
        new = order.id not in self.accepted
        self.accepted.setdefault(order.id, order)
        return new

    def open(self) -> tuple[RunBurnin, ...]:
        return tuple(order for order in self.accepted.values() if order.id not in self.done)

    def close_order(self, order_id: OrderId) -> None:
        self.done.add(order_id)
        self.closed.set()


def report(**changes: Any) -> dict[str, Any]:
    """A report as `burnin` writes it, as far as the agent reads it: a pass, or what `changes` make of it."""
    return {
        "schema": "fleetd.burnin.report/1",
        "verdict": "pass",
        "level": "smoke",
        "seed": 7,
        "vote_key": "key",
        "why": "all tests passed",
        "culprits": [],
        **changes,
    }


class FakeBurner:
    """Leaves what `outcome(order)` returns as the report, or fails with what it returns."""

    def __init__(self, outcome: Callable[[RunBurnin], dict[str, Any] | str | BurnerError]) -> None:
        self.outcome = outcome
        self.burnt: list[OrderId] = []
        self.hold: asyncio.Event | None = None
        self.running = 0
        self.running_max = 0
        self.started = asyncio.Event()

    async def burn(self, order: RunBurnin, report: Path) -> None:
        self.burnt.append(order.id)
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        self.started.set()
        try:
            if self.hold is not None:
                await self.hold.wait()
            outcome = self.outcome(order)
            if isinstance(outcome, BurnerError):
                raise outcome
            _write(report, outcome)
        finally:
            self.running -= 1


def _write(report: Path, outcome: dict[str, Any] | str) -> None:
    report.write_text(outcome if isinstance(outcome, str) else json.dumps(outcome))


class FakeUplink:
    """Keeps what it is given; `connected` as soon as it runs."""

    def __init__(self) -> None:
        self.hellos: list[Hello] = []
        self.connected = False
        self.accept: Callable[[RunBurnin], Awaitable[str]] | None = None
        self.recall: Callable[[RecallBurnin], None] | None = None
        self.said_hello = asyncio.Event()

    async def run(
        self,
        *,
        hello: Callable[[], Hello],
        spool: Spool,
        telemetry: Callable[[], tuple[GpuSample, ...]],
        accept: Callable[[RunBurnin], Awaitable[str]],
        recall: Callable[[RecallBurnin], None],
    ) -> None:
        del spool, telemetry
        self.hellos.append(hello())
        self.accept = accept
        self.recall = recall
        self.connected = True
        self.said_hello.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.connected = False


def order(number: int = 1, **changes: Any) -> RunBurnin:
    fields: dict[str, Any] = {
        "id": OrderId(f"{HOST}/{number}/burnin"),
        "host": HOST,
        "issued_at_s": 1.7e9,
        "why": "qualify",
        "level": "smoke",
        "boot_id": BOOT,
        "not_after_s": 1.7e9 + 1e6,
    }
    return RunBurnin(**{**fields, **changes})
