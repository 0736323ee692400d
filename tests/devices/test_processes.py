"""Which processes hold a GPU: told by the reader, kept by the helper's parent, never believed blindly."""

from pathlib import Path
from typing import Any

import pytest

from fleetd.devices.amd_readings import slow
from fleetd.devices.reader import PROCESSES
from fleetd.devices.replies import process_ids
from tests.devices.nvidia_bench import bench, run


def test_processes_are_kept_between_slow_readings_and_forgotten_with_them(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            assert host.devices.processes == {}
            host.tell(1, Processes=0)
            for _ in range(2):
                await host.devices.sample()
                host.clock.now_s += 10.0
            assert host.devices.processes == {"GPU-0": (1000, 1001), "GPU-1": ()}
            host.tell(0, Processes=1)
            host.clock.now_s += 1.0
            await host.devices.sample()
            host.clock.now_s += 10.0
            await host.devices.sample()
            assert host.devices.processes == {"GPU-0": (1000,), "GPU-1": ()}

    run(case())


def test_the_helpers_are_named_so_that_their_memory_counts(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            assert host.devices.helpers == ()
            await host.devices.sample()
            assert [str(pid) for pid in host.devices.helpers] == host.lines(".starts")
            await host.devices.close()
            assert host.devices.helpers == ()

    run(case())


def test_amd_names_them_too() -> None:
    class Answers:
        def one(self, name: str, *_: Any) -> Any:
            return [{"pid": 77, "mem": 2**30}] if name == "gpu_process_list" else None

    class Smi:
        AmdSmiClkType = type("Clk", (), {"GFX": 0, "MEM": 4})
        AmdSmiGpuBlock = ()

    assert slow(Answers(), Smi)[PROCESSES] == [("77", float(2**30))]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([["12", 0.0], ["13", 1.0]], (12, 13)),
        ([["-1", 0.0], [], "14", [15], ["x"], None, ["16"]], (16,)),
        (None, ()),
        ("12", ()),
        ([[str(n), 0.0] for n in range(1000)], tuple(range(64))),
    ],
)
def test_what_is_no_process_id_is_left_out(entries: Any, expected: tuple[int, ...]) -> None:
    assert process_ids(entries) == expected
