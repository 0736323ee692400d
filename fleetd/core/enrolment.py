"""Who gets a certificate, and when an agent asks for a new one."""

import re
from dataclasses import dataclass

from fleetd.model.ids import HostName

RENEW_LEFT_RATIO = (1 / 3, 0.4)
"""An agent renews when so much of its certificate's life is left, drawn for each certificate: a fleet that was enrolled
in one night does not renew in one. A third leaves weeks of a common life for a controller that is away."""
RETRY_LIFE_RATIO, RETRY_LEFT_RATIO = 1 / 100, 1 / 4
"""After a renewal that failed it waits the least of so much of the life, so much of what is left, and `LOOK_MAX_S`, but
at least `RETRY_MIN_S`; drawn from the upper half."""
RETRY_MIN_S = 60.0
SOON_S = 1.0
"""What is due so soon is due: the rest of a wait may be too short for a clock to show it."""
LOOK_MAX_S = 3600.0
"""The file is looked at this often at least: somebody may have replaced it."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
"""32 random bytes in URL-safe base64: nobody guesses one, so a plain SHA-256 of it may lie on a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """Sign, once the token is spent on the key."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """Do not sign."""

    why: str
    """What the other side is told."""


Ruling = Spend | Deny


def well_formed(token: str) -> bool:
    """Whether it can be a token at all."""
    return _TOKEN.fullmatch(token) is not None


def rule(
    *, now_s: float, host: HostName, key: str, bound_to: HostName | None, expires_at_s: float, spent_on: str | None
) -> Ruling:
    """Decide about one attempt to enrol.

    Args:
        now_s: wall time.
        host: whom the certificate is to name.
        key: digest of the public key that it is for.
        bound_to: the host that the token is for; None: no such token is known.
        expires_at_s: wall time from which the token is void.
        spent_on: the key that it was spent on; None: it was not.
    """
    anew = "a new one comes from `fleetd pki token HOST`"
    if bound_to is None:
        return Deny(why=f"no such token is known: {anew}")
    if bound_to != host:
        return Deny(why=f"the token is for another host than {host}: {anew}")
    if now_s >= expires_at_s:
        return Deny(why=f"the token has expired: {anew}")
    if spent_on is not None and spent_on != key:
        return Deny(why=f"the token was spent already, on another key; if that was not you, tell an operator; {anew}")
    return Spend(
        why="the token is good" if spent_on is None else "the token was spent on this key: the answer was lost"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Look again after this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """Renew now."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The certificate does not count any more, so that it proves nothing to renew with."""

    why: str
    seconds: float
    """Look again after so many."""


def renewal(*, now_s: float, begins_at_s: float, ends_at_s: float, draw: float) -> Wait | Renew | Ended:
    """Decide what an agent does about its certificate.

    Args:
        now_s: wall time.
        begins_at_s: wall time from which the certificate counts.
        ends_at_s: until when.
        draw: of this certificate, from 0 to 1: where in `RENEW_LEFT_RATIO` it is renewed.
    """
    life_s = max(ends_at_s - begins_at_s, 1.0)
    left_s = ends_at_s - now_s
    if left_s <= 0:
        return Ended(why="it has ended: enrol the host anew, or give it a new certificate", seconds=RETRY_MIN_S)
    low, high = RENEW_LEFT_RATIO
    due_in_s = left_s - life_s * (low + (high - low) * draw)
    if due_in_s > SOON_S:
        return Wait(seconds=min(due_in_s, LOOK_MAX_S))
    return Renew(why=f"{left_s / life_s:.0%} of its life is left")


def retry_s(*, now_s: float, begins_at_s: float, ends_at_s: float, draw: float) -> float:
    """How long to wait after a renewal that failed: the sooner the end, the shorter; `draw` from 0 to 1 spreads it."""
    longest_s = min((ends_at_s - begins_at_s) * RETRY_LIFE_RATIO, (ends_at_s - now_s) * RETRY_LEFT_RATIO, LOOK_MAX_S)
    return max(longest_s, RETRY_MIN_S) * (0.5 + draw / 2)
