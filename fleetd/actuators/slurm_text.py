"""What Slurm's commands print, read. Of the text forms that all versions since 20.11 share; JSON came later.

A text that is not understood is an ActuatorError, never an empty answer: an upgraded Slurm that prints otherwise must
not look like a cluster without nodes.
"""

import re
from dataclasses import dataclass

from fleetd.ports import ActuatorError

NODES_MAX = 100_000
"""Names that one expression may stand for."""

_STATE = re.compile(r"^ +State=([A-Z_+*~#!%$@^-]+)", re.MULTILINE)
_REASON = re.compile(r"^ +Reason=(.*)$", re.MULTILINE)
_STAMP = re.compile(r" \[[^\s\[\]@]*@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\]")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")
_SPLIT = re.compile(r",(?![^\[]*\])")
_RAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")

CLOSED_FLAGS = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
"""Flags by which somebody has closed a node. DOWN is not one of them: such a node may come back by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node as `scontrol show node` prints it."""

    name: str
    flags: frozenset[str]
    reason: str
    """Empty: none. Without who gave it and when."""
    who: str
    """Who gave the reason; empty where Slurm does not say."""

    @property
    def closed(self) -> bool:
        """Whether somebody has closed it for new jobs."""
        return not self.flags.isdisjoint(CLOSED_FLAGS)


def nodes(text: str) -> tuple[NodeView, ...]:
    """The nodes that `scontrol show node` printed. Raises ActuatorError for another text."""
    found = []
    for block in re.split(r"^(?=NodeName=)", text, flags=re.MULTILINE):
        if not block.strip():
            continue
        name = re.match(r"NodeName=(\S+)", block)
        state = _STATE.search(block)
        if name is None or state is None:
            raise ActuatorError(f"scontrol prints nodes in a way that is not understood: {block.strip()[:80]!r}")
        reason, who = _reason(block)
        flags = frozenset(re.split(r"[+]", re.sub(r"[*~#!%$@^-]", "", state[1])))
        found.append(NodeView(name=name[1], flags=flags, reason=reason, who=who))
    return tuple(found)


def _reason(block: str) -> tuple[str, str]:
    line = _REASON.search(block)
    if line is None:
        return "", ""
    stamp = _STAMP.search(line[1])
    if stamp is None:
        return line[1].strip(), ""
    return line[1][: stamp.start()].strip(), stamp[0].strip(" []").partition("@")[0]


def expand(expression: str) -> tuple[str, ...]:
    """The names that a list such as `h[01-03,7],login` stands for. Raises ActuatorError."""
    found: list[str] = []
    for part in _SPLIT.split(expression):
        if part:
            _expand(part, found)
    return tuple(found)


def _expand(part: str, found: list[str]) -> None:
    bracket = _BRACKET.search(part)
    if bracket is None:
        if "[" in part or "]" in part or len(found) >= NODES_MAX:
            raise ActuatorError(f"a list of nodes is not understood: {part[:80]!r}")
        found.append(part)
        return
    for piece in bracket[1].split(","):
        numbers = _NUMBERS.fullmatch(piece)
        if numbers is None or int(numbers[2] or 0) - int(numbers[1]) >= NODES_MAX:
            raise ActuatorError(f"a list of nodes is not understood: {part[:80]!r}")
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        for number in range(first, last + 1):
            _expand(f"{part[: bracket.start()]}{number:0{len(numbers[1])}d}{part[bracket.end() :]}", found)


def seconds(text: str) -> float:
    """A time such as `1-02:03:04`, `02:03:04` or `3:04`. Raises ActuatorError."""
    match = _RAN.fullmatch(text)
    if match is None:
        raise ActuatorError(f"squeue prints a time that is not understood: {text[:40]!r}")
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def rows(text: str, columns: int) -> tuple[tuple[str, ...], ...]:
    """Lines of so many columns, separated by `|`. Raises ActuatorError when a line has another number of them."""
    found = []
    for line in text.splitlines():
        row = tuple(cell.strip() for cell in line.split("|"))
        if len(row) != columns:
            raise ActuatorError(f"squeue prints a line that is not understood: {line[:80]!r}")
        found.append(row)
    return tuple(found)
