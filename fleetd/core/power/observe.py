"""What one part's power did in the last minute, from the finest samples that are read: for audit, never for control.

Samples come in lots: each covers the time since the one before it. Every two seconds what has come is put behind the
end of what came before, so that no window between two lots is missed, and judged as the checker judges a trace.
"""

import cmath
import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import sub

from fleetd.core.power.checker import Trace
from fleetd.core.power.ladder import Sight, sight
from fleetd.model.envelope import Band, Envelope
from fleetd.model.power import PowerSeen, WindowShown

HORIZON_S = 60.0
"""So long a slice is told."""
SLICE_S = 2.0
"""Between two judgements; NVIDIA's ring of samples holds 2.36 s (measured on an H200)."""
RAMP_S = 0.1
"""Ramps are judged over this time, as in the shaper's specification."""
GAP = 3.0
"""A pause of more than so many usual spacings is a gap: nothing is said of a window that reaches over it."""
SAMPLES_MAX = 4096
"""In one lot, and for one spectrum; more of a lot are dropped, oldest first."""
_EVEN = 0.2
"""Samples whose spacings differ by no more than this ratio are judged as evenly spaced, which is ten times cheaper."""
_MOST = 0.9
"""A slice is whole when it has so much of its time: the last spacing is still to come."""
_NEARLY = 0.95
"""Samples come with jitter: a window of one spacing is one sample, though it may be a little shorter."""


def windows_shown(envelope: Envelope) -> tuple[WindowShown, ...]:
    """The envelope's rows, as they are shown beside what is seen; shortest first."""
    keep = 1.0 - envelope.margin.total
    rows = {row.label: row for row in sorted(envelope.windows, key=lambda row: row.enforced)}  # of two, what binds
    return tuple(
        WindowShown(
            label=row.label,
            over_s=row.over_s,
            allowed_ratio=row.max_ratio * keep if row.enforced and row.max_ratio is not None else None,
            certified=row.enforced and sight(envelope, row.over_s)[0] is Sight.CERTIFIED,
        )
        for row in sorted(rows.values(), key=lambda row: row.over_s)
    )


def sights(windows: Sequence[WindowShown], seen: PowerSeen | None, *, held: bool) -> dict[str, str]:
    """How well each window of one GPU is kept, by label; as in the ladder, but for the samples that there really are.

    Args:
        windows: of the envelope.
        seen: of the GPU.
        held: the governor holds its limits; in `observe` nothing does, however fast it could.
    """

    def of(row: WindowShown) -> Sight:
        if row.certified and held:
            return Sight.CERTIFIED
        fine = seen is not None and row.over_s >= _NEARLY * seen.spacing_s
        return Sight.AUDITED if fine else Sight.UNOBSERVABLE

    return {row.label: of(row).value for row in windows}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """Two seconds."""

    at_s: float
    spacing_s: float
    windows_watts: tuple[float | None, ...]
    low_watts: float
    high_watts: float
    up: float | None
    down: float | None
    band_ratio: float | None


class Track:
    """One part. `seen` may be read from another thread; `push` is called from one."""

    def __init__(self, envelope: Envelope) -> None:
        rows = {row.label: row.over_s for row in envelope.windows if row.over_s <= HORIZON_S}
        self._rows, self._band = tuple(rows.items()), envelope.lower.band
        self._tail_s = max([RAMP_S, *rows.values()])
        self._samples: list[tuple[float, float]] = []
        self._fresh = 0
        self._spectrum: list[float] = []
        self._slices: deque[_Slice] = deque()
        self.seen: PowerSeen | None = None
        """None until two seconds have been seen."""

    def push(self, samples: Sequence[tuple[float, float]]) -> None:
        """Take samples, (seconds on one clock, watts), each newer than the last; others are left out."""
        if samples and self._samples and samples[-1][0] < self._samples[-1][0] - HORIZON_S:
            self._samples, self._fresh, self._spectrum = [], 0, []  # the clock was set back
            self._slices.clear()
        last_s = self._samples[-1][0] if self._samples else -math.inf
        fresh = {at_s: watts for at_s, watts in samples[-SAMPLES_MAX:] if at_s > last_s and 0.0 <= watts < math.inf}
        self._samples += sorted(fresh.items())
        self._fresh += len(fresh)
        if self._fresh and self._samples[-1][0] - self._samples[-self._fresh][0] >= SLICE_S * _MOST:
            self._judge()

    def _judge(self) -> None:
        times_s = [at_s for at_s, _ in self._samples]
        spacings = list(map(sub, times_s[1:], times_s))
        spacing_s = statistics.median(spacings) if spacings else math.inf
        gaps = []
        if spacings and max(spacings) > GAP * spacing_s:
            gaps = [place for place, apart in enumerate(spacings, 1) if apart > GAP * spacing_s]
        kept, lengths = (self._samples[gaps[-1] :], spacings[gaps[-1] :]) if gaps else (self._samples, spacings)
        if gaps:
            self._spectrum.clear()
        fresh, self._fresh = min(self._fresh, len(kept)), 0
        if len(kept) > 1:
            self._slices.append(self._slice(kept, lengths, fresh, spacing_s))
        end_s = kept[-1][0]
        while self._slices and self._slices[0].at_s < end_s - HORIZON_S:
            self._slices.popleft()
        self._samples = [one for one in kept if one[0] > end_s - self._tail_s - spacing_s][-SAMPLES_MAX:]
        self.seen = self._sum()

    def _slice(self, kept: list[tuple[float, float]], lengths: list[float], fresh: int, spacing_s: float) -> _Slice:
        """Judge samples that have these spacings, of which the last ones are fresh."""
        watts = [drawn for _, drawn in kept]
        even = max(lengths) - min(lengths) <= _EVEN * spacing_s
        trace = None if even else Trace(watts[1:], lengths)
        up, down = _ramps(watts, spacing_s) if spacing_s <= RAMP_S / 2 else (None, None)
        drawn, joules = watts[-fresh:], list(accumulate(watts[1:], initial=0.0)) if even else []
        return _Slice(
            at_s=kept[-1][0],
            spacing_s=spacing_s,
            windows_watts=tuple(
                None
                if over_s < _NEARLY * spacing_s
                else _worst(watts[1:], joules, spacing_s, over_s)
                if trace is None
                else (trace.worst_average(over_s) or (None,))[0]
                for _, over_s in self._rows
            ),
            low_watts=min(drawn),
            high_watts=max(drawn),
            up=up,
            down=down,
            band_ratio=None if self._band is None else self._oscillation(self._band, drawn, spacing_s),
        )

    def _oscillation(self, band: Band, drawn: Sequence[float], spacing_s: float) -> float | None:
        """Once enough samples for the band's lowest frequency have come; None: not now, or they are too far apart."""
        if 2.0 * band.high_hertz * spacing_s > 1.0:
            return None
        needed = 1 << math.ceil(math.log2(1.0 / (band.low_hertz * spacing_s)))
        self._spectrum.extend(drawn)
        if needed > SAMPLES_MAX or len(self._spectrum) < needed:
            del self._spectrum[:-SAMPLES_MAX]
            return None
        watts, self._spectrum = self._spectrum[-needed:], []
        return ac_ratio(watts, spacing_s, band)

    def _sum(self) -> PowerSeen | None:
        if not self._slices:
            return None
        slices = self._slices
        windows = {
            label: worst
            for place, (label, _) in enumerate(self._rows)
            if (worst := _most(one.windows_watts[place] for one in slices)) is not None
        }
        return PowerSeen(
            spacing_s=slices[-1].spacing_s,
            windows_watts=windows,
            swing_watts=max(one.high_watts for one in slices) - min(one.low_watts for one in slices),
            ramp_up_watts_per_second=_most(one.up for one in slices),
            ramp_down_watts_per_second=_most(one.down for one in slices),
            band_ratio=_most(one.band_ratio for one in slices),
        )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _worst(watts: Sequence[float], joules: Sequence[float], spacing_s: float, over_s: float) -> float | None:
    """Highest average over every window of a length, of evenly spaced samples; None: there are too few.

    `joules`: sums of all samples before each, and of all. As in `Trace.worst_average`: over power that is constant
    between samples, the worst window begins or ends with one.
    """
    whole, part = divmod(over_s / spacing_s, 1.0)
    count = int(whole) + (part > _NEARLY)
    part = part if 1.0 - _NEARLY < part <= _NEARLY else 0.0
    if count + (part > 0) > len(watts):
        return None
    sums: list[float] = list(map(sub, joules[count:], joules))
    if part:
        later = (a + part * b for a, b in zip(sums, watts[count:], strict=False))
        sooner = (a + part * b for a, b in zip(sums[1:], watts, strict=False))
        sums = [*later, *sooner]
    return max(sums) / (count + part)


def _ramps(watts: Sequence[float], spacing_s: float) -> tuple[float, float]:
    """Steepest rise and fall, in watts per second, between samples that are `RAMP_S` apart."""
    apart = max(1, round(RAMP_S / spacing_s))
    changes = list(map(sub, watts[apart:], watts)) or [0.0]
    up, down = max(changes), -min(changes)
    return max(0.0, up) / (apart * spacing_s), max(0.0, down) / (apart * spacing_s)


def ac_ratio(watts: Sequence[float], spacing_s: float, band: Band) -> float:
    """Amplitude of all oscillation inside a band together, to the mean; the shaper's test measures the same.

    Args:
        watts: evenly spaced; their number must be a power of two.
        spacing_s: between two of them.
        band: its ends belong to it.
    """
    mean = math.fsum(watts) / len(watts)
    if mean <= 0:
        return 0.0
    lines = _fft([complex(one - mean) for one in watts])[: len(watts) // 2 + 1]
    hertz = 1.0 / (len(watts) * spacing_s)
    inside = (abs(2 * line / len(watts)) ** 2 for at, line in enumerate(lines)
              if band.low_hertz <= at * hertz <= band.high_hertz)  # fmt: skip
    return math.sqrt(math.fsum(inside)) / mean


def _fft(values: list[complex]) -> list[complex]:
    """Cooley and Tukey, 1965; the number of values is a power of two. 512 of them take 2 ms."""
    count = len(values)
    if count == 1:
        return values
    even, odd = _fft(values[::2]), _fft(values[1::2])
    turned = [cmath.exp(-2j * cmath.pi * at / count) * one for at, one in enumerate(odd)]
    pairs = list(zip(even, turned, strict=True))
    return [a + b for a, b in pairs] + [a - b for a, b in pairs]
