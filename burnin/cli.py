"""The command line of burn-in, and the only place where it reads real time and draws entropy."""

import importlib
import importlib.util
import multiprocessing
import os
import platform
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from burnin import like, schema
from burnin.checkpoint import forget, seed_of
from burnin.expect import expect_command
from burnin.ground import CannotJudgeError
from burnin.levels import IDLE
from burnin.levels import LEVELS as ALL_LEVELS
from burnin.load.drive import drive
from burnin.options import SEED_LIMIT, Options, check, parse_devices, parse_inject, parse_seconds
from burnin.planning import fills, seconds_of
from burnin.run import run
from burnin.spec import ExitCode, SpecError
from burnin.stop import Stop
from burnin.telling.junit import to_junit
from burnin.telling.page import to_html
from burnin.telling.progress import open_progress
from burnin.telling.report import build, summary, to_json
from burnin.telling.streams import divert, forgiving, mend
from burnin.telling.write import check_writable, write
from burnin.tests import BACKENDS, LEVELS, TESTS, chosen

NO_TORCH = "torch is not installed: install it with the burnin extra (pip install 'fleetd[burnin]')"
STDOUT = Path("-")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Burn GPUs in: find silent data corruption by vote and golden, and name the bad GPU."""


@command.command("run")
@click.option("--backend", default="auto", show_default=True, help=f"auto, {', '.join(BACKENDS)}.")
@click.option("--devices", help="Indexes or ids, separated by commas; all if not given.")
@click.option("--gpus", type=int, help="How many GPUs (cuda: the first; sim: 8 if not given; cpu: 1).")
@click.option("--level", default="smoke", show_default=True, help=f"{', '.join(ALL_LEVELS)}.")
@click.option("--for", "time", help="How long, in place of the level's time: 90s, 30m, 4h, 2d.")
@click.option("--like", "like_path", type=click.Path(path_type=Path), help="Repeat what failed in this JSON report.")
@click.option("--resume", type=click.Path(path_type=Path), help="Note here how far it is; go on from what is there.")
@click.option("--exposure", type=click.Path(path_type=Path), help="Add up here how long each GPU was tested by what.")
@click.option("--test", "tests", multiple=True, help="In place of the level's tests: see `burnin list`; repeatable.")
@click.option("--seed", type=int, help="Repeat a run; fresh entropy if not given.")
@click.option("--inject", "injects", multiple=True, help="Plant a fault: gpu=5,fault=F03[,rate=0.01][,seed=7].")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the report; - is standard output.")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write a page for people.")
@click.option("--junit", "junit_path", type=click.Path(path_type=Path), help="Write JUnit XML.")
@click.option("--retention", type=float, default=0.0, help="Seconds that memory must hold data, in --test hbm.")
@click.option("--host", help="Name of this host in ids and reports; the kernel's if not given.")
@click.option("--force", is_flag=True, help="Run on GPUs that other processes use.")
def run_command(**given: Any) -> int:
    """Burn in the GPUs of this host, side by side; nothing is set.

    Exit codes: 0 every GPU passed; 1 a GPU or the host is bad, which is named; 2 usage; 3 not judged.
    """
    outputs = {name: given.pop(f"{name}_path") for name in ("json", "html", "junit")}
    options = _options(**given)
    _check_outputs(outputs, kept=(options.resume, options.exposure))
    if importlib.util.find_spec("torch") is None:
        raise CannotJudgeError(NO_TORCH)
    stop = Stop()
    stop.install()
    seconds = seconds_of(options) if fills(options, "cuda" if options.backend == "auto" else options.backend) else None
    progress = open_progress(
        forgiving(sys.stderr),
        monotonic=time.monotonic,  # noqa: TID251 - burn-in's composition root
        seconds=seconds,
    )
    try:
        result = run(
            options,
            stop=stop,
            progress=progress,
            monotonic=time.monotonic,  # noqa: TID251
            wall=time.time,  # noqa: TID251
            announce=lambda: _announce(options),
        )
    finally:
        progress.close()
    report = build(result)
    texts = {"json": to_json, "html": to_html, "junit": to_junit}
    code = _write(outputs, {name: texts[name](report) for name, path in outputs.items() if path is not None}, report)
    if not stop.asked and options.resume is not None and code == report["exit_code"]:
        forget(options.resume)
    people = sys.stderr if STDOUT in outputs.values() else sys.stdout
    print("\n".join(summary(report)), file=forgiving(people))
    stop.done()
    if multiprocessing.active_children():  # stuck in a driver: it cannot be ended and must not be waited for
        sys.stderr.flush()
        os._exit(code)
    return code


def _options(
    *, backend: str, devices: str | None, gpus: int | None, level: str, tests: tuple[str, ...], seed: int | None,
    injects: tuple[str, ...], host: str | None, force: bool, retention: float, time: str | None,
    like_path: Path | None, resume: Path | None, exposure: Path | None,
) -> Options:  # fmt: skip
    """What the user asked for, checked as far as it can be without starting anything. Raises SpecError."""
    chosen(level, tests)
    earlier = seed_of(resume) if resume is not None and seed is None else seed
    fresh = secrets.randbelow(SEED_LIMIT) if earlier is None else earlier
    options = Options(
        backend=backend,
        level=level,
        seed=fresh,
        host=platform.node() or "localhost" if host is None else host,
        tests=tests,
        gpus=gpus,
        devices=parse_devices(devices) if devices is not None else (),
        inject=tuple(parse_inject(text, seed=max(fresh, 0)) for text in injects),
        force=force,
        retention_s=retention,
        seconds=parse_seconds(time) if time is not None else None,
        like=like.read(like_path, TESTS) if like_path is not None else (),
        resume=resume,
        exposure=exposure,
    )
    check(options)
    for name, path in (("resume", resume), ("exposure", exposure)):
        if path is not None:
            _check_output(name, path)
    return options


def _announce(options: Options) -> None:
    """Say what makes this run repeatable, and loudly what makes it no real one."""
    for one in options.inject:
        planted = f"fault {one.fault} on GPU {one.gpu} at rate {one.rate:g}"
        _say(f"burnin: INJECTING {planted}: what follows is a demonstration, not a verdict")
    _say(f"burnin: level {options.level}, seed {options.seed}")


def _check_outputs(outputs: dict[str, Path | None], *, kept: tuple[Path | None, ...] = ()) -> None:
    """Find out now, not after the run, what cannot be written, or would be over what else is. Raises SpecError."""
    asked = [path if path == STDOUT else os.path.realpath(path) for path in outputs.values() if path is not None]
    asked += [os.path.realpath(path) for path in kept if path is not None]
    if len(set(asked)) < len(asked):
        others = ", --junit, --resume and --exposure" if kept else " and --junit"
        raise SpecError(f"two of --json, --html{others} name the same file")
    for name, path in outputs.items():
        if path is not None and path != STDOUT:
            _check_output(name, path)


def _check_output(name: str, path: Path) -> None:
    try:
        check_writable(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise SpecError(f"--{name} {path}: cannot be written ({why}); name a file in a folder of yours") from None


def _write(outputs: dict[str, Path | None], texts: dict[str, str], report: dict[str, Any]) -> int:
    """Write what was asked for; a report that finds no place goes to standard error, and the run counts as unjudged."""
    code, told = int(report["exit_code"]), False
    for name, text in texts.items():
        path = outputs[name]
        try:
            if path == STDOUT:
                sys.stdout.write(text)
                sys.stdout.flush()
            elif path is not None:
                write(path, text)
        except OSError as error:
            if not told:  # once, however many files find no place
                _say(to_json(report))
            told = True
            _say(f"burnin: --{name} {path}: {error.strerror}; the report is above")
            if path == STDOUT:
                divert(sys.stdout)
            code = int(ExitCode.NOT_JUDGED)
    return code


@command.command("load")
@click.option("--backend", type=click.Choice(["cuda", "cpu"]), required=True, help="What computes.")
@click.option("--device", type=int, default=0, show_default=True, help="Index of the GPU among those that torch sees.")
def load_command(*, backend: str, device: int) -> int:
    """Put a duty-cycle load on one device: a JSON plan on standard input, JSON lines out (`fleetd power bench`)."""
    from burnin.load.plan import parse  # noqa: PLC0415 - the other commands need none of it

    plan = parse(sys.stdin.read())
    if importlib.util.find_spec("torch") is None:
        raise CannotJudgeError(NO_TORCH)
    from burnin.load.machines import open_machine  # noqa: PLC0415 - torch

    stop = Stop()
    stop.install()
    machine = open_machine(backend, ordinal=device, seed=plan.seed, stdout=sys.stdout)
    finished = drive(plan, machine, out=sys.stdout, stop=stop)
    return int(ExitCode.GOOD if finished else ExitCode.NOT_JUDGED)


@command.command("list")
def list_command() -> None:
    """List the tests: levels, backends and what each one does."""
    for declaration in TESTS.values():
        first = next(level for level in LEVELS if level in declaration.levels)
        idle = ", idle" if IDLE in declaration.levels else ""
        click.echo(f"{declaration.id:16} {f'{first}{idle}':14} {','.join(declaration.efforts):13} {declaration.what}")
    click.echo("\nA test is in the level that is named and in all longer ones:")
    for level in ALL_LEVELS.values():
        click.echo(f"{level.name:16} {level.seconds:7.0f} s  {level.what}")


@command.command("coverage")
@click.option("--quick", is_flag=True, help="A few trials of each fault (about a minute), not hundreds.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the report; - is standard output.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same report.")
@click.option("--level", default="quick", show_default=True, help=f"{' or '.join(LEVELS)}.")
@click.option("--without", multiple=True, help="Leave out a test or cases, such as sfu or gemm.exact/fp8*; repeatable.")
def coverage_command(*, quick: bool, json_path: Path | None, seed: int, level: str, without: tuple[str, ...]) -> int:
    """Plant every known fault on simulated GPUs: and tell who detects it.

    Exit codes: 0 the targets are met, 1 one is missed, 2 usage, 3 not judged.
    """
    _check_outputs({"json": json_path})
    if importlib.util.find_spec("torch") is None:
        raise CannotJudgeError(NO_TORCH)
    coverage, show = (importlib.import_module(f"burnin.coverage.{name}") for name in ("run", "show"))
    people = forgiving(sys.stderr if json_path == STDOUT else sys.stdout)
    report = coverage.measure(
        coverage.Asked(seed=seed, quick=quick, level=level, without=without), tick=show.ticker(forgiving(sys.stderr))
    )
    code = _write({"json": json_path}, {"json": to_json(report)} if json_path is not None else {}, report)
    show.table(report, people)
    print("\n".join(show.lines(report)), file=people)
    return code


@command.command("schema")
def schema_command() -> None:
    """Print the JSON Schema (draft 2020-12) of the report that `run --json` writes."""
    click.echo(schema.text(), nl=False)


command.add_command(expect_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a mistake ends in one line on standard error. Returns the exit code."""
    mend()
    try:
        code = command.main(args=arguments, prog_name="burnin", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        _say(error.format_message())
        return int(ExitCode.USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), ExitCode.USAGE)
    except SpecError as error:
        return _fail(str(error), ExitCode.USAGE)
    except CannotJudgeError as error:
        return _fail(str(error), ExitCode.NOT_JUDGED)
    except click.Abort:
        return _fail("stopped", ExitCode.NOT_JUDGED)
    return int(code or ExitCode.GOOD)


def _fail(why: str, code: ExitCode) -> int:
    _say(f"burnin: {' '.join(why.split())}")
    return int(code)


def _say(text: str) -> None:
    print(text, file=forgiving(sys.stderr))
