"""`fleetd power tune`: the set-point that serves a job best, found on a simulated part and stored."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, TimeRemainingColumn
from rich.table import Table

from fleetd.cli.failure import BAD, Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.power_options import Number, same_part, writable
from fleetd.config import ConfigError
from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.config.plants import load_plants
from fleetd.config.setpoint import store_setpoint
from fleetd.core.power.compiler import Infeasible, compile_envelope
from fleetd.core.power.setpoint import SetPoint, envelope_sha256
from fleetd.core.power.tune import Candidate, Evaluate, Rung, Trial, Work, candidates, halving
from fleetd.model.envelope import Envelope
from fleetd.sim.duty import MOST_SAMPLES
from fleetd.sim.plant import Loop
from fleetd.sim.trials import SETTLE, Trials
from fleetd.system import RealClock

SCHEMA = "fleetd.power.tune/1"
MIX = ((0.3, 300e-6, 0.2), (0.5, 300e-6, 0.3), (0.5, 5e-3, 0.3), (0.8, 20e-3, 0.2))
"""Duty, burst and weight of a job of which nothing is said: short and long bursts, sparse and dense."""
DAY_S = 86400.0


@click.command(name="tune")
@click.option("--envelope", "-e", default="mi350x-module", show_default=True, help="Shipped envelope or a file.")
@click.option("--part", default="mi350x-steep", show_default=True, help="Simulated part.")
@click.option("--firmware", required=True, help="Of the part; under another the set-point lapses.")
@click.option("--phase", "phases", type=(float, float, float), multiple=True, metavar="DUTY SECONDS WEIGHT",
              help="A kind of phase: share in the burst, its length, share of the job. Repeatable.")  # fmt: skip
@click.option("--seconds", type=Number(0.01, 60), default=1.2, show_default=True, help="Of the last trials.")
@click.option("--rungs", type=click.IntRange(1, 6), default=3, show_default=True, help="Rounds of halving.")
@click.option("--days", type=Number(0.001, 3650), default=30, show_default=True,
              help="Until the set-point expires.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed, the same search.")
@click.option("--store", type=click.Path(path_type=Path, dir_okay=False), help="Where the set-point is stored.")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
def tune_command(
    *, envelope: str, part: str, firmware: str, phases: tuple[tuple[float, float, float], ...], seconds: float,
    rungs: int, days: float, seed: int, store: Path | None, json_path: str | None,
) -> None:  # fmt: skip
    """Find the set-point under which a job's bursts end soonest. Nothing is set: it is a simulated part.

    Tried are bucket depths, limits and clock caps. No candidate goes on that broke the envelope less its margin.

    Exit codes: 0 found, 1 no candidate keeps the envelope, 2 usage.
    """
    if not firmware.strip() or not firmware.isprintable():
        raise Failure(f"--firmware {firmware!r:.80} names none: name the one that the part runs, as it tells it")
    writable("--json", json_path)
    writable("--store", store, replaced=True)
    limits, trials = _asked(envelope, part, phases, seed)
    _fits(trials, seconds=seconds, rungs=rungs)
    tried = candidates(limits, base_hertz=trials.chip.clock_base_hertz)
    found: list[Rung] = []
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns()[:-1], TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            found.extend(halving(tried, _watched(trials, bar), envelope=limits, seconds=seconds, rungs=rungs))
    except Infeasible as error:
        raise Failure(f"{envelope}: {error}", exit_code=BAD) from None
    except ValueError as error:
        raise Failure(f"--seconds {seconds:g}: {error}") from None
    kept = found[-1].kept
    point = None if not kept else _point(kept[0], limits, firmware=firmware, seed=seed, days=days)
    if point is not None and store is not None:
        try:
            store_setpoint(store, point)
        except ConfigError as error:
            raise Failure(f"{error}; give --store a path that can be written") from None
    if not write_json(json_path, _body(found, point, trials.works)) and point is not None:
        _show(found, point)
    if point is None:
        raise Failure(f"no candidate keeps {limits.name} less its margin", exit_code=BAD)


def _asked(name: str, part: str, phases: Sequence[tuple[float, float, float]], seed: int) -> tuple[Envelope, Trials]:
    plants = load_plants()
    if part not in plants:
        raise Failure(f"--part {part}: no such simulated part; there are {', '.join(sorted(plants))}")
    plant = plants[part]
    try:
        limits = read_envelope(envelope_path(name)).envelope
        compile_envelope(limits)
    except ConfigError as error:
        raise Failure(str(error)) from None
    except Infeasible as error:
        raise Failure(f"{name}: {error}", exit_code=BAD) from None
    same_part(plant, limits)
    try:
        works = [Work(duty=duty, kernel_s=kernel, weight=weight) for duty, kernel, weight in phases or MIX]
    except ValueError as error:
        raise Failure(f"--phase: {error}") from None
    loop = Loop(period_s=plant.period_s, dead_s=plant.dead_s, step_s=plant.step_s)
    trials = Trials(chip=plant.chip, loop=loop, envelope=limits, works=works, low=plant.activity_low, seed=seed)
    return limits, trials


def _fits(trials: Trials, *, seconds: float, rungs: int) -> None:
    """Refuse phases that a trial could not show, and trials that memory could not hold. Raises Failure."""
    shortest = seconds / 2 ** (rungs - 1)
    for work in trials.works:
        what = f"--phase {work.duty:g} {work.kernel_s:g} {work.weight:g}"
        if work.kernel_s < trials.loop.step_s:
            raise Failure(f"{what}: a burst is simulated in steps of {trials.loop.step_s:g} s; ask for a longer one")
        if work.kernel_s / work.duty > (1 - SETTLE) * shortest:
            raise Failure(
                f"{what}: a cycle of {work.kernel_s / work.duty:g} s does not fit into the first trials of "
                f"{shortest:g} s; raise --seconds or lower --rungs"
            )
    if trials.samples(seconds) > MOST_SAMPLES:
        raise Failure(
            f"--seconds, --phase: {trials.samples(seconds):.1g} simulated samples a trial are more than the "
            f"{MOST_SAMPLES:.0e} that fit; ask for shorter trials or fewer phases"
        )


def _watched(trials: Trials, bar: Progress) -> Evaluate:
    """Trials with progress on a terminal, and one JSON line each on a pipe."""

    def evaluate(of: Sequence[Candidate], seconds: float) -> list[Trial]:
        task, done = bar.add_task(f"{len(of)} candidates, {seconds:g} s each", total=len(of)), []
        for trial in trials.run(of, seconds):
            done.append(trial)
            bar.advance(task)
            if not bar.console.is_terminal:
                bar.console.file.write(json.dumps({"event": "trial", **_trial(trial)}) + "\n")
        return done

    return evaluate


def _point(trial: Trial, limits: Envelope, *, firmware: str, seed: int, days: float) -> SetPoint:
    now_s = RealClock().wall_s()
    return SetPoint(
        candidate=trial.candidate,
        envelope=limits.name,
        envelope_sha256=envelope_sha256(limits),
        part=limits.part,
        firmware=firmware,
        speedup=trial.speedup,
        worst_ratio=trial.worst_ratio,
        seed=seed,
        tuned_at_s=now_s,
        expires_at_s=now_s + days * DAY_S,
    )


def _trial(trial: Trial) -> dict[str, Any]:
    body = asdict(trial)
    candidate: dict[str, Any] = body.pop("candidate")
    return candidate | body


def _body(rungs: list[Rung], point: SetPoint | None, works: Sequence[Work]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "exit_code": BAD if point is None else 0,
        "phases": [asdict(work) for work in works],
        "set_point": point and asdict(point),
        "rungs": [
            {
                "seconds": rung.seconds,
                "trials": [_trial(trial) for trial in rung.trials],
                "broken": len(rung.broken),
                "kept": len(rung.kept),
            }
            for rung in rungs
        ],
    }


def _show(rungs: list[Rung], point: SetPoint) -> None:
    console = Console(highlight=False)
    for rung in rungs:
        console.print(
            f"{len(rung.trials)} candidates, {rung.seconds:g} s each: {len(rung.broken)} broke the envelope, "
            f"{len(rung.kept)} went on"
        )
    table = Table(
        "profile", "sigma", "raw limit W", "clock cap MHz", "speed-up", "worst ratio", box=None, pad_edge=False
    )
    for trial in rungs[-1].kept:
        of = trial.candidate
        cap = "-" if of.clock_cap_hertz is None else f"{of.clock_cap_hertz / 1e6:.0f}"
        raw = "-" if of.raw_watts is None else f"{of.raw_watts:.0f}"
        table.add_row(of.profile, f"{of.sigma:g}", raw, cap, f"{trial.speedup:.3f}", f"{trial.worst_ratio:.4f}")
    console.print(table)
    console.print(
        f"\nset-point for {point.part}, firmware {point.firmware}, under {point.envelope}: "
        f"bursts {point.speedup:.3f} times as fast as at the base clock (simulated)"
    )
