"""An agent that stays away: a lost host, or a controller that lost its network.

Many agents that are away at once are a partition, and nobody is blamed. One that is away while the others are there is
a lost host: it does not count as healthy, and a human is told. Its hardware is not accused: nothing is known about it.
"""

from dataclasses import replace

from fleetd.core import storm
from fleetd.core.invariants import OUT_OF_SERVICE, SERVING
from fleetd.core.lifecycle import Draft
from fleetd.core.policy import Silence
from fleetd.model.event import AgentSilent
from fleetd.model.fleet import IncidentKind
from fleetd.model.host import Lifecycle, Silent

PARTITION_KEY = "agents"

PATIENCE = 3
"""A partition excuses those that come back late, but nobody for more than so many times the policy's `after_seconds` in
which most agents were there: a line that comes and goes for ever must not hide a host that is really lost."""


def is_partition(limits: Silence, *, away: int, known: int) -> bool:
    """Whether so many agents away out of so many known are rather the controller's own trouble."""
    return away >= max(limits.partition_at_least, limits.partition_ratio * known)


OVER_RATIO = 0.25
"""A partition that has opened is over when a quarter of what opened it is still away: the returning agents of a large
fleet pass the level at which it opened while thousands are still on their way back."""


def is_over(limits: Silence, *, missing: int, known: int) -> bool:
    """Whether a partition has ended: `missing` agents out of `known` are away and not told to be lost."""
    return missing < max(limits.partition_at_least, OVER_RATIO * limits.partition_ratio * known)


def patience_s(limits: Silence, *, calm_away_s: float) -> float:
    """Seconds until a host that was away in a partition counts as lost; 0 is at once.

    Args:
        limits: of the policy.
        calm_away_s: for how many seconds of its absence so far most agents were there (`is_partition` was false).
    """
    return max(0.0, min(limits.after_seconds, PATIENCE * limits.after_seconds - calm_away_s))


def _and_the_others(*, away: int, known: int) -> str:
    """What the other agents say about one that is away: nothing, when there is no other one."""
    if away < known:
        return f"and the others are there ({known - away} of {known})"
    return "and no other agent is there to tell whether the host or the controller's network is at fault"


def silent(draft: Draft, event: AgentSilent) -> None:
    """Judge a host whose agent has been away for as long as the policy allows."""
    host, limits = draft.host, draft.policy.silence
    if is_partition(limits, away=event.away, known=event.known):
        weather = storm.look(
            draft.record,
            now_s=draft.now_s,
            kind=IncidentKind.PARTITION,
            key=PARTITION_KEY,
            hosts=(),
            host=host.name,
            at_least=1,
            tell_again_s=draft.policy.tell_again_seconds,
            what="or more are cut off from the controller",
        )
        draft.record = weather.record
        said = f"{event.away} of {event.known} agents are away at once: the controller is cut off, no host is blamed"
        if weather.tell and weather.incident is not None:
            draft.page(said)
        draft.say(said)
        return
    if host.silent is not None and host.state not in SERVING:
        draft.say(f"its agent is still away, since {event.since_s:.0f}")
        return
    # Also one that was known to be silent and was given back to its users since: by a person, or by a hold's expiry.
    silent_now = Silent(since_s=event.since_s, before=host.state)
    others = _and_the_others(away=event.away, known=event.known)
    said = f"its agent has been away for {draft.now_s - event.since_s:.0f} seconds, {others}"
    if host.state in OUT_OF_SERVICE:
        draft.set(silent=silent_now)
        draft.say(said)  # whoever took it out, or repairs it, may have switched it off: nobody is called for that
        return
    if host.state in SERVING:
        draft.move(Lifecycle.SUSPECT, f"host lost: {said}")
    else:
        draft.say(said)
    draft.set(silent=silent_now)
    draft.notify(f"host lost: {said}", about="silent")


def heard_again(draft: Draft) -> None:
    """The agent said hello: the host is again what it was before it fell silent, if nothing else is known of it."""
    silent_now = draft.host.silent
    if silent_now is None:
        return
    draft.set(silent=None, told=tuple(t for t in draft.host.told if t.about != "silent"))
    draft.say(f"its agent is back after {draft.now_s - silent_now.since_s:.0f} seconds")
    if draft.host.state is Lifecycle.SUSPECT and silent_now.before in SERVING and not draft.host.charges:
        draft.host = replace(
            draft.host, state=silent_now.before, since_s=draft.now_s, why="it was silent and is back, nothing else"
        )
