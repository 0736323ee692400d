"""How many lines of one kind go into the log: a fault that repeats quickly must not fill a disk. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

WINDOW_S = 60.0
LINES_MAX = 20
"""Lines of one kind in a window. What an operator has to know is said in the first ones."""
KINDS_MAX = 256
"""Kinds that are counted apart; all further ones share one window."""
_OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one kind has said since its window began."""

    began_s: float
    lines: int = 0
    withheld: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What is to be done with one line."""

    state: Mapping[str, Window]
    shown: bool
    withheld_before: int
    """Lines of this kind that the window before withheld: said with the first line of a new window, else 0."""
    why: str


def admit(state: Mapping[str, Window], kind: str, *, now_s: float) -> Admission:
    """Decide about a line of a kind (level and event) at a monotonic time."""
    key = kind if kind in state or len(state) < KINDS_MAX else _OTHER
    before = state.get(key)
    if before is None or now_s - before.began_s >= WINDOW_S:
        withheld = 0 if before is None else before.withheld
        after = Window(began_s=now_s, lines=1)
        return Admission(state={**state, key: after}, shown=True, withheld_before=withheld, why="a new window")
    shown = before.lines < LINES_MAX
    after = Window(began_s=before.began_s, lines=before.lines + shown, withheld=before.withheld + (not shown))
    why = "within the limit" if shown else f"{LINES_MAX} such lines in {WINDOW_S:.0f} s were shown"
    return Admission(state={**state, key: after}, shown=shown, withheld_before=0, why=why)
