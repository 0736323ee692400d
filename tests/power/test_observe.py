"""What is seen of a part's power afterwards: by construction, and against the checker and numpy."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.core.power.checker import Trace
from fleetd.core.power.observe import HORIZON_S, Track, ac_ratio, sights, windows_shown
from fleetd.model.envelope import Band, Lower
from fleetd.model.power import PowerSeen

H200 = read_envelope(envelope_path("h200")).envelope
PLATFORM = read_envelope(envelope_path("mi350x-platform")).envelope
BAND = Band(low_hertz=0.5, high_hertz=20.0, max_ac_ratio=0.2)
RING_S, LOT = 0.02, 80


def lots(watts: Sequence[float], *, spacing_s: float = RING_S, lot: int = LOT, from_s: float = 1e9) -> Iterator[list]:
    samples = [(from_s + at * spacing_s, one) for at, one in enumerate(watts)]
    for begin in range(0, len(samples), lot):
        yield samples[begin : begin + lot]


def seen(watts: Sequence[float], envelope: object = H200, **how: float) -> PowerSeen:
    track = Track(envelope)  # type: ignore[arg-type]
    for lot in lots(watts, **how):  # type: ignore[arg-type]
        track.push(lot)
    assert track.seen is not None
    return track.seen


def test_an_excursion_shows_in_the_short_window_and_not_in_the_long_one() -> None:
    # The profile of an H200 after idle: 133 W, then 786, 913, 846, 733, 724 W at 20 ms steps.
    found = seen([133.0] * 100 + [786.0, 913.0, 846.0, 733.0, 724.0] + [700.0] * 135)
    assert found.spacing_s == pytest.approx(RING_S)
    assert found.windows_watts["20ms"] == pytest.approx(913.0, rel=1e-3)
    assert found.windows_watts["1s"] == pytest.approx((786 + 913 + 846 + 733 + 724 + 45 * 700) / 50, rel=1e-3)
    assert found.swing_watts == pytest.approx(913.0 - 133.0)
    assert found.ramp_up_watts_per_second == pytest.approx((913 - 133) / 0.1, rel=1e-3)
    assert found.ramp_down_watts_per_second == pytest.approx((913 - 700) / 0.1, rel=1e-3)
    assert found.band_ratio is None, "the envelope declares no band"


@settings(max_examples=30)
@given(st.lists(st.floats(50.0, 900.0), min_size=200, max_size=400), st.sampled_from([LOT, 100, 119]))
def test_no_window_between_two_lots_is_missed(watts: list[float], lot: int) -> None:
    watts = watts[: len(watts) // lot * lot]
    found = seen(watts, lot=lot)
    whole = Trace(watts[1:], [RING_S] * (len(watts) - 1))
    judged = len(watts) if lot > LOT else len(watts) // (2 * LOT) * 2 * LOT  # two lots of 80 make a slice
    whole = Trace(watts[1:judged], [RING_S] * (judged - 1))
    for label, over_s in (("20ms", 0.02), ("1s", 1.0)):
        worst = whole.worst_average(over_s)
        assert worst is not None
        assert found.windows_watts[label] == pytest.approx(worst[0], rel=1e-4)
    assert found.swing_watts == max(watts[:judged]) - min(watts[:judged])


def test_readings_that_are_far_apart_show_the_long_window_only() -> None:
    found = seen([400.0, 600.0] * 10, PLATFORM, spacing_s=0.4, lot=1)
    assert found.windows_watts.keys() == {"1s"}
    assert found.ramp_up_watts_per_second is None
    assert found.band_ratio is None
    assert found.swing_watts == 200.0
    rows = {row.label: row for row in windows_shown(PLATFORM)}
    assert list(rows) == ["20us", "20ms", "50ms", "1s"]
    assert rows["20ms"].allowed_ratio is None, "another row replaces it"
    assert rows["50ms"].allowed_ratio == pytest.approx(1.36 * (1 - PLATFORM.margin.total))


def test_how_well_a_window_is_kept_hangs_on_who_holds_it_and_what_is_read() -> None:
    rows, fine = windows_shown(H200), seen([500.0] * 160)
    assert sights(rows, fine, held=True) == {"20ms": "audited", "1s": "certified"}
    assert sights(rows, fine, held=False) == {"20ms": "audited", "1s": "audited"}, "in observe nothing holds it"
    coarse = seen([500.0] * 20, spacing_s=0.4, lot=1)
    assert sights(rows, coarse, held=False) == {"20ms": "unobservable", "1s": "audited"}
    assert sights(rows, None, held=False) == {"20ms": "unobservable", "1s": "unobservable"}
    assert sights(windows_shown(PLATFORM), fine, held=True)["20us"] == "unobservable"


def test_a_minute_later_it_is_forgotten() -> None:
    track = Track(H200)
    for lot in lots([900.0] * 160 + [500.0] * 160):
        track.push(lot)
    assert track.seen is not None
    assert track.seen.swing_watts == 400.0
    for lot in lots([500.0] * (50 * int(HORIZON_S) + 160), from_s=1e9 + 320 * RING_S):
        track.push(lot)
    assert track.seen.swing_watts == 0.0
    assert track.seen.windows_watts["1s"] == pytest.approx(500.0)


def test_nothing_is_said_of_a_window_over_a_gap() -> None:
    track = Track(H200)
    for lot in lots([900.0] * 160):
        track.push(lot)
    for lot in lots([100.0] * 30, from_s=1e9 + 20.0):  # half a second of samples is no window of a second
        track.push(lot)
    assert track.seen is not None
    assert track.seen.windows_watts["1s"] == pytest.approx(900.0)
    assert track.seen.ramp_down_watts_per_second == 0.0


def test_a_clock_that_was_set_back_begins_anew_and_nonsense_is_left_out() -> None:
    track = Track(H200)
    for lot in lots([900.0] * 160):
        track.push(lot)
    for lot in lots([500.0] * 160, from_s=1e9 - 3600.0):
        track.push([*lot, (lot[-1][0] + 1e-3, math.nan), (lot[-1][0] + 2e-3, -1.0), lot[0]])
    assert track.seen is not None
    assert track.seen.swing_watts == 0.0
    assert track.seen.windows_watts["20ms"] == pytest.approx(500.0)


def test_the_band_is_what_numpy_says() -> None:
    rng = np.random.default_rng(3)
    time_s = np.arange(512) * RING_S
    watts = 500.0 + 80.0 * np.sin(2 * np.pi * 1.0 * time_s) + rng.normal(0.0, 20.0, 512)
    spectrum = np.fft.rfft(watts) / len(watts)
    hertz = np.fft.rfftfreq(len(watts), RING_S)
    inside = (hertz >= BAND.low_hertz) & (hertz <= BAND.high_hertz)
    expected = float(np.sqrt((np.abs(2 * spectrum[inside]) ** 2).sum()) / watts.mean())
    assert ac_ratio(list(watts), RING_S, BAND) == pytest.approx(expected, rel=1e-9)
    envelope = replace(H200, lower=Lower(band=BAND))
    # 1 Hz at 16 % of the mean, in samples that come lot by lot.
    long = [500.0 + 80.0 * math.sin(2 * math.pi * at * RING_S) for at in range(640)]
    assert seen(long, envelope).band_ratio == pytest.approx(0.16, abs=0.01)
    assert seen(long, envelope, spacing_s=0.03).band_ratio is None, "20 Hz needs samples 25 ms apart"
