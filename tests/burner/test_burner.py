"""The burner with real processes: a script stands in for the interpreter that has burnin."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fleetd.burner import BurnerConfig, ProcessBurner
from fleetd.model.ids import BootId, HostName, OrderId
from fleetd.model.order import RunBurnin
from fleetd.ports import BurnerError

PRELUDE = """
import json, os, signal, subprocess, sys, threading
from pathlib import Path
options = dict(a[2:].split("=", 1) for a in sys.argv[1:] if a.startswith("--"))
report, folder = Path(options["json"]), Path(__file__).parent
(folder / "argv").write_text(json.dumps(sys.argv[1:]))
def started(*others):
    (folder / "started").write_text(json.dumps([os.getpid(), *others]))  # a FIFO: waits for the test
def for_ever():
    while True:
        threading.Event().wait(1)
"""


def order(level: str = "smoke") -> RunBurnin:
    return RunBurnin(
        id=OrderId("h1/1/burnin"),
        host=HostName("h1"),
        issued_at_s=0.0,
        why="qualify",
        level=level,
        boot_id=BootId("b"),
        not_after_s=1e12,
    )


DEADLINE_S = 120.0


class Stage:
    """A folder with a fake burn-in, and the burner that runs it."""

    def __init__(self, folder: Path, script: str, **config: Any) -> None:
        self.folder = folder
        python = folder / "python"
        python.write_text(f"#!{sys.executable}\n{PRELUDE}{script}")
        python.chmod(0o755)
        os.mkfifo(folder / "started")
        self.report = folder / "reports" / "r.json"
        self.burner = ProcessBurner(host=HostName("h1"), config=BurnerConfig(python=str(python), **config))

    async def burn(self) -> None:
        await self.burner.burn(order(), self.report)

    async def started(self) -> list[int]:
        """Process numbers, as soon as the script says that it runs."""
        return list(json.loads(await asyncio.to_thread((self.folder / "started").read_text)))


MakeStage = Callable[..., Stage]


@pytest.fixture(name="stage")
def _stage(tmp_path: Path) -> MakeStage:
    return lambda script, **config: Stage(tmp_path, script, **config)


class Hasty(asyncio.SelectorEventLoop):
    """An event loop whose time a test may put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def run(case: Awaitable[None]) -> None:
    with asyncio.Runner(loop_factory=Hasty) as runner:
        runner.run(asyncio.wait_for(case, 2 * DEADLINE_S))


async def gone(pid: int) -> None:
    """Wait for the end of any process, a child of ours or not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_report_is_kept_whatever_the_verdict(stage: MakeStage, code: int) -> None:
    burn = stage(
        f"report.write_text('{{}}'); sys.exit({code})", backend="sim", gpus=4, seed=7, inject="gpu=1,fault=F03"
    )
    run(burn.burn())
    assert burn.report.read_text() == "{}"
    assert [path.name for path in burn.report.parent.iterdir()] == ["r.json"]
    argv = json.loads((burn.folder / "argv").read_text())
    assert argv[:6] == ["-P", "-m", "burnin", "run", "--level=smoke", "--backend=sim"]
    assert {"--host=h1", "--gpus=4", "--seed=7", "--inject=gpu=1,fault=F03"} <= set(argv)


@pytest.mark.parametrize(("level", "limit_s"), [("smoke", 1800.0), ("burnin", 6 * 3600.0), ("unheard of", 1800.0)])
def test_a_long_level_has_the_time_it_takes_and_notes_how_far_it_is(level: str, limit_s: float, tmp_path: Path) -> None:
    exposure, resume = tmp_path / "exposure.json", tmp_path / "r.resume"
    burner = ProcessBurner(host=HostName("h1"), config=BurnerConfig(backend="sim"), exposure=exposure)
    assert burner._limit_s(level) == limit_s
    command = burner._command(order(level), tmp_path / "r.part", resume=resume)
    assert f"--exposure={exposure}" in command
    assert (f"--resume={resume}" in command) is (level == "burnin")
    limited = ProcessBurner(host=HostName("h1"), config=BurnerConfig(deadline_seconds=5.0))
    assert limited._limit_s(level) == 5.0


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "print('noise\\nno such level: smoke\\n\\n', file=sys.stderr); sys.exit(2)",
            "exit code 2: no such level: smoke",
        ),
        ("report.write_text('{}'); sys.exit(2)", "exit code 2: it said nothing"),
        ("sys.exit(0)", "exit code 0 and left no report"),
        ("report.touch(); sys.exit(1)", "exit code 1 and left no report"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
        ("sys.stderr.write('x' * 300_000 + '\\nthe end\\n'); sys.exit(2)", "exit code 2: the end"),
    ],
)
def test_no_report_is_an_error_with_the_reason(stage: MakeStage, script: str, message: str) -> None:
    burn = stage(script)
    with pytest.raises(BurnerError, match=message):
        run(burn.burn())
    assert list(burn.report.parent.iterdir()) == []


def test_an_interpreter_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    burner = ProcessBurner(host=HostName("h1"), config=BurnerConfig(python=str(tmp_path / "none")))
    with pytest.raises(BurnerError, match="No such file"):
        run(burner.burn(order(), tmp_path / "r.json"))


def test_a_folder_that_cannot_be_made_is_an_error(stage: MakeStage) -> None:
    burn = stage("sys.exit(0)")
    burn.report.parent.write_text("a file")
    with pytest.raises(BurnerError, match="leaves no report"):
        run(burn.burn())


def test_an_old_half_report_is_not_taken_for_this_ones(stage: MakeStage) -> None:
    burn = stage("sys.exit(0)")
    burn.report.parent.mkdir()
    (burn.report.parent / ".r.json.part").write_text("{}")
    with pytest.raises(BurnerError, match="left no report"):
        run(burn.burn())


def test_past_the_deadline_it_is_ended_and_so_is_its_group_when_it_does_not_listen(stage: MakeStage) -> None:
    script = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
print("stuck in test gemm.exact", file=sys.stderr, flush=True)
started(child.pid)
for_ever()
"""
    burn = stage(script, deadline_seconds=DEADLINE_S)

    async def case() -> None:
        task = asyncio.create_task(burn.burn())
        pids = await burn.started()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Hasty)
        loop.ahead_s = DEADLINE_S
        with pytest.raises(BurnerError, match=r"ended after 120 s; it said: stuck in test gemm\.exact"):
            await task
        for pid in pids:
            await gone(pid)

    run(case())


def test_a_cancelled_burn_lets_the_burnin_end_by_itself(stage: MakeStage) -> None:
    burn = stage(
        "signal.signal(signal.SIGTERM, lambda *_: ((folder / 'bye').touch(), sys.exit(3)))\nstarted()\nfor_ever()"
    )

    async def case() -> None:
        task = asyncio.create_task(burn.burn())
        (pid,) = await burn.started()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 60.0)
        await gone(pid)
        assert (burn.folder / "bye").exists()
        assert not burn.report.exists()

    run(case())


def test_a_descendant_that_holds_standard_error_does_not_hold_the_agent(stage: MakeStage) -> None:
    script = """
child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
(folder / "child").write_text(str(child.pid))
report.write_text("{}")
"""
    burn = stage(script)

    async def case() -> None:
        await burn.burn()

    run(case())
    assert burn.report.exists()
    os.kill(int((burn.folder / "child").read_text()), signal.SIGKILL)


def test_killing_the_agent_leaves_no_burnin(stage: MakeStage) -> None:
    burn = stage("started()\nfor_ever()")
    agent = f"""
import asyncio, sys
from pathlib import Path
from fleetd.burner import BurnerConfig, ProcessBurner
from fleetd.model.order import RunBurnin
burner = ProcessBurner(host="h1", config=BurnerConfig(python={str(burn.folder / "python")!r}))
order = RunBurnin(id="o", host="h1", issued_at_s=0.0, why="w", level="smoke", boot_id="b", not_after_s=1e12)
asyncio.run(burner.burn(order, Path({str(burn.report)!r})))
"""
    process = subprocess.Popen([sys.executable, "-c", agent])

    async def case() -> None:
        (pid,) = await burn.started()
        process.kill()
        await gone(pid)

    try:
        run(case())
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"inject": "gpu=1,fault=F03"}, "inject: needs backend: sim"),
        ({"gpus": 0}, "gpus: 0"),
        ({"deadline_seconds": 0.0}, "deadline_seconds"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BurnerConfig(**config)
