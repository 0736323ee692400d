"""Reports of real H200 runs (2026-11-30, driver 580.159.04, torch 2.11, CUDA 13.0): what readers of the schema get."""

import json
from pathlib import Path
from typing import Any

import pytest

from burnin.spec import SCHEMA, ExitCode, FaultClass, Verdict

GOLDEN = Path(__file__).parents[1] / "golden" / "burnin"
REPORTS = sorted(GOLDEN.glob("h200-*.json"))
PROMISED = {
    *("schema", "verdict", "exit_code", "level", "backend", "seed", "started_at_s", "elapsed_s", "culprits", "gpus"),
    *("tests", "signatures", "injected", "vote_key", "versions"),
}


def load(path: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(path.read_text())
    return body


@pytest.mark.parametrize("path", REPORTS, ids=lambda p: p.stem)
def test_a_report_keeps_what_the_schema_promises(path: Path) -> None:
    report = load(path)
    assert report["schema"] == SCHEMA
    assert report.keys() >= PROMISED
    assert report["exit_code"] == {Verdict.PASS: ExitCode.GOOD, Verdict.FAIL: ExitCode.BAD}[report["verdict"]]
    for culprit in report["culprits"]:
        assert culprit.keys() >= {"gpu", "index", "class", "why"}
        assert culprit["class"] in set(FaultClass)
    for gpu in report["gpus"]:
        assert gpu.keys() >= {"gpu", "index", "verdict", "strikes"}
        assert gpu["gpu"].startswith("GPU-")
    for test in report["tests"]:
        assert test.keys() >= {"id", "verdict", "launches", "bytes", "elapsed_s", "rates"}
        assert all(name.endswith("_per_second") and value > 0 for name, value in test["rates"].items())


def test_the_clean_run_passed_on_evidence() -> None:
    report = load(GOLDEN / "h200-x1-smoke.json")
    assert (report["verdict"], report["culprits"], report["signatures"]) == ("pass", [], [])
    work = {test["id"]: test["launches"] for test in report["tests"]}
    assert min(work["gemm.exact"], work["gemm.vote"], work["step"]) >= 20


@pytest.mark.parametrize(("name", "index"), [("h200-x2-inject-f04", 1), ("h200-x2-inject-f03-rare", 0)])
def test_of_two_gpus_the_golden_names_the_bad_one(name: str, index: int) -> None:
    report = load(GOLDEN / f"{name}.json")
    assert [culprit["index"] for culprit in report["culprits"]] == [index]
    assert {gpu["index"]: gpu["verdict"] for gpu in report["gpus"]} == {index: "fail", 1 - index: "pass"}
    (injected,) = report["injected"]
    assert injected["found"]
    assert injected["fired"] > 0
    assert all(signature["reproduce"].startswith("fleetd burnin run") for signature in report["signatures"])
