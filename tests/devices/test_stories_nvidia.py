"""Stories of other people's incidents, as tests of the NVIDIA devices; details are in `test_helper_devices.py`."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from fleetd.ports import DeviceError
from tests.devices.nvidia_bench import CONFIG, bench, gone, run


def test_s32_s35_one_sick_gpu_blinds_nobody_and_is_called_once(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path) as host:
            await host.devices.sample()
            before = host.lines(".calls").count("1 PowerUsage")
            host.tell(1, hang__PowerUsage=1)
            await host.answering()
            for _ in range(5):
                host.clock.now_s += 1.0
                assert await host.answering() == ["GPU-0", "GPU-2"]
            assert host.lines(".calls").count("1 PowerUsage") == before + 1

    run(case())


def test_s34_a_helper_inside_a_call_is_asked_to_end_and_never_killed(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.tell(0, hang__PowerUsage=1)
            with pytest.raises(DeviceError, match="no answer"):
                await host.devices.sample()
            (pid,) = map(int, host.lines(".starts"))
            os.kill(pid, signal.SIGTERM)  # a second request to end does no harm either
            os.kill(pid, 0)
            host.scenario.let_go()
            await gone(pid)
            assert host.lines(".ends") == [str(pid)], "the library was shut down in order"

    run(case())


def test_s42_a_driver_that_became_slow_is_asked_less_often(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, replace(CONFIG, call_deadline_seconds=20.0), gpus=1) as host:
            first = (await host.devices.sample())[0]
            host.devices._rests["GPU-0"] = (first, host.clock.now_s + 5.0)  # a call of half a second sets this
            calls = len(host.lines(".calls"))
            host.clock.now_s += 4.0
            assert await host.devices.sample() == (first,), "the last sample stands, with its own time"
            assert len(host.lines(".calls")) == calls
            host.clock.now_s += 1.0
            assert (await host.devices.sample())[0].at_s > first.at_s

    run(case())


def test_what_a_slow_gpu_said_before_a_reset_is_not_told_after_it(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, replace(CONFIG, call_deadline_seconds=20.0), gpus=1) as host:
            (first,) = await host.devices.sample()
            host.devices._rests["GPU-0"] = (first, host.clock.now_s + 5.0)
            await host.devices.close()
            host.clock.now_s += 1.0
            (second,) = await host.devices.sample()
            assert second.at_s > first.at_s

    run(case())


def test_s44_after_close_no_process_of_ours_holds_the_gpus(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path) as host:
            await host.devices.sample()
            (pid,) = map(int, host.lines(".starts"))
            await host.devices.close()
            await gone(pid)
            assert host.lines(".ends") == [str(pid)]
            assert len(await host.answering()) == 3, "and it attaches anew when it is asked again"

    run(case())
