"""The sampling loop on a clock that takes no time."""

import asyncio
from collections.abc import Callable
from dataclasses import fields

import pytest

from fleetd.agent.attachment import Attachment
from fleetd.agent.sampler import Sampler, SamplerConfig
from fleetd.model.finding import DeviceFault, FaultClass, Scope
from fleetd.ports import DeviceError, DriverMissing
from tests.agent.fakes_agent import BOOT, HOST, FakeClock, FakeDevices, FakeSpool

ALL = {0, 1, 2, 3}


class Bench:
    def __init__(
        self,
        script: Callable[[float], set[int] | DeviceError],
        *,
        until_s: float,
        config: SamplerConfig | None = None,
        call_s: float = 0.0,
    ) -> None:
        self.clock = FakeClock(until_s=1000.0 + until_s)
        self.devices = FakeDevices(self.clock, lambda now_s: script(now_s - 1000.0), call_s=call_s)
        self.spool = FakeSpool()
        self.sampler = Sampler(
            host=HOST,
            boot_id=BOOT,
            devices=self.devices,
            spool=self.spool,
            clock=self.clock,
            config=config or SamplerConfig(),
        )

    async def run(self) -> "Bench":
        task = asyncio.create_task(self.sampler.run())
        reached = asyncio.create_task(self.clock.reached.wait())
        await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        task.cancel()
        await asyncio.wait({task})
        return self

    def faults(self) -> list[DeviceFault]:
        return [finding for finding in self.spool.findings if isinstance(finding, DeviceFault)]


def played(script: Callable[[float], set[int] | DeviceError], *, until_s: float, **options: object) -> Bench:
    async def case() -> Bench:
        return await Bench(script, until_s=until_s, **options).run()  # type: ignore[arg-type]

    return asyncio.run(case())


def test_it_samples_at_the_interval_and_keeps_the_latest() -> None:
    bench = played(lambda _: ALL, until_s=5.0)
    assert bench.clock.sleeps == [1.0] * 6
    assert [sample.gpu for sample in bench.sampler.latest()] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert [gpu.index for gpu in bench.sampler.inventory] == [0, 1, 2, 3]
    assert bench.devices.inventories == 1
    assert (bench.sampler.age_s, bench.sampler.findings_total, bench.spool.findings) == (0.0, 0, [])


def test_a_sample_that_takes_long_is_followed_by_the_next_beat_and_never_by_a_burst() -> None:
    bench = played(lambda _: ALL, until_s=9.0, call_s=2.5)
    assert bench.clock.sleeps == [0.5] * 4
    assert bench.sampler.overruns_total == 2 * 4


def test_a_silent_gpu_is_one_finding_within_ten_seconds() -> None:
    bench = played(lambda s: ALL if s < 3 else {0, 1, 3}, until_s=300.0)
    (fault,) = bench.faults()
    assert (fault.gpu, fault.index, fault.scope) == ("GPU-2", 2, Scope.GPU)
    assert (fault.code, fault.fault_class) == ("agent.driver_unresponsive", FaultClass.UNRESPONSIVE)
    assert fault.why == "GPU 2 does not answer for 8 s: GPU is lost"
    assert fault.at_s - (1.7e9 + 1003.0) <= 10.0
    assert (bench.sampler.silent_gpus, bench.sampler.findings_total) == (("GPU-2",), 1)


def test_every_episode_is_told_once_with_an_id_of_its_own() -> None:
    bench = played(lambda s: {0, 1, 3} if 3 <= s < 30 or 50 <= s < 80 else ALL, until_s=100.0)
    first, second = bench.faults()
    assert first.id == "h1/boot-1/agent.driver_unresponsive/GPU-2/1700001003"
    assert second.id == "h1/boot-1/agent.driver_unresponsive/GPU-2/1700001050"
    assert bench.sampler.silent_gpus == ()


def test_a_silent_driver_is_one_finding_and_is_asked_ever_more_rarely() -> None:
    bench = played(lambda s: ALL if s < 3 else DeviceError("no answer"), until_s=300.0)
    (fault,) = bench.faults()
    assert (fault.gpu, fault.scope, fault.why) == (None, Scope.HOST, "no GPU answers for 8 s: no answer")
    assert fault.at_s - (1.7e9 + 1003.0) <= 10.0
    assert bench.clock.sleeps[-3:] == [30.0] * 3
    assert bench.sampler.device_errors_total < 40
    assert bench.sampler.latest() == (), "readings from five minutes ago are not the present"


def test_a_short_silence_is_none() -> None:
    bench = played(lambda s: DeviceError("busy") if 3 <= s < 9 else ALL, until_s=60.0)
    assert bench.faults() == []
    assert bench.sampler.device_errors_total == 6
    assert bench.devices.inventories > 1, "after a failure the inventory is read again"


def test_a_driver_that_is_not_there_is_no_hardware_fault() -> None:
    bench = played(lambda _: DriverMissing("NVML does not start"), until_s=120.0)
    (fault,) = bench.faults()
    assert (fault.code, fault.fault_class) == ("agent.driver_missing", FaultClass.CONFIGURATION)
    assert fault.at_s >= 1.7e9 + 1060.0, "a cold driver takes its time"
    assert bench.sampler.discovered.is_set(), "the controller has to hear of it"


def test_a_finding_that_the_disk_refuses_is_tried_again_with_the_same_id() -> None:
    async def case() -> Bench:
        bench = Bench(lambda s: ALL if s < 3 else {0, 1, 3}, until_s=60.0)
        bench.spool.refuse = 5
        return await bench.run()

    bench = asyncio.run(case())
    (fault,) = bench.faults()
    assert fault.id.endswith("/1700001003")
    assert (bench.sampler.store_errors_total, bench.sampler.findings_total) == (5, 1)


def test_any_other_error_ends_the_loop() -> None:
    def script(_: float) -> set[int]:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        played(script, until_s=10.0)


def test_a_changed_inventory_is_announced() -> None:
    async def case() -> None:
        bench = Bench(lambda _: ALL, until_s=5.0)
        await bench.sampler.sample_once()
        assert bench.sampler.inventory_changed.is_set()
        bench.sampler.inventory_changed.clear()
        bench.devices.script = lambda _: DeviceError("reset")
        assert await bench.sampler.sample_once() == 1.0
        bench.devices.script = lambda _: ALL
        bench.devices.gpus = 3
        assert await bench.sampler.sample_once() is None
        assert bench.sampler.inventory_changed.is_set()
        assert len(bench.sampler.inventory) == 3

    asyncio.run(case())


@pytest.mark.parametrize("name", [field.name for field in fields(SamplerConfig)])
def test_a_configuration_that_cannot_work_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: 0.0 is not above 0"):
        SamplerConfig(**{name: 0.0})


def test_a_gpu_counts_as_heard_from_its_first_answer_on_until_the_gpus_are_released() -> None:
    async def case() -> None:
        clock = FakeClock()
        answering = {0, 2, 3}
        attachment = Attachment(FakeDevices(clock, lambda _: answering), clock=clock)
        sampler = Sampler(
            host=HOST, boot_id=BOOT, devices=attachment, spool=FakeSpool(), clock=clock, config=SamplerConfig()
        )
        assert sampler.unheard == (), "before the discovery nobody is known"
        await sampler.sample_once()
        assert sampler.unheard == ("GPU-1",)
        answering.add(1)
        await sampler.sample_once()
        answering.discard(1)
        await sampler.sample_once()
        assert sampler.unheard == (), "it is silent now, which is another matter"
        await attachment.release(60.0)
        await sampler.sample_once()
        assert len(sampler.unheard) == 4

    asyncio.run(case())


def test_an_interval_that_leaves_the_driver_no_pause_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^interval_seconds: 0\.001 is below 0\.05"):
        SamplerConfig(interval_seconds=0.001)


def test_readings_that_are_stale_before_the_next_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^stale_after_seconds: 30 is not above interval_seconds \(60\)"):
        SamplerConfig(interval_seconds=60.0)
    assert SamplerConfig(interval_seconds=60.0, stale_after_seconds=180.0).interval_seconds == 60.0
