"""Levels as processes: idle gives way, a directed run repeats what failed, a full disk loses no report."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from burnin.exposure import read
from burnin.processes.children import Children
from burnin.processes.wire import Discover, Rest
from burnin.stop import Stop, StoppedError
from tests.burnin.test_kills import offspring, role
from tests.burnin.test_resume import RUN, all_gone, burn
from tests.stopping import stop as stop_process

SIM = ("--backend", "sim", "--gpus", "2", "--seed", "5")


def test_an_idle_run_gives_way_at_once_and_keeps_the_record_of_what_it_did(tmp_path: Path) -> None:
    exposure = tmp_path / "exposure.json"
    process = subprocess.Popen(
        [*RUN, *SIM, "--level", "idle", "--for", "30d", "--exposure", str(exposure)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    while not exposure.exists():
        assert process.poll() is None, "it ended by itself"
        select.select((), (), (), 0.01)
    started = offspring(process.pid)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=100)  # within two seconds, where no other test is computing
    report = json.loads(out)
    assert (process.returncode, report["verdict"], report["why"]) == (3, "not_judged", "stopped by SIGTERM")
    assert all_gone(started)
    assert {gpu for gpu, _ in read(exposure)} == {"SIM-h01-00", "SIM-h01-01"}
    assert all(seconds > 0 for seconds in read(exposure).values())


def test_a_process_that_hangs_does_not_outlive_a_run_that_is_stopped() -> None:
    process = subprocess.Popen(
        [*RUN, *SIM, "--test", "int", "--for", "30d"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert any('"test": "int"' in line for line in iter(process.stderr.readline, ""))
    started = offspring(process.pid)
    hung = next(pid for pid in started if role(pid) == "child")
    stop_process(hung)
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, json.loads(out)["why"], "Traceback" in err) == (3, "stopped by SIGTERM", False)
    assert all_gone(started)


def test_exposure_adds_up_over_runs(tmp_path: Path) -> None:
    exposure = tmp_path / "exposure.json"
    arguments = (*SIM, "--test", "int", "--exposure", str(exposure))
    done = []
    for _ in range(2):
        code, _, _ = burn(*arguments)
        assert code == 0
        done.append(dict(read(exposure)))
    assert done[1].keys() == done[0].keys() == {("SIM-h01-00", "int"), ("SIM-h01-01", "int")}
    assert all(done[1][at] > done[0][at] for at in done[0])


def test_somebody_who_comes_ends_what_is_being_computed() -> None:
    """A process that looks out says so while the others are asked; here any answer of it stands for that."""
    stop = Stop()
    with Children(monotonic=time.monotonic, stop=stop) as children:
        children.start("gpu", {"backend": "cpu", "gpu": "gpu"})
        children.start("lookout", {"backend": "cpu"})
        children.ask_aside(
            "lookout", Discover(backend="cpu", gpus=1, host="h"), lambda _, answer: stop.ask(f"gave way: {len(answer)}")
        )
        assert children.living == ("gpu",)
        assert len(children.pids) == 2
        with pytest.raises(StoppedError):
            children.ask(
                {"gpu": [Rest(seconds=600.0)]}, test="t", quiet_s=200.0, limit_s=600.0, heard=lambda _, __: None
            )
    assert stop.why.startswith("gave way")
    assert children.deaths == []


def test_a_run_that_takes_too_long_is_ended_and_says_why() -> None:
    stop, now_s = Stop(), [0.0]
    stop.when(lambda: now_s[0] > 90.0, "level smoke was ended: it took more than 90 s")
    assert not stop.asked
    now_s[0] = 91.0
    assert stop.asked
    stop.ask("stopped by SIGTERM")
    assert stop.why.startswith("level smoke was ended")


def test_a_full_disk_loses_no_report(tmp_path: Path) -> None:
    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    paths = {name: tmp_path / name for name in ("json", "html", "junit", "resume", "exposure")}
    options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    done = subprocess.run(
        [sys.executable, "-m", "burnin", "run", *SIM, "--test", "int", "--for", "20s", *options],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        preexec_fn=small_files,
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    start = done.stderr.index('{\n  "schema"')
    report, _ = json.JSONDecoder().raw_decode(done.stderr[start:])
    assert (report["verdict"], report["exit_code"]) == ("pass", 0)
    assert "the report is above" in done.stderr
    assert any("--resume" in note and "not written" in note for note in report["notes"])
    assert {path.name for path in tmp_path.iterdir()} <= {"exposure", "junit"}  # for these 2 KiB may be enough
