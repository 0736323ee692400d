"""The command line that the examples share."""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from burnin import surprise
from burnin.examples.gang import KINDS, VICTIM, WORLD, Job, run_job
from burnin.examples.models import Task
from burnin.spec import ExitCode, FaultClass

SCHEMA = "fleetd.guard.example/1"
HARDWARE = frozenset({FaultClass.CHIP_PERSISTENT, FaultClass.CHIP_TRANSIENT, FaultClass.MEMORY, FaultClass.LINK})


def main(name: str, task: Callable[[int], Task]) -> None:
    """Run an example and exit: 0 none or software, 1 a hardware class, 2 usage, 3 not judged."""

    @click.command(name=name, context_settings={"help_option_names": ["-h", "--help"]})
    @click.option("--inject", type=click.Choice(["none", *KINDS]), default="none", show_default=True)
    @click.option("--json", "json_path", help="Write the verdict; - is standard output.")
    @click.option("--log", type=click.Path(path_type=Path), help="Write step, loss and entropy as JSON lines.")
    @click.option("--shape", type=click.Choice(["ddp", "fsdp2"]), default="ddp", show_default=True)
    @click.option("--steps", type=click.IntRange(min=1), default=25, show_default=True)
    @click.option("--seed", type=int, default=1, show_default=True)
    @click.option("--guard/--no-guard", "guarded", default=True, help="Train with or without the guard.")
    @click.option("--deadline", "deadline_s", type=float, default=120.0, show_default=True, help="Seconds.")
    def command(*, inject: str, json_path: str | None, seed: int, **given: Any) -> None:
        logging.basicConfig(level=logging.ERROR)
        job = Job(task=task(seed), inject=inject, seed=seed, **given)
        if inject != "none":
            where = "all ranks" if inject == "software" else f"rank {VICTIM}"
            click.echo(f"{name}: INJECTING {KINDS[inject]} on {where}: a demonstration, not a verdict", err=True)
        report = run_job(job)
        verdict = verdict_of(report)
        people = json_path == "-"
        click.echo(f"{name}: verdict {verdict['verdict']}, culprit {verdict['culprit']}: {verdict['why']}", err=people)
        if report is not None:
            click.echo(report["text"], err=people)
        _write(name, json_path, {**verdict, "schema": SCHEMA, "inject": inject, "report": report and report["guard"]})
        sys.exit(int(verdict["exit_code"]))

    surprise.expect(name)
    command()


def verdict_of(report: dict[str, Any] | None) -> dict[str, Any]:
    """Return verdict (a fault class; None: not judged), culprit, why and the exit code."""
    guard = None if report is None else report["guard"]
    if guard is None or (not guard["verified_steps"] and not guard["findings"]):
        why = "no step was verified" if report is not None else f"one of {WORLD} ranks failed or was late"
        return {"verdict": None, "culprit": None, "why": why, "exit_code": int(ExitCode.NOT_JUDGED)}
    if not guard["findings"]:
        why = f"{guard['verified_steps']} steps verified"
        return {"verdict": str(FaultClass.NONE), "culprit": None, "why": why, "exit_code": int(ExitCode.GOOD)}
    first = guard["findings"][0]
    rank = first["rank"]
    culprit = None if rank is None else {"rank": rank, "gpu": first["gpu"] or f"cpu-{rank}"}
    code = ExitCode.BAD if first["fault_class"] in HARDWARE else ExitCode.GOOD
    return {"verdict": first["fault_class"], "culprit": culprit, "why": first["why"], "exit_code": int(code)}


def _write(name: str, path: str | None, body: dict[str, Any]) -> None:
    if path is None:
        return
    text = json.dumps(body, indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        click.echo(f"{name}: --json {path}: cannot be written ({error.strerror}); name a file of yours", err=True)
        sys.exit(int(ExitCode.NOT_JUDGED))
