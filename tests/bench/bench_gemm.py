"""What checking costs: bf16 products with every output checksummed against plain torch.matmul, paired and interleaved.

    python tests/bench/bench_gemm.py --edge 8192 --edge 16384 --json gemm.json

A checked block makes new inputs, poisons the output, then launches and checksums; a plain block only launches. Blocks
alternate in random order inside each pair, so that clock and temperature drift hit both alike.
"""

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
from burnin.workloads.launches import poison, strict_math


def blocks(edge: int, launches: int) -> dict[str, Callable[[int], None]]:
    """Return the two kinds of block, by name; the argument is the number of the pair."""
    a, b, out = (torch.empty(edge, edge, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    fill_normal(a, 1)
    fill_normal(b, 2)
    tiles = torch.zeros(launches, cs.tile_count(out), dtype=torch.int64, device="cuda")

    def plain(_pair: int) -> None:
        for _ in range(launches):
            torch.matmul(a, b.t(), out=out)

    def checked(pair: int) -> None:
        fill_normal(a, 2 * pair + 10)
        fill_normal(b, 2 * pair + 11)
        poison(out)
        for number in range(launches):
            torch.matmul(a, b.t(), out=out)
            cs.tile_sums_into(tiles[number], out, pair)
        tiles.sum(dim=1)

    return {"plain": plain, "checked": checked}


def measure(edge: int, launches: int, pairs: int, warm_s: float) -> dict[str, object]:
    """Return the paired ratio plain/checked (1: checking is free) and the rates."""
    work = blocks(edge, launches)
    flops = 2 * edge**3 * launches
    rng = random.Random(edge)
    spent = 0.0
    while spent < warm_s:
        spent += timed(work["plain"], 0) + timed(work["checked"], 0)
    elapsed: dict[str, list[float]] = {"plain": [], "checked": []}
    for pair in range(pairs):
        for name in rng.sample(["plain", "checked"], 2):
            elapsed[name].append(timed(work[name], pair))
    ratios = [p / c for p, c in zip(elapsed["plain"], elapsed["checked"], strict=True)]
    quarters = statistics.quantiles(ratios, n=4)
    return {
        "edge": edge,
        "launches": launches,
        "pairs": pairs,
        "ratio": {"median": statistics.median(ratios), "quartiles": [quarters[0], quarters[2]]},
        "ratio_of_sums": sum(elapsed["plain"]) / sum(elapsed["checked"]),
        "flops_per_second": {name: flops / statistics.median(values) for name, values in elapsed.items()},
    }


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
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of work before the first pair")
    parser.add_argument("--json", default="-", help="where to write (default: standard output)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench_gemm: no GPU", file=sys.stderr)
        return 3
    with strict_math(tf32=False):
        results = [measure(edge, args.launches, args.pairs, args.warm) for edge in args.edge or [8192]]
    report = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "products": results}
    text = json.dumps(report, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
