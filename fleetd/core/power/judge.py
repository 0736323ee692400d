"""A whole trace under an envelope: the worst of every window, in one list."""

from dataclasses import dataclass

from fleetd.core.power.checker import TOLERANCE, Trace, Worst, check_row, check_trace, log_spaced
from fleetd.model.envelope import Envelope, Interpolation, Semantics, window_text

BETWEEN = 24
"""Windows looked at between the shortest and the longest row, if the envelope says what holds between rows."""
JITTER = 0.01
"""By which samples meant for a window may lie further apart than it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One window of a trace."""

    window_s: float
    label: str
    row: str | None
    """The row's name; None: a window between rows."""
    semantics: Semantics
    resolved: bool
    """Whether the trace's pieces are typically as short as this window. If not, it shows breaks, never their lack."""
    worst: Worst | None
    """None: the trace is shorter than the window, which is therefore not judged."""

    @property
    def broken(self) -> bool:
        """Whether the envelope was broken."""
        return self.worst is not None and self.worst.ratio > 1 + TOLERANCE


def judge_trace(envelope: Envelope, trace: Trace) -> list[Judged]:
    """Judge every row that binds as it is meant, and windows between them unless only the listed ones bind."""
    rows, typical_s = envelope.enforced, trace.typical_s / (1 + JITTER)
    judged = [
        Judged(
            window_s=row.over_s,
            label=row.label,
            row=row.name,
            semantics=row.semantics,
            resolved=typical_s <= row.over_s,
            worst=check_row(envelope, row, trace),
        )
        for row in rows
    ]
    if envelope.interpolation is not Interpolation.LISTED and len(rows) > 1:
        between = log_spaced(rows[0].over_s, rows[-1].over_s, BETWEEN)[1:-1]
        judged += [
            Judged(
                window_s=worst.window_s,
                label=window_text(worst.window_s),
                row=None,
                semantics=Semantics.WINDOW_AVG,
                resolved=typical_s <= worst.window_s,
                worst=worst,
            )
            for worst in check_trace(envelope, trace, between)
        ]
    return sorted(judged, key=lambda j: j.window_s)
