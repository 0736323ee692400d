"""JUnit as build servers read it: only what they know, counts that add up, and nothing unjudged that passes."""

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from burnin.telling.junit import to_junit
from tests.burnin.report_hostile import GOLDEN, golden, hostile

TEXT, NAME, COUNT, SECONDS = r"(?s).*", r"(?s).+", r"\d+", r"\d+\.\d{3}"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
KNOWN = {
    "testsuites": (
        {"name": NAME, "tests": COUNT, "failures": COUNT, "errors": COUNT, "skipped": COUNT, "time": SECONDS},
        ["testsuite"],
    ),
    "testsuite": (
        {
            "name": NAME,
            "hostname": NAME,
            "timestamp": TIME,
            "tests": COUNT,
            "failures": COUNT,
            "errors": COUNT,
            "skipped": COUNT,
            "time": SECONDS,
        },
        ["properties", "testcase"],
    ),
    "properties": ({}, ["property"]),
    "property": ({"name": NAME, "value": TEXT}, []),
    "testcase": ({"classname": NAME, "name": NAME, "time": SECONDS}, ["failure", "error", "skipped"]),
    "failure": ({"message": TEXT, "type": NAME}, []),
    "error": ({"message": TEXT, "type": NAME}, []),
    "skipped": ({"message": TEXT}, []),
}
"""Element → its attributes, all of them, and its children: what the JUnit plugin of Jenkins and GitLab both read."""
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))


def parsed(report: dict[str, Any]) -> ET.Element:
    text = to_junit(report)
    text.encode("utf-8")
    return ET.fromstring(text.removeprefix("<?xml version='1.0' encoding='utf-8'?>"))  # noqa: S314 - our own


def keeps(element: ET.Element) -> None:
    attributes, children = KNOWN[element.tag]
    assert set(element.attrib) == set(attributes), element.tag
    for name, pattern in attributes.items():
        assert re.fullmatch(pattern, element.attrib[name]), (element.tag, name, element.attrib[name])
    for child in element:
        assert child.tag in children, (element.tag, child.tag)
        keeps(child)
    if element.tag == "testcase":
        assert len(element) <= 1, "a case ends in one way"
    if element.tag in {"testsuite", "testsuites"}:
        cases = list(element.iter("testcase"))
        ends = {"tests": len(cases)} | {
            counted: sum(case.find(tag) is not None for case in cases)
            for tag, counted in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped"))
        }
        assert {name: int(element.attrib[name]) for name in ends} == ends


@pytest.mark.parametrize("name", NAMES)
def test_only_what_build_servers_read(name: str) -> None:
    root = parsed(golden(name))
    keeps(root)
    names = [suite.attrib["name"] for suite in root]
    assert len(names) == len(set(names))
    cases = [(case.attrib["classname"], case.attrib["name"]) for case in root.iter("testcase")]
    assert len(cases) == len(set(cases)), "equal names would be shown as one"


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_is_a_test_and_a_case_a_gpu(name: str) -> None:
    report = golden(name)
    suites = {suite.attrib["name"]: suite for suite in parsed(report)}
    assert set(suites) == {"burnin.verdict", *(f"burnin.{one['id']}" for one in report["tests"] + report["not_run"])}
    for test in report["tests"]:
        cases = [case.attrib["name"] for case in suites[f"burnin.{test['id']}"].iter("testcase")]
        took = [f"GPU {gpu['index']} {gpu['gpu']}" for gpu in test.get("gpus", [])]
        assert cases == (took or ["host"])
    properties = {one.attrib["name"]: one.attrib["value"] for one in suites["burnin.verdict"].iter("property")}
    assert properties.items() >= {"seed": str(report["seed"]), "part": "NVIDIA H200", **report["versions"]}.items()


def with_gpus(report: dict[str, Any]) -> dict[str, Any]:
    """The recorded report as today's have it: every test tells which GPUs took part."""
    for test in report["tests"]:
        if test["launches"]:
            test["gpus"] = [{"gpu": gpu["gpu"], "index": gpu["index"]} for gpu in report["gpus"]]
    return report


def test_the_gpu_that_was_wrong_fails_with_the_reason_and_the_command() -> None:
    report = with_gpus(golden("h200-x2-inject-f03"))
    root = parsed(report)
    failed = {(case.attrib["classname"], case.attrib["name"][:5]) for case in root.iter("testcase") if len(case)}
    assert ("burnin.gemm.exact", "GPU 1") in failed
    assert ("burnin.gemm.exact", "GPU 0") not in failed
    assert {("burnin.verdict", "run"), ("burnin.verdict", "GPU 1")} <= failed
    (failure,) = [
        case[0]
        for case in root.iter("testcase")
        if (case.attrib["classname"], case.attrib["name"][:5]) == ("burnin.gemm.exact", "GPU 1")
    ]
    assert failure.attrib["type"] == "chip-persistent"
    assert "differ from the golden" in failure.attrib["message"]
    assert "reproduce: fleetd burnin run --backend cuda --test gemm.exact --seed 32" in (failure.text or "")


def test_a_gpu_without_a_signature_fails_with_the_command_of_the_run() -> None:
    report = golden("h200-x2-smoke") | {"verdict": "fail", "exit_code": 1, "reproduce": "fleetd burnin run --seed 1"}
    report["gpus"][0] |= {"verdict": "fail", "class": "unresponsive", "why": "no answer for 60 s"}
    text = parsed(report)[0].findtext("testcase[2]/failure")
    assert text == "no answer for 60 s\nreproduce: fleetd burnin run --seed 1"


def test_a_test_that_fails_with_nobody_to_blame_fails_for_all() -> None:
    report = with_gpus(golden("h200-x2-smoke"))
    report["tests"][3] |= {"verdict": "fail", "class": "configuration", "why": "the golden refutes all"}
    suite = next(one for one in parsed(report) if one.attrib["name"] == f"burnin.{report['tests'][3]['id']}")
    assert (suite.attrib["failures"], suite.attrib["tests"]) == ("2", "2")
    assert {one.attrib["type"] for one in suite.iter("failure")} == {"configuration"}


def test_what_is_not_judged_is_an_error_and_what_did_not_run_is_skipped() -> None:
    report = with_gpus(golden("h200-x2-smoke"))
    report |= {"verdict": "not_judged", "exit_code": 3, "why": "stopped by SIGTERM", "gpus": []}
    report["tests"][3] |= {"verdict": "not_judged", "why": "too little work"}
    report["not_run"] = [{"id": "hbm", "why": "the run ended before it", "required": True}]
    root = parsed(report)
    keeps(root)
    ends = {case.attrib["classname"]: case[0] for case in root.iter("testcase") if len(case)}
    assert (ends["burnin.verdict"].tag, ends["burnin.verdict"].attrib["message"]) == ("error", "stopped by SIGTERM")
    assert ends[f"burnin.{report['tests'][3]['id']}"].tag == "error"
    assert (ends["burnin.hbm"].tag, ends["burnin.hbm"].attrib["message"]) == ("skipped", "the run ended before it")


@pytest.mark.parametrize("name", ["h200-x2-inject-f03", "h200-x2-quick"])
def test_hostile_texts_stay_texts(name: str) -> None:
    report = hostile(with_gpus(golden(name)))
    for number, test in enumerate(report["tests"]):
        test["id"] += str(number)
    root = parsed(report)
    keeps(root)
    assert "<script>alert(1)</script>" in root[0].attrib["hostname"]
