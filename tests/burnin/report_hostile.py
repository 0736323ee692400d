"""Reports for the tests of what is told: recorded ones, with names and reasons that would like to be markup."""

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "burnin"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;]]>\x00\x1b[31m\u202e\ud800 `${7*7}` größe"
"""Markup, ends of attributes and sections, an entity, control characters, reversed writing, half a character."""


def golden(name: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return report


def hostile(value: Any, key: str = "") -> Any:
    """The value with every free text replaced; words that the schema lists stay."""
    listed = {"schema", "verdict", "class", "expected", "got", "fingerprint", "fault", "case", "against"}
    if isinstance(value, dict):
        return {name: hostile(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile(one, key) for one in value]
    return HOSTILE if isinstance(value, str) and key not in listed else value
