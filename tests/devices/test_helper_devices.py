"""The nvidia backend with its real helper process, over a binding that hangs, lies, refuses and dies as it is told."""

import asyncio
import json
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fleetd.agent.sampler import Sampler, SamplerConfig
from fleetd.devices.config import DevicesConfig
from fleetd.model.finding import DeviceFault
from fleetd.ports import DeviceError, DriverMissing
from fleetd.system import RealClock
from tests.agent.fakes_agent import BOOT, HOST, FakeSpool
from tests.devices.nvidia_bench import bench, gone, run


def test_expensive_readings_are_rare_spread_over_the_gpus_and_kept_in_between(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            history = []
            for _ in range(21):
                samples = await host.devices.sample()
                history.append([sample.energy_joules_total is not None for sample in samples])
                host.clock.now_s += 1.0
            energy = [line.split()[0] for line in host.lines(".calls") if "Energy" in line]
            assert energy == ["0", "1", "0", "1", "0"]
            assert history[0] == [True, False], "the second GPU's turn comes half an interval later"
            assert history[5:] == [[True, True]] * 16

    run(case())


def test_a_lost_gpu_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path) as host:
            assert await host.answering() == ["GPU-0", "GPU-1", "GPU-2"]
            host.tell(1, error=15)
            assert await host.answering() == ["GPU-0", "GPU-2"]
            assert host.devices.troubles == {"GPU-1": "GPU is lost"}
            assert len(host.lines(".starts")) == 1

    run(case())


def test_a_hang_abandons_the_helper_and_leaves_that_gpu_alone(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path) as host:
            await host.devices.sample()
            host.tell(1, hang__PowerUsage=1)
            assert await host.answering() == ["GPU-0", "GPU-2"]
            assert "no answer to 'sample' of GPU-1 within" in host.devices.troubles["GPU-1"]
            host.clock.now_s += 1.0
            calls = len(host.lines(".calls"))
            assert await host.answering() == ["GPU-0", "GPU-2"]
            assert not any(line.startswith("1 ") for line in host.lines(".calls")[calls:])
            stuck = int(host.lines(".starts")[0])
            os.kill(stuck, 0)  # it was not killed in the middle of its call
            # The call returns, the abandoned helper ends: now the GPU is asked again.
            host.tell(1, hang__PowerUsage=None)
            host.scenario.let_go()
            await gone(stuck)
            assert await host.answering() == ["GPU-0", "GPU-1", "GPU-2"]
            assert [gpu.gpu for gpu in await host.devices.inventory()] == ["GPU-0", "GPU-1", "GPU-2"]

    run(case())


def test_gpus_that_are_slow_together_have_the_deadline_for_each(tmp_path: Path) -> None:
    async def case() -> None:
        config = DevicesConfig(call_deadline_seconds=3.0)
        async with bench(tmp_path, config) as host:
            await host.devices.sample()
            for gpu in range(3):
                host.tell(gpu, wait__PowerUsage=1.1)
            assert await host.answering() == ["GPU-0", "GPU-1", "GPU-2"]
            assert len(host.lines(".starts")) == 1

    run(case())


@pytest.mark.parametrize(("signalled", "whose"), [(signal.SIGSEGV, ["GPU-0", "GPU-1"]), (signal.SIGKILL, [])])
def test_a_library_that_crashes_at_a_gpu_costs_the_others_nothing(
    tmp_path: Path, signalled: signal.Signals, whose: list[str]
) -> None:
    """A helper that somebody killed is another matter: the next one starts after a pause, and asks all of them."""

    async def case() -> None:
        async with bench(tmp_path) as host:
            await host.devices.sample()
            host.tell(2, hang__PowerUsage=1)
            call = asyncio.create_task(host.answering() if whose else host.devices.sample())
            await host.reached("2 PowerUsage", times=2)
            os.kill(int(host.lines(".starts")[0]), signalled)
            if whose:
                assert await call == whose
                assert "no answer to 'sample' of GPU-2" in host.devices.troubles["GPU-2"]
            else:
                with pytest.raises(DeviceError, match="the helper ended with exit code -9"):
                    await call

    run(case())


def test_helpers_that_are_stuck_are_never_joined_by_more_than_the_limit(tmp_path: Path) -> None:
    """S35: in the driver as a whole, three; in calls for a GPU, one each (`test_many_hang.py`).

    The deadline is long enough for a helper to start and come to where it hangs.
    """

    async def case() -> None:
        config = DevicesConfig(open_deadline_seconds=1.5, reopen_deadline_seconds=1.5)
        async with bench(tmp_path, config, gpus=6) as host:
            host.tell("lib", hang__Init=1)
            for _ in range(20):
                with pytest.raises(DeviceError):
                    await host.devices.sample()
                host.clock.now_s += 10.0
            with pytest.raises(DeviceError, match="3 helpers are stuck inside the nvidia driver"):
                await host.devices.sample()
            assert (host.devices.starts_total, len(host.devices.helpers)) == (3, 3)

    run(case())


def test_back_off_doubles_to_its_maximum_while_opening_fails(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.tell("lib", error__Init=999)
            starts = []
            while len(starts) < 6:
                before = host.devices.starts_total
                with pytest.raises(DeviceError, match="NVML does not start"):
                    await host.devices.inventory()
                if host.devices.starts_total > before:
                    starts.append(host.clock.now_s)
                host.clock.now_s += 0.5
            assert [after - before for before, after in pairwise(starts)] == [1, 2, 4, 8, 8]

    run(case())


def test_a_hang_while_opening_is_given_up(tmp_path: Path) -> None:
    async def case() -> None:
        config = DevicesConfig(open_deadline_seconds=0.5)
        async with bench(tmp_path, config) as host:
            host.tell("lib", hang__Init=1)
            with pytest.raises(DeviceError, match=r"no answer to 'open' within 0\.5 s"):
                await host.devices.sample()

    run(case())


@pytest.mark.parametrize(("code", "kind"), [(9, DriverMissing), (12, DriverMissing), (18, DriverMissing)])
def test_no_driver_is_a_matter_of_installation(tmp_path: Path, code: int, kind: type[DeviceError]) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.tell("lib", error__Init=code)
            for _ in range(2):  # also while it waits for the next try
                with pytest.raises(kind, match="NVML does not start"):
                    await host.devices.sample()

    run(case())


def test_no_binding_says_what_to_install(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            (tmp_path / "pynvml.py").write_text("raise ImportError('no such library')\n")
            host.devices._helpers.environ["PYTHONPATH"] = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
            with pytest.raises(DriverMissing, match=r"install fleetd\[nvidia\]"):
                await host.devices.inventory()

    run(case())


def test_when_every_gpu_refuses_the_library_is_started_anew(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            await host.devices.sample()
            host.tell(0, error=1)
            host.tell(1, error=1)
            with pytest.raises(DeviceError, match="Uninitialized"):
                await host.devices.sample()
            host.tell(0, error=None)
            host.tell(1, error=None)
            host.clock.now_s += 1.0
            assert await host.answering() == ["GPU-0", "GPU-1"]
            assert len(host.lines(".starts")) == 2
            assert len(host.lines(".ends")) == 1

    run(case())


def test_a_helper_that_dies_is_replaced_and_the_gpu_that_ended_it_costs_the_others_nothing(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            await host.devices.sample()
            host.tell(0, die=9)
            assert await host.answering() == ["GPU-1"]
            assert host.devices.troubles["GPU-0"].startswith("the helper ended with exit code 9")
            host.tell(0, die=None)
            host.clock.now_s += 1.0
            assert await host.answering() == ["GPU-0", "GPU-1"]
            os.kill(host.devices.helpers[0], signal.SIGKILL)
            await gone(host.devices.helpers[0])
            with pytest.raises(DeviceError, match="exit code -9"):
                await host.devices.sample()

    run(case())


def test_garbage_from_the_helper_is_an_error_and_ends_it(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            await host.devices.sample()
            host.tell(0, garbage="<html>not a reply</html>")
            with pytest.raises(DeviceError, match="no reply: b'<html>"):
                await host.devices.sample()

    run(case())


def test_what_the_library_prints_does_not_disturb(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.tell("lib", print="NVRM: hello")
            assert await host.answering() == ["GPU-0"]

    run(case())


def test_inventory_leaves_out_what_has_no_name(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            host.tell(0, error__HandleByIndex=15)
            assert [gpu.index for gpu in await host.devices.inventory()] == [1]
            await host.devices.close()
            host.tell(1, error__HandleByIndex=15)
            with pytest.raises(DeviceError, match="names no GPU"):
                await host.devices.inventory()

    run(case())


def test_two_gpus_of_one_name_are_one(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path) as host:
            host.tell(1, UUID="GPU-0")
            assert [(gpu.gpu, gpu.index) for gpu in await host.devices.inventory()] == [("GPU-0", 0), ("GPU-2", 2)]
            assert await host.answering() == ["GPU-0", "GPU-2"]

    run(case())


@pytest.mark.parametrize("name", ["", 7, None])
def test_an_inventory_without_names_is_none(tmp_path: Path, name: object) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            await host.devices.inventory()
            child = host.devices._helpers.main
            assert child is not None
            entry = {"gpu": name, "index": 0, "vendor": "x", "sku": "x", "pci_address": None}
            child._reader.feed_data(json.dumps({"id": child._requests + 1, "ok": [entry]}).encode() + b"\n")
            with pytest.raises(DeviceError, match="inventory that is none"):
                await host.devices.inventory()

    run(case())


def test_close_shuts_the_library_down_and_may_be_repeated(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            await host.devices.sample()
            await host.devices.close()
            await host.devices.close()
            assert host.lines(".ends") == host.lines(".starts")

    run(case())


def test_a_cancelled_call_leaves_the_conversation_usable(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            await host.devices.sample()
            call = asyncio.create_task(host.devices.sample())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await host.answering() == ["GPU-0"]
            assert len(host.lines(".starts")) == 1

    run(case())


def test_a_hang_becomes_a_finding_about_that_gpu_alone_and_does_not_delay_the_end(tmp_path: Path) -> None:
    async def case() -> FakeSpool:
        config = DevicesConfig(call_deadline_seconds=1.5, restart_first_seconds=0.05)
        async with bench(tmp_path, config) as host:
            devices, spool, clock = host.devices, FakeSpool(), RealClock()
            devices._clock = clock
            sampler = Sampler(
                host=HOST,
                boot_id=BOOT,
                devices=devices,
                spool=spool,
                clock=clock,
                config=SamplerConfig(interval_seconds=0.05, unresponsive_after_seconds=2.0),
            )
            assert await sampler.sample_once() is None
            host.tell(0, hang__PowerUsage=1)
            task = asyncio.create_task(sampler.run())
            await spool.appended.wait()
            assert [sample.gpu for sample in sampler.latest()] == ["GPU-1", "GPU-2"]
            host.tell(1, hang__PowerUsage=1)
            devices._rests.clear()  # on a loaded machine it may be resting after a slow call
            call = asyncio.create_task(devices.sample())
            task.cancel()
            await asyncio.wait({task})
            await asyncio.wait({call}, timeout=0.1)
            assert not call.done(), "it is in the middle of the call that hangs"
            began_s = clock.elapsed_s()
            call.cancel()  # as the agent does when it is stopped
            await asyncio.wait({call})
            await devices.close()
            assert clock.elapsed_s() - began_s < 20.0, "the call does not return before it is let go"
            return spool

    (finding,) = asyncio.run(asyncio.wait_for(case(), 200)).findings
    assert isinstance(finding, DeviceFault)
    assert (finding.gpu, finding.index, finding.code) == ("GPU-0", 0, "agent.driver_unresponsive")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 0}, "gpus: 0"),
        ({"fault": "gpu=5,fault=F03"}, "backend: sim"),
        ({"call_deadline_seconds": 0.0}, "call_deadline_seconds"),
        ({"abandoned_max": 0}, "abandoned_max"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DevicesConfig(**changes)


def test_a_fault_may_be_planted_in_simulated_gpus() -> None:
    assert DevicesConfig(backend="sim", fault="gpu=5,fault=F03").fault == "gpu=5,fault=F03"
