"""The Slurm actuator against a real Slurm: what it closes, what it leaves alone, and how jobs leave."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fleetd.actuators.command import Commands
from fleetd.actuators.config import NodeNames, SlurmConfig
from fleetd.actuators.slurm import Slurm
from fleetd.actuators.slurm_jobs import SlurmJobs
from fleetd.actuators.slurm_text import expand
from fleetd.model.ids import HostName, OrderId
from fleetd.model.job import EndedJob
from fleetd.model.order import Drain, Quarantine, Release
from fleetd.ports import ActuatorError, ActuatorObjection, Receipt
from fleetd.system import RealClock
from tests.actuators.slurm_cluster import SlurmCluster, now_s
from tests.actuators.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CONFIG = SlurmConfig(kind="slurm", timeout_seconds=30)


@pytest.fixture(autouse=True)
def _leaves_the_cluster_as_it_was(cluster: SlurmCluster) -> Iterator[None]:
    yield
    jobs = cluster.run("squeue", "-h", "-o", "%A").split()
    if jobs:
        cluster.run("scancel", *jobs)
    for node in cluster.names:
        cluster.run("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")
        cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    wait_until(lambda: all(cluster.state(node) == "IDLE" for node in cluster.names), "all nodes are idle again")


def slurm(cluster: SlurmCluster, config: SlurmConfig = CONFIG) -> Slurm:
    commands = Commands(timeout_s=config.timeout_seconds, environment=cluster.environment)
    return Slurm(config, commands=commands, clock=RealClock())


def quarantine(host: str, number: int = 1, drain: Drain = Drain.JOB_END, *, issued_at_s: float = 0.0) -> Quarantine:
    order_id = OrderId(f"{host}/{number}/quarantine")
    why = 'gpu 2 [SN 17] is wrong; Comment=x "é"'
    return Quarantine(id=order_id, host=HostName(host), issued_at_s=issued_at_s, why=why, drain=drain)


def release(host: str, number: int = 2) -> Release:
    return Release(id=OrderId(f"{host}/{number}/release"), host=HostName(host), issued_at_s=0.0, why="proven")


def do(actuator: Slurm, order: Quarantine | Release) -> Receipt:
    return asyncio.run(actuator.carry_out(order))


def done(actuator: Slurm, order: Quarantine | Release) -> str:
    receipt = do(actuator, order)
    assert receipt.done, receipt.why
    return receipt.why


def standing(actuator: Slurm, *hosts: str) -> dict[str, tuple[bool | None, str | None]]:
    """Closed or not, None without a node, and by which order of ours."""
    stands = asyncio.run(actuator.standing([HostName(host) for host in hosts]))
    return {host: (one.closed if one.known else None, one.order_id) for host, one in stands.items()}


# ── close and open ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_is_drained_once_however_often_it_is_ordered_and_opened_again(cluster: SlurmCluster) -> None:
    before = cluster.times_drained("h01")
    done(slurm(cluster), quarantine("h01"))
    assert cluster.state("h01") == "IDLE+DRAIN"
    assert cluster.show("h01", "Reason").startswith("fleetd:h01/1/quarantine: gpu 2 (SN 17) is wrong; Comment=x")
    assert standing(slurm(cluster), "h01", "h02", "gone") == {
        "h01": (True, "h01/1/quarantine"),
        "h02": (False, None),
        "gone": (None, None),
    }
    done(slurm(cluster), quarantine("h01"))  # another process, which knows nothing of the first
    assert cluster.times_drained("h01") == before + 1
    done(slurm(cluster), release("h01"))
    assert (cluster.state("h01"), cluster.show("h01", "Reason")) == ("IDLE", "")
    assert "no drain of fleetd" in done(slurm(cluster), release("h01"))


def test_a_node_that_is_down_is_opened_to_be_down(cluster: SlurmCluster) -> None:
    done(slurm(cluster), quarantine("h01"))
    ours = cluster.show("h01", "Reason").rpartition(" [")[0]
    cluster.run("scontrol", "update", "NodeName=h01", "State=DOWN", f"Reason={ours}")
    assert "DOWN" in cluster.state("h01")
    done(slurm(cluster), release("h01"))
    assert "DOWN" in cluster.state("h01")
    assert "DRAIN" not in cluster.state("h01")


def test_a_later_order_is_not_undone_by_a_stale_one(cluster: SlurmCluster) -> None:
    done(slurm(cluster), quarantine("h01", 5))
    assert "stale" in done(slurm(cluster), quarantine("h01", 3))
    assert "stale" in done(slurm(cluster), release("h01", 4))
    assert cluster.show("h01", "Reason").startswith("fleetd:h01/5/quarantine:")


# ── what others did ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_drain_of_somebody_else_is_never_replaced_and_never_lifted(cluster: SlurmCluster) -> None:
    cluster.drain("h01", "alice: bad PSU")
    with pytest.raises(ActuatorObjection, match=r"h01 is drained by root \(alice: bad PSU\)"):
        do(slurm(cluster), quarantine("h01"))
    assert standing(slurm(cluster), "h01") == {"h01": (True, None)}
    assert "left as it is" in done(slurm(cluster), release("h01"))
    assert cluster.show("h01", "Reason").startswith("alice: bad PSU")
    cluster.resume("h01")
    done(slurm(cluster), quarantine("h01"))
    assert cluster.show("h01", "Reason").startswith("fleetd:h01/1/quarantine")


def test_a_drain_is_told_with_its_reason_and_for_whom_it_is(cluster: SlurmCluster) -> None:
    done(slurm(cluster), quarantine("h01", 4))
    (mine,) = asyncio.run(slurm(cluster).standing([HostName("h01")])).values()
    assert (mine.why, mine.other) == ('gpu 2 (SN 17) is wrong; Comment=x "é"', None)
    renamed = slurm(cluster, replace(CONFIG, hosts=NodeNames(nodes={"new-name": "h01"})))
    (theirs,) = asyncio.run(renamed.standing([HostName("new-name")])).values()
    assert (theirs.closed, theirs.order_id, theirs.other) == (True, None, "h01/4/quarantine")


def test_a_reason_that_somebody_has_added_to_is_his(cluster: SlurmCluster) -> None:
    done(slurm(cluster), quarantine("h01"))
    ours = cluster.show("h01", "Reason").rpartition(" [")[0]
    cluster.drain("h01", f"{ours}; alice: and the PSU")
    assert "left as it is" in done(slurm(cluster), release("h01"))
    assert cluster.state("h01") == "IDLE+DRAIN"


def test_a_node_that_a_person_resumes_is_seen_to_be_open(cluster: SlurmCluster) -> None:
    done(slurm(cluster), quarantine("h01"))
    cluster.resume("h01")
    assert standing(slurm(cluster), "h01") == {"h01": (False, None)}


def test_an_unknown_node_is_told_and_a_renamed_one_is_named_in_the_configuration(cluster: SlurmCluster) -> None:
    with pytest.raises(ActuatorObjection, match="Slurm knows no node gpu-001: if it is called otherwise"):
        do(slurm(cluster), quarantine("gpu-001"))
    assert "nothing to give back" in done(slurm(cluster), release("gpu-001"))
    renamed = replace(CONFIG, hosts=NodeNames(nodes={"gpu-001": "h02"}))
    done(slurm(cluster, renamed), quarantine("gpu-001"))
    assert cluster.show("h02", "Reason").startswith("fleetd:gpu-001/1/quarantine")
    done(slurm(cluster, renamed), release("gpu-001"))


def test_two_hosts_that_claim_one_node_get_nothing_done(cluster: SlurmCluster) -> None:
    short = replace(CONFIG, hosts=NodeNames(names="short"))
    actuator = slurm(cluster, short)
    done(actuator, quarantine("h01.a"))
    with pytest.raises(ActuatorObjection, match=r"h01 is drained for h01\.a: two hosts of the fleet claim it"):
        do(actuator, quarantine("h01.b"))
    assert "left as it is" in done(actuator, release("h01.b"))
    # As soon as both are known, neither is acted for, whoever was there first.
    assert standing(actuator, "h01.a", "h01.b", "h02") == {"h02": (False, None)}
    with pytest.raises(ActuatorObjection, match=r"h01\.a and h01\.b both claim the node h01"):
        do(actuator, release("h01.a"))


# ── Slurm that does not answer ──────────────────────────────────────────────────────────────────────────────────────


def test_a_hung_and_a_missing_slurm_fail_the_attempt_and_the_next_one_succeeds(cluster: SlurmCluster) -> None:
    actuator = slurm(cluster, replace(CONFIG, timeout_seconds=1))
    go_on = cluster.freeze_controller()
    try:
        with pytest.raises(ActuatorError, match="has not ended in 1 s and was killed"):
            do(actuator, quarantine("h01"))
    finally:
        go_on()
    cluster.stop_controller()
    try:
        with pytest.raises(ActuatorError, match=r"Unable to contact slurm controller|has not ended"):
            do(slurm(cluster), quarantine("h01"))
    finally:
        cluster.start_controller()
    done(slurm(cluster), quarantine("h01"))
    assert cluster.state("h01").endswith("+DRAIN")


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def gone(actuator: Slurm, order: Quarantine) -> Callable[[], bool]:
    return lambda: do(actuator, order).done


def test_by_default_a_job_runs_to_its_end_and_no_new_one_starts(cluster: SlurmCluster) -> None:
    job = cluster.submit("sleep 2", "-w", "h01")
    done(slurm(cluster), quarantine("h01"))
    assert "DRAIN" in cluster.state("h01")
    wait_until(lambda: cluster.job(job, "JobState") == "COMPLETED", "the job ends well")
    assert cluster.state("h01") == "IDLE+DRAIN"


def test_now_requeues_what_runs_and_waits_for_a_job_that_leaves_slowly(cluster: SlurmCluster) -> None:
    job = cluster.submit('trap "" TERM; sleep 300', "-w", "h01")
    order = quarantine("h01", drain=Drain.NOW)
    assert not do(slurm(cluster), order).done
    wait_until(gone(slurm(cluster), order), "no job is left")
    assert (cluster.job(job, "JobState"), cluster.job(job, "Restarts")) == ("PENDING", "1")


def test_a_node_that_is_drained_mildly_can_be_emptied_by_a_later_order(cluster: SlurmCluster) -> None:
    job = cluster.submit("sleep 300", "-w", "h01")
    before = cluster.times_drained("h01")
    done(slurm(cluster), quarantine("h01"))
    wait_until(gone(slurm(cluster), quarantine("h01", 2, Drain.NOW)), "no job is left")
    assert (cluster.job(job, "JobState"), cluster.job(job, "Restarts")) == ("PENDING", "1")
    assert cluster.times_drained("h01") == before + 1, "it was drained all the time"
    done(slurm(cluster), release("h01", 3))
    assert "DRAIN" not in cluster.state("h01")


def test_a_job_that_cannot_be_requeued_is_told_and_never_cancelled(cluster: SlurmCluster) -> None:
    job = cluster.submit("sleep 300", "-w", "h01", "--no-requeue")
    order = quarantine("h01", drain=Drain.NOW)
    with pytest.raises(ActuatorObjection, match=f"h01 is drained, but jobs run on .*: {job} "):
        do(slurm(cluster), order)
    assert cluster.job(job, "JobState") == "RUNNING"
    cluster.run("scancel", job)
    wait_until(gone(slurm(cluster), order), "the person cancelled it")


def test_a_job_is_told_to_leave_at_its_checkpoint_and_sent_away_when_its_time_is_over(cluster: SlurmCluster) -> None:
    job = cluster.submit("sleep 300", "-w", "h01")
    patient = slurm(cluster, replace(CONFIG, checkpoint_seconds=600))
    order = quarantine("h01", drain=Drain.CHECKPOINT, issued_at_s=now_s())
    assert not do(patient, order).done
    assert not do(patient, order).done
    assert cluster.job(job, "AdminComment").startswith("fleetd:h01/1/quarantine: leave h01 after your next checkpoint")
    done(patient, release("h01"))
    assert cluster.job(job, "AdminComment") == ""

    other = cluster.submit("sleep 300", "-w", "h02")
    cluster.run("scontrol", "update", f"JobId={other}", "AdminComment=of the site")
    late = quarantine("h02", drain=Drain.CHECKPOINT, issued_at_s=now_s() - 601)
    assert not do(patient, replace(late, issued_at_s=now_s())).done
    assert cluster.job(other, "AdminComment") == "of the site"
    wait_until(gone(patient, late), "the job is sent away")
    assert cluster.job(other, "Restarts") == "1"


def test_a_task_of_an_array_is_sent_away_and_the_others_run_on(cluster: SlurmCluster) -> None:
    array = cluster.array(3)
    # One of the tasks has the number of the array: for it alone the two ways to name a job differ.
    node = next(node for node in cluster.names if cluster.jobs_on(node) == [f"{array}_2"])
    assert cluster.job(f"{array}_2", "JobId") == array
    checkpoint = quarantine(node, drain=Drain.CHECKPOINT, issued_at_s=now_s())
    assert not do(slurm(cluster), checkpoint).done
    assert [cluster.job(f"{array}_{task}", "AdminComment")[:7] for task in range(3)] == ["", "", "fleetd:"]
    wait_until(gone(slurm(cluster), quarantine(node, drain=Drain.NOW)), "no job is left")
    assert [cluster.job(f"{array}_{task}", "Restarts") for task in range(3)] == ["0", "0", "1"]
    assert [cluster.job(f"{array}_{task}", "JobState") for task in range(2)] == ["RUNNING"] * 2


def test_a_part_of_a_heterogeneous_job_is_told_by_itself_and_leaves_with_the_others(cluster: SlurmCluster) -> None:
    job = cluster.submit("sleep 300", "-w", "h01", ":", "-w", "h02")
    wait_until(lambda: cluster.jobs_on("h02") == [f"{job}+1"], "its second part runs")
    assert not do(slurm(cluster), quarantine("h02", drain=Drain.CHECKPOINT, issued_at_s=now_s())).done
    assert cluster.job(f"{job}+1", "AdminComment").startswith("fleetd:h02/1/quarantine: leave h02")
    wait_until(gone(slurm(cluster), quarantine("h02", drain=Drain.NOW)), "no job is left")
    assert cluster.job(f"{job}+1", "JobState") == "PENDING"
    assert cluster.jobs_on("h01") == []


@pytest.mark.parametrize("stop", [("scancel", "--full", "--signal=STOP"), ("scontrol", "suspend")])
def test_a_job_that_stands_still_is_not_overlooked(cluster: SlurmCluster, stop: tuple[str, ...]) -> None:
    job = cluster.submit("sleep 300", "-w", "h01")
    cluster.run(*stop, job)
    wait_until(
        lambda: cluster.run("squeue", "-h", "-o", "%T", "-j", job) in {"STOPPED", "SUSPENDED"}, "it stands still"
    )
    order = quarantine("h01", drain=Drain.NOW)
    assert not do(slurm(cluster), order).done
    wait_until(gone(slurm(cluster), order), "no job is left")
    assert cluster.job(job, "JobState") == "PENDING"


def test_a_job_that_is_over_does_not_keep_a_node(cluster: SlurmCluster) -> None:
    for script in ("true", "exit 3"):
        job = cluster.submit(script, "-w", "h01")
        wait_until(lambda job=job: cluster.job(job, "JobState") in {"COMPLETED", "FAILED"}, "it ended")
    wait_until(gone(slurm(cluster), quarantine("h01", drain=Drain.NOW)), "no job is left")


def test_the_ends_of_jobs_are_heard_of_once_a_node(cluster: SlurmCluster) -> None:
    good = cluster.submit("true", "-w", "h01")
    bad = cluster.submit("exit 3", "-N2", "-w", "h[02-03]")
    stopped = cluster.submit("sleep 300", "-w", "h01")
    cluster.run("scancel", stopped)
    for job in (good, bad, stopped):
        wait_until(lambda job=job: cluster.job(job, "JobState") in {"COMPLETED", "FAILED", "CANCELLED"}, "it ended")
    commands = Commands(timeout_s=30, environment=cluster.environment)
    source = SlurmJobs(replace(CONFIG, hosts=NodeNames(nodes={"gpu-003": "h03"})), commands=commands)
    hosts = [HostName(name) for name in ("h01", "h02", "gpu-003", "elsewhere")]
    claimed = [*hosts, HostName("h03")]  # of the same node as gpu-003: neither is charged with what happened there
    assert {end.host for end in asyncio.run(source.ended(claimed)) if end.job == bad} == {"h02"}
    ends = [end for end in asyncio.run(source.ended(hosts)) if end.job in {good, bad, stopped}]
    assert sorted((end.host, end.job, end.ok) for end in ends) == [
        ("gpu-003", bad, False),
        ("h01", good, True),
        ("h02", bad, False),
    ]
    assert all(isinstance(end, EndedJob) and end.ran_seconds < 600 for end in ends)


@pytest.mark.parametrize("text", ["h01", "h[01-03]", "h[01,03],login", "a[1-2]b[09-11],c", "n-[098-101,7]"])
def test_lists_of_nodes_mean_what_slurm_means(text: str, cluster: SlurmCluster) -> None:
    assert list(expand(text)) == cluster.run("scontrol", "show", "hostnames", text).split()
