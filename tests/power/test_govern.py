"""What the governor decides: pure, so every case is a line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.agent.governor_asks import declaration
from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.core.power.compiler import compile_envelope
from fleetd.core.power.govern import Decision, GovernConfig, GpuState, begin, boost_limits, decide, safe_limits, stages
from fleetd.core.power.modes import Mode, ModeConfig
from fleetd.core.power.provenance import drift_of
from fleetd.core.power.transaction import orders
from fleetd.core.power.tune import Candidate, Profile
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.power import KnobReading, PowerReading, Writer

GPU = GpuId("GPU-0")
SAFE, BOOST, MOST = 630.0, 672.0, 700.0
H200 = read_envelope(envelope_path("h200")).envelope
MI350X = read_envelope(envelope_path("mi350x-platform")).envelope


def reading(at_s: float, watts: float, *, enforced: float | None = None, energy: float | None = None) -> PowerReading:
    return PowerReading(
        gpu=GPU,
        at_s=at_s,
        knobs=(KnobReading(knob="limit", set_watts=watts, low_watts=200.0, high_watts=MOST),),
        enforced_watts=watts if enforced is None else enforced,
        power_watts=500.0,
        temperature_celsius=60.0,
        brake=False,
        energy_joules=energy,
    )


def config(allowed: Mode = Mode.BOOST, boost: float | None = BOOST) -> GovernConfig:
    return GovernConfig(
        modes=ModeConfig(allowed=allowed, stale_s=1.0, power_max_watts=1400.0, settle_s=1.0),
        safe={"limit": SAFE},
        boost=None if boost is None else {"limit": boost},
        boost_why="" if boost else "there is none",
    )


def boosting() -> GpuState:
    """A GPU in boost, its limits written."""
    state = begin(config())
    for at_s in (0.0, 2.0, 4.0):
        found = decide(at_s, config(), state, reading(at_s, BOOST), lease_live=True, lease_why="")
        state = replace(found.state, targets={"limit": BOOST})
    assert state.mode.mode is Mode.BOOST
    return state


@pytest.mark.parametrize(
    ("watts", "enforced", "energy", "writer"),
    [
        (BOOST, None, None, None),
        (MOST, None, 2.0, Writer.FOREIGN),
        (500.0, None, 2.0, Writer.FOREIGN),
        (MOST, None, 0.5, Writer.DRIVER_RELOAD),
        (BOOST, 500.0, 2.0, Writer.OUT_OF_BAND),
        (SAFE, None, 2.0, Writer.GUARD),
        (SAFE, 500.0, 2.0, Writer.GUARD),
        (BOOST - 0.5, None, None, None),
    ],
)
def test_a11_whose_doing_it_is(
    watts: float, enforced: float | None, energy: float | None, writer: Writer | None
) -> None:
    found = drift_of(
        {"limit": BOOST}, {"limit": SAFE}, reading(0.0, watts, enforced=enforced, energy=energy), energy_joules=1.0
    )
    assert (None if found is None else found.writer) is writer
    late = drift_of({"limit": BOOST}, {}, reading(0.0, 600.0), energy_joules=None, just_written=True)
    assert late is not None
    assert late.writer is Writer.NOT_TAKEN


def test_a_raise_is_taken_back_and_a_lower_limit_is_kept() -> None:
    state = boosting()
    raised = decide(5.0, config(), state, reading(5.0, MOST), lease_live=True, lease_why="")
    assert (raised.state.mode.mode, raised.write) == (Mode.SAFE, {"limit": SAFE})
    assert raised.news is not None
    assert raised.news.raised
    lowered = decide(5.0, config(), state, reading(5.0, 500.0), lease_live=True, lease_why="")
    assert (lowered.state.mode.mode, lowered.write) == (Mode.SAFE, {})
    later = decide(9.0, config(), lowered.state, reading(9.0, 500.0), lease_live=True, lease_why="")
    assert (later.state.mode.mode, later.write, later.news) == (Mode.SAFE, {}, None)
    assert "which is kept" in later.why
    back = decide(9.5, config(), later.state, reading(9.5, MOST), lease_live=True, lease_why="")
    assert back.write == {"limit": SAFE}, "whoever had lowered it raised it again: it is ours again"
    assert back.state.held == {}


def test_without_lease_reading_or_set_point_there_is_no_boost() -> None:
    state = boosting()
    assert decide(5.0, config(), state, None, lease_live=True, lease_why="").state.mode.mode is Mode.SAFE
    found = decide(5.0, config(), state, reading(5.0, BOOST), lease_live=False, lease_why="no guard")
    assert (found.state.mode.mode, found.why.rpartition("; ")[2]) == (Mode.SAFE, "no guard")
    found = decide(5.0, config(boost=None), state, reading(5.0, BOOST), lease_live=True, lease_why="")
    assert (found.state.mode.mode, found.write, found.why) == (
        Mode.SAFE,
        {"limit": SAFE},
        "no set-point: there is none",
    )


@given(
    st.lists(
        st.tuples(st.sampled_from([200.0, 500.0, SAFE, BOOST, MOST]), st.booleans(), st.booleans(), st.booleans()),
        max_size=12,
    )
)
def test_whatever_happens_only_boost_writes_above_the_safe_cap(turns: list[tuple[float, bool, bool, bool]]) -> None:
    state, now_s = boosting(), 5.0
    for watts, answers, live, settled in turns:
        now_s += 2.0 if settled else 0.1
        told = reading(now_s, watts) if answers else None
        found = decide(now_s, config(), state, told, lease_live=live, lease_why="x")
        if found.state.mode.mode is not Mode.BOOST:
            assert all(limit <= SAFE for limit in found.write.values())
        assert all(limit <= BOOST for limit in found.write.values())
        if found.write and any(limit > SAFE for limit in found.write.values()):
            assert live
            assert answers
        state = replace(found.state, targets={**found.state.targets, **(found.write if live and answers else {})})


def test_the_limits_of_a_pair() -> None:
    assert safe_limits(MI350X) == {"ppt0": 900.0, "ppt1": 1000.0}
    sustained = compile_envelope(MI350X).sustained_watts
    found = boost_limits(MI350X, Candidate(profile=Profile.STATIC, raw_watts=1360.0), sustained)
    assert found == pytest.approx({"ppt0": sustained, "ppt1": 1360.0})
    assert safe_limits(H200) == {"limit": SAFE}
    with pytest.raises(ValueError, match="fast loop"):
        boost_limits(MI350X, Candidate(profile=Profile.FAST_LOOP), sustained)
    with pytest.raises(ValueError, match="locked clock"):
        boost_limits(MI350X, Candidate(profile=Profile.STATIC, clock_cap_hertz=1e9), sustained)
    with pytest.raises(ValueError, match="no actuator takes its safe cap"):
        safe_limits(replace(MI350X, knobs=()))


def test_what_goes_down_goes_first_and_limiters_never_cross() -> None:
    one, two = GpuId("a"), GpuId("b")
    now = {one: {"ppt0": 960.0, "ppt1": 1360.0}, two: {"ppt0": 900.0, "ppt1": 1000.0}}
    writes = {one: {"ppt1": 1000.0, "ppt0": 900.0}, two: {"ppt0": 960.0, "ppt1": 1360.0}}
    down, up = stages(writes, now)
    assert [list(down), list(down[one])] == [[one], ["ppt0", "ppt1"]]
    assert [list(up), list(up[two])] == [[two], ["ppt1", "ppt0"]]


CLOCK_HERTZ = 1.41e9


def decided(write: dict[str, float], *clock: float | None) -> Decision:
    return Decision(state=begin(config()), write=write, news=None, why="test", clock=clock)  # type: ignore[arg-type]


def test_clocks_are_locked_with_the_first_order_and_freed_with_the_last() -> None:
    up, down, still = GpuId("up"), GpuId("down"), GpuId("still")
    readings = {gpu: replace(reading(0.0, SAFE), gpu=gpu) for gpu in (up, down, still)}
    decisions = {
        up: decided({"limit": BOOST}, CLOCK_HERTZ),
        down: decided({"limit": 500.0}, None),
        still: decided({}),
    }
    first, last = orders(decisions, readings)
    assert (first.limits, first.clocks) == ({down: {"limit": 500.0}}, {up: CLOCK_HERTZ})
    assert (last.limits, last.clocks) == ({up: {"limit": BOOST}}, {down: None})
    assert last.without(frozenset({up})).gpus == {down}, "a GPU whose clock was not locked is not raised"
    (only,) = orders({up: decided({}, None)}, readings)
    assert (only.limits, only.clocks) == ({}, {up: None})
    assert orders({still: decided({})}, readings) == ()


def test_a_clock_is_wanted_in_boost_alone_and_one_above_it_ends_boost() -> None:
    capped = replace(config(), boost_clock_hertz=CLOCK_HERTZ)
    state = boosting()

    def turn(now_hertz: float | None, locked: float | None) -> Decision:
        told = replace(reading(5.0, BOOST), clock_hertz=now_hertz)
        return decide(5.0, capped, state, told, lease_live=True, lease_why="", clock_hertz=locked)

    assert turn(1.98e9, None).clock == (CLOCK_HERTZ,), "not locked yet"
    for now_hertz in (None, 3.45e8, CLOCK_HERTZ, CLOCK_HERTZ + 15e6):
        found = turn(now_hertz, CLOCK_HERTZ)
        assert (found.state.mode.mode, found.clock) == (Mode.BOOST, ())
    above = turn(1.98e9, CLOCK_HERTZ)
    assert (above.state.mode.mode, above.write, above.clock) == (Mode.SAFE, {"limit": SAFE}, (None,))
    assert "the clock is 1980 MHz where 1410 was locked" in above.why
    observed = decide(5.0, replace(capped, modes=replace(capped.modes, allowed=Mode.OBSERVE)), state,
                      reading(5.0, BOOST), lease_live=False, lease_why="", clock_hertz=CLOCK_HERTZ)  # fmt: skip
    assert observed.clock == (), "in observe nothing is touched"
    assert boost_limits(H200, Candidate(profile=Profile.STATIC, clock_cap_hertz=CLOCK_HERTZ), BOOST) == {"limit": BOOST}


@pytest.mark.parametrize(
    ("low", "high", "why"), [(650.0, MOST, "650 W, is above the safe"), (200.0, 600.0, "600 W, is be")]
)
def test_a_part_that_cannot_take_the_safe_cap_is_another_one_and_left_alone(low: float, high: float, why: str) -> None:
    told = reading(0.0, min(high, MOST))
    told = replace(told, knobs=(replace(told.knobs[0], low_watts=low, high_watts=high),))
    found = decide(0.0, config(), begin(config()), told, lease_live=True, lease_why="")
    assert (found.state.mode.mode, found.write) == (Mode.OBSERVE, {})
    assert why in found.why
    gpu = Gpu(gpu=GPU, index=0, vendor="nvidia", sku="NVIDIA H200 NVL", pci_address="0000:03:00.0")
    assert declaration(H200, gpu, config(), told) is None, "the guard is not to write it either"


def test_a_silent_gpu_is_only_ever_lowered() -> None:
    state = boosting()
    found = decide(5.0, config(), state, None, lease_live=True, lease_why="", clock_hertz=1.5e9)
    assert (found.write, found.clock) == ({"limit": SAFE}, (None,))
    assert [order.limits for order in orders({GPU: found}, {})] == [{GPU: {"limit": SAFE}}]
    lower = replace(state, targets={"limit": 500.0})
    assert decide(5.0, config(), lower, None, lease_live=True, lease_why="").write == {}
    assert decide(5.0, config(), begin(config()), None, lease_live=True, lease_why="").write == {}


def test_what_is_raised_when_mig_comes_on_goes_down_once_and_a_limit_that_was_never_ours_stays() -> None:
    told = replace(reading(5.0, BOOST), locked="MIG is on")
    found = decide(5.0, config(), boosting(), told, lease_live=True, lease_why="", clock_hertz=1.5e9)
    assert (found.state.mode.mode, found.write, found.clock) == (Mode.SAFE, {"limit": SAFE}, (None,))
    assert found.why == "MIG is on; what was raised before is taken back"
    state = replace(found.state, targets={"limit": SAFE})
    after = decide(6.0, config(), state, replace(reading(6.0, SAFE), locked="MIG is on"), lease_live=True, lease_why="")
    assert (after.state.mode.mode, after.write, after.why) == (Mode.OBSERVE, {}, "MIG is on")
    raised = replace(reading(7.0, MOST), locked="MIG is on")
    assert decide(7.0, config(), after.state, raised, lease_live=True, lease_why="").write == {}
    assert decide(7.0, config(), begin(config()), raised, lease_live=True, lease_why="").write == {}
