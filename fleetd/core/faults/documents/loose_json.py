"""JSON as it is pasted: several documents in one output, text around them, trailing commas, dots for what was cut."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

_FAILURES_MAX = 16
"""Places where decoding may fail before the rest is given up: each failure may have read to the end."""
_REPAIRS_MAX = 2
_REPAIR_MAX = 4 << 20
"""Characters that are worth repairing: what people abridge by hand is short."""

_OPENING = re.compile(r'^[ \t]*(?=\{\s*["}]|\[\s*[\[{"\]])', re.MULTILINE)
"""Where a document begins: not at the `[  12.345]` of a kernel log, nor at the `{1}` of a hardware error."""
_CUT = re.compile(r'"(?:[^"\\]|\\.)*"|\.\.\.[ \t]*,?|(?<=,)[ \t\r\n]*,')
_TRAILING = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[\]}])')


@dataclass(slots=True, kw_only=True)
class LooseJson:
    """What was decoded of a text."""

    values: list[tuple[int, int, Any]] = field(default_factory=list)
    """First and last line of a document, and its value."""
    prose: list[tuple[int, str]] = field(default_factory=list)
    """Lines outside any document, with their numbers."""
    repaired: bool = False
    """A document was not valid JSON, and was read without its trailing commas and cuts."""
    broken: int = 0
    """Line of the first document that could not be read at all; 0 when there is none."""


def has_document(text: str) -> bool:
    """Whether a JSON object or array seems to begin somewhere."""
    return "{" in text and _OPENING.search(text) is not None


def decode(text: str) -> LooseJson:
    """Decode every JSON object and array that begins a line; never raises."""
    found = LooseJson()
    decoder = json.JSONDecoder()
    position, counted, line, failures = 0, 0, 1, 0
    while position < len(text):
        opening = _OPENING.search(text, position)
        start = len(text) if opening is None else opening.end()
        line += text.count("\n", counted, position)
        counted = position
        _prose(found, text[position:start], line)
        if opening is None:
            break
        start_line = line + text.count("\n", position, start)
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            plain = _repair(text[start:]) if failures < _REPAIRS_MAX else None
            if plain is None:
                failures += 1
                found.broken = found.broken or start_line
                newline = text.find("\n", start)
                position = len(text) if newline < 0 or failures >= _FAILURES_MAX else newline + 1
                continue
            value, end = plain[0], start + plain[1]
            found.repaired = True
        if isinstance(value, dict | list):
            found.values.append((start_line, start_line + text.count("\n", start, end), value))
        position = end
    return found


def _prose(found: LooseJson, text: str, line: int) -> None:
    for offset, words in enumerate(text.split("\n")):
        if words.strip(" \t\r,"):
            found.prose.append((line + offset, words))


def _repair(text: str) -> tuple[Any, int] | None:
    """Read one document with its dots and trailing commas blanked; return it and its length, None if it is no help."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else " " * len(match[0])

    if len(text) > _REPAIR_MAX:
        return None
    plain = _TRAILING.sub(blank, _CUT.sub(blank, text))
    if plain == text:
        return None
    try:
        value, end = json.JSONDecoder().raw_decode(plain)
    except (ValueError, RecursionError):
        return None
    return value, end
