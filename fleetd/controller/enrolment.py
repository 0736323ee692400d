"""Where hosts come by their certificates: tokens for operators to give out, certificates for tokens, renewals.

Always true: a token is spent, on disk, before anything is signed for it; every attempt is in the audit, and in the log.
"""

import hashlib
from collections.abc import Callable
from typing import TypeVar, assert_never

import structlog

from fleetd.core.enrolment import Deny, Spend, rule, well_formed
from fleetd.model.ids import HostName
from fleetd.ports import Attempt, Clock, Peer, Refused, RunBlocking, Signer, Token, TokenBook, TokenRecord

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class Enrolment:
    """The controller's `IdentityDoor`."""

    def __init__(
        self,
        *,
        book: TokenBook,
        signer: Signer,
        clock: Clock,
        run_blocking: RunBlocking,
        secret: Callable[[], str],
        token_s: float,
    ) -> None:
        """Wire it.

        Args:
            book: keeps tokens and the audit.
            signer: the authority.
            clock: wall time.
            run_blocking: for both of them: they wait for a disk.
            secret: draws a token.
            token_s: seconds that a token counts.
        """
        self._book = book
        self._signer = signer
        self._clock = clock
        self._run_blocking = run_blocking
        self._secret = secret
        self._token_s = token_s

    async def issue_token(self, peer: Peer, host: HostName, reason: str) -> Token:
        """Let a host enrol, once. Raises Refused, StoreError."""
        now_s = self._clock.wall_s()
        made: list[Token] = []

        def issue() -> None:
            made.append(
                issue_token(
                    self._book, peer, host, reason, now_s=now_s, expires_at_s=now_s + self._token_s, secret=self._secret
                )
            )

        await self._run_blocking(issue)
        _log.info("identity_given", what="token", host=host, who=f"operator:{peer.name}", why=reason)
        return made[0]

    async def enrol(self, address: str, token: str, host: HostName, csr: str) -> str:
        """Spend a token: the PEM chain for the host. Raises Refused, StoreError, UplinkError."""
        return await self._audited("enrol", host, address, lambda: self._enrol(token, host, csr))

    async def renew(self, peer: Peer, csr: str) -> str:
        """A new certificate for the agent that asks: its PEM chain. Raises Refused, StoreError, UplinkError."""
        host = HostName(peer.name)

        def renew() -> tuple[str, str]:
            if peer.role != "agent":
                raise Refused(f"{peer.name} has the role {peer.role}; only an agent renews its certificate")
            return self._sign(host, csr), "its certificate was good"

        return await self._audited("renew", host, f"agent:{peer.name}", renew)

    def _enrol(self, token: str, host: HostName, csr: str) -> tuple[str, str]:
        request = self._signer.read(csr)
        digest = digest_of(token)
        record = self._book.token(digest) if well_formed(token) else None
        ruling = rule(
            now_s=self._clock.wall_s(),
            host=host,
            key=request.key,
            bound_to=None if record is None else record.host,
            expires_at_s=0.0 if record is None else record.expires_at_s,
            spent_on=None if record is None else record.spent_on,
        )
        match ruling:
            case Deny(why=why):
                raise Refused(why)
            case Spend(why=why):
                if not self._book.spend(digest, request.key):
                    raise Refused("the token was spent by another request at this moment")
                return self._sign(host, csr), why
            case _:
                assert_never(ruling)

    def _sign(self, host: HostName, csr: str) -> str:
        chain, _validity = self._signer.sign(host, self._signer.read(csr), now_s=self._clock.wall_s())
        return chain

    async def _audited(self, what: str, host: HostName, who: str, step: Callable[[], tuple[str, str]]) -> str:
        """Run a step on a thread, and note what became of it before anybody hears of it."""
        made: list[str] = []
        refused: list[Refused] = []

        def work() -> None:
            try:
                chain, why = step()
            except Refused as error:
                refused.append(error)
                self._note(what, host, who, refused=True, why=str(error))
            else:
                made.append(chain)
                self._note(what, host, who, refused=False, why=why)

        await self._run_blocking(work)
        if refused:
            raise refused[0]
        return made[0]

    def _note(self, what: str, host: HostName, who: str, *, refused: bool, why: str) -> None:
        self._book.note(Attempt(at_s=self._clock.wall_s(), what=what, host=host, who=who, refused=refused, why=why))
        say = _log.warning if refused else _log.info
        say("identity_refused" if refused else "identity_given", what=what, host=host, who=who, why=why)


def issue_token(
    book: TokenBook,
    peer: Peer,
    host: HostName,
    reason: str,
    *,
    now_s: float,
    expires_at_s: float,
    secret: Callable[[], str],
) -> Token:
    """Make a token and keep its digest; blocks. Also for a person on the controller's machine.

    Args:
        book: where it is kept.
        peer: who asks.
        host: the only one that it is for.
        reason: for the audit.
        now_s: wall time.
        expires_at_s: wall time from which it is void.
        secret: draws it.

    Raises:
        Refused: the peer is no operator, gives no reason, or too many tokens wait.
        StoreError: the disk refuses.
    """
    if peer.role != "operator":
        raise Refused(f"{peer.name} has the role {peer.role}; only an operator may let hosts enrol")
    reason = " ".join(reason.split())
    if not reason:
        raise Refused("say why: a token needs a reason")
    token = secret()
    book.issue(digest_of(token), TokenRecord(host=host, expires_at_s=expires_at_s), now_s=now_s)
    book.note(Attempt(at_s=now_s, what="token", host=host, who=f"operator:{peer.name}", refused=False, why=reason))
    return Token(token=token, expires_at_s=expires_at_s)


def digest_of(token: str) -> str:
    """What is kept of a token; see `fleetd.core.enrolment` why a plain digest is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
