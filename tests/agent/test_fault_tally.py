"""Faults are counted as they are spooled: each once, by code and GPU, in a bounded number of series."""

import pytest

from fleetd.agent.fault_tally import OTHER, SERIES_MAX, FaultTally
from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.ids import FindingId, GpuId
from fleetd.model.status import FaultCount
from fleetd.ports import StoreError
from tests.agent.fakes_agent import BOOT, HOST, FakeSpool


def fault(
    number: int, code: str, gpu: str | None = "GPU-0", at_s: float = 1.0, severity: Severity = Severity.ERROR
) -> DeviceFault:
    return DeviceFault(
        id=FindingId(f"f{number}"),
        host=HOST,
        boot_id=BOOT,
        at_s=at_s,
        why="because",
        code=code,
        gpu=GpuId(gpu) if gpu else None,
        index=0,
        scope=Scope.GPU,
        severity=severity,
        fault_class=FaultClass.MEMORY,
    )


def count(code: str, total: int, last_at_s: float, gpu: str | None = "GPU-0") -> FaultCount:
    return FaultCount(
        code=code, severity=Severity.ERROR, gpu=GpuId(gpu) if gpu else None, total=total, last_at_s=last_at_s
    )


def test_faults_are_counted_by_code_and_gpu_with_the_time_of_the_last() -> None:
    tally = FaultTally(FakeSpool())
    assert tally.counts() == ()
    tally.append(fault(1, "nvidia.xid.79", at_s=10.0))
    tally.append(fault(2, "nvidia.xid.79", at_s=30.0))
    tally.append(fault(3, "nvidia.xid.79", at_s=20.0))  # read late
    tally.append(fault(4, "nvidia.xid.13", at_s=40.0))
    tally.append(fault(5, "pcie.aer.fatal", None, at_s=50.0))
    assert tally.counts() == (
        count("nvidia.xid.79", 3, 30.0),
        count("nvidia.xid.13", 1, 40.0),
        count("pcie.aer.fatal", 1, 50.0, None),
    )


def test_a_code_that_is_told_as_worse_once_keeps_its_other_counter() -> None:
    tally = FaultTally(FakeSpool())
    tally.append(fault(1, "nvidia.nvlink.144", severity=Severity.WARNING))
    tally.append(fault(2, "nvidia.nvlink.144", severity=Severity.FATAL))
    tally.append(fault(3, "nvidia.nvlink.144", severity=Severity.WARNING))
    assert [(one.severity, one.total) for one in tally.counts()] == [(Severity.WARNING, 2), (Severity.FATAL, 1)]


def test_the_same_finding_twice_counts_once_and_one_that_the_disk_refused_not_at_all() -> None:
    spool = FakeSpool()
    tally = FaultTally(spool)
    spool.refuse = 1
    with pytest.raises(StoreError):
        tally.append(fault(1, "nvidia.xid.79"))
    assert tally.counts() == ()
    assert [tally.append(fault(1, "nvidia.xid.79")) for _ in range(3)] == [1, 1, 1]
    assert tally.counts() == (count("nvidia.xid.79", 1, 1.0),)


def test_the_series_are_bounded_and_nothing_is_lost() -> None:
    tally = FaultTally(FakeSpool())
    for number in range(SERIES_MAX + 10):
        tally.append(fault(number, f"nvidia.xid.{number}"))
    assert len(tally.counts()) == SERIES_MAX + 1
    assert tally.counts()[-1] == count(OTHER, 10, 1.0, None)
