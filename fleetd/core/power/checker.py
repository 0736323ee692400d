"""Whether power kept an envelope: the worst average over every window length, at every offset.

Written without the compiler, from the meaning of the rows alone. Power is a step function: piece k draws `watts[k]`
for `seconds[k]`, in any pieces. The energy of a window is then piecewise linear in where the window begins, so that its
maximum lies where the window begins or ends on an edge of a piece: looking there is exact, one pass a length is enough.
"""

import bisect
import itertools
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleetd.core.power.buckets import Buckets
from fleetd.model.envelope import Envelope, Interpolation, Semantics, Window

TOLERANCE = 1e-9
"""Relative: a ratio of 1 + this is rounding, not an excursion."""

MAX_EDGES = 1_000_000
"""What a `WindowMeter` keeps: a window of 20 s at 20 µs a piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The window that comes nearest to its allowance, or furthest beyond it."""

    window_s: float
    ratio: float
    """Its average power to what it may average; above 1 the envelope is broken."""
    watts: float
    """Its average power."""
    at_s: float
    """When it begins, from the start of the trace."""


class Trace:
    """Power over time as a step function, with its energy up to each edge."""

    def __init__(self, watts: Sequence[float], seconds: Sequence[float]) -> None:
        """Take one draw and one length for each piece. Raises ValueError when they are no trace."""
        if not watts or len(watts) != len(seconds):
            raise ValueError("a trace needs as many lengths as draws, and at least one")
        if not all(math.isfinite(w) and w >= 0 for w in watts) or not all(math.isfinite(s) and s > 0 for s in seconds):
            raise ValueError("a trace needs finite draws of at least 0 W, and lengths above 0 s")
        self.watts = tuple(watts)
        self.edges_s = tuple(itertools.accumulate(seconds, initial=0.0))
        drawn = (w * s for w, s in zip(watts, seconds, strict=True))
        self.joules = tuple(itertools.accumulate(drawn, initial=0.0))

    @property
    def duration_s(self) -> float:
        """Length of the whole trace."""
        return self.edges_s[-1]

    @property
    def typical_s(self) -> float:
        """Median length of its pieces: one short piece among long ones shows nothing of what lies within those."""
        return statistics.median(b - a for a, b in itertools.pairwise(self.edges_s))

    def worst_average(self, window_s: float) -> tuple[float, float] | None:
        """Highest average over every window of this length, and where it begins; None if the trace is shorter.

        Returns:
            Watts and seconds.

        Raises:
            ValueError: The window is not above 0.
        """
        if window_s <= 0:
            raise ValueError("a window needs a length above 0 s")
        if window_s > self.duration_s * (1 + TOLERANCE):
            return None
        ends = [(edge - window_s, edge) for edge in self.edges_s if edge >= window_s]
        begins = [(edge, edge + window_s) for edge in self.edges_s if edge + window_s <= self.duration_s]
        best = (-math.inf, 0.0)
        for windows in (ends, begins):
            until, since = self._reader(), self._reader()
            best = max(best, max(((until(b) - since(a), -a) for a, b in windows), default=best))
        energy, at = best if math.isfinite(best[0]) else (self.joules[-1], 0.0)
        return energy / window_s, abs(at)

    def longest_above(self, watts: float) -> tuple[float, float]:
        """Longest stretch of power above a level without a break, and where it begins, in seconds."""
        best, begun = (0.0, 0.0), None
        for draw, (edge, following) in zip(self.watts, itertools.pairwise(self.edges_s), strict=True):
            begun = (edge if begun is None else begun) if draw > watts * (1 + TOLERANCE) else None
            if begun is not None and following - begun > best[0]:
                best = (following - begun, begun)
        return best

    def _reader(self) -> Callable[[float], float]:
        """Energy up to a time, for times that do not fall: walks the edges once."""
        piece = 0

        def read(at_s: float) -> float:
            nonlocal piece
            while piece < len(self.watts) - 1 and self.edges_s[piece + 1] <= at_s:
                piece += 1
            return self.joules[piece] + self.watts[piece] * (at_s - self.edges_s[piece])

        return read


class WindowMeter:
    """The worst average of one window length over power that arrives piece by piece; equal to `Trace.worst_average`.

    Keeps the edges of the last window only, at most `max_edges` of them.
    """

    def __init__(self, window_s: float, *, max_edges: int = MAX_EDGES) -> None:
        if window_s <= 0:
            raise ValueError("a window needs a length above 0 s")
        self._window_s = window_s
        self._max = max_edges
        self._pieces: deque[tuple[float, float]] = deque()
        self._held_s = self._energy = 0.0
        self.worst_watts: float | None = None
        """Highest average so far; None until a whole window has passed."""

    def push(self, watts: float, seconds: float) -> None:
        """Take the next piece. Raises ValueError for pieces so short that a window of them cannot be kept."""
        self._pieces.append((watts, seconds))
        self._held_s += seconds
        self._energy += watts * seconds
        while self._held_s > self._window_s:
            self._slide(watts)
        if len(self._pieces) > self._max:
            raise ValueError(f"a window of {self._window_s} s has more than {self._max} pieces; join short ones")
        if self._held_s >= self._window_s * (1 - TOLERANCE):
            self._note(self._energy)

    def _slide(self, newest_watts: float) -> None:
        """Drop what the window has left behind, up to the next edge; note the window that begins where it began."""
        watts, seconds = self._pieces[0]
        over = self._held_s - self._window_s
        # While the front piece is being left, the end of the window moves through the newest piece: the window that
        # began where the front piece begins had not yet seen `over` of it.
        self._note(self._energy - newest_watts * min(over, self._pieces[-1][1]))
        gone = min(seconds, over)
        self._held_s -= gone
        self._energy -= watts * gone
        if gone < seconds:
            self._pieces[0] = (watts, seconds - gone)
        else:
            self._pieces.popleft()

    def _note(self, joules: float) -> None:
        average = joules / self._window_s
        if self.worst_watts is None or average > self.worst_watts:
            self.worst_watts = average


# ── the envelope ────────────────────────────────────────────────────────────────────────────────────────────────────


def allowed_watts(envelope: Envelope, window_s: float) -> float:
    """Most that any window of this length may average, without the margin.

    Below the shortest row its ratio holds, above the longest row that one's. Raises ValueError when no row binds.
    """
    rows = [(row.over_s, row.max_ratio) for row in envelope.enforced if row.max_ratio is not None]
    if not rows:
        raise ValueError("no row binds")
    at = bisect.bisect_left(rows, (window_s,))
    if at == len(rows):
        return rows[-1][1] * envelope.tbp_watts
    longer_s, longer = rows[at]
    if at == 0 or window_s == longer_s:
        ratio = longer
    else:
        shorter_s, shorter = rows[at - 1]
        match envelope.interpolation:
            case Interpolation.STEP:
                ratio = longer
            case Interpolation.LISTED:
                part = (window_s - shorter_s) / (longer_s - shorter_s)
                ratio = (shorter * shorter_s * (1 - part) + longer * longer_s * part) / window_s
            case Interpolation.LOGLINEAR:
                ratio = shorter + (longer - shorter) * math.log(window_s / shorter_s) / math.log(longer_s / shorter_s)
    return ratio * envelope.tbp_watts


def check_buckets(envelope: Envelope, buckets: Buckets, windows_s: Iterable[float]) -> Worst:
    """Compare what the buckets let through with `(1 - margin)·B(W)`; sound if the worst ratio is at most 1."""
    worst: Worst | None = None
    for window_s in windows_s:
        watts = buckets.energy_joules(window_s) / window_s
        ratio = watts / (allowed_watts(envelope, window_s) * (1 - envelope.margin.total))
        if worst is None or ratio > worst.ratio:
            worst = Worst(window_s=window_s, ratio=ratio, watts=watts, at_s=0.0)
    if worst is None:
        raise ValueError("there is no window to check")
    return worst


def check_trace(envelope: Envelope, trace: Trace, windows_s: Iterable[float]) -> list[Worst]:
    """Find the worst window of each length in a trace, against the allowance without the margin.

    Windows longer than the trace are left out: what was not seen is not judged.
    """
    found = []
    for window_s in windows_s:
        average = trace.worst_average(window_s)
        if average is not None:
            ratio = average[0] / allowed_watts(envelope, window_s)
            found.append(Worst(window_s=window_s, ratio=ratio, watts=average[0], at_s=average[1]))
    return found


def check_row(envelope: Envelope, row: Window, trace: Trace) -> Worst | None:
    """Judge a trace by one row as it is meant; None if the row has no number or the trace is too short for it.

    For a `dwell` row the ratio is the longest stretch above its level to its window.
    """
    if row.max_ratio is None or row.over_s > trace.duration_s * (1 + TOLERANCE):
        return None
    limit = row.max_ratio * envelope.tbp_watts
    if row.semantics is Semantics.DWELL:
        held_s, at_s = trace.longest_above(limit)
        return Worst(window_s=row.over_s, ratio=held_s / row.over_s, watts=limit, at_s=at_s)
    average = trace.worst_average(row.over_s)
    if average is None:
        return None
    return Worst(window_s=row.over_s, ratio=average[0] / limit, watts=average[0], at_s=average[1])


def log_spaced(low_s: float, high_s: float, count: int) -> list[float]:
    """Windows from low to high, each a fixed factor above the one before it."""
    factor = math.log(high_s / low_s) / max(1, count - 1)
    return [low_s * math.exp(factor * k) for k in range(count)]
