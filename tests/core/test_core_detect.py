"""Detection: what readings mean, told once an episode, over its stories and over any course of readings."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.config.faults import load_catalogue
from fleetd.core import detect_rules as codes
from fleetd.core.detect import GPUS_MAX, Detected, Watched, detect, standing
from fleetd.core.detect_config import DetectConfig
from fleetd.model.ids import GpuId
from fleetd.model.telemetry import METRICS, GpuSample

G0 = GpuId("GPU-0")
H200 = "NVIDIA H200"
BUSY = GpuSample(
    gpu=G0,
    at_s=0.0,
    utilization_ratio=1.0,
    power_watts=690.0,
    temperature_celsius=60.0,
    sm_clock_hertz=1.7e9,
    sm_clock_max_hertz=1.98e9,
    sm_active_ratio=0.9,
    throttle_active_ratio=(("power_cap", 0.0), ("hardware_thermal", 0.0), ("power_brake", 0.0)),
    ecc_corrected_total=4.0,
    ecc_uncorrected_total=0.0,
    row_remap_failed_ratio=0.0,
    row_remap_pending_ratio=0.0,
    bad_pages_pending=0.0,
    recovery_action=0.0,
    pcie_link_generation=5.0,
    pcie_link_generation_max=5.0,
    pcie_link_width=16.0,
    pcie_link_width_max=16.0,
    pcie_replay_total=3.0,
    fabric_link_up_ratio=tuple((f"{link:02}", 1.0) for link in range(18)),
)


class Bench:
    """Feeds readings, one a second, and keeps what was raised and cleared."""

    def __init__(self, *, sku: str = H200, config: DetectConfig | None = None) -> None:
        self.state: Mapping[GpuId, Watched] = {}
        self.now_s = 1000.0
        self.sku = sku
        self.config = config or DetectConfig()
        self.raised: list[Detected] = []
        self.cleared: list[Detected] = []

    def feed(self, sample: GpuSample | None, *, trouble: str = "", step_s: float = 1.0) -> None:
        self.now_s += step_s
        if sample is not None:  # power and temperature of a real GPU never stand still
            wobble = (self.now_s % 7) / 10
            power = None if sample.power_watts is None else sample.power_watts + wobble * bool(sample.power_watts)
            sample = replace(sample, power_watts=power)
        found = detect(
            self.state,
            () if sample is None else (sample,),
            now_s=self.now_s,
            at_s=self.now_s + 1e9,
            skus={G0: self.sku},
            troubles={G0: trouble} if trouble else {},
            config=self.config,
        )
        self.state = found.state
        self.raised += found.raised
        self.cleared += found.cleared

    def run(self, seconds: int, **changes: Any) -> list[str]:
        """Feed a busy GPU with these changes; returns the codes raised meanwhile."""
        before = len(self.raised)
        for _ in range(seconds):
            self.feed(replace(BUSY, **changes))
        return [one.code for one in self.raised[before:]]

    def codes(self) -> list[str]:
        return [one.code for one in self.raised]


def test_a_healthy_busy_gpu_raises_nothing_in_an_hour() -> None:
    bench = Bench()
    assert bench.run(3600) == []
    assert standing(bench.state) == ()


def test_every_code_is_in_the_fault_catalogue() -> None:
    catalogue = load_catalogue()
    ours = [value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str) and "." in value]
    assert len(ours) >= 18
    for code in ours:
        assert catalogue.entry(code).known, code


@pytest.mark.parametrize(
    ("code", "seconds", "changes"),
    [
        (codes.REMAP_FAILED, 1, {"row_remap_failed_ratio": 1.0}),
        (codes.REMAP_PENDING, 1, {"row_remap_pending_ratio": 1.0}),
        (codes.BAD_PAGES_PENDING, 1, {"bad_pages_pending": 2.0}),
        (codes.RECOVERY, 1, {"recovery_action": 1.0}),
        (codes.POWER_BRAKE, 5, {"throttle_active_ratio": (("power_cap", 0.0), ("power_brake", 1.0))}),
        (codes.THERMAL, 10, {"throttle_active_ratio": (("software_thermal", 0.0), ("hardware_thermal", 1.0))}),
        (codes.CLOCK_STUCK, 62, {"sm_clock_hertz": 0.3e9}),
        (codes.PCIE_DEGRADED, 62, {"pcie_link_width": 8.0}),
        (codes.PCIE_DEGRADED, 62, {"pcie_link_generation": 1.0}),
        (codes.LINK_DOWN, 12, {"fabric_link_up_ratio": (*BUSY.fabric_link_up_ratio[:17], ("17", 0.0))}),
        (codes.SENSOR_ZERO, 62, {"sm_active_ratio": 0.0}),
    ],
)
def test_a_condition_is_told_once_in_time_and_over_after_proof(
    code: str, seconds: int, changes: dict[str, Any]
) -> None:
    bench = Bench()
    bench.run(5)
    assert bench.run(seconds, **changes) == [code]
    assert bench.run(300, **changes) == [], "it is not told again while it lasts"
    assert standing(bench.state) == ((G0, code, bench.raised[0].began_at_s),)
    assert bench.raised[0].why
    families = {"fabric_link_up_ratio": (), "throttle_active_ratio": ()}
    bench.run(600, **(dict.fromkeys(changes) | families))
    assert bench.cleared == [], "what is not read is no proof (S40)"
    bench.run(500)
    assert [one.code for one in bench.cleared] == [code]
    assert bench.cleared[0].began_at_s == bench.raised[0].began_at_s
    assert bench.run(seconds + 5, **changes) == [code], "a new episode is a new finding"


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        (codes.POWER_BRAKE, {"throttle_active_ratio": (("power_cap", 0.0), ("power_brake", 1.0))}),
        (codes.LINK_DOWN, {"fabric_link_up_ratio": (("00", 0.0),)}),
        (codes.PCIE_DEGRADED, {"pcie_link_width": 8.0}),
        (codes.SENSOR_ZERO, {"sm_active_ratio": 0.0}),
    ],
)
def test_one_reading_alone_is_no_alarm(code: str, changes: dict[str, Any]) -> None:
    bench = Bench()
    bench.run(30)
    bench.run(1, **changes)
    bench.run(90)
    assert code not in bench.codes()


def test_an_idle_link_and_an_idle_clock_are_slow_on_purpose() -> None:
    bench = Bench()
    bench.run(600, utilization_ratio=0.0, pcie_link_generation=1.0, sm_clock_hertz=0.2e9, sm_active_ratio=0.0)
    assert bench.codes() == []


def test_a_low_clock_with_a_reason_is_not_stuck() -> None:
    bench = Bench()
    bench.run(300, sm_clock_hertz=0.3e9, throttle_active_ratio=(("power_cap", 1.0),))
    bench.run(300, sm_clock_hertz=0.3e9, throttle_active_ratio=())
    assert bench.codes() == [], "told a reason, or told nothing about reasons"


def test_the_drivers_own_clock_of_a_brake_counts_too() -> None:
    """AMD has no present bits, only time that adds up; NVIDIA has both, and the worse of them wins."""
    bench = Bench()
    for second in range(70):
        seconds = (("power_brake", 100.0 + 0.1 * second),)
        bench.feed(replace(BUSY, throttle_seconds_total=seconds))
    assert bench.codes() == [codes.POWER_BRAKE]


def test_one_nanosecond_of_power_violation_does_not_alarm() -> None:
    bench = Bench()
    for second in range(300):
        bench.feed(replace(BUSY, throttle_seconds_total=(("power_brake", 1e-9 * second),)))
    assert bench.codes() == []


def test_s18_links_that_a_card_never_had_are_reported_and_blamed_on_nobody() -> None:
    """A PCIe card without a bridge: all down is normal. Some of an unknown class down: said, no more."""
    all_down = tuple((f"{link:02}", 0.0) for link in range(12))
    bench = Bench(sku="NVIDIA A100-PCIE-40GB")
    bench.run(60, fabric_link_up_ratio=all_down)
    assert bench.codes() == []
    bench.run(60, fabric_link_up_ratio=(("00", 1.0), *all_down[1:]))
    assert bench.codes() == [codes.LINK_UNEXPECTED]
    assert load_catalogue().entry(codes.LINK_UNEXPECTED).action.value == "none"
    told = Bench(sku="NVIDIA A100-PCIE-40GB", config=DetectConfig(expected_links={"NVIDIA A100-PCIE-40GB": 12}))
    told.run(60, fabric_link_up_ratio=all_down)
    assert told.codes() == [codes.LINK_DOWN], "a site that says what its boards have is believed"


def test_s32_a_storm_of_corrected_errors_is_one_finding() -> None:
    bench = Bench()
    bench.run(5, ecc_corrected_total=54.7e9)
    for second in range(120):
        bench.feed(replace(BUSY, ecc_corrected_total=54.7e9 + 17_700.0 * second))
    assert bench.codes() == [codes.ECC_STORM]


def test_corrected_errors_alarm_by_rate_and_uncorrected_ones_at_the_first() -> None:
    bench = Bench()
    for minute in range(60):  # one a minute: below the rate
        bench.run(20, ecc_corrected_total=float(minute))
    assert bench.codes() == []
    for second in range(110):
        bench.feed(replace(BUSY, ecc_corrected_total=100.0 + second))
    assert bench.codes() == [codes.ECC_CORRECTED_RATE]
    assert bench.run(1, ecc_corrected_total=210.0, ecc_uncorrected_total=1.0) == [codes.ECC_UNCORRECTED]


def test_s39_counters_that_polling_invents_are_a_defect_of_telemetry() -> None:
    bench = Bench()
    for query in range(1, 40):
        jump = 1_048_560.0 * query
        bench.feed(replace(BUSY, ecc_corrected_total=4.0 + jump, ecc_uncorrected_total=jump))
    assert bench.codes() == [codes.COUNTERS_IMPLAUSIBLE]
    kind = load_catalogue().entry(codes.COUNTERS_IMPLAUSIBLE)
    assert not kind.fault_class.is_hardware
    honest = 39 * 1_048_560.0
    assert bench.run(1, ecc_corrected_total=4.0 + honest, ecc_uncorrected_total=honest + 1) == [codes.ECC_UNCORRECTED]


def test_s40_the_worse_source_wins_and_only_its_own_all_clear_ends_it() -> None:
    bench = Bench()
    bench.run(2, recovery_action=1.0, row_remap_failed_ratio=0.0)
    assert bench.codes() == [codes.RECOVERY], "the driver asks for a reset although everything else looks healthy"
    bench.run(900, recovery_action=None)
    assert bench.cleared == []
    bench.run(301, recovery_action=0.0)
    assert [one.code for one in bench.cleared] == [codes.RECOVERY]


def test_s41_a_zero_on_a_busy_gpu_is_not_idle_and_absent_is_not_zero() -> None:
    bench = Bench()
    bench.run(300, sm_active_ratio=None)
    assert bench.codes() == []
    bench.run(62, sm_active_ratio=0.0)
    assert bench.codes() == [codes.SENSOR_ZERO]


def test_readings_that_stand_still_under_load_are_stale() -> None:
    bench = Bench()
    for _ in range(310):
        bench.now_s += 1.0
        found = detect(bench.state, (BUSY,), now_s=bench.now_s, at_s=0.0, skus={}, troubles={}, config=bench.config)
        bench.state = found.state
        bench.raised += found.raised
    assert bench.codes() == [codes.SENSOR_STALE]


def test_a_lost_gpu_is_told_and_one_that_only_does_not_answer_is_not_called_lost() -> None:
    bench = Bench()
    bench.run(3)
    bench.feed(None, trouble="no answer to 'sample' within 2 s")
    assert bench.codes() == []
    for _ in range(100):
        bench.feed(None, trouble="GPU is lost")
    assert bench.codes() == [codes.GPU_LOST]
    bench.run(301)
    assert [one.code for one in bench.cleared] == [codes.GPU_LOST]


def test_s20_what_clears_is_over_and_what_is_gone_keeps_its_episode() -> None:
    bench = Bench()
    bench.run(70, pcie_link_width=8.0)
    for _ in range(5):
        bench.feed(None)
    assert [code for _, code, _ in standing(bench.state)] == [codes.PCIE_DEGRADED]
    bench.run(301)
    assert standing(bench.state) == ()


def test_made_up_gpus_do_not_fill_the_memory() -> None:
    state: Mapping[GpuId, Watched] = {}
    for number in range(GPUS_MAX + 50):
        sample = replace(BUSY, gpu=GpuId(f"GPU-{number}"))
        state = detect(
            state, (sample,), now_s=float(number), at_s=0.0, skus={}, troubles={}, config=DetectConfig()
        ).state
    assert len(state) == GPUS_MAX


_NUMBERS = [metric.name for metric in METRICS]
_values = st.none() | st.sampled_from([0.0, 1.0, 0.5]) | st.floats(0, 1e12)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.5, 120), st.dictionaries(st.sampled_from(_NUMBERS), _values)), max_size=30),
)
def test_raised_and_cleared_alternate_whatever_is_read(course: Iterable[tuple[float, dict[str, float | None]]]) -> None:
    bench = Bench()
    for step_s, values in course:
        before = {code for _, code, _ in standing(bench.state)}
        raised, cleared = len(bench.raised), len(bench.cleared)
        bench.feed(GpuSample(gpu=G0, at_s=0.0, **values), step_s=step_s)
        new = [one.code for one in bench.raised[raised:]]
        over = [one.code for one in bench.cleared[cleared:]]
        assert len(set(new)) == len(new)
        assert before.isdisjoint(new)
        assert before.issuperset(over)
        assert {code for _, code, _ in standing(bench.state)} == (before | set(new)) - set(over)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.5, 600), max_size=40))
def test_absent_readings_raise_nothing(course: list[float]) -> None:
    bench = Bench()
    for step_s in course:
        bench.feed(GpuSample(gpu=G0, at_s=0.0), step_s=step_s)
    assert bench.raised == []


@pytest.mark.parametrize("name", [entry.name for entry in fields(DetectConfig) if entry.name != "expected_links"])
def test_a_threshold_that_cannot_work_is_refused(name: str) -> None:
    values: dict[str, Any] = {name: 0.0}
    with pytest.raises(ValueError, match=name):
        DetectConfig(**values)
