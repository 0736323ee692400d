"""The benchmark of the ballots, tried on the CPU: what it measures there means nothing, that it measures does."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAGES = {"serial", "loop", "loop3", "inputs", "ballot", "answer"}


def test_every_stage_of_a_ballot_and_every_variant_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "dtypes.json"
    script = ROOT / "tests" / "bench" / "bench_gemm_dtypes.py"
    options = ["--backend", "cpu", "--case", "bf16", "--launches", "2", "--rounds", "3", "--block", "0", "--no-power"]
    done = subprocess.run(
        [sys.executable, script, *options, "--json", out],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(out.read_text())
    (found,) = report["stages"]
    assert set(found["ratio_to_plain"]) == STAGES
    assert all(one["median"] > 0 for one in found["ratio_to_plain"].values())
    assert found["plain_flops_per_second"] > 0
    assert [(one["launches"], set(one["ratio_to_plain"])) for one in report["variants"]] == [
        (launches, {"answer"}) for launches in (20, 4, 2)
    ]
    assert (report["skipped"], report["held_watts"], report["settings_kept"]) == ([], {}, True)
