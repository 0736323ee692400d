"""`python -m burnin.guard parity|bisect`."""

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch

from burnin import surprise
from burnin.guard.hashes import Hasher, LateError
from burnin.guard.parity import LOSS_RELATIVE, NE_ABSOLUTE, RunError, compare, read_run
from burnin.guard.saved import bisect, builder, load_step
from burnin.spec import ExitCode, SpecError

_JSON = click.option("--json", "json_path", help="Write the result; - is standard output.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Compare training runs, and find the operation at which a step's replays part."""


@command.command("parity")
@click.argument("one", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path))
@click.option("--loss", type=float, default=LOSS_RELATIVE, show_default=True, help="Greatest relative difference.")
@click.option("--ne", type=float, default=NE_ABSOLUTE, show_default=True, help="Greatest difference.")
@_JSON
def parity_command(*, one: Path, other: Path, loss: float, ne: float, json_path: str | None) -> int:
    """Compare the losses and normalised entropies of two runs (JSON lines).

    Exit codes: 0 alike, 1 not, 2 usage, 3 cannot be compared.
    """
    for name, most in (("loss", loss), ("ne", ne)):
        _check_number(name, most)
    if json_path is not None and Path(json_path).resolve() in {one.resolve(), other.resolve()}:
        raise SpecError(f"--json {json_path}: is one of the runs; name another file")
    found = compare(_run(one), _run(other), loss=loss, ne=ne)
    said = "identical" if found.identical else f"first difference at step {found.first_difference}"
    click.echo(f"{'parity' if found.ok else 'NO parity'}: {found.why}; {said}", err=json_path == "-")
    numbers = {
        name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in asdict(found).items()
    }
    _write(json_path, numbers)  # JSON has no NaN
    return int(ExitCode.GOOD if found.ok else ExitCode.BAD)


@command.command("bisect")
@click.argument("step", type=click.Path(path_type=Path))
@click.option("--build", "reference", required=True, help="What makes (model, step): package.module:function.")
@click.option("--device", "names", multiple=True, help="cuda:0, cpu …; twice to compare two, once for two runs on it.")
@click.option(
    "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Runs to compare with the first."
)
@click.option("--deadline", "deadline_s", type=float, default=60.0, show_default=True, help="Seconds for one result.")
@_JSON
def bisect_command(
    *, step: Path, reference: str, names: tuple[str, ...], runs: int, deadline_s: float, json_path: str | None
) -> int:
    """Replay a saved step operation by operation and name the first that differs.

    Exit codes: 0 none differs, 1 one does, 2 usage, 3 not judged.
    """
    devices = _devices(names)
    _check_number("deadline", deadline_s)
    if json_path is not None and Path(json_path).resolve() == step.resolve():
        raise SpecError(f"--json {json_path}: is the saved step; name another file")
    sys.path.append(str(Path.cwd()))  # the program that the user trains with
    hasher = Hasher(monotonic=time.monotonic, deadline_s=deadline_s)  # noqa: TID251 - the composition root of a command
    split, count = bisect(load_step(step), builder(reference), devices, hasher, runs=runs)
    where = f"{devices[0]} and {devices[1]}" if devices[0] != devices[1] else f"runs on {devices[0]}"
    if not count:
        raise RunError("the step ran no operation")
    told = f"{where}: {count} operations alike"
    if split is not None:
        told = f"{where} part at operation {split.index} of {count}, {split.name} ({split.shapes}): {split.why}"
    click.echo(told, err=json_path == "-")
    _write(json_path, {"operations": count, "split": None if split is None else asdict(split)})
    return int(ExitCode.GOOD if split is None else ExitCode.BAD)


def _devices(names: tuple[str, ...]) -> tuple[torch.device, torch.device]:
    given = names or ("cuda:0" if torch.cuda.is_available() else "cpu",)
    if len(given) > 2:  # noqa: PLR2004 - two are compared
        raise SpecError("--device: two devices are compared, not more")
    try:
        found = [torch.device(name) for name in given]
    except RuntimeError as error:
        raise SpecError(f"--device: {str(error).splitlines()[0]:.100}") from None
    for one in found:
        if one.type not in {"cpu", "cuda"} or (one.type == "cpu" and one.index):
            raise SpecError(f"--device {one}: steps are replayed on cpu and cuda:N")
        if one.type == "cuda" and (one.index or 0) >= torch.cuda.device_count():
            raise SpecError(f"--device {one}: there are {torch.cuda.device_count()} such devices")
    return found[0], found[-1]


def _check_number(name: str, value: float) -> None:
    if not 0 <= value < math.inf:  # also what is no number
        raise SpecError(f"--{name} {value:g}: give a number, 0 or more")


def _run(path: Path) -> Any:
    try:
        with path.open(encoding="utf-8") as lines:
            return read_run(lines, str(path))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise RunError(f"{path}: cannot be read ({why}); give a file of JSON lines") from None


def _write(path: str | None, body: dict[str, Any]) -> None:
    if path is None:
        return
    text = json.dumps(body, indent=2) + "\n"
    try:
        sys.stdout.write(text) if path == "-" else Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"--json {path}: cannot be written ({error.strerror}); name a file of yours") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a mistake ends in one line on standard error. Returns the exit code."""
    try:
        code = command.main(args=arguments, prog_name="guard", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return int(ExitCode.USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), ExitCode.USAGE)
    except SpecError as error:
        return _fail(str(error), ExitCode.USAGE)
    except (RunError, LateError) as error:
        return _fail(str(error), ExitCode.NOT_JUDGED)
    except click.Abort:
        return _fail("stopped", ExitCode.NOT_JUDGED)
    return int(code or ExitCode.GOOD)


def _fail(why: str, code: ExitCode) -> int:
    click.echo(f"guard: {' '.join(why.split())}", err=True)
    return int(code)


if __name__ == "__main__":
    surprise.expect("guard")
    sys.exit(main())
