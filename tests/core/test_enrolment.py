"""Who gets a certificate, and when an agent asks for a new one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.core.enrolment import (
    LOOK_MAX_S,
    RETRY_MIN_S,
    SOON_S,
    Deny,
    Ended,
    Renew,
    Spend,
    Wait,
    renewal,
    retry_s,
    rule,
    well_formed,
)
from fleetd.model.ids import HostName

H01, H02 = HostName("h01"), HostName("h02")
GOOD = {"now_s": 100.0, "host": H01, "key": "k", "bound_to": H01, "expires_at_s": 200.0, "spent_on": None}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"bound_to": None}, "no such token is known"),
        ({"host": H02}, "for another host than h02"),
        ({"now_s": 200.0}, "has expired"),
        ({"now_s": 1e9}, "has expired"),
        ({"spent_on": "other"}, "was spent already, on another key"),
    ],
)
def test_a_token_is_for_one_host_for_a_time_and_for_one_key(change: dict[str, object], why: str) -> None:
    assert isinstance(rule(**GOOD), Spend)  # type: ignore[arg-type]
    ruling = rule(**{**GOOD, **change})  # type: ignore[arg-type]
    assert isinstance(ruling, Deny)
    assert why in ruling.why
    assert "fleetd pki token HOST" in ruling.why


def test_the_same_key_may_come_again_until_the_token_expires() -> None:
    assert isinstance(rule(**{**GOOD, "spent_on": "k"}), Spend)  # type: ignore[arg-type]
    assert isinstance(rule(**{**GOOD, "spent_on": "k", "now_s": 201.0}), Deny)  # type: ignore[arg-type]


def test_a_token_has_43_characters_of_base64() -> None:
    assert well_formed("a-_Z" * 10 + "123")
    assert not any(well_formed(word) for word in ("", "a" * 42, "a" * 44, "a" * 42 + "\n", "é" * 43, "a" * 42 + "/"))


@given(life_s=st.floats(600, 1e8), draw=st.floats(0, 1), share=st.floats(-0.5, 1.5))
def test_it_is_renewed_before_a_third_is_left_and_not_before_two_fifths(
    life_s: float, draw: float, share: float
) -> None:
    now_s = 1e9
    left_s = life_s * share
    outcome = renewal(now_s=now_s, begins_at_s=now_s + left_s - life_s, ends_at_s=now_s + left_s, draw=draw)
    match outcome:
        case Ended():
            assert share <= 1e-6
        case Renew():
            assert 0 < share < 0.4 + 1e-6 + SOON_S / life_s
        case Wait(seconds=seconds):
            assert share > 1 / 3 - 1e-6
            assert 0 < seconds <= LOOK_MAX_S
            assert (left_s - seconds) / life_s >= 1 / 3 - 1e-6  # whoever waits so long is not late


def test_draws_spread_a_fleet() -> None:
    def due(draw: float) -> float:
        step, now_s = renewal(now_s=0.0, begins_at_s=0.0, ends_at_s=3000.0, draw=draw), 0.0
        while isinstance(step, Wait):
            now_s += step.seconds
            step = renewal(now_s=now_s, begins_at_s=0.0, ends_at_s=3000.0, draw=draw)
        return now_s

    assert due(1.0) == pytest.approx(1800, abs=SOON_S)
    assert due(0.0) == pytest.approx(2000, abs=SOON_S)


@given(life_s=st.floats(0, 1e9), left=st.floats(0, 0.4), draw=st.floats(0, 1))
def test_a_failed_renewal_is_tried_again_often_enough_and_never_in_a_loop(
    life_s: float, left: float, draw: float
) -> None:
    wait_s = retry_s(now_s=life_s * (1 - left), begins_at_s=0.0, ends_at_s=life_s, draw=draw)
    assert RETRY_MIN_S / 2 <= wait_s <= LOOK_MAX_S
    assert wait_s <= max(life_s * left / 4 + 1, RETRY_MIN_S)  # the end is not slept through
