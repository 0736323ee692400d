"""The checker finds the worst window, wherever it begins."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.core.power.checker import Trace, WindowMeter, allowed_watts, check_row, check_trace
from fleetd.core.power.judge import judge_trace
from fleetd.model.envelope import Envelope, Interpolation, Lease, Semantics, Window

Rows = tuple[tuple[float, float | None], ...]

# Quarters and whole watts are exact in binary: brute force and the checker must agree.
pieces = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 12)), min_size=1, max_size=30)


def brute(found: list[tuple[int, int]], window: int) -> float | None:
    """Worst average over a whole number of units, every unit an offset: edges lie on units, so this is exact."""
    units = [watts for watts, length in found for _ in range(length)]
    if window > len(units):
        return None
    return max(sum(units[at : at + window]) for at in range(len(units) - window + 1)) / window


@settings(max_examples=200, deadline=None)
@given(found=pieces, window=st.integers(1, 60))
def test_worst_average_is_that_of_brute_force(found: list[tuple[int, int]], window: int) -> None:
    trace = Trace([w for w, _ in found], [n / 4 for _, n in found])
    got, expected = trace.worst_average(window / 4), brute(found, window)
    if expected is None:
        assert got is None
    else:
        assert got is not None
        assert got[0] == pytest.approx(expected, abs=1e-9)
        inside = Trace([w for w, _ in found], [n / 4 for _, n in found])
        assert 0 <= got[1] <= inside.duration_s - window / 4


@settings(max_examples=200, deadline=None)
@given(found=pieces, window=st.integers(1, 240))
def test_the_streaming_form_agrees(found: list[tuple[int, int]], window: int) -> None:
    window_s = window / 16  # windows that do not fall on the grid of the pieces, too
    trace, meter = Trace([w for w, _ in found], [n / 4 for _, n in found]), WindowMeter(window_s)
    for watts, length in found:
        meter.push(watts, length / 4)
    expected = trace.worst_average(window_s)
    assert (meter.worst_watts is None) == (expected is None)
    if expected is not None:
        assert meter.worst_watts == pytest.approx(expected[0], abs=1e-9)


def test_a_window_that_begins_between_edges_is_found() -> None:
    trace = Trace([100, 1000, 100], [0.3, 0.05, 1.0])
    assert trace.worst_average(0.2) == pytest.approx(((1000 * 0.05 + 100 * 0.15) / 0.2, 0.15))


def test_the_meter_keeps_a_bounded_number_of_pieces() -> None:
    meter = WindowMeter(1.0, max_edges=10)
    for _ in range(10):
        meter.push(1, 0.01)
    with pytest.raises(ValueError, match="join short ones"):
        meter.push(1, 0.01)


@pytest.mark.parametrize(
    ("watts", "seconds"),
    [([], []), ([1], [1, 1]), ([-1], [1]), ([1], [0]), ([float("nan")], [1]), ([1], [float("inf")])],
)
def test_what_is_no_trace(watts: list[float], seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="a trace needs"):
        Trace(watts, seconds)


def limits(interpolation: Interpolation, rows: Rows, semantics: Semantics = Semantics.WINDOW_AVG) -> Envelope:
    return Envelope(
        name="e",
        reason="r",
        owner="o",
        vendor="amd",
        part="MI350X",
        tbp_watts=1000,
        interpolation=interpolation,
        windows=tuple(Window(over_s=w, max_ratio=m, semantics=semantics, source="row", label=f"{w}s") for w, m in rows),
        safe_cap_watts=1,
        lease=Lease(ttl_s=1, grace_s=1),
    )


ROWS = ((20e-6, 2.0), (20e-3, 1.1), (1.0, 1.0))


@pytest.mark.parametrize(
    ("interpolation", "window_s", "watts"),
    [
        (Interpolation.LOGLINEAR, 200e-6, 1700),
        (Interpolation.LOGLINEAR, 2e-3, 1400),
        (Interpolation.STEP, 21e-6, 1100),
        (Interpolation.STEP, 20e-3, 1100),
        (Interpolation.STEP, 21e-3, 1000),
        (Interpolation.LISTED, 0.51, (22 + 1000) / 2 / 0.51),
        (Interpolation.LISTED, 1e-6, 2000),
        (Interpolation.LISTED, 60, 1000),
    ],
)
def test_what_holds_between_rows(interpolation: Interpolation, window_s: float, watts: float) -> None:
    assert allowed_watts(limits(interpolation, ROWS), window_s) == pytest.approx(watts)


def test_dwell_forbids_staying_and_not_averaging() -> None:
    """Two short bursts average 1.5x over the window, with a break between them."""
    trace = Trace([500, 2500, 500, 2500, 500], [0.1, 0.008, 0.004, 0.008, 0.1])
    rows = ((0.02, 1.1),)
    average = limits(Interpolation.LISTED, rows)
    dwell = limits(Interpolation.LISTED, rows, Semantics.DWELL)
    by_average, by_dwell = check_row(average, average.windows[0], trace), check_row(dwell, dwell.windows[0], trace)
    assert by_average is not None
    assert by_average.ratio > 1.9
    assert by_dwell is not None
    assert by_dwell.ratio == pytest.approx(0.4)
    assert by_dwell.at_s == pytest.approx(0.1)


def test_who_keeps_to_buckets_keeps_to_the_average_so_to_the_dwell() -> None:
    trace = Trace([1000, 1200, 500], [1, 0.03, 1])
    e = limits(Interpolation.LISTED, ((0.02, 1.1),), Semantics.DWELL)
    worst = check_row(e, e.windows[0], trace)
    assert worst is not None
    assert worst.ratio == pytest.approx(1.5)


def test_windows_longer_than_the_trace_are_not_judged() -> None:
    e = limits(Interpolation.LOGLINEAR, ROWS)
    trace = Trace([2100], [0.5])
    judged = {j.row: j for j in judge_trace(e, trace) if j.row}
    assert judged["row/1.0s"].worst is None
    assert not judged["row/1.0s"].broken
    assert judged["row/0.02s"].broken
    assert not judged["row/2e-05s"].resolved
    assert all(w.window_s <= 0.5 for w in check_trace(e, trace, [0.1, 0.9]))
