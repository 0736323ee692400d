"""deploy/slurm as sites use it: a real Slurm runs the health check and the epilogs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetd.ports import ActuatorObjection
from tests.actuators import slurm_cluster
from tests.actuators.slurm_cluster import SlurmCluster
from tests.actuators.waiting import wait_until
from tests.e2e.test_slurm import done, quarantine, release, slurm
from tests.reading import lines_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

DEPLOY = Path(__file__).parents[2] / "deploy" / "slurm"
LINES = [line for line in (DEPLOY / "slurm.conf").read_text().splitlines() if line and not line.startswith("#")]
FLEETD = """#!/bin/sh
case "$1" in
check)
    verdict=$(cat {folder}/verdict-$SLURMD_NODENAME)
    echo "$SLURMD_NODENAME $verdict" >> {folder}/checked
    cat "{folder}/said-$SLURMD_NODENAME"
    exit "$verdict" ;;
*) echo "$FLEETD_CONTROLLER $*" >> {folder}/told ;;
esac
"""


class Site:
    """A cluster with the scripts installed, and a `fleetd` that says what the test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self._program("fleetd", FLEETD.format(folder=folder))
        (folder / "desk.env").write_text("FLEETD_CONTROLLER=controller:7443\n")
        for name in ("fleetd-healthcheck.sh", "fleetd-epilogctld.sh"):
            text = (DEPLOY / name).read_text()
            assert text.count("\nexport PATH=") == 1
            here = f"export SLURM_CONF={folder}/slurm.conf\nexport PATH={folder}/bin:"
            text = text.replace("\nexport PATH=", f"\n{here}").replace("/etc/fleetd/desk.env", f"{folder}/desk.env")
            self._program(name, text)
        installed = [line.replace("/usr/local/lib/fleetd", f"{folder}/bin") for line in LINES]
        often = ["HealthCheckInterval=2" if line.startswith("HealthCheckInterval=") else line for line in installed]
        more = "\n".join([*often, f"EpilogSlurmctld={folder}/bin/fleetd-epilogctld.sh"])
        self.cluster = SlurmCluster(folder, nodes=2, more=more)
        for node in self.cluster.names:
            self.say(node, 0, "ready")

    def _program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def say(self, node: str, verdict: int, words: str) -> None:
        """What `fleetd check` answers on a node from now on."""
        for name, text in (("said", words), ("verdict", str(verdict))):
            part = self.folder / f"{name}-{node}.part"
            part.write_text(text)
            part.rename(self.folder / f"{name}-{node}")

    def is_checked(self, node: str, verdict: int) -> None:
        """Return when Slurm has run the check on a node that answers so, to its end: the next one has begun."""
        checked = self.folder / "checked"

        def times() -> int:
            return lines_of(checked).count(f"{node} {verdict}")

        before = times()
        wait_until(lambda: times() >= before + 2, f"{node} is checked and answers {verdict}")

    @property
    def told(self) -> list[str]:
        """What the epilog told the controller."""
        return lines_of(self.folder / "told")


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if slurm_cluster.REASON:
        pytest.skip(slurm_cluster.REASON)
    site = Site(tmp_path_factory.mktemp("site"))
    with site.cluster:
        yield site


def drained(site: Site, node: str) -> bool:
    return "DRAIN" in site.cluster.state(node)


def test_a_standing_fault_closes_the_node_until_it_is_gone(site: Site) -> None:
    site.say("h01", 1, "bad: gpu 2 [SN 17]\nfell off the bus")
    wait_until(lambda: drained(site, "h01"), "the health check closes it")
    assert site.cluster.show("h01", "Reason").startswith(
        "fleetd-check: bad: gpu 2 (SN 17) fell off the bus ~fleetd [root@"
    )
    assert not drained(site, "h02")
    site.say("h01", 3, "cannot tell: no agent")
    site.say("h02", 3, "cannot tell: no agent")
    log = site.cluster.folder / "slurmd-h01.log"
    for node in ("h01", "h02"):
        site.is_checked(node, 3)
    assert drained(site, "h01"), "silence is no sign of health"
    assert not drained(site, "h02"), "and none of a fault"
    site.say("h01", 0, "ready")
    site.say("h02", 0, "ready")
    wait_until(lambda: not drained(site, "h01"), "the fault is gone")
    assert "error: /" not in log.read_text(), "no script failed"


def test_the_controllers_drain_takes_the_place_of_the_health_checks_and_lasts(site: Site) -> None:
    site.say("h01", 1, "bad")
    wait_until(lambda: drained(site, "h01"), "the health check closes it")
    done(slurm(site.cluster), quarantine("h01"))
    assert site.cluster.show("h01", "Reason").startswith("fleetd:h01/1/quarantine")
    site.say("h01", 0, "ready")
    site.is_checked("h01", 0)
    assert site.cluster.show("h01", "Reason").startswith("fleetd:h01/1/quarantine")
    done(slurm(site.cluster), release("h01"))
    assert not drained(site, "h01")


def test_a_drain_of_a_person_is_left_alone_by_the_health_check(site: Site) -> None:
    site.cluster.drain("h01", "alice: bad PSU")
    site.say("h01", 1, "bad")
    site.is_checked("h01", 1)
    assert site.cluster.show("h01", "Reason").startswith("alice: bad PSU")
    site.say("h01", 0, "ready")
    script = str(site.folder / "bin" / "fleetd-healthcheck.sh")
    assert subprocess.run([script], env={"SLURMD_NODENAME": "h01"}, check=True, timeout=60).returncode == 0
    assert site.cluster.show("h01", "Reason").startswith("alice: bad PSU")
    site.cluster.drain("h01", "fleetd-check: bad ~fleetd; alice: bad PSU")
    subprocess.run([script], env={"SLURMD_NODENAME": "h01"}, check=True, timeout=60)
    assert "alice" in site.cluster.show("h01", "Reason"), "she has added to it: it is hers"
    with pytest.raises(ActuatorObjection, match="alice"):
        done(slurm(site.cluster), quarantine("h01"))
    site.cluster.resume("h01")


def test_the_epilog_tells_how_jobs_end_on_each_of_their_hosts(site: Site) -> None:
    good = site.cluster.submit("sleep 1", "-w", "h01")
    wait_until(lambda: any(f" {good} " in line for line in site.told), "the end is told")
    bad = site.cluster.submit("exit 3", "-N2")
    wait_until(lambda: sum(f" {bad} " in line for line in site.told) == 2, "the end is told on both")
    stopped = site.cluster.submit("sleep 60", "-w", "h01")
    site.cluster.run("scancel", stopped)
    last = site.cluster.submit("true", "-w", "h01")
    wait_until(lambda: any(f" {last} " in line for line in site.told), "the end is told")
    told = [line.split() for line in site.told]
    assert [w[:6] for w in told if w[4] == good] == [["controller:7443", "job", "ended", "h01", good, "--ok"]]
    assert sorted(w[3] for w in told if w[4] == bad and w[5] == "--failed") == ["h01", "h02"]
    assert not [w for w in told if w[4] == stopped], "cancelled: no event"
    assert all(w[6] == "--ran" and 0 <= int(w[7]) < 600 for w in told)
