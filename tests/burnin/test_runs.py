"""Real runs on simulated GPUs, from the command line to the report. Few and small; the tables are in test_judge."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.burnin.test_kills import offspring
from tests.stopping import ends

LIMIT_S = 300
"""Of one run, on a machine that is busy with many others; alone it takes a few seconds."""
pytestmark = pytest.mark.timeout(2 * LIMIT_S + 60)
KINDS = ("--test", "gemm.exact", "--test", "int", "--test", "step")
"""A test of each kind: tiles and a proof by Freivalds, a recipe that the CPU computes again, a trace of operations."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "burnin", "run", "--backend", "sim", "--host", "h01", *arguments]


def burn(*arguments: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        command("--json", "-", *arguments), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def steady(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what differs from run to run: times and rates."""
    kept = {name: value for name, value in report.items() if name not in {"started_at_s", "elapsed_s", "rates"}}
    kept["tests"] = [{n: v for n, v in test.items() if n not in {"elapsed_s", "rates"}} for test in report["tests"]]
    for test in kept["tests"]:
        test["gpus"] = [{n: v for n, v in gpu.items() if n != "rates"} for gpu in test["gpus"]]
    kept["schedule"] = [{n: v for n, v in row.items() if n != "elapsed_s"} for row in report["schedule"]]
    return kept


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], Path]:
    """Four GPUs, the third with a persistent multi-bit fault; all three kinds of report."""
    folder = tmp_path_factory.mktemp("faulty")
    files = [f"--{kind}={folder / kind}" for kind in ("json", "html", "junit")]
    done = subprocess.run(
        command("--gpus", "4", "--seed", "11", "--inject", "gpu=2,fault=F03", *KINDS, *files),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "INJECTING fault F03 on GPU 2" in done.stderr
    assert "culprit: GPU 2 (SIM-h01-02), chip-persistent" in done.stdout
    return done.returncode, json.loads((folder / "json").read_text()), folder


def test_a_clean_host_passes() -> None:
    code, report, _ = burn("--gpus", "4", "--seed", "11")
    assert (code, report["verdict"], report["exit_code"]) == (0, "pass", 0)
    assert not any("no verdict of level" in note for note in report["notes"])
    assert report["culprits"] == report["signatures"] == report["not_run"] == report["deaths"] == []
    assert {gpu["verdict"] for gpu in report["gpus"]} == {"pass"}
    assert report["clean"]["launches"] == sum(test["launches"] for test in report["tests"]) > 1000
    assert report["clean"]["false_verdict_upper_bound"] == pytest.approx(3 / report["clean"]["launches"], rel=0.01)
    assert {ballot["key"].split("/")[1] for ballot in report["ballots"]} == {"attention", "gemm.vote", "step"}
    assert [gpu["gpu"] for gpu in report["gpus"]] == [f"SIM-h01-{i:02d}" for i in range(4)]
    assert {test["id"]: test["verdict"] for test in report["tests"]} == dict.fromkeys(
        (
            *("selftest", "health", "hostcpu", "gemm.exact", "gemm.vote", "gemm.smvote", "attention", "int"),
            *("copy", "collective.exact", "step"),
        ),
        "pass",
    )


def test_the_bad_gpu_is_named(faulty: tuple[int, dict[str, Any], Path]) -> None:
    code, report, _ = faulty
    assert (code, report["verdict"], report["exit_code"]) == (1, "fail", 1)
    assert [(one["gpu"], one["index"], one["class"]) for one in report["culprits"]] == [
        ("SIM-h01-02", 2, "chip-persistent")
    ]
    assert [gpu["verdict"] for gpu in report["gpus"]] == ["pass", "pass", "fail", "pass"]
    assert {one["gpu"] for one in report["signatures"]} == {"SIM-h01-02"}
    planted = report["injected"][0]
    assert "the tests were named: this is no verdict of level smoke" in report["notes"]
    assert planted["fired"] > 0
    assert planted["found"] is True


def test_what_every_gpu_felt_and_did_is_told(faulty: tuple[int, dict[str, Any], Path]) -> None:
    report = faulty[1]
    felt = [gpu for test in report["tests"] for gpu in test["gpus"]]
    assert {len(test["gpus"]) for test in report["tests"] if test["launches"] and test["id"] != "selftest"} == {4}
    for name in ("temperature_celsius", "power_watts", "sm_clock_hertz"):  # of every GPU in every test, and of a wrong
        assert all(gpu[name]["min"] <= gpu[name]["mean"] <= gpu[name]["max"] for gpu in felt)
    assert any(one["power_watts"] for one in report["signatures"])
    rates = [name for test in report["tests"] for name in test["rates"]]
    assert rates
    assert all(name.endswith("_per_second") for name in rates)


def test_signatures_localise_and_can_be_repeated(faulty: tuple[int, dict[str, Any], Path]) -> None:
    signatures = faulty[1]["signatures"]
    assert any(one["tiles"] for one in signatures)
    elements = next(one["elements"] for one in signatures if one["test"] == "gemm.exact" and one["elements"])
    assert set(elements) == {"count", "compared", "bits", "period", "first"}
    assert elements["period"] % 16 == 0  # F03 strikes every 16th to 128th element
    assert sum(elements["bits"].values()) >= 2 * elements["count"]  # and flips at least two bits of each
    assert any(one["op"] for one in signatures if one["test"] == "step")
    assert all("--seed 11" in one["reproduce"] and "--gpus 4" in one["reproduce"] for one in signatures)


def test_junit_and_page(faulty: tuple[int, dict[str, Any], Path]) -> None:
    _, report, folder = faulty
    suites = ET.parse(folder / "junit").getroot()  # noqa: S314 - our own file
    assert len(suites) == len(report["tests"]) + 1
    failed = {case.attrib["name"] for case in suites.iter("testcase") if case.find("failure") is not None}
    assert failed == {"run", "GPU 2 SIM-h01-02"}
    page = (folder / "html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "SIM-h01-02" in page
    assert "src=" not in page
    assert "http" not in page
    assert {path.name for path in folder.iterdir()} == {"json", "html", "junit"}


def test_the_same_seed_gives_the_same_report_but_for_times() -> None:
    first, again = (
        burn("--gpus", "2", "--seed", "5", "--inject", "gpu=1,fault=F04,rate=0.5", *KINDS) for _ in range(2)
    )
    assert first[0] == again[0] == 1
    assert steady(first[1]) == steady(again[1])
    assert [one["index"] for one in first[1]["culprits"]] == [1]  # a tie of two, broken by the golden


def test_two_bad_gpus_of_eight_are_both_found() -> None:
    code, report, _ = burn(
        "--level", "self", "--gpus", "8", "--inject", "gpu=1,fault=F11", "--inject", "gpu=6,fault=F04"
    )
    assert code == 1
    assert [one["index"] for one in report["culprits"]] == [1, 6]


def test_a_single_gpu_is_judged_by_the_golden() -> None:
    code, report, _ = burn("--level", "self", "--gpus", "1", "--inject", "gpu=0,fault=F11")
    assert (code, [one["class"] for one in report["culprits"]]) == (1, ["chip-persistent"])
    assert report["signatures"][0]["elements"]["count"] > 1  # nobody to compare with: the CPU says what is right


def test_a_fault_that_never_fires_is_not_judged() -> None:
    code, report, _ = burn("--level", "self", "--gpus", "2", "--inject", "gpu=0,fault=F03,rate=1e-12")
    assert (code, report["verdict"], report["injected"][0]["fired"]) == (3, "not_judged", 0)
    assert "never fired" in report["why"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--inject", "gpu=9,fault=F03"], 2, "gpu=9: no such GPU"),
        (["--inject", "gpu=1,fault=F99"], 2, "unknown fault 'F99'"),
        (["--test", "int", "--inject", "gpu=1,fault=F12"], 2, "needs floats, but all chosen cases are integer"),
        (["--test", "gemm.vote", "--inject", "gpu=1,fault=F08.hot"], 2, "no device gets that hot in them here"),
        (["--backend", "cpu", "--test", "thermal", "--inject", "gpu=1,fault=F99"], 2, "unknown fault 'F99'"),
        (["--devices", "7"], 2, "no device '7'"),
        (["--backend", "cuda"], 3, "--backend sim"),
    ],
)
def test_what_only_the_devices_can_refuse(arguments: list[str], code: int, words: str, tmp_path: Path) -> None:
    if "cuda" in arguments and Path("/dev/nvidiactl").exists():
        pytest.skip("this host has a GPU")
    target = tmp_path / "report.json"
    done = subprocess.run(
        command("--gpus", "2", "--json", str(target), *arguments),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == code
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def start(*arguments: str) -> subprocess.Popen[str]:
    """A run that has begun to compute."""
    process = subprocess.Popen(
        command("--gpus", "4", "--json", "-", "--inject", "gpu=1,fault=F03", "--for", "10m", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if '"progress"' in line:
            return process
    raise AssertionError("the run ended before it began")


def test_sigterm_ends_with_a_partial_report_in_two_seconds(tmp_path: Path) -> None:
    process = start("--json", str(tmp_path / "report.json"))
    family = offspring(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=100) == 3  # within two seconds, where no other test is computing
    _, err = process.communicate()
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["verdict"], report["why"], report["culprits"]) == ("not_judged", "stopped by SIGTERM", [])
    assert len(report["gpus"]) == 4
    assert "Traceback" not in err
    assert all(map(ends, family))


def test_kill_9_of_the_parent_leaves_no_process() -> None:
    process = start()
    family = offspring(process.pid)
    assert len(family) >= 4
    process.kill()
    process.wait(timeout=100)
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    assert all(map(ends, family))
