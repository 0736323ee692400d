"""All the ways of DDP and FSDP2: training stays the same, bit for bit, and no alarm is false."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(900)
def test_every_variant_trains_as_without_the_guard_and_is_checked_or_says_why_not(tmp_path: Path) -> None:
    script, root = Path(__file__).with_name("gang_variants.py"), Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "FLEETD_GUARD_SOCKET": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path / "store")],
        capture_output=True, text=True, check=False, cwd=root, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = {one["variant"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert [name for name, one in told.items() if not one["same"]] == []
    assert {name: one["report"]["findings"] for name, one in told.items() if one["report"]["findings"]} == {}
    for name, one in told.items():
        report = one["report"]
        if name == "fsdp2 unsharded accumulation":
            assert report["verified_steps"] == 0
            assert any("without reducing" in why for why in report["unchecked"])
        else:
            assert report["verified_steps"] >= 3, name
    assert any("bound of a sum" in why for why in told["hook given"]["report"]["unchecked"])
    assert any("already" in why for why in told["hook unknown"]["report"]["notes"])
    assert any("accumulated" in why for why in told["accumulation"]["report"]["unchecked"])
    assert any("holds a UserDict" in why for why in told["unknown batch"]["report"]["unchecked"])
