"""A long run that was killed, and goes on: the same verdict on the same work; nothing it started outlives it."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.burnin.report_runs import named
from tests.burnin.test_kills import offspring
from tests.once import once
from tests.reading import text_of

RUN = (sys.executable, "-m", "burnin", "run", "--host", "h01", "--json", "-")
SIM = ("--backend", "sim", "--gpus", "3", "--seed", "5", "--for", "40s", "--test", "int", "--test", "gemm.vote")
CPU = ("--backend", "cpu", "--gpus", "2", "--seed", "5", "--for", "40s", "--test", "int", "--test", "reduction")
GONE_S = 60.0


def burn(*arguments: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run([*RUN, *arguments], capture_output=True, text=True, timeout=250, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def whole(factory: pytest.TempPathFactory, *arguments: str) -> tuple[int, dict[str, Any]]:
    """What a run says that nobody interrupts; made once."""
    text = once(factory, f"whole-{named(arguments)}", lambda: json.dumps(burn(*arguments)[:2]))
    code, report = json.loads(text)
    return code, report


def noted(factory: pytest.TempPathFactory, resume: Path, *arguments: str) -> str:
    """What a run had noted when it was killed after two slices, also put at `resume`; made once."""

    def make() -> str:
        killed(resume, 2, *arguments)
        return resume.read_text(encoding="utf-8")

    text = once(factory, f"noted-{named(arguments)}", make)
    resume.write_text(text, encoding="utf-8")
    return text


def living(pids: list[int]) -> list[int]:
    """Those that still run; what is only waiting to be reaped does not."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [pid] if state not in {"Z", "X"} else []
    return found


def all_gone(pids: list[int]) -> bool:
    """Whether all of them end, soon: the kernel ends some of them when others are gone."""
    for _ in range(round(GONE_S / 0.05)):
        if not living(pids):
            return True
        select.select((), (), (), 0.05)
    return False


def killed(resume: Path, slices: int, *arguments: str) -> None:
    """Kill a run with SIGKILL once it has noted so many slices; wait until all that it started is gone."""
    with subprocess.Popen(
        [*RUN, "--resume", str(resume), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None:
            noted = json.loads(text)["body"]["done"] if (text := text_of(resume)) else []
            if len(noted) >= slices:
                break
            select.select((), (), (), 0.005)
        assert process.poll() is None, "the run ended before it could be killed"
        started = offspring(process.pid)
        assert len(started) >= 3
        process.kill()
    assert all_gone(started)


def told(report: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on whether the run was interrupted."""
    tests = [
        {key: value for key, value in test.items() if key in {"id", "verdict", "why", "class", "launches", "bytes"}}
        for test in report["tests"]
    ]
    same = {key: report[key] for key in ("verdict", "why", "exit_code", "culprits", "seed", "ballots")}
    same |= {"gpus": [[gpu[key] for key in ("gpu", "verdict", "class", "strikes", "why")] for gpu in report["gpus"]]}
    signatures = [(s["gpu"], s["test"], s["case"], s["seed"], s["tiles"], s["retest"]) for s in report["signatures"]]
    return same | {"tests": tests, "signatures": signatures, "total": report["signatures_total"]}


@pytest.mark.parametrize(("arguments", "slices"), [(SIM, 6), (CPU, 4)], ids=["simulated", "cpu"])
def test_a_run_that_was_killed_goes_on_to_the_same_verdict(
    arguments: tuple[str, ...], slices: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    resume = tmp_path / "resume"
    killed(resume, slices, *arguments)
    assert resume.exists()
    code, report, said = burn("--resume", str(resume), *arguments)
    assert "going on after" in said
    unbroken = whole(tmp_path_factory, *arguments)
    assert (code, told(report)) == (unbroken[0], told(unbroken[1]))
    assert any("slices of an earlier process" in note for note in report["notes"])
    assert report["elapsed_s"] > 0
    assert not resume.exists()  # it has reported; the next run begins anew


def test_a_bad_gpu_stays_bad(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    resume, arguments = tmp_path / "resume", (*SIM, "--inject", "gpu=1,fault=F04")
    killed(resume, 3, *arguments)
    code, report, _ = burn("--resume", str(resume), *arguments)
    unbroken = whole(tmp_path_factory, *arguments)[1]
    assert (code, report["verdict"]) == (1, "fail")
    assert [(one["gpu"], one["class"]) for one in report["culprits"]] == [("SIM-h01-01", "chip-persistent")]
    # The self-test of the process that went on found it once more; all else is what an unbroken run has.
    tests, others = (
        [test for test in one["tests"] if test["id"] != "selftest"] for one in (told(report), told(unbroken))
    )
    assert tests == others


def test_without_a_seed_a_run_goes_on_with_its_own(tmp_path: Path) -> None:
    resume, arguments = tmp_path / "resume", [one for one in SIM if one not in {"--seed", "5"}]
    killed(resume, 2, *arguments)
    seed = json.loads(resume.read_text())["body"]["about"]["seed"]
    _, report, said = burn("--resume", str(resume), *arguments)
    assert report["seed"] == seed
    assert "going on after" in said


@pytest.mark.parametrize("damage", ["torn", "changed", "another seed", "no JSON"])
def test_a_note_that_is_damaged_or_of_another_run_is_told_and_not_used(
    damage: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    resume = tmp_path / "resume"
    quick = ("--backend", "sim", "--gpus", "2", "--seed", "5", "--for", "20s", "--test", "int")
    text = noted(tmp_path_factory, resume, *quick)
    changed = {
        "torn": text[: len(text) // 2],
        "changed": text.replace('"launches":4', '"launches":5', 1),
        "another seed": text,
        "no JSON": "",
    }[damage]
    assert changed != text or damage == "another seed"
    resume.write_text(changed)
    arguments = tuple("6" if one == "5" else one for one in quick) if damage == "another seed" else quick
    code, report, said = burn("--resume", str(resume), *arguments)
    assert (code, report["verdict"]) == (0, "pass")
    (why,) = [note for note in report["notes"] if "--resume" in note]
    assert why.endswith(": starting anew")
    assert why in json.dumps(said).replace("\\", "") or "starting anew" in said
    assert told(report) == told(whole(tmp_path_factory, *arguments)[1])


def test_a_run_that_is_stopped_can_go_on_and_says_so_by_its_exit_code(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    resume = tmp_path / "resume"
    process = subprocess.Popen(
        [*RUN, "--resume", str(resume), *SIM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    while not resume.exists():
        assert process.poll() is None, "it ended by itself"
        select.select((), (), (), 0.005)
    started = offspring(process.pid)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=100)
    report = json.loads(out)
    assert (process.returncode, report["verdict"], report["why"]) == (3, "not_judged", "stopped by SIGTERM")
    assert all_gone(started)
    assert resume.exists()
    assert told(burn("--resume", str(resume), *SIM)[1]) == told(whole(tmp_path_factory, *SIM)[1])
