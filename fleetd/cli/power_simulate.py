"""`fleetd power simulate`: a power trace under an envelope, window by window."""

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.power_plot import draw
from fleetd.config import ConfigError
from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.config.power_trace import read_trace
from fleetd.core.power.checker import Trace
from fleetd.core.power.energy import Energy, from_counter
from fleetd.core.power.judge import Judged, judge_trace
from fleetd.model.envelope import Envelope

SCHEMA = "fleetd.power.simulate/1"
SPARKS = " ▁▂▃▄▅▆▇█"
SPARK_CHARS = 72


@click.command(name="simulate")
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--envelope", "-e", required=True, metavar="E", help="A shipped envelope's name, or a file.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw it into this .png or .html (needs matplotlib).")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@click.pass_context
def simulate_command(ctx: click.Context, trace: Path, envelope: str, plot: Path | None, json_path: str | None) -> None:
    """Judge the power in TRACE by every window of an envelope, at every offset.

    TRACE is CSV with the columns `at_s,watts`: each line holds until the next, the last one only ends the trace.

    Exit codes: 0 the envelope was kept, 1 it was broken, 2 a file cannot be used, 3 the trace is shorter than every
    window. Ratios are to the whole allowance, without the margin.
    """
    try:
        limits = read_envelope(envelope_path(envelope)).envelope
        power = read_trace(trace)
    except ConfigError as error:
        raise Failure(str(error)) from None
    if not limits.enforced:
        raise Failure(f"{limits.name}: no row of it binds, so there is nothing to judge by", exit_code=BAD)
    judged = judge_trace(limits, power)
    energy = from_counter(0.0, power.joules[-1], resolution_joules=0.0, gain_error=limits.margin.sensor_gain)
    assert energy is not None  # noqa: S101 - a trace's energy does not fall
    seen = [j for j in judged if j.worst is not None]
    exit_code = CANNOT_JUDGE if not seen else BAD if any(j.broken for j in judged) else 0
    if plot is not None:
        draw(plot, limits, power, judged)
    if not write_json(json_path, _body(trace, limits, power, judged, energy, exit_code=exit_code)):
        _show(limits, power, judged, energy)
    if exit_code == CANNOT_JUDGE:
        raise Failure(f"{trace}: {power.duration_s:g} s is shorter than every window of {limits.name}", exit_code=3)
    ctx.exit(exit_code)


def _body(
    path: Path, limits: Envelope, power: Trace, judged: list[Judged], energy: Energy, *, exit_code: int
) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "file": str(path),
        "exit_code": exit_code,
        "envelope": limits.name,
        "duration_s": power.duration_s,
        "energy_joules": energy.joules,
        "energy_error_joules": energy.error_joules,
        "windows": [
            {
                "window_s": j.window_s,
                "label": j.label,
                "row": j.row,
                "semantics": j.semantics.value,
                "worst_ratio": j.worst and j.worst.ratio,
                "worst_watts": j.worst and j.worst.watts,
                "at_s": j.worst and j.worst.at_s,
                "resolved": j.resolved,
                "broken": None if j.worst is None else j.broken,
            }
            for j in judged
        ],
    }


def sparkline(power: Trace, chars: int = SPARK_CHARS) -> str:
    """Draw the highest power of each piece of the time, 0 to the highest of all."""
    highest = [0.0] * chars
    for number, watts in enumerate(power.watts):
        first = min(chars - 1, int(power.edges_s[number] / power.duration_s * chars))
        last = min(chars - 1, int(power.edges_s[number + 1] / power.duration_s * chars - 1e-9))
        for at in range(first, max(first, last) + 1):
            highest[at] = max(highest[at], watts)
    top = max(highest) or 1.0
    return "".join(SPARKS[round(watts / top * (len(SPARKS) - 1))] for watts in highest)


def _show(limits: Envelope, power: Trace, judged: list[Judged], energy: Energy) -> None:
    console = Console(highlight=False)
    console.print(f"{limits.name}: {limits.part}, {limits.tbp_watts:g} W; trace of {power.duration_s:g} s")
    console.print(Text(sparkline(power)), f"highest {max(power.watts):g} W\n")
    table = Table("window", "row", "worst ratio", "W", "at s", "", box=None, pad_edge=False)
    for j in judged:
        if j.worst is None:
            table.add_row(j.label, j.row or "", "-", "-", "-", Text("not judged: the trace is shorter"))
            continue
        inside = j.worst.ratio <= 1 - limits.margin.total
        says = ("broken", "red") if j.broken else ("kept", "green") if inside else ("kept, in the margin", "yellow")
        if not j.resolved and not j.broken:
            says = ("not seen: the lines are further apart", "yellow")
        numbers = (f"{j.worst.ratio:.4f}", f"{j.worst.watts:.1f}", f"{j.worst.at_s:.6g}")
        table.add_row(j.label, j.row or "", *numbers, Text(says[0], style=says[1]))
    console.print(table)
    gain = limits.margin.sensor_gain
    console.print(f"\nenergy: {energy.joules:.6g} J ± {energy.error_joules:.3g} J, with a sensor right to {gain:.1%}")
