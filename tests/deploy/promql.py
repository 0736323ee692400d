"""What the rules and dashboards of deploy/ say, read for the tests: expressions, and the metrics they name."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
RULE_FILES = sorted((PROMETHEUS / "rules").glob("*.yml"))
RULE_TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
RUNBOOK = DEPLOY / "RUNBOOK.md"

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BESIDE = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\]")
_WORD = re.compile(r"(?<![\w:.$])[a-zA-Z_:][\w:]*(?![\w:]*\s*\()")
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "inf", "nan"})


def names_in(expression: str) -> set[str]:
    """The metrics that a PromQL expression names: its words without strings, labels, ranges, functions, keywords."""
    bare = _BESIDE.sub(" ", _STRING.sub('""', expression))
    return {word for word in _WORD.findall(bare) if word.lower() not in _KEYWORDS}


def rules() -> Iterator[dict[str, Any]]:
    """Every rule of every file, with the file's and the group's name."""
    for file in RULE_FILES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            for rule in group["rules"]:
                yield {**rule, "file": file.name, "group": group["name"]}


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
RECORDS = {rule["record"]: rule for rule in rules() if "record" in rule}


def run(program: str, *words: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    """Run a program of Debian's packages; its exit code, and all that it said."""
    found = shutil.which(program)
    assert found, f"{program} is not installed: make deps"
    done = subprocess.run([found, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


# ── dashboards ──────────────────────────────────────────────────────────────────────────────────────────────────────

GRAFANA = DEPLOY / "grafana"
DASHBOARDS = {file.stem: json.loads(file.read_text()) for file in sorted((GRAFANA / "dashboards").glob("*.json"))}
STANDS_FOR = {"$pool": ".*", "$host": ".*", "$gpu": ".*"}
"""What `All` puts into a query."""


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every panel, with the name of its dashboard."""
    for uid, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            yield uid, panel


def queries() -> Iterator[tuple[str, str]]:
    """Every query as Prometheus gets it with `All` chosen, with the panel that it belongs to."""
    for uid, panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in STANDS_FOR.items():
                expression = expression.replace(variable, value)
            yield f"{uid}: {panel['title']}", expression
