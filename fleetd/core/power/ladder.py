"""What can be promised of each window: certified, audited or unobservable, and why."""

from dataclasses import dataclass
from enum import StrEnum

from fleetd.core.power.buckets import Buckets
from fleetd.core.power.checker import allowed_watts
from fleetd.model.envelope import Envelope, Window, window_text


class Sight(StrEnum):
    """How well a window is kept."""

    CERTIFIED = "certified"
    """Something is fast enough to hold it, by proof."""
    AUDITED = "audited"
    """Nothing of ours is fast enough, but a violation is seen afterwards."""
    UNOBSERVABLE = "unobservable"
    """A violation would not even be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One window of the ladder."""

    window_s: float
    label: str
    row: Window | None
    """The envelope's row; None: a window between two rows."""
    allowed_watts: float | None
    """What it may average, margin taken; None: no number, or superseded."""
    compiled_watts: float | None
    """What the buckets let it average at most."""
    sight: Sight
    why: str


def ladder(envelope: Envelope, buckets: Buckets) -> list[Rung]:
    """Judge every row, and every decade between the shortest and the longest row that binds; shortest first."""
    rungs = [_rung(envelope, buckets, row.over_s, row) for row in envelope.windows]
    first, last = envelope.enforced[0].over_s, envelope.enforced[-1].over_s
    taken = {row.over_s for row in envelope.windows}
    decades = (10.0**k for k in range(-6, 4))
    rungs += [_rung(envelope, buckets, w, None) for w in decades if first < w < last and w not in taken]
    return sorted(rungs, key=lambda r: r.window_s)


def sight(envelope: Envelope, window_s: float) -> tuple[Sight, str]:
    """Say how well a window is kept, and why. The rows around it decide what it may average."""
    loop, kept = envelope.loop, allowed_watts(envelope, window_s) * (1 - envelope.margin.total)
    latency = loop.latency_s
    if latency is not None and envelope.knobs and window_s >= latency:
        return Sight.CERTIFIED, f"the host loop senses and acts in {window_text(latency)}"
    for knob in envelope.knobs:
        # P·τ + P·W <= kept·W: the highest set-point at which the firmware's filtered limiter keeps the window.
        if knob.tau_s is not None and (most := kept * window_s / (knob.tau_s + window_s)) >= knob.low_watts:
            return Sight.CERTIFIED, f"firmware, with {knob.name} at most {min(most, knob.high_watts):.0f} W"
    slow = "the host loop's latency is unknown" if latency is None else f"the host loop takes {window_text(latency)}"
    if not envelope.knobs:
        slow += ", no limit that it could set is known"
    if any(knob.tau_s is None for knob in envelope.knobs):
        slow += ", the firmware's filter is unknown"
    if loop.samples_s is not None and window_s >= loop.samples_s:
        return Sight.AUDITED, f"{slow}; samples every {window_text(loop.samples_s)} show it afterwards"
    if loop.samples_s is None:
        return Sight.UNOBSERVABLE, f"{slow}; so is the spacing of power samples"
    return Sight.UNOBSERVABLE, f"{slow}; power samples are {window_text(loop.samples_s)} apart"


def _rung(envelope: Envelope, buckets: Buckets, window_s: float, row: Window | None) -> Rung:
    label = row.label if row else window_text(window_s)
    if row is not None and not row.enforced:
        why = (
            "nobody published a number" if row.max_ratio is None else f"superseded by {row.superseded_by}; not enforced"
        )
        return Rung(
            window_s=window_s,
            label=label,
            row=row,
            allowed_watts=None,
            compiled_watts=None,
            sight=Sight.UNOBSERVABLE if row.max_ratio is None else sight(envelope, window_s)[0],
            why=why,
        )
    seen, why = sight(envelope, window_s)
    return Rung(
        window_s=window_s,
        label=label,
        row=row,
        allowed_watts=allowed_watts(envelope, window_s) * (1 - envelope.margin.total),
        compiled_watts=buckets.energy_joules(window_s) / window_s,
        sight=seen,
        why=why,
    )
