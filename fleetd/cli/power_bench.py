"""`fleetd power bench`: the duty-cycle benchmark. Load in burn-in, or a simulated part; judgement here."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import Progress, TimeRemainingColumn

from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.power_heat import draw_html, draw_png, show
from fleetd.cli.power_options import Number, same_part, writable
from fleetd.compose.load import run_load
from fleetd.config import ConfigError
from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.config.limited import load_limited
from fleetd.config.plants import load_plants
from fleetd.core.power.compiler import Infeasible, compile_envelope
from fleetd.core.power.duty import Burst, boosts, interval
from fleetd.core.power.limiter import LimitedPart
from fleetd.model.envelope import Envelope, Margin
from fleetd.ports import BurnerError
from fleetd.sim.duty import MOST_SAMPLES, LimitedBench, SimBench, SimPoint
from fleetd.sim.plant import Loop
from fleetd.system import RealClock

SCHEMA = "fleetd.power.bench/1"
DUTY = (0.3, 0.5, 0.7, 0.85)
KERNEL_S = {
    "sim": (100e-6, 300e-6, 1e-3, 5e-3, 20e-3, 100e-3),
    "cuda": (50e-6, 200e-6, 1e-3, 5e-3, 20e-3, 50e-3, 100e-3),
    "cpu": (2e-3, 10e-3),
}
SOAK_S = {"cuda": 20.0, "cpu": 0.5}
SECONDS = {"cuda": 1.0, "cpu": 0.15}
ENERGY_S = {"cuda": 60.0, "cpu": 0.0}
_GUARD = {"envelope": "--envelope", "margin": "--margin", "loop_s": "--loop"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The options, as given."""

    backend: str
    duty: tuple[float, ...]
    kernel_s: tuple[float, ...]
    low: str
    repeats: int
    seed: int
    part: str
    envelope: str
    margin: bool
    loop_s: float | None
    device: int
    seconds: float | None
    guard_options: tuple[str, ...]
    """Those given that only mean something under fleetd's guard."""

    @property
    def points(self) -> list[tuple[float, float]]:
        """(duty, kernel_s), kernels outermost."""
        return [(duty, kernel) for kernel in self.kernel_s for duty in self.duty]


@click.command(name="bench")
@click.option("--backend", type=click.Choice(["sim", "cuda", "cpu"]), default="sim", show_default=True,
              help="A simulated part, a GPU (torch), or a miniature of one on the CPU.")  # fmt: skip
@click.option(
    "--duty", type=Number(0, 1, min_open=True), multiple=True, help="Share of a period in the burst; repeatable."
)
@click.option("--kernel", "kernel_s", type=Number(1e-6, 1), multiple=True, help="Seconds of a burst; repeatable.")
@click.option("--low", type=click.Choice(["sleep", "vector", "copy", "collective"]), default="sleep", show_default=True,
              help="What runs between the bursts (cuda, cpu).")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1, 100), default=5, show_default=True,
              help="Measurements of each point.")  # fmt: skip
@click.option("--seconds", type=Number(0.05, 60), help="Of one measurement: 1 (cuda), 0.15 (cpu).")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the order and the noise.")
@click.option(
    "--part", default="mi350x-steep", show_default=True, help="Simulated part (sim); h200 runs under its own limiter."
)
@click.option("--envelope", "-e", default="mi350x-module", show_default=True, help="Shipped envelope or a file (sim).")
@click.option("--margin/--no-margin", default=False, show_default=True, help="Take the envelope's margin off (sim).")
@click.option(
    "--loop", "loop_s", type=Number(2e-5, 0.1), help="Loop period in seconds (sim); by default the part's own."
)
@click.option(
    "--device", type=click.IntRange(0), default=0, show_default=True, help="GPU among those torch sees (cuda)."
)
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write a page with the heat map.")
@click.option("--png", "png_path", type=click.Path(path_type=Path), help="Write the heat map (needs matplotlib).")
@click.pass_context
def bench_command(
    ctx: click.Context, /, json_path: str | None, html_path: Path | None, png_path: Path | None, **options: Any
) -> None:
    """Measure how much faster bursts run than the same work back to back, over duty and burst length.

    A GPU is read, never set. Boost 1.20: the bursts run 1.20 times as fast as at 100 % duty under the same limit.

    Exit codes: 0 measured, 1 the envelope was broken or a setting changed, 2 usage, 3 nothing could be measured.
    """
    backend = options["backend"]
    options["duty"] = options["duty"] or DUTY
    options["kernel_s"] = options["kernel_s"] or KERNEL_S[backend]
    given = [name for name in _GUARD if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    for option, path in (("--json", json_path), ("--html", html_path), ("--png", png_path)):
        writable(option, path)
    asked = _Asked(**options, guard_options=tuple(_GUARD[name] for name in given))
    body = _sim(asked) if backend == "sim" else _real(asked)
    if not body["points"]:
        write_json(json_path, body)
        raise Failure("no point could be measured: " + "; ".join(body["skipped"]), exit_code=CANNOT_JUDGE)
    for path, write in ((html_path, draw_html), (png_path, draw_png)):
        if path is not None:
            write(path, body)
    if not write_json(json_path, body):
        show(body)
    if body["problems"]:
        click.echo("\n".join(f"power bench: {problem}" for problem in body["problems"]), err=True)
    ctx.exit(BAD if body["problems"] else 0)


# ── simulated ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _sim(asked: _Asked) -> dict[str, Any]:
    plants, limited = load_plants(), load_limited()
    if asked.part == limited.name:
        return _limited(asked, limited)
    if asked.part not in plants:
        raise Failure(
            f"--part {asked.part}: no such simulated part; there are {', '.join(sorted([*plants, limited.name]))}"
        )
    plant = plants[asked.part]
    envelope = _envelope(asked)
    same_part(plant, envelope)
    if min(asked.kernel_s) < plant.step_s:  # no step would lie in a burst, and the boost of no burst is no number
        short = f"--kernel {min(asked.kernel_s):g}: {plant.name} is simulated in steps of {plant.step_s:g} s"
        raise Failure(f"{short}; ask for longer bursts")
    try:
        loop = Loop(period_s=asked.loop_s or plant.period_s, dead_s=plant.dead_s, step_s=plant.step_s)
        buckets = compile_envelope(envelope).buckets
    except Infeasible as error:
        raise Failure(f"{asked.envelope}: {error}", exit_code=BAD) from None
    except ValueError as error:
        raise Failure(f"--loop: {error}") from None
    duty, kernel = zip(*asked.points, strict=True)
    bench = SimBench(
        chip=plant.chip, envelope=envelope, buckets=buckets, loop=loop, low=plant.activity_low,
        duty=duty, kernel_s=kernel, repeats=asked.repeats, seed=asked.seed,
    )  # fmt: skip
    found = _run(bench)
    body = _body(asked, _simulated(asked, found), part=asked.part)
    body |= {"envelope": envelope.name, "margin_ratio": envelope.margin.total}
    body["simulated_seconds"] = bench.seconds * len(found)
    broken = sum(p.violations or 0 for p in found)
    if broken:
        body["problems"].append(f"{broken} windows broke {envelope.name}")
    return body


def _limited(asked: _Asked, part: LimitedPart) -> dict[str, Any]:
    """A part under its vendor's own limiter: nothing of fleetd's guards it, so there is no envelope to break."""
    if asked.guard_options:
        options = " and ".join(asked.guard_options)
        raise Failure(f"{options}: {part.name} runs under its vendor's own limiter, without an envelope; leave it out")
    duty, kernel = zip(*asked.points, strict=True)
    bench = LimitedBench(part=part, duty=duty, kernel_s=kernel, repeats=asked.repeats, seed=asked.seed)
    found = _run(bench)
    body = _body(asked, _simulated(asked, found), part=part.name) | {"envelope": None, "margin_ratio": None}
    body["simulated_seconds"] = bench.seconds * len(found)
    return body


def _run(bench: SimBench | LimitedBench) -> list[SimPoint]:
    if bench.samples > MOST_SAMPLES:
        raise Failure(
            f"--kernel, --duty, --repeats: {bench.samples:.1g} simulated samples are more than the {MOST_SAMPLES:.0e} "
            "that fit; ask for shorter bursts, more duty or fewer repeats"
        )
    return bench.run()


def _simulated(asked: _Asked, found: list[SimPoint]) -> list[dict[str, Any]]:
    bursts = [Burst(repeat=p.repeat, point=p.point, rate=p.rate) for p in found]
    points = []
    for index, values in boosts(bursts).items():
        of = [p for p in found if p.point == index]
        counts = [p.violations for p in of if p.violations is not None]
        extra = {
            "power_watts": _mean([p.power_watts for p in of]),
            "clock_hertz": _mean([p.clock_hertz for p in of]),
            "violations": sum(counts) if counts else None,
        }
        points.append(_point(asked.points[index], values) | extra)
    return points


def _envelope(asked: _Asked) -> Envelope:
    try:
        envelope = read_envelope(envelope_path(asked.envelope)).envelope
    except ConfigError as error:
        raise Failure(str(error)) from None
    return envelope if asked.margin else replace(envelope, margin=Margin())


# ── real ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _real(asked: _Asked) -> dict[str, Any]:
    seconds = asked.seconds or SECONDS[asked.backend]
    plan = {
        "points": [{"duty": duty, "kernel_s": kernel, "low": asked.low} for duty, kernel in asked.points],
        "repeats": asked.repeats, "seconds": seconds, "seed": asked.seed,
        "soak_s": SOAK_S[asked.backend], "energy_s": ENERGY_S[asked.backend],
    }  # fmt: skip
    lines: list[dict[str, Any]] = []
    try:
        for line in _watched(run_load(plan, backend=asked.backend, device=asked.device)):
            lines.append(line)  # noqa: PERF402 - what came before an error is told with it
    except BurnerError as error:
        raise Failure(str(error), exit_code=CANNOT_JUDGE) from None
    device = next((line for line in lines if line["event"] == "device"), {})
    body = _body(asked, _measured(asked, lines), part=str(device.get("part")))
    body |= {key: device.get(key) for key in ("gpu", "driver", "torch")}
    body["skipped"] = sorted({str(line["why"]) for line in lines if line["event"] == "skipped"})
    body["energy"] = next((line["energy"] for line in lines if line["event"] == "energy"), None)
    settings = [line["settings"] for line in lines if line["event"] == "settings"]
    body["settings"] = settings[0] if settings else {}
    if len(settings) != 2 or settings[0] != settings[1]:  # noqa: PLR2004 - before and after
        body["problems"].append(f"settings before and after differ: {settings}")
    return body


def _measured(asked: _Asked, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [line for line in lines if line["event"] == "measured"]
    bursts = [Burst(**{key: line[key] for key in ("repeat", "point", "rate", "work", "limited")}) for line in found]
    points = []
    for index, values in sorted(boosts(bursts).items()):
        of = [line for line in found if line["point"] == index and not line["limited"]]
        extra = {name: _mean([line[name] for line in of]) for name in ("power_watts", "clock_hertz")}
        extra["power_max_watts"] = max((line["power_max_watts"] or 0.0 for line in of), default=None)
        extra["duty_measured"] = _mean([line["duty"] for line in of])
        extra["temperature_celsius"] = _mean([line["temperature_celsius"] for line in of])
        extra["discarded"] = sum(1 for line in found if line["point"] == index and line["limited"])
        points.append(_point(asked.points[index], values) | extra | {"violations": None})
    return points


def _watched(lines: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Show progress on a terminal, and one JSON line a measurement on a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        for line in lines:
            if line["event"] in {"measured", "skipped"}:
                console.file.write(json.dumps(line) + "\n")
            yield line
        return
    with Progress(*Progress.get_default_columns()[:-1], TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("soaking", total=None)
        for line in lines:
            if line["event"] == "plan":
                bar.update(task, total=line["measurements"])
            if line["event"] == "measured":
                watts = f"{line['power_watts']:.0f} W" if line["power_watts"] else ""
                bar.update(task, advance=1, description=f"measuring {watts}")
            yield line


# ── both ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _body(asked: _Asked, points: list[dict[str, Any]], *, part: str) -> dict[str, Any]:
    best = max(points, key=lambda point: point["boost"], default=None)
    return {
        "schema": SCHEMA, "backend": asked.backend, "part": part, "at_s": RealClock().wall_s(),
        "seed": asked.seed, "repeats": asked.repeats, "low": asked.low, "points": points, "best": best,
        "skipped": [], "problems": [],
    }  # fmt: skip


def _point(point: tuple[float, float], values: list[float]) -> dict[str, Any]:
    duty, kernel = point
    found = interval(values)
    assert found is not None  # noqa: S101 - `boosts` has no empty lists
    sure = found.count > 1
    return {
        "duty": duty, "period_s": kernel / duty, "kernel_s": kernel, "boost": found.mean,
        "boost_low": found.low if sure else None, "boost_high": found.high if sure else None, "repeats": found.count,
    }  # fmt: skip


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
