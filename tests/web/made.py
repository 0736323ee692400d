"""A made fleet for the page and its tests: the real controller on a ledger in memory, and hosts that look real."""

import math
import random
from pathlib import Path

from fleetd.actuators.dryrun import DryRun
from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.controller.controller import Controller
from fleetd.controller.retries import DispatcherConfig
from fleetd.model.event import AgentConnected
from fleetd.model.finding import BurninEnded, Culprit, DeviceFault, FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Gpu, Hello, Host, Lifecycle, Place
from fleetd.model.ids import BootId, FindingId, GpuId, HostName
from fleetd.model.journal import JournalEntry
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, RunBlocking
from fleetd.stores.memory import MemoryStore

SKUS = ("NVIDIA H200", "NVIDIA H200", "AMD Instinct MI300X")
POOLS = ("train-a", "train-b", "research")
RACK_HOSTS = 16


def name_of(number: int) -> HostName:
    """h00001, …"""
    return HostName(f"h{number:05d}")


def gpus_of(name: HostName, sku: str, count: int = 8) -> tuple[Gpu, ...]:
    vendor = "nvidia" if sku.startswith("NVIDIA") else "amd"
    return tuple(
        Gpu(
            gpu=GpuId(f"GPU-{name}-{index}"),
            index=index,
            vendor=vendor,
            sku=sku,
            pci_address=f"0000:{0x18 + index * 0x10:02x}:00.0",
            driver_version="575.57.08" if vendor == "nvidia" else "6.12.12",
        )
        for index in range(count)
    )


def host_of(number: int, *, at_s: float, state: Lifecycle = Lifecycle.HEALTHY, gpus: int = 8) -> Host:
    """One host in good standing."""
    name = name_of(number)
    rack = number // RACK_HOSTS
    sku = SKUS[rack % len(SKUS)]
    return Host(
        name=name,
        state=state,
        why="a `smoke` burn-in passed" if state is Lifecycle.HEALTHY else f"it is {state.value}",
        since_s=at_s - 3600,
        boot_id=BootId(f"boot-{name}"),
        inventory=gpus_of(name, sku, gpus),
        holds=(),
        strikes=(),
        pending=None,
        proof=FindingId(f"{name}-proof"),
        orders_issued=1,
        attempts=0,
        place=Place(pool=POOLS[rack % len(POOLS)], rack=f"r{rack:03d}", power_domain=f"pdu{rack // 8:02d}"),
        driver_version="575.57.08",
    )


def fault_of(host: Host, *, at_s: float, number: int = 0, fault_class: FaultClass = FaultClass.MEMORY) -> BurninEnded:
    """A failed burn-in that blames one GPU."""
    gpu = host.inventory[number % len(host.inventory)]
    why = f"gpu {gpu.index} computed wrong results in 3 of 40 launches; the others agree"
    return BurninEnded(
        id=FindingId(f"{host.name}-burnin-{number}"),
        host=host.name,
        boot_id=host.boot_id or BootId("?"),
        at_s=at_s,
        why=why,
        order_id=None,
        level="smoke",
        verdict=Verdict.FAIL,
        fault_class=fault_class,
        seed=number,
        vote_key="h200/575",
        culprits=(Culprit(gpu=gpu.gpu, index=gpu.index, fault_class=fault_class, why=why),),
    )


def xid_of(host: Host, *, at_s: float, number: int = 0, code: str = "nvidia.xid.48") -> DeviceFault:
    """A fault that the kernel's log told of."""
    gpu = host.inventory[number % len(host.inventory)]
    return DeviceFault(
        id=FindingId(f"{host.name}-xid-{number}"),
        host=host.name,
        boot_id=host.boot_id or BootId("?"),
        at_s=at_s,
        why=f"Xid 48 on gpu {gpu.index}: double-bit ECC error",
        code=code,
        gpu=gpu.gpu,
        index=gpu.index,
        scope=Scope.GPU,
        severity=Severity.ERROR,
        fault_class=FaultClass.MEMORY,
    )


def samples_of(host: Host, *, at_s: float, rng: random.Random) -> tuple[GpuSample, ...]:
    """Readings of a busy host."""
    return tuple(
        GpuSample(
            gpu=gpu.gpu,
            at_s=at_s,
            power_watts=620 + 40 * math.sin(at_s / 30 + gpu.index) + rng.uniform(-15, 15),
            power_limit_watts=700.0,
            temperature_celsius=58 + gpu.index + rng.uniform(-1, 1),
            memory_temperature_celsius=70 + rng.uniform(-2, 2),
            sm_clock_hertz=1.755e9 + rng.uniform(-3e7, 3e7),
            utilization_ratio=min(1.0, 0.97 + rng.uniform(-0.05, 0.03)),
            memory_used_bytes=110e9,
            memory_total_bytes=141e9,
        )
        for gpu in host.inventory
    )


def controller_of(
    hosts: tuple[Host, ...], *, clock: Clock, run_blocking: RunBlocking, folder: Path, policy: str = "default"
) -> Controller:
    """The real controller, going on from these hosts."""
    store = MemoryStore()
    controller = Controller(
        store=store,
        actuator=DryRun(folder / "dryrun.jsonl", run_blocking=run_blocking),
        policy=load_policy(policy_path(policy)),
        clock=clock,
        run_blocking=run_blocking,
        dispatcher=DispatcherConfig(),
        policy_name=policy,
    )
    store.commit([_arrival(host, clock.wall_s()) for host in hosts])
    controller.load()
    return controller


def _arrival(host: Host, at_s: float) -> JournalEntry:
    """How a host came into the ledger."""
    hello = Hello(
        host=host.name,
        boot_id=host.boot_id or BootId("?"),
        agent_version="0.1.0",
        capabilities=(),
        inventory=host.inventory,
        place=host.place,
    )
    return JournalEntry(
        at_s=at_s - 7200,
        event=AgentConnected(host=host.name, hello=hello),
        host=host,
        orders=(),
        withheld=(),
        refused=False,
        fleet=None,
        why=host.why,
        progress=None,
    )
