"""The slow forms of the power acceptance tests, and its figures: `python -m tests.bench.bench_power`.

A2: hostile loads on two parts, a thousand scenarios of a minute at 20 µs, judged at every window and offset; memory is
that of one chunk of scenarios and one block of time. A4, A6 and A8: the numbers, as JSON and as a picture.
"""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import click
import numpy as np

from fleetd.config.plants import Plant
from fleetd.core.power.buckets import Bucket
from fleetd.core.power.checker import TOLERANCE, check_buckets, log_spaced
from fleetd.core.power.compiler import compile_envelope
from fleetd.sim.audit import BucketAudit, WindowAudit, window_steps
from fleetd.sim.plant import duty_cycle
from tests.power.rigs_power import (
    FLAT,
    PLANTS,
    PUBLISHED_GAIN,
    STEEP,
    buckets,
    gain_curve,
    guarded,
    hostile,
    module,
    oracle_hertz,
    static_pair,
)

BLOCK_S = 0.1
WINDOWS = 60
FILL_JOULES = 1e-9
"""Rounding of a bucket's level."""
DUTIES = (0.2, 0.3, 0.5, 0.6, 0.8, 1.0)
PERIODS_S = (1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2)
KERNEL_S = 300e-6


def chunk(part: str, seed: int, scenarios: int, seconds: float) -> dict[str, Any]:
    """Run and judge some scenarios of A2."""
    plant, envelope, compiled = PLANTS[part], module(), compile_envelope(module())
    load = hostile(np.random.default_rng(seed), scenarios, seconds)
    steps = window_steps(envelope, plant.step_s, WINDOWS)
    windows = WindowAudit(envelope, step_s=plant.step_s, steps=steps, scenarios=scenarios)
    fills = BucketAudit(compiled.buckets, step_s=plant.step_s, scenarios=scenarios)
    for block in guarded(plant, compiled.buckets).blocks(load, scenarios=scenarios, seconds=seconds, block_s=BLOCK_S):
        windows.push(block.power_watts)
        fills.push(block.power_watts)
    broken = (windows.ratio > 1 + TOLERANCE).any(axis=0) | (fills.excess_joules > FILL_JOULES).any(axis=0)
    return {
        "part": part, "seed": seed, "scenarios": scenarios, "violations": int(broken.sum()),
        "worst_ratio": float(windows.ratio.max()), "worst_excess_joules": float(fills.excess_joules.max()),
    }  # fmt: skip


def safety(scenarios: int, seconds: float, size: int, workers: int) -> dict[str, Any]:
    """A2, in chunks over processes; says how fast it goes and how long it still takes."""
    whole, left = divmod(scenarios, size)
    sizes = [size] * whole + ([left] if left else [])
    began, done, found = time.monotonic(), 0, []
    with ProcessPoolExecutor(workers) as pool:
        parts = (STEEP.name, FLAT.name)
        asked = [pool.submit(chunk, parts[n % 2], n, count, seconds) for n, count in enumerate(sizes)]
        for future in as_completed(asked):
            found.append(future.result())
            done += found[-1]["scenarios"]
            took = time.monotonic() - began
            rate, worst = done * seconds / took, max(f["worst_ratio"] for f in found)
            broken = sum(f["violations"] for f in found)
            click.echo(
                f"A2: {done}/{scenarios} scenarios, {broken} violations, worst {worst:.6f}, "
                f"{rate:.0f} scenario-seconds/s, {(scenarios - done) * seconds / rate:.0f} s left",
                err=True,
            )
    # All windows, not only the sixty: what the power keeps to is nowhere above the envelope.
    above = check_buckets(module(), compile_envelope(module()), log_spaced(STEEP.step_s, 100.0, 5000)).ratio
    return {
        "scenarios": scenarios, "seconds": seconds, "violations": sum(f["violations"] for f in found),
        "worst_ratio": max(f["worst_ratio"] for f in found), "buckets_to_envelope": above, "chunks": found,
    }  # fmt: skip


def surface(plant: Plant, held: tuple[Bucket, ...]) -> list[dict[str, float]]:
    """Boost of each duty: to the base clock, to the run at 100 % duty, and to an oracle that knows the future."""
    load = duty_cycle(np.array(DUTIES), np.full(len(DUTIES), KERNEL_S), low=plant.activity_low)
    trace = guarded(plant, held).run(load, scenarios=len(DUTIES), seconds=1.0)
    clock = trace.busy_clock_hertz(after_s=0.3)
    points = []
    for duty, hertz in zip(DUTIES, clock, strict=True):
        ideal = oracle_hertz(
            plant.chip, duty=duty, low=plant.activity_low, watts=held[-1].rate_watts,
            low_clock_hertz=plant.chip.clock_min_hertz,
        )  # fmt: skip
        points.append(
            {
                "duty": duty,
                "to_base_clock": float(hertz) / plant.chip.clock_base_hertz,
                "to_back_to_back": float(hertz / clock[-1]),
                "to_oracle": float(hertz) / ideal,
            }
        )
    return points


def figures() -> Iterator[tuple[str, Any]]:
    """A4, A6 and A8."""
    for plant in (STEEP, FLAT):
        yield f"a04_{plant.name}", surface(plant, buckets())
        static = max(surface(plant, static_pair(plant)), key=lambda point: point["to_base_clock"])
        yield f"a04_static_{plant.name}", {key: static[key] for key in ("duty", "to_base_clock")}
    points = []
    for period in PERIODS_S:
        load = duty_cycle(np.array([0.5, 1.0]), np.full(2, KERNEL_S), low=STEEP.activity_low)
        trace = guarded(STEEP, buckets(), period_s=period).run(load, scenarios=2, seconds=1.2)
        clock = trace.busy_clock_hertz(after_s=0.3)
        to_base = float(clock[0]) / STEEP.chip.clock_base_hertz
        points.append({"loop_s": period, "to_base_clock": to_base, "to_back_to_back": float(clock[0] / clock[1])})
    yield "a06", points
    yield "a08", {"published_gain": PUBLISHED_GAIN, "points": gain_curve(STEEP, buckets())}


def draw(path: Path, curve: list[dict[str, float]]) -> None:
    """The A8 curve with the published range marked (needs matplotlib)."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - only for the picture

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.axhspan(
        *((gain - 1) * 100 for gain in PUBLISHED_GAIN), alpha=0.25, color="tab:orange", label="published, 3 to 6 %"
    )
    axes.plot([p["gemm_share"] for p in curve], [(p["gain"] - 1) * 100 for p in curve], "o-", label=STEEP.name)
    axes.set(
        xlabel="GEMM share of a step at the base clock", ylabel="end-to-end gain (%)", xlim=(0, 0.52), ylim=(0, None)
    )
    axes.set_title("Training steps of DLRM-like phases, simulated")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


@click.command()
@click.option("--scenarios", default=1000, show_default=True, help="Of A2; 0: none.")
@click.option("--seconds", default=60.0, show_default=True, help="Of each.")
@click.option("--chunk", "size", default=125, show_default=True, help="Scenarios at once in a process; about 0.3 GiB.")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the numbers go.")
@click.option("--png", type=click.Path(path_type=Path), help="Where the A8 curve goes.")
def main(*, scenarios: int, seconds: float, size: int, workers: int, json_path: Path | None, png: Path | None) -> None:
    """Run it all; exit code 1 if an envelope was broken."""
    body = dict(figures())
    for name, found in body.items():
        click.echo(f"{name} {json.dumps(found)}")
    if png is not None:
        draw(png, body["a08"]["points"])
    if scenarios:
        body["a02"] = safety(scenarios, seconds, size, workers)
        told = {key: value for key, value in body["a02"].items() if key != "chunks"}
        click.echo(f"a02 {json.dumps(told)}")
    if json_path is not None:
        json_path.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    sys.exit(
        1 if scenarios and (body["a02"]["violations"] or body["a02"]["buckets_to_envelope"] > 1 + TOLERANCE) else 0
    )


if __name__ == "__main__":
    main()
