"""The benchmarks of the guard, tried on the CPU: their times mean nothing there, that they measure and add up does."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run(script: str, out: Path, *options: str) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "bench" / script, *options, "--json", out],
        capture_output=True, text=True, check=False, timeout=250, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
             "FLEETD_GUARD_SOCKET": str(out.with_name("none"))},
    )  # fmt: skip
    assert done.returncode == 3, done.stderr[-2000:]
    return json.loads(out.read_text()), done.stderr


def test_every_variant_of_fingerprints_gives_the_same_values(tmp_path: Path) -> None:
    report, said = run("bench_guard_hash.py", tmp_path / "hash.json", "--shrink", "32", "--repeats", "2")
    assert report["same_values"] is True
    assert report["met"] is False, "without a GPU nothing is"
    assert report["tensors"] == 17
    assert {"copy", "flat", "one by one", "many"} <= set(report["variants"])
    assert all(one["host_ms"] > 0 for one in report["variants"].values())
    assert "no GPU" in said


def test_the_parts_of_a_check_add_up_to_it(tmp_path: Path) -> None:
    options = (
        "--device",
        "cpu",
        "--shrink",
        "16",
        "--batch",
        "1",
        "--seconds",
        "0",
        "--every",
        "4",
        "--only",
        "overhead",
    )
    report, said = run("bench_guard.py", tmp_path / "guard.json", "--mode", "default", *options)
    check = report["default"]["check"]
    parts = {name: row for name, row in check["parts"].items() if name != "all"}
    assert sum(row["host_ms"] for row in parts.values()) == pytest.approx(check["parts"]["all"]["host_ms"])
    assert all(row["host_ms"] >= 0 for row in parts.values())
    calls = {name: row["calls"] for name, row in parts.items()}
    once = [calls[name] for name in ("original", "replay", "capture", "after update")]
    assert [*once, 10 * calls["exact"]] == pytest.approx([1, 1, 1, 1, 1])
    assert math.isfinite(check["extra_ms"])
    assert "a check costs" in said
    assert report["met"].keys() == {"overhead_20, default", "overhead_500, default"}
    costs = report["default"]["costs"]
    assert costs["blocks"] == 20
    assert costs["ratios"].keys() <= {"check", "exact", "quiet", "odd"}
    assert report["default"]["overhead_500"] == pytest.approx(costs["quiet"] + costs["check_steps"] / 500)
