"""What detection remembers between two readings: windows of counters, shares of time, episodes. Pure.

A verdict has three values: True (it is so), False (it is not so) and None (nothing was read that could tell). None
never begins an episode and never ends one: what was not seen is neither a fault nor its cure.
"""

from dataclasses import dataclass, replace
from enum import Enum

GAP_MAX_S = 30.0
"""A reading speaks for the time since the one before, but for no more than this: what lies back further was unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A counter since the beginning of a window."""

    start_s: float
    value: float
    verdict: bool | None = None
    """Of the last window that was decided; it holds until the next one is."""


def count(
    window: Window | None, value: float | None, *, now_s: float, at_least: float, within_s: float
) -> Window | None:
    """Follow a counter, and judge its rate.

    The verdict turns True as soon as the counter has grown by `at_least` within the window, and False when a whole
    window ended below that. A window that ran over, because nothing was read for a while, is judged by its mean rate.
    The first value ever is where counting begins: what happened before the agent came is history. A counter that goes
    backwards (driver reload, or a lie) begins anew and says nothing.

    Args:
        window: What this function returned last; None at first.
        value: The counter now; None when it was not read, which makes the verdict None and keeps the window.
        now_s: Monotonic seconds.
        at_least: Growth within a window that is too much, in units of the counter.
        within_s: Length of the window, seconds.
    """
    if value is None:
        return window if window is None or window.verdict is None else replace(window, verdict=None)
    if window is None or value < window.value:
        return Window(start_s=now_s, value=value)
    grown, passed_s = value - window.value, now_s - window.start_s
    if grown >= at_least * max(1.0, passed_s / within_s):
        return Window(start_s=now_s, value=value, verdict=True)
    if passed_s >= within_s:
        return Window(start_s=now_s, value=value, verdict=False)
    return window


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """For how much of a window something was so."""

    last_s: float
    seen_s: float = 0.0
    bad_s: float = 0.0
    verdict: bool | None = None


def share(kept: Share | None, bad: bool | None, *, now_s: float, at_least: float, within_s: float) -> Share | None:
    """Follow a condition, and judge for which share of the time it holds.

    True as soon as it has held for `at_least` (0..1) of `within_s`; False when that much time was *seen* with less.
    Each reading speaks for the time since the one before, at most GAP_MAX_S. One short moment is no alarm.
    """
    if bad is None:
        return None if kept is None else replace(kept, last_s=now_s, verdict=None)
    if kept is None:
        return Share(last_s=now_s)
    passed_s = min(max(now_s - kept.last_s, 0.0), GAP_MAX_S)
    seen_s, bad_s = kept.seen_s + passed_s, kept.bad_s + (passed_s if bad else 0.0)
    if bad_s > 0.0 and bad_s >= at_least * within_s:
        return Share(last_s=now_s, verdict=True)
    if seen_s >= within_s:
        return Share(last_s=now_s, verdict=False)
    return Share(last_s=now_s, seen_s=seen_s, bad_s=bad_s, verdict=kept.verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
    """A value that has not changed, to the last bit, for some time."""

    value: float
    since_s: float
    last_s: float
    readings: int = 1


def same(kept: Same | None, value: float | None, *, now_s: float) -> Same | None:
    """Follow a value. A gap in the readings begins anew: an unchanged value on both sides of it proves nothing."""
    if value is None:
        return None
    if kept is None or value != kept.value or now_s - kept.last_s > GAP_MAX_S:
        return Same(value=value, since_s=now_s, last_s=now_s)
    return replace(kept, last_s=now_s, readings=kept.readings + 1)


class Turn(Enum):
    """What a verdict did to an episode."""

    NOTHING = 0
    RAISED = 1
    CLEARED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One condition of one GPU, from the moment it may have begun to the proof that it has ended."""

    raised: bool = False
    """It was told, and has not been proven over."""
    run_s: float = 0.0
    """For how long verdicts have spoken against the present state."""
    last_s: float | None = None
    """Monotonic time of the last of them; None: the last verdict did not speak against it."""
    began_at_s: float | None = None
    """Wall time at which a raised episode was told: part of the finding's identity."""


CALM = Episode()
"""Nothing is wrong, and nothing points that way."""


def turn(
    kept: Episode, verdict: bool | None, *, now_s: float, at_s: float, raise_s: float, clear_s: float
) -> tuple[Episode, Turn]:
    """Bring a verdict to an episode: it begins after `raise_s` of True without a break, ends after `clear_s` of False.

    A None begins the run towards a finding anew. On the way to the end it only stops the clock: some faults show under
    load alone, and a GPU idles between. Any True begins that run anew.
    Invariant: between two RAISED of the same condition there is a CLEARED, and `clear_s` of False before that.
    """
    if verdict is None and not kept.raised:
        return CALM, Turn.NOTHING
    if verdict is None:
        return (kept if kept.last_s is None else replace(kept, last_s=None)), Turn.NOTHING
    if verdict is kept.raised:
        quiet = not kept.run_s and kept.last_s is None
        return (kept if quiet else replace(kept, run_s=0.0, last_s=None)), Turn.NOTHING
    passed_s = 0.0 if kept.last_s is None else min(max(now_s - kept.last_s, 0.0), GAP_MAX_S)
    run_s = kept.run_s + passed_s
    if run_s < (raise_s if verdict else clear_s):
        return replace(kept, run_s=run_s, last_s=now_s), Turn.NOTHING
    if verdict:
        return Episode(raised=True, began_at_s=at_s), Turn.RAISED
    return CALM, Turn.CLEARED
