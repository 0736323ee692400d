"""Detection in the agent: a finding an episode, which stands until it is cleared and survives a full disk."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetd.agent.detector import Detector
from fleetd.agent.sampler import Sampler, SamplerConfig
from fleetd.agent.standing import StandingSpool
from fleetd.agent.standing_file import StandingFile
from fleetd.config.faults import load_catalogue
from fleetd.core import detect_rules as codes
from fleetd.core.detect_config import DetectConfig
from fleetd.core.gate import Readiness, gate
from fleetd.model.finding import BurninEnded, DeviceFault, FaultClass, FindingId, Scope, Severity, Verdict
from fleetd.model.ids import BootId
from fleetd.model.telemetry import GpuSample
from tests.agent.fakes_agent import BOOT, HOST, FakeClock, FakeDevices, FakeSpool, gpu

INVENTORY = (gpu(0), gpu(1))
CALM = GpuSample(gpu=gpu(0).gpu, at_s=0.0, row_remap_failed_ratio=0.0, ecc_uncorrected_total=0.0)
CATALOGUE = load_catalogue()


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.disk = FakeSpool()
        self.spool = StandingSpool(self.disk, catalogue=CATALOGUE, clock=self.clock)
        self.detector = Detector(
            host=HOST, boot_id=BOOT, catalogue=CATALOGUE, spool=self.spool, clock=self.clock, config=DetectConfig()
        )

    def run(self, sample: GpuSample, *, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.clock.now_s += 1.0
            self.detector.round((sample,), INVENTORY, {})
            self.spool.ended(self.detector.take_cleared())

    def readiness(self) -> Readiness:
        healthy: dict[str, Any] = {"gpus": 2, "missing": 0, "unheard": (), "silent_gpus": (), "driver_silent": ""}
        return gate(self.spool.faults(), **healthy, age_s=1.0, stale_s=30.0).readiness


def test_an_episode_is_one_finding_with_the_catalogues_word_on_it() -> None:
    bench = Bench()
    bench.run(CALM)
    bench.run(replace(CALM, row_remap_failed_ratio=1.0), seconds=100)
    (fault,) = bench.disk.findings
    assert isinstance(fault, DeviceFault)
    entry = CATALOGUE.entry(codes.REMAP_FAILED)
    assert (fault.code, fault.gpu, fault.index) == (codes.REMAP_FAILED, gpu(0).gpu, 0)
    assert (fault.scope, fault.severity, fault.fault_class) == (entry.scope, entry.severity, entry.fault_class)
    assert "a row remap failed" in fault.why
    assert bench.detector.findings_total == 1


def test_a_full_disk_delays_a_finding_and_loses_none() -> None:
    bench = Bench()
    bench.run(CALM)
    bench.disk.refuse = 3
    bench.run(replace(CALM, row_remap_failed_ratio=1.0))
    assert bench.disk.findings == []
    assert bench.readiness() is Readiness.BAD, "it stands although it could not be written"
    bench.run(CALM, seconds=3)
    assert [finding.why for finding in bench.disk.findings if isinstance(finding, DeviceFault)]
    assert (bench.detector.findings_total, bench.detector.store_errors_total) == (1, 3)


def test_bad_stays_bad_until_a_burnin_passes() -> None:
    bench = Bench()
    bench.run(CALM)
    bench.run(replace(CALM, ecc_uncorrected_total=1.0), seconds=900)
    assert bench.readiness() is Readiness.BAD
    passed = BurninEnded(
        id=FindingId("b1"),
        host=HOST,
        boot_id=BOOT,
        at_s=0.0,
        why="all tests passed",
        order_id=None,
        level="smoke",
        verdict=Verdict.PASS,
        fault_class=FaultClass.NONE,
        seed=1,
        vote_key="k",
        culprits=(),
    )
    bench.spool.append(replace(passed, id=FindingId("b0"), verdict=Verdict.FAIL, fault_class=FaultClass.MEMORY))
    assert [code for code, _ in bench.spool.faults()] == [codes.ECC_UNCORRECTED, "burnin.failed"]
    bench.spool.append(passed)
    assert bench.readiness() is Readiness.READY
    assert bench.spool.faults() == {}


def test_s43_a_kernel_log_fault_stands_against_its_gpu_for_the_job_to_see() -> None:
    bench = Bench()
    fault = DeviceFault(
        id=FindingId("k1"),
        host=HOST,
        boot_id=BOOT,
        at_s=0.0,
        why="XID79 on 0000:01:00",
        code="nvidia.xid.79",
        gpu=gpu(1).gpu,
        index=1,
        scope=Scope.GPU,
        severity=Severity.FATAL,
        fault_class=FaultClass.UNRESPONSIVE,
    )
    bench.spool.append(fault)
    ((key, standing),) = bench.spool.faults().items()
    assert key == ("nvidia.xid.79", gpu(1).gpu)
    assert standing.why == fault.why


def test_the_sampler_hands_every_answered_round_to_the_detection() -> None:
    async def case() -> None:
        bench = Bench()
        clock = bench.clock
        devices = FakeDevices(clock, lambda now_s: {0, 1} if now_s < 1010 else {0}, gpus=2)
        rounds = 0

        def judge(*found: object) -> None:
            nonlocal rounds
            rounds += 1
            bench.detector.round(*found)  # type: ignore[arg-type]

        sampler = Sampler(
            host=HOST,
            boot_id=BOOT,
            devices=devices,
            spool=bench.spool,
            clock=clock,
            config=SamplerConfig(),
            on_round=judge,
        )
        for _ in range(25):
            await sampler.sample_once()
            clock.now_s += 1.0
        assert rounds == 25
        told = [finding.code for finding in bench.disk.findings if isinstance(finding, DeviceFault)]
        assert told == [codes.GPU_LOST], "it is silent, too, but that is the same fact"
        assert sampler.silent_gpus == (gpu(1).gpu,)
        assert list(bench.spool.faults()) == [(codes.GPU_LOST, gpu(1).gpu)]

    asyncio.run(case())


def test_bad_stays_bad_over_a_restart_and_a_reboot_asks_the_controller(tmp_path: Path) -> None:
    path = tmp_path / "standing.json"
    clock = FakeClock()

    def agent(boot: str = BOOT) -> StandingSpool:
        file = StandingFile(path, BootId(boot))
        return StandingSpool(FakeSpool(), catalogue=CATALOGUE, clock=clock, file=file)

    first = agent()
    detector = Detector(host=HOST, boot_id=BOOT, catalogue=CATALOGUE, spool=first, clock=clock, config=DetectConfig())
    detector.round((replace(CALM, row_remap_failed_ratio=1.0),), INVENTORY, {})
    clock.now_s += 10.0
    again = agent().faults()
    assert list(again) == [(codes.REMAP_FAILED, gpu(0).gpu)]
    (one,) = again.values()
    assert (one.lasts, one.last_s) == (False, clock.now_s)
    assert one.why == next(iter(first.faults().values())).why
    assert agent("another boot").faults() == {}


def test_what_a_full_disk_refused_is_on_it_as_soon_as_there_is_room(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    file = StandingFile(folder / "standing.json", BOOT)
    spool = StandingSpool(FakeSpool(), catalogue=CATALOGUE, clock=FakeClock(), file=file)
    clock = FakeClock()
    detector = Detector(host=HOST, boot_id=BOOT, catalogue=CATALOGUE, spool=spool, clock=clock, config=DetectConfig())
    sick = (replace(CALM, row_remap_failed_ratio=1.0),)
    detector.round(sick, INVENTORY, {})
    assert not file.saved
    folder.mkdir()  # now there is room
    spool.ended(())
    assert file.saved
    assert list(StandingFile(folder / "standing.json", BOOT).load(now_s=0.0)) == [(codes.REMAP_FAILED, gpu(0).gpu)]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"boot_id": "boot-1", "faults": [{"code": 1}]}', "\udcff"])
def test_a_file_that_is_none_is_no_reason_not_to_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "standing.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert StandingFile(path, BOOT).load(now_s=0.0) == {}
    StandingFile(tmp_path / "no" / "such", BOOT).save({})
