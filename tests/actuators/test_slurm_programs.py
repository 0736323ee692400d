"""The Slurm actuator against programs that hang, flood, print what an upgraded Slurm might, or lie."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.actuators import command
from fleetd.actuators.command import Commands
from fleetd.actuators.config import SlurmConfig
from fleetd.actuators.mark import REASON_CHARS_MAX, Mark, reason_of
from fleetd.actuators.slurm import Slurm
from fleetd.actuators.slurm_jobs import SlurmJobs
from fleetd.actuators.slurm_text import expand, nodes, seconds
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import Drain, Quarantine, Release
from fleetd.ports import ActuatorError, ActuatorObjection, Receipt
from tests.actuators.test_kubernetes import StillClock
from tests.reading import lines_of
from tests.stopping import ends

H01 = HostName("h01")
QUARANTINE = Quarantine(id=OrderId("h01/3/quarantine"), host=H01, issued_at_s=0.0, why="gpu 2 is wrong")
RELEASE = Release(id=OrderId("h01/4/release"), host=H01, issued_at_s=0.0, why="proven")
OPEN = "NodeName=h01 Arch=x86_64 \n   State=IDLE ThreadsPerCore=1\n   Comment=Reason=none\n"
BY_OURS = OPEN.replace("IDLE", "IDLE+DRAIN") + f"   Reason={reason_of(QUARANTINE.id, 'w')} [root@2026-01-01T00:00:00]\n"

Make = Callable[..., Slurm]


@pytest.fixture(name="make")
def _make(tmp_path: Path) -> Make:
    def make(scontrol: str, *, timeout_s: float = 30, clock: StillClock | None = None) -> Slurm:
        path = tmp_path / "scontrol"
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{scontrol}\n")
        path.chmod(0o755)
        config = SlurmConfig(kind="slurm", scontrol=str(path), squeue=str(path), timeout_seconds=max(timeout_s, 1))
        commands = Commands(timeout_s=timeout_s, environment={"PATH": "/usr/bin:/bin"})
        return Slurm(config, commands=commands, clock=clock or StillClock())

    return make


def shows(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


def do(actuator: Slurm, order: Quarantine | Release = QUARANTINE) -> Receipt:
    return asyncio.run(actuator.carry_out(order))


# ── programs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hung_command_and_its_children_are_killed(make: Make, tmp_path: Path) -> None:
    for timeout_s in (1, 4, 16, 64):  # as long as a busy machine needs to start a shell and its child
        with pytest.raises(ActuatorError, match=f"has not ended in {timeout_s} s and was killed"):
            do(make("sleep 1000 & echo $! > child; wait", timeout_s=timeout_s))
        if told := lines_of(tmp_path / "child"):
            break
    assert ends(int(told[0]))


def test_an_answer_without_end_is_cut_off(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "OUTPUT_MAX_BYTES", 1 << 20)
    with pytest.raises(ActuatorError, match="said more than 1048576 bytes"):
        do(make("exec yes"))


def test_a_missing_program_is_said(tmp_path: Path) -> None:
    config = SlurmConfig(kind="slurm", scontrol=str(tmp_path / "none"))
    commands = Commands(timeout_s=60, environment={})
    with pytest.raises(ActuatorError, match="cannot be started"):
        do(Slurm(config, commands=commands, clock=StillClock()))


def test_no_shell_ever_sees_a_reason(make: Make, tmp_path: Path) -> None:
    order = Quarantine(id=QUARANTINE.id, host=H01, issued_at_s=0.0, why="$(touch pwned) `touch pwned`; touch pwned")
    script = f'if [ "$1" = update ]; then printf "%s\\n" "$@" > words; exit 1; fi\n{shows(OPEN)}'
    with pytest.raises(ActuatorError, match="scontrol update h01"):
        do(make(script), order)
    assert "$(touch pwned)" in (tmp_path / "words").read_text()
    assert not (tmp_path / "pwned").exists()


# ── an upgrade ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (shows('{"nodes": []}'), "in a way that is not understood"),
        (shows("NodeName=h01\n   Zustand=IDLE"), "in a way that is not understood"),
        (shows(""), "showed 0 others"),
        (shows(f"{OPEN}\n{OPEN.replace('h01', 'h02')}"), "showed 2 others"),
        (shows(OPEN.replace("h01", "h02")), "showed 1 others"),
        ("echo 'slurm_load_node error: Protocol version has expired' >&2; exit 1", "Protocol version has expired"),
        ("exit 1", "exit code 1"),
    ],
)
def test_what_is_not_understood_is_an_error_and_nothing_is_changed(
    script: str, words: str, make: Make, tmp_path: Path
) -> None:
    script = f'if [ "$1" = update ]; then touch changed; fi\n{script}'
    for order in (QUARANTINE, RELEASE):
        with pytest.raises(ActuatorError, match=words) as caught:
            do(make(script), order)
        assert not isinstance(caught.value, ActuatorObjection)
    assert not (tmp_path / "changed").exists()


def test_a_drain_that_does_not_show_is_not_done(make: Make) -> None:
    with pytest.raises(ActuatorError, match="not drained by h01/3/quarantine after scontrol said so"):
        do(make(f'[ "$1" = update ] && exit 0\n{shows(OPEN)}'))
    with pytest.raises(ActuatorError, match="still drained after scontrol undrained it"):
        do(make(f'[ "$1" = update ] && exit 0\ncase "$*" in *noheader*) exit 0;; esac\n{shows(BY_OURS)}'), RELEASE)


def test_what_was_seen_too_long_ago_is_not_acted_on(make: Make, tmp_path: Path) -> None:
    class Slow(StillClock):
        def elapsed_s(self) -> float:
            self.elapsed += 20  # longer than an attempt may take, between the look and the act
            return self.elapsed

    with pytest.raises(ActuatorError, match="too slowly to act on"):
        do(make(f'if [ "$1" = update ]; then touch changed; fi\n{shows(OPEN)}', clock=Slow(), timeout_s=15))
    assert not (tmp_path / "changed").exists()


@pytest.mark.parametrize(
    ("said", "objection", "words"),
    [
        ("Requested operation is presently disabled for job 7", True, r"cannot be requeued: 7 \(.*disabled"),
        ("Job is pending execution for job 7", False, "scontrol requeue 7: Job is pending execution"),
    ],
)
def test_a_job_that_does_not_leave_keeps_no_other(
    said: str, objection: bool, words: str, make: Make, tmp_path: Path
) -> None:
    script = f"""
        case "$*" in
            *noheader*) echo '7|RUNNING'; echo '8_3|RUNNING'; echo '9+1|STOPPED'; echo '5|COMPLETED';;
            "requeue 7") echo "{said}" >&2; exit 1;;
            requeue*) echo "$2" >> requeued;;
            *) {shows(BY_OURS)}
;;
        esac"""
    with pytest.raises(ActuatorError, match=words) as caught:
        do(make(script), replace(QUARANTINE, drain=Drain.NOW))
    assert isinstance(caught.value, ActuatorObjection) is objection
    assert (tmp_path / "requeued").read_text().split() == ["8_3", "9"]


def test_a_job_in_a_state_of_a_later_slurm_keeps_its_node_and_is_told(make: Make, tmp_path: Path) -> None:
    script = f"""
        case "$*" in
            *noheader*) echo '7|HIBERNATING';;
            requeue*) touch requeued;;
            *) {shows(BY_OURS)}
;;
        esac"""
    with pytest.raises(ActuatorObjection, match=r"7 \(its state is not understood: HIBERNATING\)"):
        do(make(script), replace(QUARANTINE, drain=Drain.NOW))
    assert not (tmp_path / "requeued").exists()


@pytest.mark.parametrize("line", ["7|COMPLETED|0:01", "7|COMPLETED|soon|h01", "7|FAILED|0:01|h[01"])
def test_a_list_of_jobs_that_is_not_understood_is_an_error(line: str, tmp_path: Path) -> None:
    path = tmp_path / "squeue"
    path.write_text(f"#!/bin/sh\necho '{line}'\n")
    path.chmod(0o755)
    config = SlurmConfig(kind="slurm", squeue=str(path))
    source = SlurmJobs(config, commands=Commands(timeout_s=30, environment=dict(os.environ)))
    with pytest.raises(ActuatorError, match="not understood"):
        asyncio.run(source.ended([H01]))


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.text(max_size=400))
def test_a_reason_carries_its_mark_whatever_the_words(why: str) -> None:
    reason = reason_of(OrderId("gpu-1.a/12/quarantine"), why)
    assert len(reason) <= REASON_CHARS_MAX
    assert reason.isprintable()
    (view,) = nodes(
        f"NodeName=n\n   State=IDLE+DRAIN X=1\n   Reason={reason} [root@2026-01-01T00:00:00]\n   Comment=x\n"
    )
    assert view.reason == reason
    assert view.who == "root"
    mark = Mark.of_reason(view.reason)
    assert mark is not None
    assert (mark.host, mark.number) == ("gpu-1.a", 12)


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "fleetd:h01/3/quarantine: gpu",
        "fleetd:h01/3/quarantine: gpu ~fleetd; alice",
        "x fleetd:h01/3/quarantine: gpu ~fleetd",
        "fleetd:h01/3/release: gpu ~fleetd",
        "fleetd:h01/x/quarantine: gpu ~fleetd",
        "fleetd:/3/quarantine: gpu ~fleetd",
        "fleetd-check: gpu ~fleetd",
    ],
)
def test_what_is_not_whole_is_not_ours(reason: str) -> None:
    assert Mark.of_reason(reason) is None


@given(st.text(alphabet="h01[]-,9", max_size=12))
def test_any_list_is_expanded_in_bounded_time_or_refused(text: str) -> None:
    try:
        names = expand(text)
    except ActuatorError:
        return
    assert all("[" not in name for name in names)


def test_a_list_of_too_many_nodes_is_refused() -> None:
    with pytest.raises(ActuatorError, match="not understood"):
        expand("h[0-99999999]")
    with pytest.raises(ActuatorError, match="not understood"):
        expand("h[0-999][0-999][0-999]")


@pytest.mark.parametrize(("text", "value"), [("0:07", 7), ("12:07", 727), ("2:00:01", 7201), ("3-01:00:00", 262800)])
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


def test_a_slurm_that_names_no_node_at_all_says_nothing_about_hosts(make: Make) -> None:
    with pytest.raises(ActuatorError, match="names no node"):
        asyncio.run(make("true").standing([H01]))
