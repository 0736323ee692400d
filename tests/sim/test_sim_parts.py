"""Simulated parts in trouble, their burn-ins, and disks that lose what was not synced."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetd.agent.report import judged
from fleetd.model.finding import FaultClass, Verdict
from fleetd.model.ids import BootId, GpuId, HostName, OrderId
from fleetd.model.order import RunBurnin
from fleetd.model.telemetry import GpuSample
from fleetd.ports import BurnerError, DeviceError, StoreError
from fleetd.sim.burner import SimBurner
from fleetd.sim.clock import SimClock
from fleetd.sim.disk import File
from fleetd.sim.gpu import Cure, SimDevices, SimGpu, Trouble, parts
from fleetd.sim.life import Fuse, Killed, Life
from fleetd.sim.loop import run

H1 = HostName("h1")
ORDER = RunBurnin(
    id=OrderId("h1/1/burnin"),
    host=H1,
    issued_at_s=0.0,
    why="w",
    level="smoke",
    boot_id=BootId("b1"),
    not_after_s=1e12,
)


def life(owner: str = "h1", fuse: Fuse | None = None) -> Life:
    return Life(owner, fuse=fuse, on_end=lambda: None)


def watch(plant: Callable[[SimGpu], None], *, seconds: int = 1200) -> tuple[list[GpuSample], list[GpuSample]]:
    """Readings of two equal parts every ten seconds; something is planted in the first after half of the time."""

    async def scene() -> tuple[list[GpuSample], list[GpuSample]]:
        clock = SimClock()
        sick, well = (SimGpu(gpu=GpuId("twin"), sku="simulated", seed=1) for _ in range(2))
        devices = SimDevices(host=H1, gpus=0, seed=0, clock=clock, built_in=[sick, well])
        history: tuple[list[GpuSample], list[GpuSample]] = ([], [])
        for second in range(0, seconds, 10):
            if second == seconds // 2:
                plant(sick)
            for sample, readings in zip(await devices.sample(), history, strict=True):
                readings.append(sample)
            await clock.sleep_s(10.0)
        return history

    return run(scene())


def throttled(sample: GpuSample, reason: str) -> bool:
    return dict(sample.throttle_active_ratio)[reason] == 1.0


@pytest.mark.parametrize(
    ("trouble", "differs"),
    [
        (
            Trouble.HOT,
            lambda s, w: s.temperature_celsius > w.temperature_celsius + 10 and throttled(s, "hardware_thermal"),
        ),
        (Trouble.SLOW, lambda s, w: s.sm_clock_hertz < 0.85 * w.sm_clock_hertz),
        (
            Trouble.POWER_BRAKE,
            lambda s, w: throttled(s, "power_brake") and s.power_watts < 0.6 * w.power_watts,
        ),
        (Trouble.MEMORY, lambda s, w: s.ecc_uncorrected_total > 0 == w.ecc_uncorrected_total),
    ],
)
def test_a_trouble_shows_in_the_readings_after_it_was_planted(
    trouble: Trouble, differs: Callable[[GpuSample, GpuSample], bool]
) -> None:
    sick, well = watch(lambda part: part.troubles.update({trouble: Cure.SWAP}))
    half = len(sick) // 2
    assert sick[:half] == well[:half]
    assert sum(differs(*pair) for pair in zip(sick[half + 12 :], well[half + 12 :], strict=True)) > half // 4


def test_a_wrong_gpu_looks_like_any_other() -> None:
    sick, well = watch(lambda part: part.troubles.update({Trouble.WRONG: Cure.SWAP}))
    assert sick == well


def test_a_silent_gpu_is_named_and_a_lost_one_leaves_the_bus() -> None:
    async def scene() -> None:
        built_in = parts(host=H1, gpus=3, seed=1)
        devices = SimDevices(host=H1, gpus=0, seed=0, clock=SimClock(), built_in=built_in)
        built_in[0].troubles[Trouble.HUNG] = Cure.RESET
        built_in[1].troubles[Trouble.LOST] = Cure.SWAP
        assert [sample.gpu for sample in await devices.sample()] == ["SIM-h1-02"]
        assert set(devices.troubles) == {"SIM-h1-00", "SIM-h1-01"}
        assert [(gpu.gpu, gpu.index) for gpu in await devices.inventory()] == [("SIM-h1-00", 0), ("SIM-h1-02", 2)]
        built_in[0].cure((Cure.RESET, Cure.REBOOT))
        built_in[1].cure((Cure.RESET, Cure.REBOOT))
        assert len(await devices.sample()) == 2
        devices.driver_hangs = True
        with pytest.raises(DeviceError):
            await devices.inventory()

    run(scene())


@pytest.mark.parametrize(
    ("trouble", "verdict", "fault_class"),
    [
        (None, Verdict.PASS, FaultClass.NONE),
        (Trouble.WRONG, Verdict.FAIL, FaultClass.CHIP_PERSISTENT),
        (Trouble.MEMORY, Verdict.FAIL, FaultClass.MEMORY),
        (Trouble.LOST, Verdict.FAIL, FaultClass.UNRESPONSIVE),
        (Trouble.SLOW, Verdict.FAIL, FaultClass.SLOW),
    ],
)
def test_a_burnin_takes_its_time_and_the_agent_can_read_its_report(
    tmp_path: Path, trouble: Trouble | None, verdict: Verdict, fault_class: FaultClass
) -> None:
    async def scene() -> float:
        built_in = parts(host=H1, gpus=4, seed=1)
        if trouble is not None:
            built_in[2].troubles[trouble] = Cure.SWAP
        rng = random.Random(1)  # noqa: S311 - a simulation
        burner = SimBurner(parts=built_in, clock=SimClock(), life=life(), rng=rng)
        await burner.burn(ORDER, tmp_path / "report.json")
        return asyncio.get_running_loop().time()

    assert run(scene()) == 60.0
    finding = judged(ORDER, (tmp_path / "report.json").read_bytes(), at_s=1.0)
    assert (finding.verdict, finding.fault_class) == (verdict, fault_class)
    assert [culprit.index for culprit in finding.culprits] == ([] if trouble is None else [2])


def test_a_burnin_that_cannot_run_leaves_no_report(tmp_path: Path) -> None:
    async def scene() -> None:
        rng = random.Random(1)  # noqa: S311 - a simulation
        burner = SimBurner(parts=[], clock=SimClock(), life=life(), rng=rng, broken=lambda: True)
        with pytest.raises(BurnerError):
            await burner.burn(ORDER, tmp_path / "report.json")

    run(scene())
    assert list(tmp_path.iterdir()) == []


def test_a_sometimes_wrong_gpu_is_sometimes_found(tmp_path: Path) -> None:
    async def scene() -> set[str]:
        built_in = parts(host=H1, gpus=1, seed=1)
        built_in[0].troubles[Trouble.SOMETIMES_WRONG] = Cure.SWAP
        rng = random.Random(1)  # noqa: S311 - a simulation
        burner = SimBurner(parts=built_in, clock=SimClock(), life=life(), rng=rng)
        verdicts = set()
        for _ in range(20):
            await burner.burn(ORDER, tmp_path / "report.json")
            verdicts.add(json.loads((tmp_path / "report.json").read_text())["verdict"])
        return verdicts

    assert run(scene()) == {"pass", "fail"}


def write_all(file: File[str], process: Life) -> None:
    for record in ("a", "b", "c"):
        file.write(process, f"write {record}", record)


@pytest.mark.parametrize(("cut_at", "kept"), [(0, []), (1, []), (2, ["a"]), (3, ["a"]), (4, ["a"]), (5, ["a", "b"])])
def test_a_cut_loses_what_was_not_synced(cut_at: int, kept: list[str]) -> None:
    fuse = Fuse(cut_at)
    file: File[str] = File(lambda: 0.0)
    process = life(fuse=fuse)
    with pytest.raises(Killed):
        write_all(file, process)
    assert not process.alive
    file.lose_unsynced()
    assert [written.record for written in file.records] == kept
    with pytest.raises(Killed):
        file.write(process, "write after death", "d")


def test_a_full_disk_refuses_and_keeps_what_it_has() -> None:
    file: File[str] = File(lambda: 0.0)
    file.write(life(), "write a", "a")
    file.full = True
    with pytest.raises(StoreError, match="no space left"):
        file.write(life(), "write b", "b")
    assert [written.record for written in file.records] == ["a"]


def test_a_death_is_told_once() -> None:
    deaths: list[str] = []
    process = Life("h1", fuse=None, on_end=lambda: deaths.append("dead"))
    process.end()
    process.end()
    assert deaths == ["dead"]
