"""A living controller whose disk fills up: what is not on disk is not decided; nothing is lost or done twice."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetd.loopback import HostPlan, Loopback
from fleetd.model.host import Lifecycle
from fleetd.system import RealClock
from tests.e2e.test_story import hosts, recorded, state, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GOOD = HostPlan(name="good", gpus=4)
BAD = HostPlan(name="bad", gpus=4, fault="gpu=2,fault=F03,rate=0.3")


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Iterator[Loopback]:
    with Loopback(tmp_path, (GOOD, BAD), now_s=RealClock().wall_s()) as fleet:
        disk = fleet.folder / "controller"
        mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("a disk of its own can be mounted by root only, and not in every container")
        try:
            yield fleet
        finally:
            fleet.close()
            subprocess.run(["umount", str(disk)], check=True)


def fill(path: Path) -> None:
    """Take all the room there is."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_finding_that_cannot_be_stored_is_not_acknowledged_and_counts_once_there_is_room(fleet: Loopback) -> None:
    disk, log = fleet.folder / "controller", fleet.folder / "logs" / "controller.log"
    fleet.start("controller")
    fleet.start("good")
    wait_until(lambda: state(fleet, "good") is Lifecycle.HEALTHY, "the good host is healthy")
    fill(disk / "filler")
    fleet.start("bad")
    wait_until(lambda: "disk is full" in log.read_text(), "the controller says so")
    assert fleet.alive("controller"), "it goes on: others may be served, and room may come"
    assert "bad" not in hosts(fleet)
    assert state(fleet, "good") is Lifecycle.HEALTHY
    (disk / "filler").unlink()
    wait_until(lambda: state(fleet, "bad") is Lifecycle.QUARANTINED, "the bad host is quarantined")
    wait_until(lambda: recorded(fleet) == [("quarantine", "bad")], "exactly once")
    assert "Traceback" not in log.read_text()
