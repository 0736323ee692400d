"""The injection matrix of the training guard, at length: verdict and culprit, with 95 % intervals.

    python tests/bench/bench_guard_matrix.py --trials 14 --json matrix.json

14 trials of each cell are 308 over all. On CPU, gloo, 4 ranks; two process groups and one process. With --nccl on all
GPUs (at least two), DDP and FSDP2 only.
"""
# ruff: noqa: T201 - a script prints its result

import argparse
import importlib.util
import json
import os
import signal
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from burnin.verdict.chance import wilson


def harness() -> Any:
    """The ranks' script as a module."""
    path = Path(__file__).parents[1] / "guard" / "gang_guard.py"
    spec = importlib.util.spec_from_file_location("gang_guard", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gang_guard"] = module
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Run all cells; 0 when every verdict was right, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nccl", action="store_true")
    parser.add_argument("--shapes", nargs="+", default=["plain", "ddp", "fsdp2"])
    parser.add_argument("--limit-s", type=float, default=3000, help="of each shape; what was told by then counts")
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the ranks are ended too
    jobs = [(1, "plain"), (4, "ddp"), (4, "fsdp2")]
    if args.nccl:
        os.environ["GUARD_DEVICE"] = "cuda"
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        world = len(list(Path("/dev").glob("nvidia[0-9]*")))  # CUDA must not be touched before the ranks fork
        jobs = [(world, "ddp"), (world, "fsdp2")]
    jobs = [(world, shape) for world, shape in jobs if shape in args.shapes]
    gang = harness()
    told: list[dict[str, Any]] = []
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for world, shape in jobs:
            (Path(folder) / shape).mkdir()
            try:
                gang.run_trials(
                    Path(folder) / shape, (world, shape, list(gang.RIGHT)),
                    trials=args.trials, seed=args.seed, told=told, limit_s=args.limit_s,
                )  # fmt: skip
            except AssertionError as error:
                broken.append(f"{shape}: {error}")
            write(args.json, summary(gang, told, broken))
    report = summary(gang, told, broken)
    if args.json == "-":
        print(json.dumps(report, indent=1))
    return 0 if report["right"] == report["trials"] and not report["hardware_blamed_wrongly"] and not broken else 1


def write(path: str, report: dict[str, Any]) -> None:
    """Write what is known so far."""
    if path != "-":
        Path(path).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def summary(gang: Any, told: list[dict[str, Any]], broken: list[str]) -> dict[str, Any]:
    """Count what was right."""
    cells: dict[str, list[str]] = defaultdict(list)
    for one in told:
        cells[f"{one['shape']} {one['kind']}"].append(gang.mistake(one))
    faulty = [one for one in told if one["kind"] != "none"]
    right = sum(not gang.mistake(one) for one in faulty)
    hardware = [one for one in told if one["kind"] in {*gang.NOBODY, "none"}]
    blamed = sum(any(found[0] in {"chip-transient", "chip-persistent", "memory", "link"} for found in one["found"])
                 for one in hardware)  # fmt: skip
    return {
        "trials": len(faulty),
        "right": right,
        "right_95": wilson(right, len(faulty)),
        "not_hardware": len(hardware),
        "hardware_blamed_wrongly": blamed,
        "cells": {name: f"{sum(not one for one in found)}/{len(found)}" for name, found in sorted(cells.items())},
        "broken": broken,
        "unchecked": sorted({why for one in told for why in one["unchecked"]}),
        "mistakes": [one for found in cells.values() for one in found if one],
    }


if __name__ == "__main__":
    sys.exit(main())
