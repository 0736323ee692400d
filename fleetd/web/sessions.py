"""Sessions of browsers: a token once, then a cookie.

A session is as good as its token: it ends with the line in the file, with the token's expiry, or after its own time.
"""

import hmac
from collections import OrderedDict
from dataclasses import dataclass

from fleetd.ports import Clock, Peer
from fleetd.web.tokens import Secret, TokenFile, digest_of

SESSIONS_MAX = 1024
"""Open at once; with one more the oldest ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One browser that has logged in."""

    token: str
    """Digest of the token it was opened with."""
    csrf: str
    """What a change by this session has to show in a header: another site's page cannot read it."""
    until_s: float
    """Elapsed time."""


class Sessions:
    """The open sessions, in memory: they end with the process."""

    def __init__(self, tokens: TokenFile, *, clock: Clock, secret: Secret, session_s: float) -> None:
        self._tokens = tokens
        self._clock = clock
        self._secret = secret
        self.session_s = session_s
        self._open: OrderedDict[str, Session] = OrderedDict()  # by the digest of the cookie: oldest first

    def owner(self, token: str) -> Peer | None:
        """Whose token it is; None: it is not let in."""
        return self._tokens.peer(digest_of(token))

    def open(self, token: str) -> tuple[str, Session]:
        """Open a session by a token that has an owner; returns its cookie."""
        cookie = self._secret()
        session = Session(token=digest_of(token), csrf=self._secret(), until_s=self._clock.elapsed_s() + self.session_s)
        self._open[digest_of(cookie)] = session
        if len(self._open) > SESSIONS_MAX:
            self._open.popitem(last=False)
        return cookie, session

    def find(self, cookie: str) -> tuple[Session, Peer] | None:
        """The session of a cookie; None when there is none or it has ended."""
        key = digest_of(cookie)
        session = self._open.get(key)
        if session is None:
            return None
        peer = self._tokens.peer(session.token)
        if peer is None or session.until_s <= self._clock.elapsed_s():
            del self._open[key]
            return None
        return session, peer

    def close(self, cookie: str) -> None:
        """End a session; idempotent."""
        self._open.pop(digest_of(cookie), None)


def same_secret(given: str, kept: str) -> bool:
    """Compare without telling by the time it takes how much of it was right."""
    return hmac.compare_digest(given.encode(), kept.encode())
