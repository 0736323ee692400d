"""A controller on an empty ledger, or on one that was put back, beside a real Slurm that an earlier one has drained."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetd.actuators.command import Commands
from fleetd.actuators.config import SlurmConfig
from fleetd.actuators.slurm import Slurm
from fleetd.loopback import HostPlan, Loopback
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import Quarantine
from fleetd.system import RealClock
from tests.actuators.slurm_cluster import SlurmCluster
from tests.e2e.test_story import fleetd, hosts, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PLANS = tuple(HostPlan(name=name, gpus=1) for name in ("h01", "h02", "h03"))


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path, cluster: SlurmCluster) -> Iterator[Loopback]:
    more = {
        "actuator": {"kind": "slurm", "conf": str(cluster.conf), "timeout_seconds": 30},
        "scheduler": {"compare_seconds": 1, "jobs_seconds": 5},
    }
    with Loopback(tmp_path, PLANS, now_s=RealClock().wall_s(), controller=more) as fleet:
        yield fleet
    for node in cluster.names:
        cluster.run("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")
    wait_until(lambda: all(cluster.state(node) == "IDLE" for node in cluster.names), "all nodes are open again")


def close(cluster: SlurmCluster, host: str, number: int, why: str) -> None:
    """What the actuator of another controller has done."""
    config = SlurmConfig(kind="slurm", timeout_seconds=30)
    commands = Commands(timeout_s=config.timeout_seconds, environment=cluster.environment)
    order = Quarantine(
        id=OrderId(f"{host}/{number}/quarantine"), host=HostName(host), issued_at_s=RealClock().wall_s(), why=why
    )
    asyncio.run(Slurm(config, commands=commands, clock=RealClock()).carry_out(order))
    assert "DRAIN" in cluster.state(host)


def compared(fleet: Loopback, looks: float = 3.0) -> None:
    """Let the controller look at its scheduler a few times more."""
    begin_s = RealClock().elapsed_s()
    wait_until(lambda: RealClock().elapsed_s() > begin_s + looks and bool(hosts(fleet)), "it has looked again")


def held(fleet: Loopback, name: str) -> bool:
    host = hosts(fleet).get(name)
    return host is not None and host.held


def test_a_new_ledger_opens_no_node_that_an_earlier_one_closed(fleet: Loopback, cluster: SlurmCluster) -> None:
    close(cluster, "h01", 7, "gpu 2 is wrong")
    cluster.drain("h02", "alice: bad PSU")
    fleet.start_all()
    wait_until(lambda: len(hosts(fleet)) == len(PLANS), "all have said hello")
    wait_until(lambda: held(fleet, "h01") or "DRAIN" not in cluster.state("h01"), "the scheduler was compared")
    compared(fleet)
    assert "DRAIN" in cluster.state("h01")
    assert cluster.show("h01", "Reason").startswith("fleetd:h01/7/quarantine: gpu 2 is wrong")
    assert cluster.show("h02", "Reason").startswith("alice: bad PSU")
    assert [host.held for _, host in sorted(hosts(fleet).items())] == [True, False, False]
    (hold,) = hosts(fleet)["h01"].holds
    assert hold.owner == "fleetd:earlier"
    assert "gpu 2 is wrong" in hold.reason
    assert "earlier/ledger/1" in fleetd(fleet, "incident", "list").stdout
    assert "fleetd_hosts_held_by_earlier 1.0" in fleet.metrics("controller")
    given = fleetd(fleet, "host", "release", "h01", "--reason", "looked at", "--override")
    assert given.returncode == 0, given.stderr
    wait_until(lambda: cluster.state("h01") == "IDLE", "it is opened when a person releases it")
    assert "DRAIN" in cluster.state("h02")


def test_what_was_closed_after_the_backup_stays_closed(fleet: Loopback, cluster: SlurmCluster) -> None:
    ledger, backup = fleet.folder / "controller" / "fleet.db", fleet.folder / "backup.db"
    fleet.start_all()
    wait_until(lambda: len(hosts(fleet)) == len(PLANS), "all have said hello")
    assert fleetd(fleet, "host", "quarantine", "h02", "--reason", "before the backup").returncode == 0
    wait_until(lambda: "DRAIN" in cluster.state("h02"), "it is closed")
    assert store("backup", str(backup), "--ledger", str(ledger)) == 0
    assert fleetd(fleet, "host", "quarantine", "h01", "--reason", "after the backup").returncode == 0
    wait_until(lambda: "DRAIN" in cluster.state("h01"), "it is closed")
    fleet.stop("controller")
    assert store("restore", str(backup), "--reason", "disk died", "--ledger", str(ledger)) == 0
    fleet.start("controller")
    wait_until(lambda: held(fleet, "h01") or "DRAIN" not in cluster.state("h01"), "the scheduler was compared")
    compared(fleet)
    assert "DRAIN" in cluster.state("h01")
    assert "DRAIN" in cluster.state("h02")
    assert [hold.owner for hold in hosts(fleet)["h01"].holds] == ["fleetd:earlier"]
    assert "after the backup" in hosts(fleet)["h01"].holds[0].reason
    assert not any(hold.owner == "fleetd:earlier" for hold in hosts(fleet)["h02"].holds)


def store(*words: str) -> int:
    """A command about the ledger's file; its exit code."""
    command = [sys.executable, "-m", "fleetd", "store", *words]
    return subprocess.run(command, check=False, capture_output=True).returncode
