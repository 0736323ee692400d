"""The report as JUnit XML, as build servers read it: one suite a test, one case a GPU. Torch-free.

The first suite is the verdict itself, so that a run that failed has a failure, and one that was not judged an error,
whatever its tests say. What was not run is skipped with its reason; nothing that is not judged passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from burnin.spec import Verdict
from burnin.telling.markup import plain

COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}
"""Element of a case → attribute of its suite that counts it."""
TAGS = {Verdict.FAIL: "failure", Verdict.NOT_JUDGED: "error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One GPU, or the host, in one suite."""

    name: str
    tag: str = ""
    """`failure`, `error` or `skipped`; empty: passed."""
    kind: str = ""
    why: str = ""
    text: str = ""
    seconds: float = 0.0


def to_junit(report: dict[str, Any]) -> str:
    """The report as JUnit XML."""
    suites = [_suite(report, "verdict", _verdicts(report), report["elapsed_s"])]
    suites += [_suite(report, test["id"], _cases(report, test), test["elapsed_s"]) for test in report["tests"]]
    ran = {test["id"] for test in report["tests"]}
    suites += [
        _suite(report, one["id"], [_Case(name="host", tag="skipped", why=one["why"])], 0.0)
        for one in report["not_run"]
        if one["id"] not in ran
    ]
    root = ET.Element("testsuites", name=f"burnin {report['level']} {report['host']}")
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.attrib[name]) for suite in suites)))
    root.set("time", f"{report['elapsed_s']:.3f}")
    root.extend(suites)
    for element in root.iter():  # nothing that XML cannot hold gets past here
        element.attrib = {name: plain(value) for name, value in element.attrib.items()}
        element.text = plain(element.text) if element.text is not None else None
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(report: dict[str, Any], name: str, cases: Sequence[_Case], seconds: float) -> ET.Element:
    began = datetime.fromtimestamp(report["started_at_s"], UTC).strftime("%Y-%m-%dT%H:%M:%S")
    suite = ET.Element("testsuite", name=f"burnin.{name}", hostname=report["host"], timestamp=began)
    suite.set("tests", str(len(cases)))
    for tag, attribute in COUNTED.items():
        suite.set(attribute, str(sum(case.tag == tag for case in cases)))
    suite.set("time", f"{seconds:.3f}")
    properties = ET.SubElement(suite, "properties")
    known = {"seed": report["seed"], "level": report["level"], "backend": report["backend"]}
    known |= {"part": ", ".join(sorted({gpu.get("sku", "") for gpu in report["gpus"]}))}
    known |= {"vote_key": report["vote_key"], **report["versions"]}
    for key, value in known.items():
        ET.SubElement(properties, "property", name=key, value=str(value))
    for case in cases:
        made = ET.SubElement(suite, "testcase", classname=f"burnin.{name}", name=case.name)
        made.set("time", f"{case.seconds:.3f}")
        if case.tag:
            end = ET.SubElement(made, case.tag, message=case.why)
            if case.tag != "skipped":
                end.set("type", case.kind or "none")
                end.text = case.text or case.why
    return suite


def _verdicts(report: dict[str, Any]) -> list[_Case]:
    """The run, and every GPU."""
    run = Verdict(report["verdict"])
    cases = [_Case(name="run", tag=TAGS.get(run, ""), kind=run, why=report["why"])]
    for gpu in report["gpus"]:
        tag, why = TAGS.get(Verdict(gpu["verdict"]), ""), gpu.get("why", "")
        text = "\n".join([why, *_details(report, gpu["index"], None)])
        cases.append(_Case(name=_named(gpu), tag=tag, kind=gpu.get("class", ""), why=why, text=text))
    return cases


def _cases(report: dict[str, Any], test: dict[str, Any]) -> list[_Case]:
    """Every GPU that took part in a test, or the host, where the test is about it; who was wrong in it fails.

    A test that fails without a GPU that was wrong in it, or is not judged, is so for all of them.
    """
    verdict, name, why = Verdict(test["verdict"]), test["id"], test.get("why", "")
    kind = test.get("class", "")
    took = {one["index"]: one for one in test.get("gpus", [])}
    if not took:
        return [_Case(name="host", tag=TAGS.get(verdict, ""), kind=kind, why=why, seconds=test["elapsed_s"])]
    wrong = {one["index"]: one["why"] for one in reversed(report["signatures"]) if one["test"] == name}
    wrong |= {one["index"]: one["why"] for one in report["deaths"] if one["test"] == name}
    wrong |= {one["index"]: one["why"] for one in report["culprits"] if one["why"].startswith(f"{name} ")}
    classes = {one["index"]: one["class"] for one in report["culprits"]}
    cases = []
    for index, one in took.items():
        tag, told = "", why
        if verdict is Verdict.NOT_JUDGED:
            tag = "error"
        elif verdict is Verdict.FAIL and (index in wrong or not wrong):
            tag, told = "failure", wrong.get(index, why)
        blamed = classes.get(index, kind) if tag == "failure" else kind
        text = "\n".join([told, *_details(report, index, name)])
        cases.append(_Case(name=_named(one), tag=tag, kind=blamed, why=told, text=text, seconds=test["elapsed_s"]))
    return cases


def _named(gpu: dict[str, Any]) -> str:
    return f"GPU {gpu['index']} {gpu['gpu']}"


def _details(report: dict[str, Any], index: int, test: str | None) -> list[str]:
    """Signatures of a GPU in a test (None: in any), a few, and the command that shows the first one again."""
    mine = [one for one in report["signatures"] if one["index"] == index and test in {None, one["test"]}]
    lines = [f"{one['test']} {one['why']} (seed {one['seed']})" for one in mine[:8]]
    commands = [one["reproduce"] for one in mine] + ([report["reproduce"]] if "reproduce" in report else [])
    return lines + [f"reproduce: {command}" for command in commands[:1]]
