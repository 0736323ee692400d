"""What a healthy host prints at boot and in operation: none of it is a fault, whatever words of trouble it has."""

from pathlib import Path

import pytest

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.scan import LogScan
from fleetd.core.policy import Action

BENIGN = (Path(__file__).parent / "benign.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", BENIGN)
def test_a_line_of_a_healthy_host_asks_for_nothing(catalogue: Catalogue, line: str) -> None:
    log = LogScan(catalogue)
    log.feed(line.encode() + b"\n")
    result = log.finish()
    assert [(f.alias, f.action) for f in result.findings if f.action is not Action.NONE] == []


def test_a_whole_healthy_boot_is_judged_and_asks_for_nothing(catalogue: Catalogue) -> None:
    log = LogScan(catalogue)
    log.feed("\n".join(BENIGN).encode())
    result = log.finish()
    assert (result.action, result.findings) == (Action.NONE, ())


@pytest.mark.parametrize(
    ("line", "alias"),
    [
        ("GPU reset(3) failed, no error code from the firmware", "GPU_RESET_FAILED"),
        ("xgmi link 3 error: training timeout", "XGMI_ERROR"),
        ("hw_init of IP block <gfx_v9_4_3> failed -22", "GPU_NOT_INITIALISED"),
        ("number of RAS records 300 exceeds threshold 256", "BAD_PAGE_THRESHOLD"),
        ("ring sdma0 timeout, signaled seq=1, emitted seq=2", "RING_TIMEOUT"),
    ],
)
def test_a_negation_beside_a_fault_does_not_hide_it(catalogue: Catalogue, line: str, alias: str) -> None:
    log = LogScan(catalogue)
    log.feed(f"[    1.0] amdgpu 0000:c1:00.0: amdgpu: {line}\n".encode())
    assert [f.alias for f in log.finish().findings] == [alias]
