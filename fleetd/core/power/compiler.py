"""Envelope → leaky buckets.

The rows bound the energy of any window, `E(t) - E(t - W) <= B(W) = (1 - margin)·m(W)·TBP·W`: an arrival curve.
Buckets are a concave one below it, `A(W) = min_j (depth_j + rate_j·W)`. There is no greatest such curve, so the
objective is stated: first the line through the last two rows, because its slope can then be drawn for ever; then the
allowance of the short windows, walking from the short end by chords whose slope never rises and never falls below that.
What a longer window would have allowed beyond it is given up.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

from fleetd.core.power.buckets import Bucket, Buckets
from fleetd.model.envelope import Envelope, Interpolation, Window, window_text

STEPS_PER_DOUBLING = 4
"""Knots of a log-linear stretch: with four, a ratio that falls by 0.3 a decade loses 0.06 % of TBP·W to the chords."""

_SAME = 1e-9
"""Relative: two slopes closer than this are one line."""

_ROUNDING = 1e-8
"""Relative: taken off every allowance, more than rounding and `_SAME` can add up to."""


class Infeasible(ValueError):  # noqa: N818 - a finding about an envelope, not a fault of the program
    """An envelope that contradicts itself, or that its part cannot keep.

    Attributes:
        row: Index in `windows` if it is the fault of one row, else None.
    """

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


def compile_envelope(envelope: Envelope) -> Buckets:
    """Compile the rows that bind.

    Returns:
        Buckets with rates strictly falling, the first of depth 0: instantaneous power is held to the ratio of the
        shortest row, since an average over a shorter window is bounded by nothing else.

    Raises:
        Infeasible: No row binds, the rows contradict each other, or the part cannot keep them.
    """
    rows = envelope.enforced
    _contradictions(envelope)
    scale = envelope.tbp_watts * (1 - envelope.margin.total) * (1 - _ROUNDING)
    knots = [(w, m * scale * w) for w, m in _ladder(rows, envelope.interpolation)]
    last_s, last_joules = knots[-1]
    before_s, before_joules = _second_last(rows, envelope.interpolation, scale)
    rate = (last_joules - before_joules) / (last_s - before_s)
    buckets = _concave(_leaving(rate, knots))
    compiled = Buckets(buckets=buckets, sustained_watts=buckets[-1].rate_watts)
    _part_can_keep(envelope, compiled)
    return compiled


def filtered_limiter(limit_watts: float, tau_s: float) -> Bucket:
    """Return the bucket that a limiter on filtered power is worth: `(P·τ, P)`.

    With y the first-order filter of p, `p = y + τ·y'`, and 0 ≤ y ≤ P: the integral of p over W is at most P·W + τ·P.
    """
    return Bucket(name="limiter", rate_watts=limit_watts, depth_joules=limit_watts * tau_s)


def _contradictions(envelope: Envelope) -> None:
    """Refuse rows of which one makes another unreachable: whoever wrote them meant something else."""
    bound: tuple[int, Window] | None = None
    for number, row in enumerate(envelope.windows):
        if not row.enforced:
            continue
        if bound is not None:
            _follows(bound[1], row, number)
        bound = (number, row)
    if bound is None:
        raise Infeasible("no row binds: every ratio is unknown or superseded, so there is nothing to keep")


def _follows(shorter: Window, longer: Window, number: int) -> None:
    if shorter.max_ratio is None or longer.max_ratio is None:
        return
    if longer.max_ratio > shorter.max_ratio:
        raise Infeasible(
            f"{longer.name} allows {longer.max_ratio:g}x, more than the {shorter.max_ratio:g}x that the shorter window "
            f"{shorter.name} lets through; one of them must supersede the other",
            row=number,
        )
    if longer.max_ratio * longer.over_s <= shorter.max_ratio * shorter.over_s:
        raise Infeasible(
            f"{longer.name} allows no more energy than the shorter window {shorter.name}, "
            "so that nothing may be drawn between them",
            row=number,
        )


def _ladder(rows: Sequence[Window], interpolation: Interpolation) -> list[tuple[float, float]]:
    """Windows in seconds and their ratios at which the curve has to be met; between them it is met by concavity."""
    known = [(row.over_s, row.max_ratio) for row in rows if row.max_ratio is not None]
    match interpolation:
        case Interpolation.LISTED:
            return known
        case Interpolation.STEP:
            # Just above a row the next row's ratio holds, and energy cannot fall: so it holds at the row already.
            following = [ratio for _, ratio in known[1:]] + [known[-1][1]]
            return [(over, ratio) for (over, _), ratio in zip(known, following, strict=True)]
        case Interpolation.LOGLINEAR:
            return [*(knot for a, b in itertools.pairwise(known) for knot in _between(a, b)), known[-1]]


def _between(a: tuple[float, float], b: tuple[float, float]) -> Iterable[tuple[float, float]]:
    """The first of two rows and the knots up to, not including, the second."""
    span = math.log2(b[0] / a[0])
    steps = max(1, math.ceil(span * STEPS_PER_DOUBLING))
    for k in range(steps):
        yield a[0] * 2 ** (span * k / steps), a[1] + (b[1] - a[1]) * k / steps


def _second_last(rows: Sequence[Window], interpolation: Interpolation, scale: float) -> tuple[float, float]:
    """Where the line that decides the sustained rate begins: the row before the last one, or the origin."""
    if len(rows) == 1:
        return 0.0, 0.0
    of, ratio = rows[-2].over_s, (rows[-1] if interpolation is Interpolation.STEP else rows[-2]).max_ratio
    assert ratio is not None  # noqa: S101 - rows that bind have one
    return of, ratio * scale * of


def _leaving(rate: float, knots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Lower each knot so that the sustained rate can still be drawn from there on to every longer window.

    It stays above `rate` times the window: ratios do not rise, and none is below the rate.
    """
    kept: list[tuple[float, float]] = [knots[-1]]
    for over_s, joules in reversed(knots[:-1]):
        longer_s, longer = kept[-1]
        kept.append((over_s, min(joules, longer - rate * (longer_s - over_s))))
    return kept[::-1]


def _concave(knots: Sequence[tuple[float, float]]) -> tuple[Bucket, ...]:
    """Chords from the origin through the knots, each slope clipped to the one before it."""
    lines: list[tuple[float, float, float]] = []
    at_s, joules, slope = 0.0, 0.0, math.inf
    for over_s, allowed in knots:
        chord = (allowed - joules) / (over_s - at_s)
        if chord < slope * (1 - _SAME):
            slope = chord
            lines.append((at_s, slope, joules - slope * at_s))
        joules += slope * (over_s - at_s)
        at_s = over_s
    ends = [window_text(since) for since, _, _ in lines[1:]] + ["for ever"]
    return tuple(
        Bucket(name=f"{window_text(since) if since else '0'} … {end}", rate_watts=rate, depth_joules=max(0.0, depth))
        for (since, rate, depth), end in zip(lines, ends, strict=True)
    )


def _part_can_keep(envelope: Envelope, compiled: Buckets) -> None:
    """Safe cap and lowest draw are constant powers: they keep every bucket if they stay within every rate."""
    if envelope.safe_cap_watts > compiled.sustained_watts:
        raise Infeasible(
            f"the safe cap of {envelope.safe_cap_watts:g} W is above the {compiled.sustained_watts:.1f} W that the "
            "rows and the margin allow for ever: it would break the envelope with no software running"
        )
    floor = envelope.lower.floor_watts
    if floor is not None and floor > envelope.safe_cap_watts:
        raise Infeasible(
            f"the floor of {floor:g} W is above the safe cap of {envelope.safe_cap_watts:g} W: under the cap it cannot "
            "be held"
        )
    lowest = envelope.lowest_draw_watts
    if lowest is not None and lowest > compiled.sustained_watts:
        raise Infeasible(
            f"the part draws up to {lowest:g} W at its lowest clock, more than the {compiled.sustained_watts:.1f} W "
            "that the rows and the margin allow for ever: no clock keeps this envelope"
        )
