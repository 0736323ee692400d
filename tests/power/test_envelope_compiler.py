"""Compiled buckets stay below the envelope, whatever the envelope (A1), and keep what they can."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.core.power.checker import check_buckets, log_spaced
from fleetd.core.power.compiler import Infeasible, compile_envelope, filtered_limiter
from fleetd.model.envelope import Envelope, Interpolation, Lease, Margin, Semantics, Window

Rows = tuple[tuple[float, float | None], ...]
MODULE = ((20e-6, 2.0), (20e-3, 1.1), (1.0, 1.0))
PLATFORM = ((20e-6, 2.0), (50e-3, 1.36), (1.0, 1.0))


def envelope(
    rows: Rows,
    interpolation: str = "listed",
    *,
    margin: float = 0.0,
    cap: float = 1.0,
    lowest: float | None = None,
    tbp: float = 1000.0,
) -> Envelope:
    return Envelope(
        name="e",
        reason="test",
        owner="test",
        vendor="amd",
        part="MI350X",
        tbp_watts=tbp,
        interpolation=Interpolation(interpolation),
        windows=tuple(
            Window(over_s=w, max_ratio=m, semantics=Semantics.WINDOW_AVG, source=f"row{n}", label=f"{w}s")
            for n, (w, m) in enumerate(rows)
        ),
        margin=Margin(model=margin),
        safe_cap_watts=cap,
        lease=Lease(ttl_s=0.2, grace_s=0.05),
        lowest_draw_watts=lowest,
    )


rows = st.lists(
    st.tuples(st.floats(-6, 2), st.one_of(st.none(), st.floats(0.3, 3.0))),
    min_size=1,
    max_size=8,
    unique_by=lambda r: r[0],
).map(lambda found: tuple((10**w, m) for w, m in sorted(found)))


@settings(max_examples=300, deadline=None)
@given(
    rows=rows, interpolation=st.sampled_from(["listed", "loglinear", "step"]), margin=st.floats(0, 0.2), data=st.data()
)
def test_a1_random_envelopes_never_exceed_the_allowance_or_are_refused(
    rows: Rows, interpolation: str, margin: float, data: st.DataObject
) -> None:
    if data.draw(st.booleans(), label="falling ratios"):  # else nearly every draw is refused
        falling = iter(sorted((m for _, m in rows if m is not None), reverse=True))
        rows = tuple((w, m if m is None else next(falling)) for w, m in rows)
    known = [(w, m) for w, m in rows if m is not None]
    contradicts = any(b[1] > a[1] or b[1] * b[0] <= a[1] * a[0] for a, b in itertools.pairwise(known))
    e = envelope(rows, interpolation, margin=margin)
    try:
        compiled = compile_envelope(e)
    except Infeasible:
        assert contradicts or not known
        return
    assert not contradicts
    windows = log_spaced(known[0][0] / 10, known[-1][0] * 100, 1000)
    assert check_buckets(e, compiled, windows).ratio <= 1
    assert check_buckets(e, compiled, [w for w, _ in known]).ratio <= 1
    rates = [b.rate_watts for b in compiled.buckets]
    assert rates == sorted(set(rates), reverse=True)
    assert compiled.buckets[0].depth_joules == 0
    assert all(b.depth_joules >= 0 for b in compiled.buckets)
    assert compiled.sustained_watts == rates[-1] > 0
    if len(known) > 1 and interpolation != "step":
        (a, m), (b, n) = known[-2:]
        line = 1000 * (1 - margin) * (n * b - m * a) / (b - a)
        assert compiled.sustained_watts >= line * (1 - 1e-6)


def test_the_checker_refuses_buckets_that_are_too_wide() -> None:
    e = envelope(MODULE, "loglinear", margin=0.04)
    too_wide = compile_envelope(envelope(MODULE, "loglinear", margin=0.039))
    assert check_buckets(e, too_wide, log_spaced(1e-6, 10, 1000)).ratio == pytest.approx(0.961 / 0.96, rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "interpolation", "ratio"),
    [
        (MODULE, "loglinear", 978 / 980),  # the line from 22 J at 20 ms to 1000 J at 1 s
        (MODULE, "listed", 978 / 980),
        (MODULE, "step", 1.0),
        (PLATFORM, "listed", 932 / 950),  # what 68 J in 50 ms cost for ever
    ],
)
def test_what_may_be_drawn_for_ever(rows: Rows, interpolation: str, ratio: float) -> None:
    assert compile_envelope(envelope(rows, interpolation)).sustained_watts == pytest.approx(1000 * ratio, rel=1e-7)


def test_short_windows_keep_their_allowance() -> None:
    compiled = compile_envelope(envelope(MODULE, "loglinear"))
    for window_s in (20e-6, 200e-6, 2e-3):
        ratio = 2.0 - 0.3 * {20e-6: 0, 200e-6: 1, 2e-3: 2}[window_s]
        assert compiled.energy_joules(window_s) / window_s == pytest.approx(1000 * ratio, rel=1e-3)
    assert compiled.energy_joules(20e-3) == pytest.approx(22.0, rel=1e-6)


def test_step_takes_the_next_longer_ratio() -> None:
    compiled = compile_envelope(envelope(PLATFORM, "step"))
    assert compiled.energy_joules(20e-6) / 20e-6 <= 1360
    assert compiled.energy_joules(51e-3) / 51e-3 <= 1000


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (((20e-3, 1.1), (50e-3, 1.36), (1.0, 1.0)), "must supersede"),
        (((20e-3, 2.0), (21e-3, 1.0)), "no more energy"),
        (((20e-3, None),), "no row binds"),
    ],
)
def test_contradictions_are_refused(rows: Rows, says: str) -> None:
    with pytest.raises(Infeasible, match=says):
        compile_envelope(envelope(rows))


def test_the_row_at_fault_is_named() -> None:
    with pytest.raises(Infeasible) as caught:
        compile_envelope(envelope(((10e-3, None), (20e-3, 1.1), (50e-3, 1.36))))
    assert caught.value.row == 2


def test_the_safe_cap_must_hold_with_no_software() -> None:
    compile_envelope(envelope(PLATFORM, margin=0.04, cap=941))
    with pytest.raises(Infeasible, match="no software running"):
        compile_envelope(envelope(PLATFORM, margin=0.04, cap=942))


def test_a_part_that_cannot_go_low_enough_is_refused() -> None:
    compile_envelope(envelope(PLATFORM, lowest=980))
    with pytest.raises(Infeasible, match="no clock keeps"):
        compile_envelope(envelope(PLATFORM, lowest=982))


@given(
    powers=st.lists(st.floats(0, 3000), min_size=1, max_size=200),
    tau=st.floats(0.5e-3, 0.1),
    limit=st.floats(100, 1000),
)
def test_a_filtered_limiter_is_worth_its_bucket(powers: list[float], tau: float, limit: float) -> None:
    bucket, step, filtered, energy, lowest = filtered_limiter(limit, tau), 1e-4, 0.0, 0.0, 0.0
    for number, wanted in enumerate(powers):
        # The most that keeps the exact filter at the limit at the step's end, or what is wanted.
        keep = 2.718281828459045 ** (-step / tau)
        power = min(wanted, (limit - filtered * keep) / (1 - keep))
        filtered = filtered * keep + power * (1 - keep)
        lowest = min(lowest, energy - bucket.rate_watts * number * step)
        energy += power * step
        excess = energy - bucket.rate_watts * (number + 1) * step - lowest
        assert excess <= bucket.depth_joules * (1 + 1e-9) + 1e-9
