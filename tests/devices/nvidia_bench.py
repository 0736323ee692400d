"""A host whose NVIDIA library is the fake one: the real helper process, the real binding, a clock of the test's own."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fleetd.devices.config import DevicesConfig
from fleetd.devices.helper import HelperDevices
from fleetd.devices.pci import PciGpus
from fleetd.system import RealClock
from tests.agent.fakes_agent import FakeClock
from tests.fakelibs.nvidia_fake import Scenario, build, environ

CONFIG = DevicesConfig(
    call_deadline_seconds=2.0, open_deadline_seconds=60.0, reopen_deadline_seconds=60.0, restart_max_seconds=8.0
)
"""A call that does not hang must end within the first of them also on a machine that is busy with other tests."""


class Bench:
    """A host and the devices under test."""

    def __init__(self, folder: Path, config: DevicesConfig, gpus: int, *defines: str) -> None:
        self.scenario = Scenario(folder / "nvml.scenario", gpus=gpus)
        self.scenario.put("lib", {"record": 1})
        self.clock = FakeClock()
        self.environ = environ(self.scenario, build(*defines))
        self.pci = folder / "pci"
        for gpu in range(gpus):
            self.plug(gpu)
        self.devices = HelperDevices(
            vendor="nvidia", clock=self.clock, config=config, environ=self.environ, pci=PciGpus("nvidia", self.pci)
        )

    def plug(self, gpu: int, *, vendor: str = "0x10de", kind: str = "0x030200") -> None:
        """Have the kernel list a GPU, which alone changes nothing in the library."""
        device = self.pci / f"0000:{gpu * 16 + 11:02x}:00.0"
        device.mkdir(parents=True)
        (device / "class").write_text(f"{kind}\n")
        (device / "vendor").write_text(f"{vendor}\n")

    def unplug(self, gpu: int) -> None:
        """Have the kernel no longer list it."""
        shutil.rmtree(self.pci / f"0000:{gpu * 16 + 11:02x}:00.0")

    def tell(self, who: object, **values: Any) -> None:
        """What a GPU (by number, `*`, `lib`) answers; `__` stands for a dot."""
        self.scenario.put(who, {what.replace("__", "."): value for what, value in values.items()})

    def lines(self, suffix: str) -> list[str]:
        return self.scenario.lines(suffix)

    async def reached(self, call: str, *, times: int) -> None:
        """Wait until the library has been called in this way so often."""
        while sum(line.startswith(call) for line in self.lines(".calls")) < times:
            await RealClock().sleep_s(0.01)

    async def answering(self) -> list[str]:
        return [sample.gpu for sample in await self.devices.sample()]


@asynccontextmanager
async def bench(folder: Path, config: DevicesConfig = CONFIG, gpus: int = 3, *defines: str) -> AsyncIterator[Bench]:
    made = Bench(folder, config, gpus, *defines)
    try:
        yield made
    finally:
        made.scenario.let_go()
        await made.devices.close()
        for pid in map(int, made.lines(".starts")):
            await gone(pid)
        made.devices._helpers.reap()


async def gone(pid: int) -> None:
    """Wait for the end of any process, a child of ours or not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)


async def settled(devices: HelperDevices) -> None:
    """Wait for those that are ending: on a busy machine that takes more than the second it may."""
    for child, gpu in devices._helpers._abandoned:
        if gpu is None:
            await gone(child.pid)
    devices._helpers.reap()


def run(case: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(case, 200))
