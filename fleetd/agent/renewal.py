"""The loop that watches the agent's certificate, and renews it where that is the agent's business."""

import random
from collections.abc import Callable

import structlog

from fleetd.core.enrolment import LOOK_MAX_S, RETRY_MIN_S, Ended, Renew, Wait, renewal, retry_s
from fleetd.ports import Certificates, Clock, Refused, UplinkError, Validity

_log = structlog.get_logger(__name__)


class Renewal:
    """Looks at the certificate at least once an hour. A renewal that fails is tried again until there is one."""

    def __init__(
        self, certificates: Certificates, *, renew: bool, clock: Clock, rng: random.Random, renewed: Callable[[], None]
    ) -> None:
        """Wire it; nothing is read yet.

        Args:
            certificates: the agent's own.
            renew: whether it is the agent that replaces it; else it is watched, and its end told in time.
            clock: wall time, and waiting.
            rng: spreads a fleet's renewals.
            renewed: called after each renewal: the line to the controller is to use the new certificate.
        """
        self._certificates = certificates
        self._renew = renew
        self._clock = clock
        self._rng = rng
        self._renewed = renewed
        self._known: Validity | None = None
        self._draw = 0.0
        self._told: tuple[Validity | None, str] | None = None
        self.renewals_total = 0
        self.failures_total = 0
        """Renewals that failed, and looks at a file that could not be read."""

    @property
    def begins_at_s(self) -> float | None:
        """From when on the certificate counts, wall time; None: not known."""
        return None if self._known is None else self._known.begins_at_s

    @property
    def ends_at_s(self) -> float | None:
        """Until when the certificate counts, wall time; None: not known."""
        return None if self._known is None else self._known.ends_at_s

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._clock.sleep_s(await self._look())

    async def _look(self) -> float:
        """Look, and act; returns the seconds until the next look."""
        try:
            known = self._certificates.validity()
        except UplinkError as error:
            self._known = None
            self._failed("unreadable", f"{error}{'; `fleetd agent enrol` makes it' if self._renew else ''}")
            return RETRY_MIN_S
        if known != self._known:
            self._known, self._draw = known, self._rng.random()
        match renewal(
            now_s=self._clock.wall_s(), begins_at_s=known.begins_at_s, ends_at_s=known.ends_at_s, draw=self._draw
        ):
            case Wait(seconds=seconds):
                return seconds
            case Ended(why=why, seconds=seconds):
                self._tell("certificate_ended", why)
                return seconds
            case Renew(why=why):
                return await self._act(known, why)

    async def _act(self, known: Validity, why: str) -> float:
        if not self._renew:
            self._tell("certificate_ends_soon", "whoever made it has to replace it")
            return LOOK_MAX_S
        try:
            await self._certificates.renew()
        except (Refused, UplinkError) as error:
            self._failed("not_renewed", str(error))
            return retry_s(
                now_s=self._clock.wall_s(),
                begins_at_s=known.begins_at_s,
                ends_at_s=known.ends_at_s,
                draw=self._rng.random(),
            )
        self.renewals_total += 1
        _log.info("certificate_renewed", why=why)
        self._renewed()
        return RETRY_MIN_S  # not at once: an authority that ends itself soon signs what is due at once

    def _failed(self, what: str, why: str) -> None:
        self.failures_total += 1
        self._tell(f"certificate_{what}", why)

    def _tell(self, event: str, why: str) -> None:
        """Once for each certificate and reason: the end may be weeks away."""
        if self._told != (self._known, event + why):
            self._told = (self._known, event + why)
            _log.warning(event, ends_at_s=self.ends_at_s, why=why)
