"""The main job on a real scheduler: a bad GPU's host is drained in Slurm, its job ends, and it comes back proven."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleetd.loopback import HostPlan, Loopback
from fleetd.model.host import Lifecycle
from fleetd.system import RealClock
from tests.actuators.slurm_cluster import SlurmCluster
from tests.e2e.test_story import fleetd, hosts, state, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GOOD = HostPlan(name="h01", gpus=4)
GHOST = HostPlan(name="ghost", gpus=1)
"""Slurm has no node of this name."""
BAD = HostPlan(name="h02", gpus=4, fault="gpu=2,fault=F03,rate=0.3")


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path, cluster: SlurmCluster) -> Iterator[Loopback]:
    more = {
        "actuator": {"kind": "slurm", "conf": str(cluster.conf), "timeout_seconds": 30},
        "scheduler": {"compare_seconds": 2, "jobs_seconds": 1},
    }
    with Loopback(tmp_path, (GOOD, BAD, GHOST), now_s=RealClock().wall_s(), controller=more) as fleet:
        yield fleet


def explained(fleet: Loopback, host: str) -> str:
    return fleetd(fleet, "host", "explain", host).stdout


def test_a_bad_gpu_is_drained_in_slurm_and_its_host_comes_back_proven(fleet: Loopback, cluster: SlurmCluster) -> None:
    over = fleet.folder / "over"
    job = cluster.submit(f"while [ ! -e {over} ]; do sleep 0.2; done", "-w", "h02")
    for name in ("controller", "h01", "h02"):
        fleet.start(name)
    wait_until(lambda: "DRAIN" in cluster.state("h02"), "the bad host is drained")
    reason = cluster.show("h02", "Reason")
    (hold,) = hosts(fleet)["h02"].holds
    assert reason.startswith("fleetd:h02/")
    assert hold.gpu is not None
    assert str(hold.gpu) in reason or "index 2" in reason or "gpu 2" in reason
    assert cluster.job(job, "JobState") == "RUNNING"
    over.touch()
    wait_until(lambda: cluster.job(job, "JobState") == "COMPLETED", "its job runs to its end")
    wait_until(lambda: f"job {job} ended well" in explained(fleet, "h02"), "its end is heard of")
    wait_until(lambda: state(fleet, "h01") is Lifecycle.HEALTHY, "the good host is healthy")
    assert cluster.state("h01") == "IDLE"

    # A person opens it by hand: it is closed again, and the host's history says so.
    fleet.kill("controller")
    cluster.resume("h02")
    fleet.start("controller")
    wait_until(lambda: "DRAIN" in cluster.state("h02"), "what the ledger holds is closed again")
    assert "lets work start on the host although it is held" in explained(fleet, "h02")

    # The part is changed, and proven; only then the host may go back.
    assert fleetd(fleet, "host", "release", "h02", "--reason", "swapped").returncode == 1
    fleet.stop("h02")
    fleet.plans["h02"] = replace(BAD, fault=None)
    fleet.write_agent("h02", port=fleet.port)
    fleet.start("h02")
    wait_until(lambda: _burnin(fleet) == 0, "the burn-in is ordered")
    wait_until(lambda: hosts(fleet)["h02"].proof is not None, "the burn-in passes")
    assert "DRAIN" in cluster.state("h02")
    released = fleetd(fleet, "host", "release", "h02", "--reason", "swapped", "--json", "-")
    assert released.returncode == 0, released.stderr
    assert json.loads(released.stdout)["holds"] == []
    wait_until(lambda: cluster.state("h02") == "IDLE", "the host is open again")
    assert cluster.job(cluster.submit("true", "-w", "h02"), "JobState") in {"RUNNING", "COMPLETED", "COMPLETING"}


def test_a_host_without_a_node_is_told_until_it_is_retired(fleet: Loopback, cluster: SlurmCluster) -> None:
    fleet.start("controller")
    fleet.start("ghost")
    wait_until(lambda: "ghost" in hosts(fleet), "it said hello")
    assert fleetd(fleet, "hold", "place", "ghost", "--reason", "noisy").returncode == 0
    said = "/quarantine is obstructed: Slurm knows no node ghost: if it is called otherwise, say so"
    wait_until(lambda: said in explained(fleet, "ghost"), "a person is told")
    assert fleetd(fleet, "host", "retire", "ghost", "--reason", "sold").returncode == 0
    log = fleet.folder / "logs" / "controller.log"
    wait_until(lambda: "the scheduler has no node of it: there is nothing to close" in log.read_text(), "it is over")
    assert cluster.state("h01") == "IDLE"


def _burnin(fleet: Loopback) -> int:
    return fleetd(fleet, "host", "burnin", "h02", "--reason", "part changed").returncode
