"""The trackers of the detection: windows, shares and episodes, over any course of readings."""

from hypothesis import given
from hypothesis import strategies as st

from fleetd.core.detect_track import CALM, GAP_MAX_S, Same, Share, Turn, Window, count, same, share, turn

verdicts = st.sampled_from([True, False, None])
steps = st.floats(0.5, 60.0)
ON: bool | None = True


def test_a_counter_that_stood_high_at_the_first_reading_is_history() -> None:
    window = count(None, 1e9, now_s=0.0, at_least=1, within_s=60)
    assert window == Window(start_s=0.0, value=1e9)


def test_a_counter_is_too_fast_at_once_and_calm_after_a_whole_window() -> None:
    window = count(None, 10.0, now_s=0.0, at_least=8, within_s=60)
    window = count(window, 17.0, now_s=5.0, at_least=8, within_s=60)
    assert window is not None
    assert window.verdict is None, "seven in five seconds: the window is not over"
    window = count(window, 18.0, now_s=6.0, at_least=8, within_s=60)
    assert window is not None
    assert window.verdict is True
    window = count(window, 18.0, now_s=60.0, at_least=8, within_s=60)
    assert window is not None
    assert window.verdict is True, "the present window began at 6 s"
    window = count(window, 18.0, now_s=66.0, at_least=8, within_s=60)
    assert window is not None
    assert window.verdict is False


def test_after_a_gap_the_mean_rate_counts() -> None:
    window = Window(start_s=0.0, value=0.0)
    slow = count(window, 10.0, now_s=600.0, at_least=8, within_s=60)
    fast = count(window, 90.0, now_s=600.0, at_least=8, within_s=60)
    assert slow is not None
    assert fast is not None
    assert (slow.verdict, fast.verdict) == (False, True)


def test_a_counter_that_went_back_says_nothing() -> None:
    window = count(Window(start_s=0.0, value=50.0, verdict=True), 3.0, now_s=9.0, at_least=1, within_s=60)
    assert window == Window(start_s=9.0, value=3.0)


@given(st.lists(st.tuples(steps, st.none() | st.floats(0, 1e6)), max_size=60))
def test_a_counter_never_alarms_below_its_rate(readings: list[tuple[float, float | None]]) -> None:
    """However readings, gaps and resets fall: growth of less than the limit in all is never an alarm."""
    window, now_s = None, 0.0
    for step_s, value in readings:
        now_s += step_s
        window = count(window, None if value is None else value % 7.0, now_s=now_s, at_least=8, within_s=60)
        assert window is None or window.verdict is not True


def test_one_short_moment_is_no_alarm_and_a_twentieth_of_a_minute_is() -> None:
    """A 1 ns power violation once alarmed a whole fleet."""
    kept: Share | None = None
    for second in range(60):
        kept = share(kept, second == 30, now_s=float(second), at_least=0.05, within_s=60)
        assert kept is None or kept.verdict is not True
    kept = Share(last_s=0.0)
    seen = [kept := share(kept, ON, now_s=float(second), at_least=0.05, within_s=60) for second in range(1, 4)]
    assert [one.verdict if one else None for one in seen] == [None, None, True]


def test_unseen_time_counts_neither_way() -> None:
    kept = share(Share(last_s=0.0), ON, now_s=1e6, at_least=1.0, within_s=60)
    assert kept is not None
    assert (kept.bad_s, kept.verdict) == (GAP_MAX_S, None)
    assert share(kept, None, now_s=1e6 + 1, at_least=1.0, within_s=60) == Share(
        last_s=1e6 + 1, seen_s=GAP_MAX_S, bad_s=GAP_MAX_S
    )


def test_a_value_is_the_same_only_while_it_is_read() -> None:
    kept = same(None, 5.0, now_s=0.0)
    kept = same(kept, 5.0, now_s=10.0)
    assert kept == Same(value=5.0, since_s=0.0, last_s=10.0, readings=2)
    assert same(kept, 5.0, now_s=10.0 + GAP_MAX_S + 1) == Same(value=5.0, since_s=41.0, last_s=41.0)
    assert same(kept, 5.5, now_s=11.0) == Same(value=5.5, since_s=11.0, last_s=11.0)
    assert same(kept, None, now_s=11.0) is None


@given(st.lists(st.tuples(steps, verdicts), max_size=80), st.floats(0, 120), st.floats(1, 300))
def test_an_episode_does_not_flap(course: list[tuple[float, bool | None]], raise_s: float, clear_s: float) -> None:
    """Raised and cleared alternate, and `clear_s` of seen health lie between a True and the end of the episode."""
    episode, now_s, last_true_s, expected = CALM, 0.0, 0.0, Turn.RAISED
    for step_s, verdict in course:
        now_s += step_s
        episode, happened = turn(episode, verdict, now_s=now_s, at_s=now_s, raise_s=raise_s, clear_s=clear_s)
        if verdict is not True:
            assert happened is not Turn.RAISED
        if verdict is not False:
            assert happened is not Turn.CLEARED
        if happened is Turn.NOTHING:
            last_true_s = now_s if verdict else last_true_s
            continue
        assert happened is expected
        if happened is Turn.CLEARED:
            assert now_s - last_true_s >= clear_s
        expected = Turn.CLEARED if happened is Turn.RAISED else Turn.RAISED
        last_true_s = now_s if verdict else last_true_s


@given(st.lists(steps, max_size=40))
def test_nothing_read_raises_and_clears_nothing(course: list[float]) -> None:
    raised, _ = turn(CALM, ON, now_s=0.0, at_s=7.0, raise_s=0.0, clear_s=60.0)
    calm, now_s = CALM, 0.0
    for step_s in course:
        now_s += step_s
        calm, happened = turn(calm, None, now_s=now_s, at_s=now_s, raise_s=0.0, clear_s=1.0)
        assert happened is Turn.NOTHING
        raised, happened = turn(raised, None, now_s=now_s, at_s=now_s, raise_s=0.0, clear_s=1.0)
        assert happened is Turn.NOTHING
    assert calm == CALM
    assert raised.raised
    assert raised.began_at_s == 7.0
