"""The RUNBOOK has a section for each alert and none for others, and every command in it exists."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from fleetd.cli import main
from tests.deploy.promql import ALERTS, RUNBOOK

TEXT = RUNBOOK.read_text()
SECTIONS = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]}
OPERATIONS = {
    "Retention",
    "Backup and restore",
    "Two daemons fight over caps",
    "Two monitors share the profiling counters",
}
PARTS = ("Means", "Confirm", "fleetd does", "You do", "Vendor")
SPANS = re.findall(r"`([^`]+)`", TEXT.replace("\n", " "))
CALLS = (part.strip() for span in SPANS for part in span.split("|"))
COMMANDS = sorted({" ".join(call.split()[1:]) for call in CALLS if call.startswith("fleetd ")})


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_alerts_and_sections_are_the_same() -> None:
    assert set(SECTIONS) - OPERATIONS == set(ALERTS)
    assert set(SECTIONS) >= OPERATIONS


def test_the_links_of_alerts_and_of_the_text_lead_to_a_section() -> None:
    anchors = {anchor(heading) for heading in SECTIONS}
    linked = {rule["annotations"]["runbook_url"].partition("#")[2] for rule in ALERTS.values()}
    linked |= set(re.findall(r"\]\(#([\w-]+)\)", TEXT))
    assert linked <= anchors


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_a_section_says_all_that_whoever_is_woken_needs(alert: str) -> None:
    found = re.findall(r"^- \*\*([^*]+)\*\*: \S", SECTIONS[alert], flags=re.MULTILINE)
    assert tuple(found) == PARTS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_exists_with_its_options(command: str) -> None:
    words = []
    for word in command.split():
        if not re.fullmatch(r"[a-z]+", word):
            break
        words.append(word)
    code, said = helped(words)
    assert code == 0, said
    for option in re.findall(r"(?<!\S)--[a-z-]+", command):
        assert re.search(rf"{option}\b", said), f"fleetd {' '.join(words)} has no {option}"


def helped(words: list[str]) -> tuple[int, str]:
    if words[0] in {"burnin", "guard"}:  # these become another program
        command = [sys.executable, "-m", "fleetd", *words, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr
    said = CliRunner().invoke(main, [*words, "--help"])
    return said.exit_code, said.output


def test_the_commands_are_found() -> None:
    assert len(COMMANDS) > 30
    assert "host explain HOST" in COMMANDS
