"""What `gemm.vote` costs for each dtype, step by step, and how near to the power limit it holds a GPU.

    python tests/bench/bench_gemm_dtypes.py --json dtypes.json            # every dtype, stage by stage; power; variants
    python tests/bench/bench_gemm_dtypes.py --case int8 --no-sweep --no-power

Every block does the launches of one ballot, several times over; the blocks of a round run in random order, and each is
compared with the plain block of its round. Blocks are timed from outside, the host's work included. Each stage adds to
the one before:

    plain    the library's product, nothing else
    serial   + a checksum of every output, one after the other
    loop     poisoned outputs, checksums beside the launches, sums read back: `burnin.workloads.launches.launch_all`
    loop3    the same with three outputs in turn
    inputs   loop + new inputs
    ballot   the whole ballot of `burnin.workloads.gemm`
    answer   + the message to the parent process: what a run does

Nothing of the GPU is set. What is measured so far is written after every case.
"""
# ruff: noqa: T201 - a script prints its result

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from burnin.checksum import tile_count, tile_sums_into
from burnin.load.sensors import Sensors, watching
from burnin.processes.wire import encode
from burnin.processes.wire import plain as as_message
from burnin.tests import TESTS
from burnin.workloads import Context
from burnin.workloads.gemm import GemmVote
from burnin.workloads.launches import Lanes, launch_all, strict_math
from burnin.workloads.plans import Plan, arch_of_device, multiplier, vote_plans

STAGES = ("plain", "serial", "loop", "loop3", "inputs", "ballot", "answer")
ROUNDS_MIN = 3
"""Fewer say nothing about the spread."""
RING_S = 2.0
"""The driver keeps a little more of the power samples."""


class HalfPlan(Plan):
    """A product whose sums are stored as bf16: half the bytes to check, and small errors are rounded away."""

    @property
    def output(self) -> torch.dtype:
        return torch.bfloat16

    @property
    def name(self) -> str:
        return f"{super().name} to bf16"


class OneVote(GemmVote):
    """`gemm.vote` with a single product."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def _plans(self, ctx: Context) -> tuple[Plan, ...]:
        del ctx
        return (self.plan,)


@dataclass(slots=True)
class Rig:
    """One product, and the blocks that measure it."""

    ctx: Context
    plan: Plan
    launches: int
    measured_s: list[float] = field(default_factory=list)
    """What the ballots say of themselves."""

    def blocks(self) -> dict[str, Callable[[int], None]]:
        """Stage → block; its argument is a seed."""
        ctx, plan, vote = self.ctx, self.plan, OneVote(self.plan)
        (case,) = vote.cases(ctx)
        a, bt = vote._operands(ctx, plan, 1)
        out = torch.empty(plan.m, plan.n, dtype=plan.output, device=ctx.device)
        sums = torch.zeros(self.launches, tile_count(out), dtype=torch.int64, device=ctx.device)
        lanes, three = Lanes(ctx.device), Lanes(ctx.device, outputs=3)

        def plain(_seed: int) -> None:
            multiply = multiplier(plan, a, bt)
            for _ in range(self.launches):
                multiply(out)

        def serial(seed: int) -> None:
            multiply = multiplier(plan, a, bt)
            for number in range(self.launches):
                multiply(out)
                tile_sums_into(sums[number], out, seed)

        def series(seed: int, where: Lanes, left: torch.Tensor, right: torch.Tensor) -> None:
            multiply = multiplier(plan, left, right)
            launch_all(ctx, multiply, lambda _: False, out, launches=self.launches, seed=seed, lanes=where)

        def ballot(seed: int) -> Any:
            cast = vote.ballot(ctx, case, iteration=0, seed=seed, launches=self.launches)
            self.measured_s.append(cast.elapsed_s)
            return cast

        blocks: dict[str, Callable[[int], Any]] = {
            "plain": plain,
            "serial": serial,
            "loop": lambda seed: series(seed, lanes, a, bt),
            "loop3": lambda seed: series(seed, three, a, bt),
            "inputs": lambda seed: series(seed, lanes, *vote._operands(ctx, plan, seed)),
            "ballot": ballot,
            "answer": lambda seed: encode({"ballot": as_message(ballot(seed))}),
        }
        return blocks

    def timed(self, block: Callable[[int], None], seeds: Sequence[int]) -> float:
        """Seconds a ballot, the host's work included."""
        settle(self.ctx.device)
        began = time.perf_counter()
        with strict_math(tf32=self.plan.dtype == "tf32"):
            for seed in seeds:
                block(seed)
        settle(self.ctx.device)
        return (time.perf_counter() - began) / len(seeds)


def settle(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(rig: Rig, stages: Sequence[str], *, rounds: int, block_s: float, limit_s: float) -> dict[str, Any]:
    """Ratios to the plain product by stage, paired by round, and what a stage adds to a ballot."""
    work = {name: block for name, block in rig.blocks().items() if name in stages}
    rng = random.Random(rig.plan.name)  # noqa: S311 - an order, no secret
    for block in work.values():
        rig.timed(block, [1])  # compiles, allocates
    once_s = rig.timed(work["plain"], [1])
    repeats = max(1, round(block_s / once_s))
    rounds = max(ROUNDS_MIN, min(rounds, int(limit_s / (once_s * repeats * len(work)))))
    took: dict[str, list[float]] = {name: [] for name in work}
    rig.measured_s.clear()
    for number in range(rounds):
        for name in rng.sample(list(work), len(work)):
            took[name].append(rig.timed(work[name], [1000 * number + again for again in range(repeats)]))
    plain_s = statistics.median(took["plain"])
    own_s = statistics.median(rig.measured_s) if rig.measured_s else None
    return {
        "case": rig.plan.name,
        "launches": rig.launches,
        "repeats": repeats,
        "rounds": rounds,
        "plain_flops_per_second": rig.plan.flops * rig.launches / plain_s,
        "plain_launch_seconds": plain_s / rig.launches,
        "ratio_to_plain": {name: spread(took["plain"], values) for name, values in took.items() if name != "plain"},
        "added_milliseconds_a_ballot": {
            name: 1e3 * statistics.median([s - p for s, p in zip(values, took["plain"], strict=True)])
            for name, values in took.items()
        },
        "rate_a_ballot_reports_to_plain": plain_s / own_s if own_s else None,
    }


def spread(plain: list[float], other: list[float]) -> dict[str, float]:
    """Median and quartiles of the paired ratios."""
    low, median, high = statistics.quantiles([p / o for p, o in zip(plain, other, strict=True)], n=4)
    return {"median": median, "quartile_low": low, "quartile_high": high}


def held_watts(rig: Rig, sensors: Sensors, seconds: float) -> float | None:
    """Mean power over the last two seconds of ballots that run back to back."""
    answer = rig.blocks()["answer"]
    spent = 0.0
    while spent < seconds - RING_S:
        spent += rig.timed(answer, [int(1e6 * spent)])
    with watching(sensors) as samples:
        while spent < seconds:
            spent += rig.timed(answer, [int(1e6 * spent)])
    return statistics.fmean(watts for _, watts in samples) if samples else None


def variants(plans: Sequence[Plan], launches: int) -> list[tuple[Plan, int]]:
    """Other shapes, outputs and numbers of launches than those of the suite: (product, launches)."""
    found: list[tuple[Plan, int]] = []
    for plan in plans:
        half = HalfPlan(**{name: getattr(plan, name) for name in Plan.__dataclass_fields__})
        match plan.dtype:
            case "bf16":
                found += [(plan, 20), (plan, 2 * launches), (replace(plan, k=2 * plan.k), launches)]
            case "tf32":
                found += [(plan, 20)]
            case "int8":
                found += [(plan, 20), (replace(plan, k=8192), launches), (replace(plan, k=16384), launches)]
            case "fp8e4m3" | "fp8e4m3fnuz":
                found += [(plan, 20), (replace(plan, k=8192), launches), (replace(plan, k=16384), launches)]
                found += [(half, launches), (replace(half, k=16384), launches)]
            case "fp8e5m2" | "fp8e5m2fnuz":
                found += [(plan, 20), (replace(plan, k=14336), launches)]
            case "fp64":
                found += [(replace(plan, k=2048), launches), (replace(plan, m=4096, k=4096, n=4096), launches)]
            case _:
                pass
    return found


def first_of_each(plans: tuple[Plan, ...]) -> list[Plan]:
    """The first plan of each dtype: the largest."""
    return list({plan.dtype: plan for plan in reversed(plans)}.values())[::-1]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda", help="cpu: to try this script")
    parser.add_argument("--case", action="append", default=[], help="part of a case's name; repeatable (default: all)")
    parser.add_argument("--launches", type=int, help="of a ballot (default: the suite's)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--block", type=float, default=0.2, help="seconds of a block")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of a case, unless three rounds take longer")
    parser.add_argument("--deadline", type=float, default=200.0, help="seconds after which no further case is begun")
    parser.add_argument("--power", action=argparse.BooleanOptionalAction, default=True, help="bf16 and fp16 for 8 s")
    parser.add_argument("--sweep", action=argparse.BooleanOptionalAction, default=True, help="measure variants, too")
    parser.add_argument("--json", default="-", help="where to write (default: standard output)")
    return parser.parse_args()


def main() -> int:
    """Measure and write one JSON object."""
    args = arguments()
    if args.backend == "cuda" and not torch.cuda.is_available():
        print("bench_gemm_dtypes: no GPU", file=sys.stderr)
        return 3
    device = torch.device("cuda", 0) if args.backend == "cuda" else torch.device("cpu")
    ctx = Context(backend=args.backend, device=device, inject=None, alive=lambda: None)
    sensors = Sensors(f"GPU-{torch.cuda.get_device_properties(0).uuid}" if args.backend == "cuda" else "")
    launches = args.launches or TESTS["gemm.vote"].efforts[args.backend].launches
    plans = [p for p in first_of_each(vote_plans(ctx.backend, device)) if not args.case or match(p, args.case)]
    report: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name() if args.backend == "cuda" else "cpu",
        "arch": arch_of_device(device).name,
        "driver": sensors.driver(),
        "torch": torch.__version__,
        "stages": [],
        "held_watts": {},
        "variants": [],
        "skipped": [],
        "settings": sensors.settings(),
    }
    began = time.perf_counter()
    todo: list[tuple[str, Plan, int]] = [("stages", plan, launches) for plan in plans]
    todo += [("held_watts", plan, launches) for plan in plans if plan.dtype in {"bf16", "fp16"} and args.power]
    todo += [("variants", plan, number) for plan, number in variants(plans, launches) if args.sweep]
    for kind, plan, number in todo:
        if time.perf_counter() - began > args.deadline:
            report["skipped"].append(f"{kind} {plan.name} x {number}")
            continue
        rig = Rig(ctx, plan, number)
        if kind == "held_watts":
            report[kind][plan.name] = held_watts(rig, sensors, 8.0)
        else:
            stages = STAGES if kind == "stages" else ("plain", "answer")
            found = measure(rig, stages, rounds=args.rounds, block_s=args.block, limit_s=args.limit)
            report[kind].append(found)
            print(line(found), file=sys.stderr, flush=True)
        report["settings_kept"] = report["settings"] == sensors.settings()
        if args.json != "-":
            Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.json == "-":
        print(json.dumps(report, indent=1))
    return 0


def match(plan: Plan, parts: Sequence[str]) -> bool:
    """Whether the name of the case has one of the parts."""
    return any(part in plan.name for part in parts)


def line(found: dict[str, Any]) -> str:
    """One case for a person: ratio and added milliseconds by stage."""
    stages = "  ".join(
        f"{name} {one['median']:.3f} (+{found['added_milliseconds_a_ballot'][name]:.2f} ms)"
        for name, one in found["ratio_to_plain"].items()
    )
    rate = found["plain_flops_per_second"] / 1e12
    each = 1e3 * found["plain_launch_seconds"]
    return f"{found['case']} x {found['launches']}: {rate:.0f} TFLOP/s, {each:.3f} ms a launch;  {stages}"


if __name__ == "__main__":
    sys.exit(main())
