"""The burn-in scripts of deploy/slurm under a real Slurm: what becomes of the node and of the job."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actuators import slurm_cluster
from tests.actuators.slurm_cluster import SlurmCluster
from tests.actuators.waiting import wait_until
from tests.reading import lines_of, text_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

DEPLOY = Path(__file__).parents[2] / "deploy" / "slurm"
FLEETD = """#!/bin/sh
trap 'kill $nap 2>/dev/null; exit 3' TERM
code=$(cat "{folder}/code-$4")
echo "$*" >> {folder}/told
if [ "$code" = hang ]; then sleep 90 >/dev/null 2>&1 & nap=$!; wait; fi
[ "$code" = 1 ] && echo "  culprit: GPU 2 (GPU-x), chip-persistent: gemm.exact [c]: 20 of 20 launches differ"
exit "$code"
"""


class Site:
    """A cluster with the scripts installed, and a `fleetd` that ends as the test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.says("smoke", "0")
        self.says("qualify", "0")
        self._program("fleetd", FLEETD.format(folder=folder))
        # No host of the tests has GPUs that Slurm could give to a job.
        here = f"export SLURM_CONF={folder}/slurm.conf SLURM_JOB_GPUS=0,1 FLEETD_REPORTS={folder}/reports"
        path = f'PATH="{folder}/bin:$PATH"\nPATH='
        for name in ("fleetd-prolog.sh", "fleetd-qualify.sbatch"):
            text = (DEPLOY / name).read_text()
            assert text.count("\nPATH=") == 1
            self._program(name, text.replace("\nPATH=", f"\n{here}\n{path}"))
        lines = [line.removeprefix("# ") for line in (DEPLOY / "slurm.conf").read_text().splitlines()]
        wanted = ("Prolog=", "PrologFlags=", "PrologEpilogTimeout=", "BatchStartTimeout=")
        more = [line.replace("/usr/local/lib/fleetd", f"{folder}/bin") for line in lines if line.startswith(wanted)]
        assert len(more) == len(wanted)
        self.cluster = SlurmCluster(folder, nodes=2, more="\n".join(more))

    def _program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def says(self, level: str, code: str) -> None:
        """How burn-in at a level ends from now on; `hang`: not by itself."""
        part = self.folder / f"code-{level}.part"
        part.write_text(code)
        part.rename(self.folder / f"code-{level}")

    def told(self, level: str) -> list[str]:
        """What `fleetd` was asked of a level."""
        return [line for line in lines_of(self.folder / "told") if f"--level {level} " in line]

    def submit(self, *arguments: str) -> str:
        """Submit a job that leaves its output in the site's folder; its id."""
        return self.cluster.run("sbatch", f"--output={self.folder}/out-%j", "--parsable", *arguments)

    def output(self, job: str) -> str:
        """What a job has written so far."""
        return text_of(self.folder / f"out-{job}")


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if slurm_cluster.REASON:
        pytest.skip(slurm_cluster.REASON)
    site = Site(tmp_path_factory.mktemp("site"))
    with site.cluster:
        yield site


@pytest.fixture(autouse=True)
def _leaves_the_site_as_it_was(site: Site) -> Iterator[None]:
    yield
    site.says("smoke", "0")
    site.says("qualify", "0")
    jobs = site.cluster.run("squeue", "-h", "-o", "%A").split()
    if jobs:
        site.cluster.run("scancel", *jobs)
    wait_until(lambda: not site.cluster.run("squeue", "-h", "-o", "%A").split(), "no job is left")
    for node in site.cluster.names:
        site.cluster.run("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")
    wait_until(lambda: all(site.cluster.state(node) == "IDLE" for node in site.cluster.names), "all nodes are idle")


def test_a_job_does_not_start_on_a_gpu_that_fails_smoke(site: Site) -> None:
    site.says("smoke", "1")
    job = site.submit("--nodelist=h01", "--wrap=echo started")
    wait_until(lambda: "DRAIN" in site.cluster.state("h01"), "the node is drained")
    reason = site.cluster.show("h01", "Reason")
    assert reason.startswith("fleetd-burnin: GPU 2 (GPU-x), chip-persistent: gemm.exact (c)")
    assert "burnin run --level smoke --devices 0,1 --json" in site.told("smoke")[-1]
    wait_until(lambda: site.cluster.job(job, "JobState") == "PENDING", "the job waits for another node")
    assert site.output(job) == ""


@pytest.mark.parametrize("code", ["0", "2", "3"])
def test_a_job_starts_where_nothing_is_known_against_a_gpu(site: Site, code: str) -> None:
    site.says("smoke", code)
    job = site.submit("--nodelist=h01", "--wrap=echo started")
    wait_until(lambda: site.cluster.job(job, "JobState") == "COMPLETED", "the job has ended")
    assert site.output(job) == "started\n"
    assert "DRAIN" not in site.cluster.state("h01")


def qualify(site: Site, *options: str) -> str:
    return site.submit("--nodelist=h02", *options, f"{site.folder}/bin/fleetd-qualify.sbatch", f"{site.folder}/r")


def test_a_host_that_passes_was_alone_in_the_job(site: Site) -> None:
    job = qualify(site)
    wait_until(lambda: site.cluster.job(job, "JobState") == "COMPLETED", "the job has ended")
    assert "h02 passed" in site.output(job)
    assert (site.cluster.job(job, "OverSubscribe"), site.cluster.job(job, "NumCPUs")) == ("NO", "2")
    assert f"--json {site.folder}/r/h02.json" in site.told("qualify")[-1]


def test_a_bad_host_is_drained_and_its_job_fails(site: Site) -> None:
    site.says("qualify", "1")
    job = qualify(site)
    wait_until(lambda: site.cluster.job(job, "JobState") == "FAILED", "the job has ended")
    assert site.cluster.job(job, "ExitCode") == "1:0"
    assert "DRAIN" in site.cluster.state("h02")
    assert site.cluster.show("h02", "Reason").startswith(f"fleetd-burnin: qualify found a fault, job {job} ~fleetd")


def test_a_run_that_is_not_judged_is_requeued(site: Site) -> None:
    site.says("qualify", "3")
    job = qualify(site)
    wait_until(lambda: site.cluster.job(job, "Restarts") == "1", "the job is requeued")
    assert "not judged: requeued (time 1 of 2)" in site.output(job)
    assert "DRAIN" not in site.cluster.state("h02")


@pytest.mark.parametrize(("code", "options"), [("3", ("--export=ALL,FLEETD_REQUEUES=0",)), ("2", ())])
def test_what_a_person_must_look_at_is_held(site: Site, code: str, options: tuple[str, ...]) -> None:
    site.says("qualify", code)
    job = qualify(site, *options)
    wait_until(lambda: site.cluster.job(job, "Priority") == "0", "the job is held")
    assert f"then: scontrol release {job}" in site.output(job)


def test_a_job_whose_time_is_over_ends_its_burn_in_first(site: Site) -> None:
    site.says("qualify", "hang")
    asked = len(site.told("qualify")) + 1
    job = qualify(site)
    wait_until(lambda: len(site.told("qualify")) == asked, "its burn-in runs")
    site.cluster.run("scancel", "--batch", "--signal=TERM", job)  # as --signal=B:TERM@120 does before the time is over
    wait_until(lambda: site.cluster.job(job, "Restarts") == "1", "the burn-in has ended, and the job is requeued")
    assert len(site.told("qualify")) == asked
