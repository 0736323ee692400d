"""What checking costs: bf16 products with every output checksummed against plain torch.matmul, interleaved.

    python tests/bench/bench_gemm.py --edge 8192 --edge 16384 --json gemm.json

A plain block only launches. A checked block is what the suite does for one ballot: new inputs, poisoned outputs, then
launches with their checksums beside them (`burnin.workloads.launches`). A serial block checksums between launches, to
show what the second stream gains. The blocks of a round run in random order, so that clock and temperature drift hit
all alike.
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

from burnin import checksum as cs
from burnin.seed import fill_normal
from burnin.workloads import Context
from burnin.workloads.launches import launch_all, poison, strict_math


def blocks(edge: int, launches: int) -> dict[str, Callable[[int], None]]:
    """Return the kinds of block, by name; the argument is the number of the round."""
    a, b, out = (torch.empty(edge, edge, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    fill_normal(a, 1)
    fill_normal(b, 2)
    tiles = torch.zeros(launches, cs.tile_count(out), dtype=torch.int64, device="cuda")
    ctx = Context(backend="cuda", device=out.device, inject=None, alive=lambda: None)

    def multiply(output: torch.Tensor) -> None:
        torch.matmul(a, b.t(), out=output)

    def plain(_pair: int) -> None:
        for _ in range(launches):
            multiply(out)

    def checked(pair: int) -> None:
        fill_normal(a, 2 * pair + 10)
        fill_normal(b, 2 * pair + 11)
        launch_all(ctx, multiply, lambda _output: False, out, launches=launches, seed=pair)

    def serial(pair: int) -> None:
        fill_normal(a, 2 * pair + 10)
        fill_normal(b, 2 * pair + 11)
        poison(out)
        for number in range(launches):
            multiply(out)
            cs.tile_sums_into(tiles[number], out, pair)
        tiles.sum(dim=1)

    return {"plain": plain, "checked": checked, "serial": serial}


def measure(edge: int, launches: int, rounds: int, warm_s: float) -> dict[str, object]:
    """Return each kind's ratio plain/kind, paired by round (1: checking is free), and the rates."""
    work = blocks(edge, launches)
    flops = 2 * edge**3 * launches
    rng = random.Random(edge)  # noqa: S311 - an order, no secret
    spent = 0.0
    while spent < warm_s:
        spent += sum(timed(block, 0) for block in work.values())
    elapsed: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds):
        for name in rng.sample(list(work), len(work)):
            elapsed[name].append(timed(work[name], number))
    return {
        "edge": edge,
        "launches": launches,
        "rounds": rounds,
        "ratio_to_plain": {name: spread(elapsed["plain"], values) for name, values in elapsed.items()},
        "flops_per_second": {name: flops / statistics.median(values) for name, values in elapsed.items()},
    }


def spread(plain: list[float], other: list[float]) -> dict[str, float]:
    """Return median and quartiles of the paired ratios, and the ratio of the sums."""
    ratios = [p / o for p, o in zip(plain, other, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    return {"median": median, "quartile_low": low, "quartile_high": high, "of_sums": sum(plain) / sum(other)}


def timed(block: Callable[[int], None], pair: int) -> float:
    """Seconds on the device."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    block(pair)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def main() -> int:
    """Measure and write one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge", type=int, action="append", help="edge of the cube; repeatable (default 8192)")
    parser.add_argument("--launches", type=int, default=20, help="products on the same inputs")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of work before the first round")
    parser.add_argument("--json", default="-", help="where to write (default: standard output)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench_gemm: no GPU", file=sys.stderr)
        return 3
    with strict_math(tf32=False):
        results = [measure(edge, args.launches, args.rounds, args.warm) for edge in args.edge or [8192]]
    report = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "products": results}
    text = json.dumps(report, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
