"""Outputs of tools as people paste them, with the answer in their header: the action, the codes and the format."""

from pathlib import Path

import pytest

from fleetd.core.policy import Action
from tests.faults.make_documents import DOCUMENTS, header, scan

CLASSES = {
    "ignore": {Action.NONE},
    "monitor": {Action.MONITOR, Action.RESTART_APP},
    "reset_gpu": {Action.RESET_GPU},
    "reboot": {Action.REBOOT},
    "drain_quarantine": {Action.DRAIN, Action.QUARANTINE},
    "rma": {Action.REPLACE},
    "reject": {None},
}
# Short names of the headers that are examples: ours say the number too.
NAMES = {"DCGM_PERSISTENCE": "DCGM_29_PERSISTENCE"}


def test_there_are_inputs() -> None:
    assert len(DOCUMENTS) > 25


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_tools_output_gives_the_action_and_codes_of_its_header(path: Path) -> None:
    expected = header(path)
    result = scan(path.read_text().partition("# ---\n")[2])
    assert result.action in CLASSES[expected["expected_action"]], result.findings
    codes = {code.strip() for code in expected["expected_codes"].split(",")} - {"none"}
    assert {NAMES.get(code, code) for code in codes} <= {finding.alias for finding in result.findings}
    assert all(finding.why and finding.lines for finding in result.findings)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_the_header_before_the_output_changes_nothing(path: Path) -> None:
    text = path.read_text()
    whole, body = scan(text), scan(text.partition("# ---\n")[2])
    assert whole.action is body.action
    assert {(f.code, f.device) for f in whole.findings} == {(f.code, f.device) for f in body.findings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_line_ends_of_another_system_change_nothing(path: Path) -> None:
    body = path.read_text().partition("# ---\n")[2]
    assert scan(body.replace("\n", "\r\n")).action is scan(body).action
