"""Wiring of the controller's authority over its agents' certificates; also for a person on its machine."""

from pathlib import Path

from fleetd.compose.places import state_dir
from fleetd.config.files import ControllerConfig
from fleetd.controller.enrolment import Enrolment, issue_token
from fleetd.controller.reads import FewAtOnce
from fleetd.model.ids import HostName
from fleetd.ports import Attempt, Clock, Peer, Refused, Token
from fleetd.system import run_blocking, secret
from fleetd.uplink.enrol_config import EnrolmentConfig
from fleetd.uplink.identity_service import EnrolmentServer, serve_enrolment
from fleetd.uplink.tls import identity
from fleetd.uplink.token_book import SqliteTokenBook

BOOK = "enrolment.db"
"""Tokens and the audit of identities, in the controller's state directory."""

_AT_ONCE = 2
"""Certificates that are signed: a fleet that renews in one night leaves threads to the ledger."""


def build_enrolment(config: ControllerConfig, folder: Path, clock: Clock) -> Enrolment | None:
    """The authority that the configuration names; None: it names none. Raises UplinkError, StoreError."""
    enrolment, tls = config.enrolment, config.server.tls
    if enrolment is None or tls is None:
        return None
    from fleetd.uplink.authority import FileAuthority  # noqa: PLC0415 - only who signs needs its library

    return Enrolment(
        book=SqliteTokenBook(folder / BOOK),
        signer=FileAuthority(
            enrolment.ca, enrolment.ca_key, trusted=Path(tls.ca), life_s=enrolment.certificate_seconds
        ),
        clock=clock,
        run_blocking=FewAtOnce(run_blocking, most=_AT_ONCE),
        secret=secret,
        token_s=enrolment.token_seconds,
    )


async def serve_strangers(config: ControllerConfig, door: Enrolment | None, clock: Clock) -> EnrolmentServer | None:
    """Open the enrolment port; None: the configuration names none. Raises UplinkError."""
    enrolment, tls = config.enrolment, config.server.tls
    if enrolment is None or enrolment.listen is None or tls is None or door is None:
        return None
    return await serve_enrolment(enrolment, enrolment.listen, tls=tls, door=door, clock=clock)


def issue_here(config: ControllerConfig, who: str, host: HostName, reason: str, clock: Clock) -> Token:
    """Make a token on the controller's machine, whether the controller runs or not.

    Raises:
        Refused: this controller signs no certificates, or there are too many tokens.
        StoreError: the state directory cannot be written.
        UplinkError: the host cannot be named in a certificate.
    """
    enrolment = _enrolment(config)
    identity("agent", host)
    book = SqliteTokenBook(state_dir(config.state_dir) / BOOK)
    now_s = clock.wall_s()
    peer = Peer(name=f"{who}@controller", role="operator")
    return issue_token(
        book, peer, host, reason, now_s=now_s, expires_at_s=now_s + enrolment.token_seconds, secret=secret
    )


def attempts_here(config: ControllerConfig, *, limit: int) -> tuple[Attempt, ...]:
    """The newest of the audit, newest first. Raises Refused, StoreError."""
    _enrolment(config)
    return SqliteTokenBook(state_dir(config.state_dir) / BOOK).attempts(limit=limit)


def _enrolment(config: ControllerConfig) -> EnrolmentConfig:
    if config.enrolment is None:
        raise Refused("this controller signs no certificates, the site's CA does; or name a CA: `enrolment: {ca: …}`")
    return config.enrolment
