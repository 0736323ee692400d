"""SIGKILL of each process of a run at fixed moments: a run that lost work is not judged, one that lost none passes."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SIM = ("--backend", "sim", "--gpus", "2", "--test", "int", "--test", "hostcpu")
CPU = ("--backend", "cpu", "--gpus", "2", "--test", "copy")
LONG = ("--for", "20s")
"""So that whoever is to be killed in the middle of a test is still in it when a busy machine comes to kill it."""
WAIT_S = 0.01
"""Between two looks at the processes."""


def offspring(pid: int) -> list[int]:
    """All living descendants of a process, in the order in which they were started, level by level."""
    try:
        found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found + [deeper for child in found for deeper in offspring(child)]


def role(pid: int) -> str:
    """`tracker` (of multiprocessing), `server` (which forks), `child` (of a GPU, of the host, of a gang), or `gone`."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text()
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        above = Path(f"/proc/{parent}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    if state in {"Z", "X"}:
        return "gone"
    if "resource_tracker" in line:
        return "tracker"
    return "child" if "forkserver" in above else "server"


def killed(arguments: tuple[str, ...], moment: str | None, victim: Callable[[list[int]], int | None]) -> dict[str, Any]:
    """The report of a run of which a process is killed once a line with `moment` is on standard error, or at once.

    `victim` chooses among the descendants; asked again until there is one, or the run has ended.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "burnin", "run", "--host", "h01", "--seed", "11", "--json", "-", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert moment is None or any(moment in line for line in iter(process.stderr.readline, ""))
    while process.poll() is None:
        with suppress(ProcessLookupError):
            if (chosen := victim(offspring(process.pid))) is not None:
                os.kill(chosen, signal.SIGKILL)
                break
        select.select((), (), (), WAIT_S)
    else:
        raise AssertionError("the run ended before anybody could be killed")
    out, err = process.communicate(timeout=250)
    assert "Traceback" not in err
    report: dict[str, Any] = json.loads(out)
    assert report["exit_code"] == process.returncode
    return report


def first(wanted: str, *, after: int = 0) -> Callable[[list[int]], int | None]:
    """Choose the first process of a role, leaving out `after` of them."""

    def choose(pids: list[int]) -> int | None:
        found = [pid for pid in pids if role(pid) == wanted]
        return found[after] if len(found) > after else None

    return choose


def work(report: dict[str, Any]) -> dict[str, int]:
    return {test["id"]: test["launches"] for test in report["tests"]}


STARTED, TESTING, LINKS = '"event": "devices"', '"test": "int"', '"test": "copy"'


@pytest.mark.parametrize("wanted", ["child", "server"])
def test_a_run_that_lost_a_process_of_a_gpu_is_not_judged(wanted: str) -> None:
    report = killed((*SIM, *LONG), TESTING, first(wanted))  # while it starts, a new server starts who is still to come
    assert (report["exit_code"], report["verdict"], report["culprits"]) == (3, "not_judged", [])
    assert {death["kind"] for death in report["deaths"]} == {"crash"}
    assert len({death["index"] for death in report["deaths"]}) == (1 if wanted == "child" else 2)
    passed = [gpu["verdict"] for gpu in report["gpus"]].count("pass")
    assert passed == (1 if wanted == "child" else 0)  # the fork server takes all of its children with it


def test_a_run_whose_work_was_done_all_the_same_passes() -> None:
    report = killed(SIM, STARTED, first("tracker"))
    assert (report["exit_code"], report["deaths"]) == (0, [])
    assert work(report) == {"selftest": 80, "health": 0, "hostcpu": 0, "int": 8}
    assert {test["verdict"] for test in report["tests"]} == {"pass"}


def test_the_process_that_lists_the_devices_is_started_again_and_this_is_told() -> None:
    report = killed(SIM, None, first("child"))
    assert (report["exit_code"], work(report)["int"]) == (0, 8)
    assert any("was started again: killed by signal 9" in note for note in report["notes"])


def test_a_run_that_lost_a_process_of_its_gang_is_not_judged() -> None:
    report = killed(
        (*CPU, *LONG), LINKS, first("child", after=3)
    )  # the first two are the GPUs' own, the third is rank 0
    assert (report["exit_code"], report["culprits"]) == (3, [])
    assert [(death["test"], death["index"]) for death in report["deaths"]] == [("copy", 1)]
