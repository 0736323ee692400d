"""JSON as it is pasted: several documents in one output, text around them, trailing commas, dots for what was cut."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

_FAILURES_MAX = 64
"""Places where decoding may fail before the rest is given up: each failure may have read to the end."""

_OPENING = re.compile(r'^[ \t]*(?=\{\s*["}]|\[\s*[\[{"\]])', re.MULTILINE)
"""Where a document begins: not at the `[  12.345]` of a kernel log, nor at the `{1}` of a hardware error."""
_CUT = re.compile(r'"(?:[^"\\]|\\.)*"|\.\.\.[ \t]*,?|(?<=,)[ \t\r\n]*,')
_TRAILING = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[\]}])')


@dataclass(slots=True, kw_only=True)
class LooseJson:
    """What was decoded of a text."""

    values: list[tuple[int, Any]] = field(default_factory=list)
    """Line on which the document starts, and its value."""
    prose: list[tuple[int, str]] = field(default_factory=list)
    """Lines outside any document, with their numbers."""
    repaired: bool = False
    """A document was not valid JSON, and was read without its trailing commas and cuts."""
    broken: int = 0
    """Line of the first document that could not be read at all; 0 when there is none."""


def has_document(text: str) -> bool:
    """Whether a JSON object or array seems to begin somewhere."""
    return _OPENING.search(text) is not None


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
            repaired = _repair(text[start:])
            if repaired is None:
                failures += 1
                found.broken = found.broken or start_line
                newline = text.find("\n", start)
                position = len(text) if newline < 0 or failures >= _FAILURES_MAX else newline + 1
                continue
            value, end = repaired, len(text)
            found.repaired = True
        if isinstance(value, dict | list):
            found.values.append((start_line, value))
        position = end
    return found


def _prose(found: LooseJson, text: str, line: int) -> None:
    for offset, words in enumerate(text.split("\n")):
        if words.strip(" \t\r,"):
            found.prose.append((line + offset, words))


def _repair(text: str) -> Any:
    """Read one document without dots and trailing commas; None when that does not help."""

    def keep_strings(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else ""

    plain = _TRAILING.sub(keep_strings, _CUT.sub(keep_strings, text))
    if plain == text:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(plain)
    except (ValueError, RecursionError):
        return None
    return value
