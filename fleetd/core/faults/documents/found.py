"""What a reader collects while it reads, and the few ways in which tools write values."""

from dataclasses import dataclass, field

from fleetd.core.faults.observation import MAX_TEXT, MAX_UNRECOGNISED, Moment, Observation, Unrecognised
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

OBSERVATIONS_MAX = 10_000
"""Observations kept of one document: the bound on memory. A document with more is said to be read in part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One value of one device in a document."""

    device: str | None
    path: str
    """Names of the sections and of the value as `slug` writes them, joined by `/`."""
    value: str
    line: int
    text: str
    """The value's line as printed."""


@dataclass(slots=True, kw_only=True)
class Found:
    """What one document shows."""

    observations: list[Observation] = field(default_factory=list)
    unrecognised: list[Unrecognised] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    values: int = 0
    """How many values were understood, good ones too: a document without any cannot be judged."""
    health: int = 0
    """How many of them say something about the health of a device, whether it is good or bad."""
    cannot_judge: str | None = None
    """Why the document cannot be judged although something in it was understood."""

    def see(
        self,
        code: str,
        device: str | None,
        line: int | None,
        text: str,
        *,
        why: str | None = None,
        part: str = "",
        action: Action | None = None,
        severity: Severity | None = None,
        at: str | None = None,
    ) -> None:
        """Add an observation. `action` and `severity` only where the values ask for other ones than the entry's."""
        self.values += 1
        self.health += 1
        if len(self.observations) >= OBSERVATIONS_MAX:
            note = f"more than {OBSERVATIONS_MAX} statements about faults: the rest was left out"
            if note not in self.notes:
                self.notes.append(note)
            return
        self.observations.append(
            Observation(
                code=code,
                device=device or None,
                at=None if at is None else Moment(text=at),
                line=line,
                text=shorten(text),
                why=why,
                part=part,
                action=action,
                severity=severity,
            )
        )

    def wonder(self, line: int | None, text: str) -> None:
        """List a line that looks like trouble and is not known."""
        if len(self.unrecognised) < MAX_UNRECOGNISED:
            self.unrecognised.append(Unrecognised(line=line, text=shorten(text)))


def shorten(text: str) -> str:
    """Return the text on one line, cut to what is kept of a line."""
    return " ".join(text[: 4 * MAX_TEXT].split())[:MAX_TEXT]


def slug(name: str) -> str:
    """Return a label as a path element: `Remapped Rows` → `remapped_rows`."""
    return "_".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def number(text: str) -> float | None:
    """Return the number at the start of a value (`639 bank(s)`, `16x`, `3.5e+09`, `0x2`); None when there is none.

    The vendors' blanks are no numbers: DCGM's (int64, int32 and double, four kinds of each, `dcgm_structs.h`) and the
    all-ones that AMD's interfaces return for what a part does not have.
    """
    words = text.split()
    if not words:
        return None
    word = words[0].rstrip("x%,")
    try:
        value = float(int(word, 16)) if word.startswith("0x") else float(word)
    except (ValueError, OverflowError):
        return None
    if value != value or abs(value) >= _BLANK_FROM or value in _BLANKS:  # noqa: PLR0124 - only NaN differs from itself
        return None
    return value


_BLANK_FROM = float(0x7FFFFFFFFFFFFFF0)
"""As a double it is 2^63; no counter of a GPU gets there, so everything from here on is a blank (or infinite)."""
_BLANKS = frozenset(
    {float(base + kind) for base in (0x7FFFFFF0, 1 << 47) for kind in range(4)} | {float(0xFFFF), float(0xFFFFFFFF)}
)
