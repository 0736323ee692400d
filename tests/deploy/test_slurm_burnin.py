"""Prolog and qualification job by the exit code of burn-in, with programs in the place of fleetd's and Slurm's."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reading import lines_of

FOLDER = Path(__file__).parents[2] / "deploy" / "slurm"
PROLOG, QUALIFY = FOLDER / "fleetd-prolog.sh", FOLDER / "fleetd-qualify.sbatch"
CULPRIT = "  culprit: GPU 2 (GPU-1), chip-persistent: gemm.exact [x]: 20 of 20 launches differ\\n"
HOSTILE = '  culprit: GPU 2 $(touch pwned) `touch pwned` "; touch pwned; [\\n'

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def run(tmp_path: Path, calls: Path) -> Run:
    """Run a script in its own folder, with fakes that note how they were called."""
    tools = tmp_path / "bin"
    tools.mkdir()

    def fake(name: str, body: str) -> None:
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {calls}\n{body}\n')
        (tools / name).chmod(0o755)

    def start(
        script: Path, code: int, *arguments: str, said: str = "", scontrol: int = 0, body: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        fake("fleetd", body or f"printf '{said}'\nexit {code}")
        fake("scontrol", f"exit {scontrol}")
        fake("logger", "exit 0")
        known = {"PATH": f"{tools}:/usr/bin:/bin", "SLURMD_NODENAME": "h01", "SLURM_JOB_ID": "7"}
        known["FLEETD_REPORTS"] = str(tmp_path / "reports")
        return subprocess.run(
            ["/bin/sh", str(script), *arguments],
            capture_output=True,
            text=True,
            env=known | environment,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )

    return start


def called(calls: Path, name: str) -> list[str]:
    return [line for line in lines_of(calls) if line.startswith(f"{name} ")]


@pytest.mark.parametrize(
    ("code", "ends", "drains"), [(0, 0, False), (1, 1, True), (2, 0, False), (3, 0, False), (127, 0, False)]
)
def test_only_a_fault_closes_a_node(run: Run, calls: Path, code: int, ends: int, drains: bool) -> None:
    done = run(PROLOG, code, said=CULPRIT if code == 1 else "", SLURM_JOB_GPUS="2,3")
    assert done.returncode == ends, done.stderr
    (fleetd,) = called(calls, "fleetd")
    assert "burnin run --level smoke --devices 2,3 --json" in fleetd
    drained = called(calls, "scontrol")
    assert len(drained) == drains
    assert called(calls, "logger") == [] if code == 0 else called(calls, "logger") != []
    for line in drained:
        assert "update NodeName=h01 State=DRAIN Reason=fleetd-burnin: GPU 2 (GPU-1), chip-persistent" in line
        assert line.endswith("~fleetd")
        assert "[" not in line, "brackets are Slurm's own"


def test_a_node_that_cannot_be_drained_by_name_is_drained_by_the_exit_code(run: Run) -> None:
    assert run(PROLOG, 1, said=CULPRIT, scontrol=1, SLURM_JOB_GPUS="0").returncode == 1


def test_a_prolog_that_hangs_is_ended_and_closes_nothing(run: Run, calls: Path) -> None:
    done = run(PROLOG, 0, body="exec sleep 600", SLURM_JOB_GPUS="0", FLEETD_PROLOG_LIMIT_S="0.2")
    assert (done.returncode, called(calls, "scontrol")) == (0, [])
    assert "not judged within" in called(calls, "logger")[0]


def test_a_job_without_gpus_waits_for_nothing(run: Run, calls: Path) -> None:
    assert run(PROLOG, 1).returncode == 0
    assert not calls.exists()


@pytest.mark.parametrize("said", [HOSTILE, "", "  why: " + "x" * 5000 + "\\n"])
def test_a_reason_is_short_and_only_a_text(run: Run, calls: Path, tmp_path: Path, said: str) -> None:
    assert run(PROLOG, 1, said=said.replace("'", ""), SLURM_JOB_GPUS="0").returncode == 1
    assert not (tmp_path / "pwned").exists()
    (line,) = called(calls, "scontrol")
    assert len(line) < 300


def test_reports_that_find_no_place_change_no_verdict(run: Run, calls: Path) -> None:
    assert run(PROLOG, 1, said=CULPRIT, SLURM_JOB_GPUS="0", FLEETD_REPORTS="/proc/none").returncode == 1
    assert "--json" not in called(calls, "fleetd")[0]


@pytest.mark.parametrize(
    ("code", "restarts", "asked"),
    [
        (0, "0", []),
        (
            1,
            "0",
            ["scontrol update NodeName=h01 State=DRAIN Reason=fleetd-burnin: qualify found a fault, job 7 ~fleetd"],
        ),
        (2, "0", ["scontrol requeuehold 7"]),
        (3, "0", ["scontrol requeue 7"]),
        (3, "1", ["scontrol requeue 7"]),
        (3, "2", ["scontrol requeuehold 7"]),
        (139, "0", ["scontrol requeuehold 7"]),
    ],
)
def test_what_becomes_of_a_qualification(run: Run, calls: Path, code: int, restarts: str, asked: list[str]) -> None:
    done = run(QUALIFY, code, "here", SLURM_RESTART_COUNT=restarts)
    assert (done.returncode, called(calls, "scontrol")) == (code, asked)
    assert done.stdout.startswith("fleetd-qualify: "), "the decision is told"
    (fleetd,) = called(calls, "fleetd")
    assert "burnin run --level qualify --host h01" in fleetd
    for kind in ("--json here/h01.json", "--junit here/h01.xml", "--html here/h01.html", "--resume here/h01.state"):
        assert kind in fleetd


def test_a_user_who_may_not_drain_is_told_whom_to_ask(run: Run) -> None:
    done = run(QUALIFY, 1, scontrol=1)
    assert done.returncode == 1
    assert "tell an operator" in done.stdout


def test_a_qualification_that_is_cut_off_ends_its_burn_in_and_is_requeued(
    tmp_path: Path, run: Run, calls: Path
) -> None:
    waits = "sleep 20 >/dev/null 2>&1 & nap=$!\nkill -TERM $PPID\nwait"
    body = f"trap 'kill $nap; echo ended > {tmp_path}/ended; exit 3' TERM\n{waits}"
    done = run(QUALIFY, 0, body=body)
    assert (done.returncode, (tmp_path / "ended").exists()) == (3, True), done.stderr
    assert called(calls, "scontrol") == ["scontrol requeue 7"]
    assert "#SBATCH --signal=B:TERM@120" in QUALIFY.read_text()


def test_reports_that_find_no_place_are_told_before_half_an_hour(run: Run, calls: Path) -> None:
    done = run(QUALIFY, 0, "/proc/none")
    assert (done.returncode, calls.exists()) == (2, False)
    assert "name a folder" in done.stderr


@pytest.mark.parametrize("script", [PROLOG, QUALIFY], ids=lambda script: script.name)
def test_they_are_plain_shell(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert subprocess.run(["/bin/sh", "-n", str(script)], check=False).returncode == 0
    if shutil.which("shellcheck") is not None:
        done = subprocess.run(["shellcheck", "-s", "sh", str(script)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", sorted(FOLDER.glob("fleetd-*")), ids=lambda path: path.name)
def test_every_script_finds_the_program_where_the_units_install_it(script: Path) -> None:
    (line,) = [line for line in script.read_text().splitlines() if "PATH=" in line and not line.startswith("#")]
    assert "/opt/fleetd/bin:" in line
