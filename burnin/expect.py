"""`expect`: prints how fast a healthy part must be at a product or a collective, and what bounds it. Torch-free."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from burnin.parts.part import Part, Verified
from burnin.parts.shelf import load
from burnin.roofline.collective import ExpectedCollective, expect_collective
from burnin.roofline.gemm import Expected, expect
from burnin.roofline.kernels import Gemm
from burnin.spec import ExitCode, SpecError
from burnin.telling.streams import divert, forgiving
from burnin.telling.write import check_writable, write

SCHEMA = "fleetd.burnin.expect/1"
"""Value of `schema` in the JSON; the number grows when a consumer would have to change."""
STDOUT = Path("-")
SIZE = re.compile(r"(\d+)\s*(|B|kB|KB|KiB|MB|MiB|GB|GiB)")
UNITS = {"": 1, "B": 1, "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
OUTPUT_BYTES = {"fp64": 8, "bf16": 2, "fp16": 2}
"""Of one element of a result, as training has it; 4 for the others."""


@click.command("expect")
@click.option("--part", "part_name", required=True, help="Such as h200; an unknown one lists those there are.")
@click.option("--gemm", help="A product, MxNxK.")
@click.option("--dtype", default="bf16", show_default=True, help="Of its operands; fp8 is the part's first format.")
@click.option("--data", default="normal", show_default=True, help="Kind of operand values: what they draw differs.")
@click.option("--watts", type=float, help="Power limit in watts; the part's own if not given.")
@click.option("--cold", is_flag=True, help="Operands come from memory, not from caches that the last product filled.")
@click.option("--collective", help="all_reduce, reduce_scatter, all_gather, broadcast or all_to_all.")
@click.option("--bytes", "size", help="Size of the collective, such as 256MiB.")
@click.option("--gpus", type=int, help="How many GPUs of one host take part.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write JSON; - is standard output.")
def expect_command(**given: Any) -> int:
    """Print the expected rate of a healthy part, and what bounds it.

    Exit codes: 0 printed, 2 usage, or nothing is known of the part.
    """
    json_path: Path | None = given["json_path"]
    if json_path is not None and json_path != STDOUT:
        try:
            check_writable(json_path)
        except OSError as error:
            raise SpecError(f"--json {json_path}: cannot be written ({error.strerror or error})") from None
    part = load(given["part_name"])
    if (given["gemm"] is None) == (given["collective"] is None):
        raise SpecError("say what is expected: either --gemm MxNxK or --collective NAME --bytes SIZE --gpus N")
    product = _product(part, given) if given["gemm"] is not None else None
    transfer = None if product is not None else _collective(part, given)
    lines = _gemm_lines(part, product) if product is not None else _collective_lines(part, transfer)
    if json_path is not None:
        _write(json_path, _report(part, product or transfer))
    people = sys.stderr if json_path == STDOUT else sys.stdout
    print("\n".join(lines), file=forgiving(people))
    return int(ExitCode.GOOD)


def _product(part: Part, given: dict[str, Any]) -> Expected:
    m, n, k = shape_of(given["gemm"])
    dtype = given["dtype"]
    if dtype == "fp8":
        dtype = next((name for name in part.flops_per_clock if name.startswith("fp8")), dtype)
    watts = given["watts"]
    if watts is not None and not 0 < watts < float("inf"):
        raise SpecError(f"--watts {watts}: a power limit is above zero")
    gemm = Gemm(m=m, n=n, k=k, dtype=dtype, output_bytes=OUTPUT_BYTES.get(dtype, 4))
    return expect(part, gemm, limit_watts=watts, data=given["data"], warm=not given["cold"])


def _collective(part: Part, given: dict[str, Any]) -> ExpectedCollective:
    if given["size"] is None or given["gpus"] is None:
        raise SpecError("--collective needs --bytes SIZE and --gpus N")
    return expect_collective(part, given["collective"], size_bytes=bytes_of(given["size"]), gpus=given["gpus"])


def shape_of(text: str) -> tuple[int, int, int]:
    """(m, n, k) of `4096x14336x4096`. Raises SpecError."""
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):  # noqa: PLR2004 - MxNxK
        raise SpecError(f"--gemm {text!r}: three sizes are wanted, MxNxK, such as 4096x14336x4096")
    m, n, k = (int(part[:9]) for part in parts)
    return m, n, k


def bytes_of(text: str) -> int:
    """Bytes of `256MiB`. Raises SpecError."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise SpecError(f"--bytes {text!r}: a size is a number and one of {', '.join(unit for unit in UNITS if unit)}")
    return int(found[1][:18]) * UNITS[found[2]]


def _gemm_lines(part: Part, told: Expected) -> Sequence[str]:
    lines = [f"{part.title}: {_rate(told.flops_per_second)} in {_time(told.seconds)}, bound by {told.bound}"]
    if told.watts is not None:
        lines[0] += f", drawing {told.watts:.0f} W"
    lines += [f"  {_rate(step.flops_per_second):>16}  {step.what}" for step in told.steps]
    each = ", ".join(f"{name} {_time(seconds)}" for name, seconds in told.seconds_by.items() if seconds > 0)
    trust = _trust(part.fitted.verified if part.fitted else None, told.unknown, part)
    return (*lines, f"  alone: {each}", *trust, *_score(part))


def _collective_lines(part: Part, told: ExpectedCollective | None) -> Sequence[str]:
    assert told is not None  # noqa: S101 - one of the two was asked for
    bus = f"{told.bus_bytes_per_second / 1e9:.1f} of {told.links_bytes_per_second / 1e9:.0f} GB/s on the links"
    first = f"{part.title} x {told.gpus}: {told.operation} of {told.size_bytes} bytes at "
    first += f"{told.bytes_per_second / 1e9:.1f} GB/s in {_time(told.seconds)} ({bus}), bound by {told.bound}"
    each = ", ".join(f"{name} {_time(seconds)}" for name, seconds in told.seconds_by.items())
    fit = part.peer_fitted
    return (first, f"  by algorithm: {each}", *_trust(fit.verified if fit else None, told.unknown, part))


def _trust(verified: Verified | None, unknown: Sequence[str], part: Part) -> Sequence[str]:
    """On what the numbers rest."""
    missing = [f"  left out, as nobody measured it: {', '.join(unknown)}"] if unknown else []
    if verified is None:
        return (f"  a ceiling: nothing was measured on {part.title}; no GPU is judged by it", *missing)
    where = f"{verified.date}, driver {verified.driver}, torch {verified.torch}"
    return (f"  fitted to {verified.points} measurements of {where}", *missing)


def _score(part: Part) -> Sequence[str]:
    """How far the expected rates of products can be believed."""
    if part.fitted is None:
        return ()
    if part.fitted.error_p90 is None:
        return ("  never scored on shapes that the fit did not see; no GPU is judged by it",)
    return (f"  wrong by up to {100 * part.fitted.error_p90:.0f} % in nine of ten shapes that the fit did not see",)


def _report(part: Part, told: Expected | ExpectedCollective | None) -> dict[str, Any]:
    assert told is not None  # noqa: S101 - one of the two was asked for
    fit = part.fitted if isinstance(told, Expected) else part.peer_fitted
    return {
        "schema": SCHEMA,
        "kind": "gemm" if isinstance(told, Expected) else "collective",
        "ceiling": bool(told.unknown),
        "verified": asdict(fit.verified) if fit is not None else None,
        "expected": asdict(told),
    }


def _write(path: Path, report: dict[str, Any]) -> None:
    """Raises SpecError when it cannot be written."""
    text = json.dumps(report, indent=2) + "\n"
    try:
        if path == STDOUT:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            write(path, text)
    except OSError as error:
        if path == STDOUT:
            divert(sys.stdout)
        raise SpecError(f"--json {path}: cannot be written ({error.strerror or error})") from None


def _rate(flops_per_second: float) -> str:
    for scale, unit in ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s")):
        if flops_per_second >= scale:
            return f"{flops_per_second / scale:.3g} {unit}"
    return f"{flops_per_second:.3g} FLOP/s"


def _time(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
