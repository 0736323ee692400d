"""The whole way of a limit: governor, line, power guard, C library; and back through helper and binding."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fleetd.agent.governor import Governor
from fleetd.agent.governor_config import GovernorConfig
from fleetd.agent.governor_ports import Budget
from fleetd.compose.power import build_governor
from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.config.setpoint import store_setpoint
from fleetd.core.power.setpoint import SetPoint, envelope_sha256
from fleetd.core.power.tune import Candidate, Profile
from fleetd.devices.config import DevicesConfig
from fleetd.devices.helper import HelperDevices
from fleetd.devices.pci import PciGpus
from fleetd.model.host import Gpu
from fleetd.model.power import GpuPower
from fleetd.system import RealClock
from tests.powerguard.guard_bench import WAIT_S, AmdBench, Bench

FIRMWARE = "580.159"
SUSTAINED = 672.0
"""0.96 of 700 W: what the shipped H200 envelope leaves after its margin."""


def tuned(
    path: Path,
    *,
    name: str = "h200",
    firmware: str = FIRMWARE,
    raw_watts: float = 690.0,
    seconds: float = 1e6,
    clock_hertz: float | None = None,
) -> Path:
    """A set-point of a shipped envelope."""
    envelope, now_s = read_envelope(envelope_path(name)).envelope, RealClock().wall_s()
    point = SetPoint(
        candidate=Candidate(profile=Profile.STATIC, raw_watts=raw_watts, clock_cap_hertz=clock_hertz),
        envelope=envelope.name,
        envelope_sha256=envelope_sha256(envelope),
        part=envelope.part,
        firmware=firmware,
        speedup=1.0,
        worst_ratio=0.9,
        seed=1,
        tuned_at_s=now_s - 10.0,
        expires_at_s=now_s + seconds,
    )
    store_setpoint(path, point)
    return path


class Governed:
    """A host with fake GPUs, a guard and a governor, whose turns the test takes."""

    def __init__(self, guard: Bench, devices: HelperDevices, governor: Governor, gpus: list[Gpu]) -> None:
        self.guard, self.devices, self.governor, self.inventory = guard, devices, governor, gpus
        self.released = False

    async def gpu(self, place: int = 0) -> GpuPower:
        await self.governor.turn()
        return self.governor.status().gpus[place]

    async def until(self, mode: str, words: str = "", place: int = 0) -> GpuPower:
        """Turn until the GPU is in a mode for a reason."""
        end_s = RealClock().elapsed_s() + WAIT_S
        while True:
            found = await self.gpu(place)
            if found.mode == mode and words in found.why:
                return found
            assert RealClock().elapsed_s() < end_s, found
            await asyncio.sleep(0.01)

    def foreign(self, watts: float, gpu: int = 0) -> None:
        """Another program sets a limit through the driver."""
        self.guard.foreign(watts, gpu)

    def free_clock(self, gpu: int = 0) -> None:
        """Another program unlocks the clock through the driver."""
        Path(f"{self.guard.scenario.file}.{gpu}.clock").unlink()

    def forget(self, gpu: int = 0) -> None:
        """What was set is gone, as after a reload of the driver."""
        for kind in ("limit", "clock", "cap0", "cap1"):
            Path(f"{self.guard.scenario.file}.{gpu}.{kind}").unlink(missing_ok=True)


@asynccontextmanager
async def governed(
    folder: Path,
    *,
    gpus: int = 2,
    start: bool = True,
    vendor: str = "nvidia",
    budget: Budget | None = None,
    **wishes: object,
) -> AsyncIterator[Governed]:
    guard = Bench(folder, gpus=gpus) if vendor == "nvidia" else AmdBench(folder, gpus=gpus)
    clock = RealClock()
    config = GovernorConfig(  # type: ignore[arg-type]
        **{"mode": "boost", "envelope": "h200", "guard": guard.socket, "settle_seconds": 1e-3, **wishes}
    )
    patient = DevicesConfig(call_deadline_seconds=WAIT_S, open_deadline_seconds=WAIT_S)
    devices = HelperDevices(
        vendor=vendor, clock=clock, config=patient, environ=guard.environ, pci=PciGpus(vendor, folder / "pci")
    )
    try:
        if start:
            guard.start()
        inventory = list(await devices.inventory())
        made = Governed(guard, devices, None, inventory)  # type: ignore[arg-type]
        governor = build_governor(
            config,
            devices,
            clock=clock,
            inventory=lambda: made.inventory,
            released=lambda: made.released,
            budget=budget,
        )
        assert governor is not None
        if "interval_seconds" not in wishes:  # who takes the turns is this test, and it may be slow
            governor._line._beat_max_s = WAIT_S
        made.governor = governor
        yield made
        with suppress(OSError):
            await governor._line.disarm()
    finally:
        guard.scenario.let_go()
        await devices.close()
        guard.close()


def run(case: Awaitable[None]) -> None:
    async def patient() -> None:
        await asyncio.wait_for(case, 4 * WAIT_S)

    asyncio.run(patient())
