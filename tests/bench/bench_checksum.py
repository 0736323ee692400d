"""Bytes per second of the checksum against a device-to-device copy, interleaved in one run.

    python tests/bench/bench_checksum.py --gib 4 --json checksum.json

The copy counts bytes read and written, the checksum bytes read.
"""
# ruff: noqa: T201 - a script prints its result

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from burnin import checksum as cs
from burnin.seed import fill_bits, fill_normal


def seconds(work: Callable[[], object], launches: int) -> float:
    """Device time of one launch, from CUDA events around several that are queued behind a wait."""
    # Without the wait a small launch would be timed by how fast the host can queue it.
    torch.cuda._sleep(100_000 * launches)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(launches):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / launches


def main() -> int:
    """Measure and write one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=4.0, help="size of the flat tensor")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", default="-", help="where to write (default: standard output)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench_checksum: no GPU", file=sys.stderr)
        return 3
    size = int(args.gib * 2**30) // 4 * 4
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    fill_bits(source, 1)
    copy = torch.empty_like(source)
    slot = torch.zeros(1, dtype=torch.int64, device="cuda")
    bf16 = source[: 2 * 8192 * 8192].view(torch.bfloat16).view(8192, 8192)
    fp32 = source[: 4 * 8192 * 8192].view(torch.float32).view(8192, 8192)
    operand = torch.empty_like(bf16)
    tiles = torch.zeros(cs.tile_count(bf16), dtype=torch.int64, device="cuda")
    work: dict[str, tuple[Callable[[], object], int, int]] = {
        "copy": (lambda: copy.copy_(source), 2 * size, 3),
        "flat": (lambda: cs.checksum_into(slot, source, 3), size, 3),
        "tiles_bf16_8192": (lambda: cs.tile_sums_into(tiles, bf16, 3), bf16.nbytes, 50),
        "tiles_fp32_8192": (lambda: cs.tile_sums_into(tiles, fp32, 3), fp32.nbytes, 50),
        "fill_normal_bf16_8192": (lambda: fill_normal(operand, 5), bf16.nbytes, 50),
        "flat_bf16_8192": (lambda: cs.checksum_into(slot, bf16, 3), bf16.nbytes, 50),
    }
    for function, _, _ in work.values():
        seconds(function, 2)
    rates: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(args.repeats):
        for name, (function, nbytes, launches) in work.items():
            rates[name].append(nbytes / seconds(function, launches))
    ratios = [flat / copied for flat, copied in zip(rates["flat"], rates["copy"], strict=True)]
    report = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "bytes": size,
        "bytes_per_second": {name: statistics.median(values) for name, values in rates.items()},
        "flat_over_copy": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
    }
    text = json.dumps(report, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
