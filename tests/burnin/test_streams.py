"""Odd places to run in: closed or full streams, a torch that does not load, a fork server that is gone."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from burnin.processes.children import Children
from burnin.processes.wire import Discover
from burnin.stop import Stop
from burnin.verdict.evidence import DeathKind
from tests.burnin.test_kills import offspring

SHELL_LINES = {
    "closed standard output": (">&-", 0),
    "closed standard error": ("2>&-", 0),
    "everything closed": ("<&- >&- 2>&-", 0),
    "full standard output": (">/dev/full", 0),
    "full standard error": ("2>/dev/full", 0),
    "report to a closed standard output": ("--json - >&-", 3),
    "report to a full standard output": ("--json - >/dev/full", 3),
    "report to standard output, no standard error": ("--json - 2>&-", 0),
}


@pytest.mark.parametrize("name", SHELL_LINES)
def test_streams_never_change_a_verdict(name: str) -> None:
    words, code = SHELL_LINES[name]
    line = f"{sys.executable} -m burnin run --backend sim --gpus 1 --level self --host h01 {words}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_a_disk_that_is_full_when_the_run_ends_costs_the_files_and_not_the_report(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: it fills after the run has looked whether it can write."""
    names = [f"--{kind} {tmp_path / kind}" for kind in ("json", "html", "junit")]
    run = f"{sys.executable} -m burnin run --backend sim --gpus 1 --level self --host h01 {' '.join(names)}"
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -f 1; {run}"], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    said = done.stderr[done.stderr.index("{\n") :]
    report, _ = json.JSONDecoder().raw_decode(said)
    assert (report["verdict"], report["exit_code"]) == ("pass", 0), "what was found is in it, whole"
    assert done.stderr.count('"schema"') == 1, "once, whatever the number of files"
    assert {"schema", "gpus", "tests", "versions"} <= set(report)
    assert f"burnin: --json {tmp_path / 'json'}: File too large; the report is above" in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_size > 1 << 10] == [], "no half a file"
    assert not (tmp_path / "json").exists()


def test_a_character_that_cannot_be_shown_is_escaped() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "burnin",
            "run",
            "--host",
            "größe",
            "--backend",
            "sim",
            "--gpus",
            "1",
            "--level",
            "self",
        ],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "gr\\xf6\\xdfe" in done.stdout


@pytest.mark.parametrize("error", ["ImportError", "OSError"])
def test_a_torch_that_does_not_load_is_one_line(tmp_path: Path, error: str) -> None:
    (tmp_path / "torch.py").write_text(f"raise {error}('libcudart.so.12: cannot open shared object file')\n")
    done = subprocess.run(
        [sys.executable, "-m", "burnin", "run", "--backend", "sim"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
    assert "libcudart.so.12" in done.stderr


def test_an_error_that_nobody_foresaw_does_not_look_like_a_bad_gpu(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import burnin.options as o\ndel o.parse_inject\n")
    done = subprocess.run(
        [sys.executable, "-m", "burnin", "list"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 3
    assert "Traceback" in done.stderr  # a bug is to be reported whole


def test_no_command_shows_the_help_as_it_is() -> None:
    done = subprocess.run([sys.executable, "-m", "burnin"], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) > 5


def test_a_child_that_cannot_be_started_is_a_death_and_not_the_end_of_the_run() -> None:
    with Children(monotonic=time.monotonic, stop=Stop()) as children:
        children.start("gpu0", {"backend": "sim", "gpu": "gpu0"})
        limit, hard = _open_files_limit(0)
        try:
            children.start("gpu1", {"backend": "sim", "gpu": "gpu1"})
        finally:
            _open_files_limit(limit, hard)
        assert [(death.gpu, death.kind) for death in children.deaths] == [("gpu1", DeathKind.CRASH)] * 2
        assert children.living == ("gpu0",)
        heard: list[str] = []
        request = Discover(backend="sim", gpus=1, host="h01")
        children.ask(
            {"gpu0": [request], "gpu1": [request]},
            test="t",
            quiet_s=200,
            limit_s=200,
            heard=lambda g, _: heard.append(g),
        )
        assert heard == ["gpu0"]


def _open_files_limit(soft: int, hard: int | None = None) -> tuple[int, int]:
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, old[1] if hard is None else hard))
    return old


def test_a_fork_server_that_dies_while_it_starts_is_started_again() -> None:
    command = [sys.executable, "-m", "burnin", "run", "--backend", "sim", "--gpus", "1", "--level", "self"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    server = _wait_for_fork_server(process.pid)
    os.kill(server, signal.SIGKILL)
    out, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    assert out.startswith("pass")


def test_ctrl_c_in_the_middle_of_imports_is_quiet() -> None:
    command = [sys.executable, "-m", "burnin", "run", "--backend", "sim", "--gpus", "1", "--json", "-"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    _wait_for_fork_server(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=250)
    assert process.returncode == 3
    assert '"stopped by SIGINT"' in out
    assert "Traceback" not in err


def _wait_for_fork_server(parent: int) -> int:
    """The fork server of a run, as soon as it is there; it then imports torch for a second or more."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        for child in offspring(parent):
            with suppress(FileNotFoundError, ProcessLookupError):
                if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
        select.select((), (), (), 0.001)
    raise AssertionError("no fork server")


@pytest.mark.parametrize(("error", "told"), [("EOFError('Ran out of input')", False), ("ValueError('odd')", True)])
def test_a_child_of_a_run_that_was_stopped_meanwhile_is_quiet(error: str, told: bool) -> None:
    """What the fork server does with an error of a child that has not begun; Ctrl-C hits that moment now and then."""
    program = (
        f"import burnin.processes.preload, sys\ntry: raise {error}\nexcept Exception: sys.excepthook(*sys.exc_info())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=True)
    assert ("Traceback" in done.stderr) is told


def test_a_second_signal_while_it_ends_changes_no_exit_code() -> None:
    """`atexit` is where Python ends, and after it puts the default handlers back: a signal would be the exit code."""
    program = (
        "import atexit, os, signal, sys\n"
        "from burnin.cli import main\n"
        "atexit.register(lambda: [os.kill(os.getpid(), one) for one in (signal.SIGTERM, signal.SIGINT)])\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM): kill(pid, number)\n"
        "sys.late = Late()\n"
        "sys.exit(main(['run', '--backend', 'sim', '--gpus', '1', '--level', 'self']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pass")
