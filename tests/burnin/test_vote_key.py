"""What decides the bits of a result is in the vote key: GPUs that compute something else must not be compared."""

import re
from pathlib import Path

import burnin
from burnin.processes.backends import DECIDING

ROOT = Path(burnin.__file__).parent
FOLDERS = ("kernels", "workloads", "collectives")
SILENT = {"inject", "processes", "spec", "stop", "verdict"}
"""Modules and folders that those which compute import, and that decide no bit of a healthy result."""


def imported(source: str) -> set[str]:
    return set(re.findall(r"^(?:from|import) burnin\.(\w+)", source, re.MULTILINE))


def test_every_module_that_decides_what_is_computed_is_part_of_the_key() -> None:
    computing = [path for folder in FOLDERS for path in (ROOT / folder).glob("*.py")]
    seen: set[str] = set()
    while computing:
        found = {name for path in computing for name in imported(path.read_text(encoding="utf-8"))} - seen
        seen |= found
        computing = [ROOT / f"{name}.py" for name in found - SILENT - set(FOLDERS)]
    assert seen - SILENT - set(FOLDERS) == set(DECIDING)
