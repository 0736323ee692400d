"""The agent's watch over its certificate, on a clock that jumps."""

import asyncio
import random
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from fleetd.agent.renewal import Renewal
from fleetd.ports import Refused, UplinkError, Validity

LIFE_S = 30 * 86400.0


class Over(Exception):  # noqa: N818 - it is no error
    """The time of the test is over."""


class JumpingClock:
    def __init__(self, until_s: float) -> None:
        self.now_s = 0.0
        self.until_s = until_s
        self.looks = 0

    def wall_s(self) -> float:
        return self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        assert seconds > 0, "a loop without a wait"
        self.looks += 1
        self.now_s += seconds
        if self.now_s > self.until_s:
            raise Over


class Issued:
    """A certificate whose renewals may fail."""

    def __init__(self, clock: JumpingClock, *, fails: Callable[[float], Exception | None] = lambda _: None) -> None:
        self.clock = clock
        self.fails = fails
        self.valid: Validity | None = Validity(begins_at_s=0.0, ends_at_s=LIFE_S)
        self.renewals: list[float] = []

    def validity(self) -> Validity:
        if self.valid is None:
            raise UplinkError("cannot read agent.crt: Permission denied")
        return self.valid

    async def renew(self) -> None:
        if (error := self.fails(self.clock.now_s)) is not None:
            raise error
        self.renewals.append(self.clock.now_s)
        self.valid = Validity(begins_at_s=self.clock.now_s, ends_at_s=self.clock.now_s + LIFE_S)


def watch(own: Issued, *, renew: bool = True, seed: int = 1) -> tuple[Renewal, list[float], list[dict[str, object]]]:
    connects: list[float] = []
    renewal = Renewal(
        own,
        renew=renew,
        clock=own.clock,
        rng=random.Random(seed),  # noqa: S311 - no secret
        renewed=lambda: connects.append(own.clock.now_s),
    )
    with capture_logs() as logs, pytest.raises(Over):
        asyncio.run(renewal.run())
    return renewal, connects, [dict(entry) for entry in logs]


@pytest.mark.parametrize("seed", range(5))
def test_it_renews_in_time_for_ever_and_connects_anew_each_time(seed: int) -> None:
    own = Issued(JumpingClock(until_s=365 * 86400.0))
    renewal, connects, _ = watch(own, seed=seed)
    assert connects == own.renewals
    assert 365 / 20 - 1 <= len(own.renewals) <= 365 / 18 + 1
    for before, at_s in zip([0.0, *own.renewals], own.renewals, strict=False):
        assert LIFE_S / 3 - 1 <= before + LIFE_S - at_s <= LIFE_S * 0.4 + 1
    assert (renewal.renewals_total, renewal.failures_total) == (len(own.renewals), 0)
    assert own.valid is not None
    assert renewal.ends_at_s == own.valid.ends_at_s
    assert own.clock.looks < 365 * 24 + 100


def test_a_controller_that_is_away_for_days_is_asked_until_it_is_back() -> None:
    def away(now_s: float) -> Exception | None:
        return UplinkError("cannot reach the controller") if now_s < 25 * 86400 else None

    own = Issued(JumpingClock(until_s=26 * 86400.0), fails=away)
    renewal, connects, logs = watch(own)
    assert len(own.renewals) == len(connects) == 1
    assert 7 * 24 - 50 <= renewal.failures_total <= 8 * 48  # half an hour to an hour between two of them
    assert [entry["event"] for entry in logs] == ["certificate_not_renewed", "certificate_renewed"]  # said once


def test_a_refusal_is_told_and_then_the_end() -> None:
    own = Issued(JumpingClock(until_s=LIFE_S + 7200), fails=lambda _: Refused("this controller signs none"))
    renewal, connects, logs = watch(own)
    assert connects == []
    assert [entry["event"] for entry in logs] == ["certificate_not_renewed", "certificate_ended"]
    assert "enrol the host anew" in str(logs[1]["why"])
    assert renewal.ends_at_s == LIFE_S


def test_after_the_end_a_new_file_is_seen_within_minutes() -> None:
    class Replaced(Issued):
        def validity(self) -> Validity:
            if self.clock.now_s > LIFE_S + 600:
                self.valid = Validity(begins_at_s=LIFE_S, ends_at_s=3 * LIFE_S)
            return super().validity()

    own = Replaced(JumpingClock(until_s=LIFE_S + 1200), fails=lambda _: Refused("no"))
    renewal, _, _ = watch(own)
    assert renewal.ends_at_s == 3 * LIFE_S


def test_files_of_the_site_are_watched_and_left_alone() -> None:
    own = Issued(JumpingClock(until_s=LIFE_S + 7200))
    _, connects, logs = watch(own, renew=False)
    assert (own.renewals, connects) == ([], [])
    assert [entry["event"] for entry in logs] == ["certificate_ends_soon", "certificate_ended"]


def test_a_file_that_cannot_be_read_is_told_once_and_looked_at_again() -> None:
    own = Issued(JumpingClock(until_s=86400.0))
    own.valid = None
    renewal, _, logs = watch(own)
    assert [entry["event"] for entry in logs] == ["certificate_unreadable"]
    assert (renewal.ends_at_s, renewal.failures_total) == (None, own.clock.looks)


def test_an_authority_that_ends_itself_is_not_asked_in_a_loop() -> None:
    """What it signs by then ends with it, and is due as soon as it is made."""

    class Clamped(Issued):
        async def renew(self) -> None:
            await super().renew()
            self.valid = Validity(begins_at_s=self.clock.now_s - 3600, ends_at_s=LIFE_S)

    own = Clamped(JumpingClock(until_s=LIFE_S + 60))
    _, connects, _ = watch(own)
    assert len(connects) < 100
