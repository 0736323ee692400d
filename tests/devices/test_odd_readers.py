"""Readers of one's own that do what no reader should: only the GPU at which they do it is missing."""

import os
import signal
from pathlib import Path

import pytest

from fleetd.devices.helper import HelperDevices
from fleetd.devices.steps import Steps
from fleetd.model.ids import GpuId
from tests.agent.fakes_agent import FakeClock
from tests.devices.nvidia_bench import CONFIG, gone, run

READER = """
import ctypes, os, signal, sys

class Reader:
    def open(self):
        pass

    def inventory(self):
        return [
            {"gpu": f"G{n}", "index": n, "vendor": "odd", "sku": "Odd", "pci_address": None}
            for n in range(int(os.environ["GPUS"]))
        ]

    def sample(self, gpu, *, slow):
        if gpu == "G1":
            exec(os.environ["ODD"])
        held = [(str(2**22 - n), float(2**37)) for n in range(int(os.environ["PROCESSES"]))]
        return {"power_watts": 100.0, "process_ids": held}

    def close(self):
        pass
"""
FORKS = "pid = os.fork() or (signal.pause(), os._exit(0)); open(os.environ['FORKED'], 'w').write(str(pid)); "


def devices(folder: Path, odd: str, *, gpus: int = 4, processes: int = 1) -> HelperDevices:
    (folder / "odd_reader.py").write_text(READER)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    numbers = {"GPUS": str(gpus), "PROCESSES": str(processes)}
    environ = {**os.environ, "PYTHONPATH": path, "ODD": odd, "FORKED": str(folder / "forked"), **numbers}
    return HelperDevices(vendor="odd_reader:Reader", clock=FakeClock(), config=CONFIG, environ=environ)


async def answering(host: HelperDevices) -> list[str]:
    return [sample.gpu for sample in await host.sample()]


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("raise KeyError(gpu)", "exit code 1"),
        ("sys.exit(3)", "exit code 3"),
        ("os._exit(4)", "exit code 4"),
        ("os.abort()", "exit code -6"),
        ("os.closerange(3, 256); raise KeyError", "exit code 1"),
        ("os.close(0); raise KeyError", "exit code 1"),
        ("ctypes.string_at(0)", "exit code -11"),
        ("signal.pause()", "no answer to 'sample' of G1"),
        (f"{FORKS} os.abort()", "no answer to 'sample' of G1"),
    ],
)
def test_a_reader_that_breaks_at_one_gpu_costs_the_others_nothing(tmp_path: Path, odd: str, why: str) -> None:
    async def case() -> None:
        host = devices(tmp_path, odd)
        try:
            assert await answering(host) == ["G0", "G2", "G3"]
            # One that closes its output on the way out may not have ended yet when it is looked at.
            told = host.troubles[GpuId("G1")]
            assert why in told or told == "the helper closed its output"
            assert await answering(host) == ["G0", "G2", "G3"]
            assert set(host.troubles) == {"G1"}
            assert host.starts_total <= 6
        finally:
            await host.close()
            forked = tmp_path / "forked"
            if forked.exists():
                os.kill(int(forked.read_text()), signal.SIGKILL)

    run(case())


@pytest.mark.parametrize(
    "odd", ["print('{}'); os.write(1, b'{}')", FORKS, "signal.signal(signal.SIGTERM, signal.SIG_IGN)"]
)
def test_a_reader_with_bad_manners_is_read(tmp_path: Path, odd: str) -> None:
    async def case() -> None:
        host = devices(tmp_path, odd)
        for _ in range(2):
            assert await answering(host) == ["G0", "G1", "G2", "G3"]
        (pid,) = host.helpers
        forked = tmp_path / "forked"
        if forked.exists():
            os.kill(int(forked.read_text()), signal.SIGKILL)
        assert await host.close() == ""
        await gone(pid)

    run(case())


def test_very_many_partitions_that_very_many_processes_hold_are_read(tmp_path: Path) -> None:
    async def case() -> None:
        host = devices(tmp_path, "", gpus=64, processes=1000)
        assert len(await host.sample()) == 64
        assert {gpu: len(ids) for gpu, ids in host.processes.items()} == {f"G{n}": 64 for n in range(64)}
        assert await host.close() == ""

    run(case())


def test_steps_are_shared_where_there_are_no_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a Python built for an old C library, and under a filter of system calls."""

    def refused(_name: str) -> int:
        raise OSError(38, "Function not implemented")

    for missing in (True, False):
        if missing:
            monkeypatch.delattr(os, "memfd_create")
        else:
            monkeypatch.setattr(os, "memfd_create", refused, raising=False)
        ours, descriptor = Steps.shared()
        theirs = Steps.at(descriptor)
        os.close(descriptor)
        theirs.begin(7, 3)
        assert (ours.of(7), ours.of(8), ours.now()) == (3, None, (7, 3))
