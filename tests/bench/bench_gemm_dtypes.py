"""What `gemm.vote` costs for each dtype, and how near to the power limit it holds a GPU.

    python tests/bench/bench_gemm_dtypes.py --json dtypes.json

A plain block launches the library's product; a checked block is a ballot of the suite, inputs and checksums included.
The blocks of a round run in random order, each pair makes one ratio. Then the ballots of bf16 and fp16 run back to back
and the power is read meanwhile (nothing of the GPU is set).
"""
# ruff: noqa: T201 - a script prints its result

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from burnin.load.sensors import Sensors
from burnin.spec import Case
from burnin.workloads import Context
from burnin.workloads.gemm import GemmVote
from burnin.workloads.launches import strict_math
from burnin.workloads.plans import Plan, multiplier, vote_plans


def first_of_each(plans: tuple[Plan, ...]) -> list[Plan]:
    """The first plan of each dtype: the large cube."""
    return list({plan.dtype: plan for plan in reversed(plans)}.values())[::-1]


def timed(block: Callable[[], object]) -> float:
    """Seconds on the device."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    block()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def ratio(
    ctx: Context, vote: GemmVote, plan: Plan, *, case: Case, launches: int, rounds: int
) -> dict[str, float | str]:
    """Rate of the checked product relative to the plain one, paired."""
    a, bt = vote._operands(ctx, plan, 1)
    out = torch.empty(plan.m, plan.n, dtype=plan.output, device=ctx.device)
    multiply = multiplier(plan, a, bt)
    rng = random.Random(plan.name)  # noqa: S311 - an order, no secret
    ratios = []

    def plain() -> None:
        with strict_math(tf32=plan.dtype == "tf32"):
            for _ in range(launches):
                multiply(out)

    for number in range(rounds + 2):

        def checked(seed: int = number) -> None:
            vote.ballot(ctx, case, iteration=0, seed=seed, launches=launches)

        blocks: dict[str, Callable[[], None]] = {"plain": plain, "checked": checked}
        took = {name: timed(blocks[name]) for name in rng.sample(list(blocks), 2)}
        ratios.append(took["plain"] / took["checked"])
    low, median, high = statistics.quantiles(ratios[2:], n=4)
    return {"case": plan.name, "median": median, "quartile_low": low, "quartile_high": high}


def held_watts(
    ctx: Context, vote: GemmVote, case: Case, *, sensors: Sensors, launches: int, seconds: float
) -> float | None:
    """Mean power over the second half of ballots that run back to back."""
    spent, samples = 0.0, list[tuple[float, float]]()

    def ballot() -> None:
        vote.ballot(ctx, case, iteration=0, seed=len(samples), launches=launches)

    while spent < seconds:
        spent += timed(ballot)
        samples += sensors.ring()
    half = [watts for _, watts in samples[len(samples) // 2 :]]
    return statistics.fmean(half) if half else None


def main() -> int:
    """Measure and write one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0, help="of back-to-back ballots for the power")
    parser.add_argument("--json", default="-", help="where to write (default: standard output)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench_gemm_dtypes: no GPU", file=sys.stderr)
        return 3
    ctx = Context(backend="cuda", device=torch.device("cuda", 0), inject=None, alive=lambda: None)
    vote = GemmVote()
    cases = {case.name: case for case in vote.cases(ctx)}
    plans = first_of_each(vote_plans(ctx.backend, ctx.device))
    sensors = Sensors(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    before = sensors.settings()
    report = {
        "gpu": torch.cuda.get_device_name(),
        "driver": sensors.driver(),
        "torch": torch.__version__,
        "launches": args.launches,
        "ratio_to_plain": [
            ratio(ctx, vote, plan, case=cases[plan.name], launches=args.launches, rounds=args.rounds) for plan in plans
        ],
        "held_watts": {
            plan.name: held_watts(
                ctx, vote, cases[plan.name], sensors=sensors, launches=args.launches, seconds=args.seconds
            )
            for plan in plans
            if plan.dtype in {"bf16", "fp16"}
        },
        "settings": before,
        "settings_kept": before == sensors.settings(),
    }
    text = json.dumps(report, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
