"""One bad day on a small site with nothing left out (`everything_site`), from end to end, all real on the loopback.

A GPU computes wrong under a training job, another falls off the bus, a rack browns out, and the judge among the
controllers dies. One story with steps that need each other: what fails says in which step, and what it waited for.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fleetd.cli.failure import CANNOT_JUDGE
from fleetd.compose import keeping
from fleetd.model.host import Host, Lifecycle
from tests.actuators import slurm_cluster
from tests.actuators.waiting import wait_until
from tests.browser.conftest import CHROMIUM
from tests.deploy.promql import queries
from tests.e2e.everything_page import looks_at_a_bad_day, page_of
from tests.e2e.everything_site import CONTROLLERS, GPU, HOSTS, RACKS, Site
from tests.e2e.everything_watchers import Watchers, watching
from tests.e2e.test_prometheus import wait_for
from tests.e2e.test_story import fleetd, hosts, state
from tests.postgres import REASON, Cluster
from tests.reading import text_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.skipif(bool(slurm_cluster.REASON), reason=slurm_cluster.REASON),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `deploy/deps e2e` names what is missing"),
]
OFF_THE_BUS = "h04"
BYSTANDER = "h05"
DARK = RACKS["r3"]
ASKED_AT_MOST = 5
MISSING = "alert.fleetdgpumissing"


class Day:
    """What runs, and what is known of it so far."""

    def __init__(self, site: Site, watchers: Watchers) -> None:
        self.site, self.watchers = site, watchers
        self.training = self.quiet = self.corrupt = ""
        self.empty = set(queries())
        """Panels' queries that have not returned data yet."""
        self.taken_s: dict[str, float] = {}

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Name a part of the story in what a failure says."""
        began_s = time.monotonic()
        try:
            yield
        except Exception as error:
            error.add_note(f"while {what}; the judge is {self.site.judge()}; logs: {self.site.folder}/logs")
            raise
        self.taken_s[what] = time.monotonic() - began_s

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait for something, for as long as a busy machine may take."""
        wait_until(lambda: bool(holds()), what, seconds=300.0)

    def hosts(self) -> dict[str, Host]:
        """The hosts, as soon as somebody answers."""
        found: dict[str, Host] = {}
        self.until(lambda: found.update(hosts(self.site)) or found, "a judge answers")
        return found

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """What an operator types, a few times where nobody has answered."""
        for _ in range(ASKED_AT_MOST):
            done = fleetd(self.site, *words)
            if done.returncode != CANNOT_JUDGE:
                break
            self.hosts()
        return done

    def judge(self) -> str:
        """The controller that judges, as soon as one says so."""
        found: list[str] = []
        self.until(lambda: found.extend(filter(None, [self.site.judge()])) or found, "a controller judges")
        return found[-1]

    def look_at_panels(self) -> set[tuple[str, str]]:
        """Ask those queries again that had no data; returns what still has none."""
        ask = self.watchers.prometheus.results
        self.empty = {one for one in self.empty if not ask(one[1])}
        return self.empty

    def drained(self) -> list[str]:
        """The hosts that Slurm was ever told to close for fleetd."""
        return [host for host in HOSTS if self.site.slurm.times_drained(host)]


@pytest.fixture(name="day")
def _day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("site")  # a short name: sockets lie there
    with ExitStack() as stack:
        postgres = stack.enter_context(Cluster())
        cluster = slurm_cluster.SlurmCluster(_made(folder / "slurm"), nodes=len(HOSTS), requeue_s=60)
        slurm = stack.enter_context(cluster)
        site = stack.enter_context(Site(folder, postgres=postgres, slurm=slurm))
        site.start_all()
        yield Day(site, stack.enter_context(watching(site)))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_bad_day(day: Day, tmp_path: Path) -> None:
    with day.step("every host proves itself"):
        every_host_proves_itself(day)
    with day.step("jobs run and are seen"):
        jobs_run_and_are_seen(day)
    with day.step("a GPU computes wrong"):
        a_gpu_computes_wrong(day)
    with day.step("a GPU falls off the bus"):
        a_gpu_falls_off_the_bus(day)
    with day.step("a rack browns out"):
        a_rack_browns_out(day)
    with day.step("every panel shows something"):
        assert not wait_for(day.look_at_panels)
    with day.step("the page shows it"):
        the_page_shows_it(day, tmp_path)
    with day.step("the power returns"):
        the_power_returns(day)
    with day.step("the judge dies"):
        the_judge_dies(day)
    with day.step("the host comes back by proof alone"):
        the_host_comes_back_by_proof_alone(day)
    with day.step("nobody else was touched"):
        nobody_else_was_touched(day)
    print("; ".join(f"{what}: {seconds:.0f} s" for what, seconds in day.taken_s.items()))  # noqa: T201 - asked for


# ── the steps ───────────────────────────────────────────────────────────────────────────────────────────────────────


def every_host_proves_itself(day: Day) -> None:
    """Each has passed the burn-in that its agent ran on order, and Prometheus knows it from the controllers' word."""
    day.until(lambda: set(hosts(day.site)) == set(HOSTS), "all agents have said hello")
    day.until(lambda: {host.state for host in day.hosts().values()} == {Lifecycle.HEALTHY}, "all hosts are healthy")
    ask = day.watchers.prometheus.results
    day.until(lambda: len(ask('up{job="fleetd-agent",pool="train"} == 1')) == len(HOSTS), "all agents are scraped")
    day.until(lambda: len(ask('up{job="fleetd-controller"} == 1')) == len(CONTROLLERS), "both controllers are scraped")
    assert day.drained() == []


def jobs_run_and_are_seen(day: Day) -> None:
    """A training job in the first rack, a quiet one in the second: who uses which GPU is on the agents' pages."""
    site = day.site
    day.training = site.submit("--exclude=" + ",".join(host for host in HOSTS if host not in RACKS["r1"]))
    day.quiet = site.submit(f"--nodelist={BYSTANDER}")
    day.corrupt = site.slurm.job(day.training, "BatchHost")
    assert day.corrupt in RACKS["r1"]
    for job, host in ((day.training, day.corrupt), (day.quiet, BYSTANDER)):
        day.until(lambda job=job: text_of(site.jobs / f"pid-{job}"), f"job {job} has begun")
        site.holds_a_gpu(job, host)
    seen = f'fleetd_gpu_job_info{{gpu="SIM-{day.corrupt}-0{GPU}",job_id="{day.training}"}}'
    day.until(lambda: day.watchers.prometheus.results(seen), "the training job is seen on its GPU")
    day.look_at_panels()


def a_gpu_computes_wrong(day: Day) -> None:
    """The guard in the job suspects, the burn-in that this asks for proves it; host drained, job requeued."""
    site, host = day.site, day.corrupt
    site.corrupts(host)
    day.until(lambda: site.findings(host, "sdc.chip-persistent"), "the guard's finding is heard")
    (said, *_) = site.findings(host, "sdc.chip-persistent")
    assert said["gpu"] == f"SIM-{host}-0{GPU}"
    day.until(lambda: day.watchers.fires("FleetdSdcSuspected", host=host), "the suspicion is an alert")
    day.until(lambda: "DRAIN" in site.slurm.state(host), "the host is drained in Slurm")
    (hold,) = day.hosts()[host].holds
    assert (hold.gpu, hold.owner) == (f"SIM-{host}-0{GPU}", "fleetd")
    assert hold.fault_class in {"chip-persistent", "chip-transient"}
    assert site.slurm.show(host, "Reason").startswith(f"fleetd:{host}/")
    day.until(lambda: site.slurm.jobs_on(host) == [], "its job has left it")
    assert site.slurm.job(day.training, "Restarts") == "1", "it was requeued, not cancelled"
    assert day.drained() == [host]
    day.until(lambda: day.watchers.fires("FleetdGpuComputesWrong", host=host), "the alert fires")
    day.look_at_panels()


def a_gpu_falls_off_the_bus(day: Day) -> None:
    """Drained by the kernel's word. After a restart only Prometheus remembers it, and the controller hears of that."""
    site, host = day.site, OFF_THE_BUS
    site.falls_off_the_bus(host)
    day.until(lambda: "DRAIN" in site.slurm.state(host), "the host is drained in Slurm")
    (hold,) = day.hosts()[host].holds
    assert hold.gpu == f"SIM-{host}-0{GPU}"
    day.until(lambda: day.watchers.fires("FleetdFatalFault", host=host, code="nvidia.xid.79"), "the fatal fault fires")
    site.stop(host)
    site.start(host)  # as after the reboot that is recommended: it did not help
    day.until(lambda: day.watchers.fires("FleetdGpuMissing", host=host), "a GPU less than before is seen")
    day.until(lambda: site.findings(host, MISSING), "the alert has reached the controller's hook")
    day.until(lambda: "GPUs is gone" in day.hosts()[host].why, "the burn-in of the others passes and proves nothing")
    assert (day.hosts()[host].proof, day.hosts()[host].state) == (None, Lifecycle.QUARANTINED)
    assert "GPUs is gone" in day.command("host", "release", host, "--reason", "we need it").stderr
    assert day.drained() == sorted([day.corrupt, host])


def a_rack_browns_out(day: Day) -> None:
    """Braked, then dark: one alert for the rack, one incident for its hosts, and none of them is blamed."""
    site, watchers = day.site, day.watchers
    before = site.fleet()["incidents_opened"]
    site.sags("r3")
    day.until(lambda: watchers.fires("FleetdRackPowerBrake", rack="r3"), "the rack's brake is one alert")
    day.until(lambda: _kept_back(watchers, "FleetdPowerBrake", "r3"), "the rack's alert keeps those of its hosts back")
    for host in DARK:
        site.kill(host)
    day.until(lambda: _incident_hosts(site) == set(DARK), "the dark hosts are one incident")
    fleet = site.fleet()
    assert (len(fleet["incidents"]), fleet["incidents_opened"]) == (1, before + 1)
    assert (fleet["held"], fleet["withheld"], fleet["tripped"]) == (2, 0, [])
    assert {day.hosts()[host].state for host in DARK} == {Lifecycle.HEALTHY}
    day.until(lambda: _kept_back(watchers, "FleetdAgentDown", "r3"), "one alert tells of all dark hosts")
    day.until(lambda: ("pager", "FleetdRackPowerBrake") in watchers.listen(), "somebody is woken for the rack")


def the_page_shows_it(day: Day, folder: Path) -> None:
    """In a browser, logged in as an operator."""
    site = day.site
    bad = {day.corrupt: f"SIM-{day.corrupt}-0{GPU}", OFF_THE_BUS: "nvidia.xid.79"}
    with page_of(f"https://127.0.0.1:{site.web_ports[day.judge()]}/", site.tokens["olga"][0]) as page:
        pictures = looks_at_a_bad_day(page, bad=bad, dark=DARK, folder=folder)
    assert all(picture.stat().st_size > 0 for picture in pictures)
    print(f"pictures: {folder}")  # noqa: T201 - for whoever wants to look


def the_power_returns(day: Day) -> None:
    """The incident is over by itself, and the rack's hosts are what they were."""
    site = day.site
    site.recovers("r3")
    for host in DARK:
        site.start(host)
    day.until(lambda: site.fleet()["incidents"] == [], "the incident is closed")
    day.until(lambda: {state(site, host) for host in DARK} == {Lifecycle.HEALTHY}, "the rack's hosts are healthy")


def the_judge_dies(day: Day) -> None:
    """The other controller judges by the same ledger: the holds stand."""
    site = day.site
    judge = day.judge()
    site.kill(judge)
    day.until(lambda: site.judge() not in {None, judge}, "the other controller judges")
    day.until(lambda: site.fleet()["connected"] == len(HOSTS), "all agents have found it")
    assert {host.name for host in day.hosts().values() if host.holds} == {day.corrupt, OFF_THE_BUS}
    site.start(judge)


def the_host_comes_back_by_proof_alone(day: Day) -> None:
    """Refused without, done with the burn-in that its agent runs on order."""
    site, host = day.site, day.corrupt
    refused = day.command("host", "release", host, "--reason", "we need it")
    assert refused.returncode == 1, refused.stderr
    assert "burn-in" in refused.stderr
    assert "DRAIN" in site.slurm.state(host)
    site.is_exchanged(host)
    day.until(lambda: day.command("host", "burnin", host, "--reason", "exchanged").returncode == 0, "it is ordered")
    day.until(lambda: day.hosts()[host].proof is not None, "the burn-in has passed")
    assert "DRAIN" in site.slurm.state(host), "its proof alone opens nothing: this policy wants an operator, too"
    released = day.command("host", "release", host, "--reason", "exchanged and proven")
    assert released.returncode == 0, released.stderr
    day.until(lambda: "DRAIN" not in site.slurm.state(host), "the host is open again")


def nobody_else_was_touched(day: Day) -> None:
    """Two hosts were drained, once each; the requeued job runs again, the other never stopped; the ledger is whole."""
    site = day.site
    assert [site.slurm.times_drained(host) for host in HOSTS] == [host in {day.corrupt, OFF_THE_BUS} for host in HOSTS]
    assert site.slurm.job(day.quiet, "Restarts") == "0"
    assert site.slurm.jobs_on(BYSTANDER) == [day.quiet]
    day.until(lambda: site.slurm.job(day.training, "JobState") == "RUNNING", "the requeued job runs again")
    assert len({finding["id"] for finding in site.findings(OFF_THE_BUS, MISSING)}) == 1, "the alert counts once"
    keeping.check(site.ledger)


# ── what the steps ask ──────────────────────────────────────────────────────────────────────────────────────────────


def _incident_hosts(site: Site) -> set[str]:
    return {host for incident in site.fleet()["incidents"] for host in incident["hosts"]}


def _kept_back(watchers: Watchers, name: str, rack: str) -> bool:
    """Whether Alertmanager has such alerts of a rack, and tells nobody of them."""
    found = [alert for alert in watchers.alerts(name) if alert["labels"].get("rack") == rack]
    return bool(found) and all(alert["status"]["inhibitedBy"] for alert in found)
