"""Nothing that cannot be true becomes a number, and what cannot be true is counted."""

import math
from typing import Any

import pytest

from fleetd.devices.readings import Readings
from fleetd.model.ids import GpuId
from fleetd.model.telemetry import FAMILIES, LABELS_MAX, METRICS, GpuSample


def read(readings: Readings, *, slow: bool = False, **reply: Any) -> GpuSample:
    return readings.sample(GpuId("GPU-0"), 1.0, reply, slow=slow)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("power_watts", 4_294_967.295),  # UINT32_MAX milliwatts
        ("power_watts", -1.0),
        ("temperature_celsius", 255.0),
        ("utilization_ratio", 1.27),
        ("sm_clock_hertz", 4.294967295e15),
        ("memory_used_bytes", 2.0**64),
        ("energy_joules_total", math.nan),
        ("ecc_corrected_total", 2.0**64),
        ("ecc_corrected_total", math.inf),
        ("power_watts", 10**400),  # no float can hold it
    ],
)
def test_what_cannot_be_true_is_absent_and_counted(name: str, value: float) -> None:
    sample = read(Readings(), **{name: value})
    assert getattr(sample, name) is None
    assert sample.implausible_readings_total == ((name, 1.0),)


def test_a_counter_that_goes_back_is_absent_once_and_counts_from_there() -> None:
    readings = Readings()
    values = [read(readings, pcie_replay_total=n).pcie_replay_total for n in (5, 5, 9, 2, 3)]
    assert values == [5.0, 5.0, 9.0, None, 3.0]
    assert read(readings).implausible_readings_total == (("pcie_replay_total", 1.0),)


def test_a_counter_of_one_link_says_nothing_about_another() -> None:
    readings = Readings()
    first = read(readings, fabric_link_crc_errors_total=[["0", 4], ["1", 9]])
    second = read(readings, fabric_link_crc_errors_total=[["0", 5], ["1", 3]])
    assert first.fabric_link_crc_errors_total == (("0", 4.0), ("1", 9.0))
    assert second.fabric_link_crc_errors_total == (("0", 5.0),)


def test_what_is_no_number_and_what_nobody_knows_is_left_out_without_a_word() -> None:
    odd = {"power_watts": "N/A", "temperature_celsius": None, "utilization_ratio": True, "unheard_of": 1.0}
    families = {"fabric_link_up_ratio": [["0"], 7, ["", 1.0], ["x" * 99, 1.0], ["3", "up"]]}
    assert read(Readings(), **odd, **families) == GpuSample(gpu=GpuId("GPU-0"), at_s=1.0)


def test_dear_readings_are_kept_until_the_next_and_what_was_read_in_vain_is_not() -> None:
    readings = Readings()
    read(readings, slow=True, power_watts=500.0, energy_joules_total=7.0, fabric_link_up_ratio=[["0", 1.0]])
    quick = read(readings, power_watts=None)
    assert (quick.power_watts, quick.energy_joules_total) == (None, 7.0)
    assert quick.fabric_link_up_ratio == (("0", 1.0),)
    assert read(readings, slow=True, power_watts=500.0).energy_joules_total is None
    assert read(readings, power_watts=501.0).energy_joules_total is None


def test_a_family_is_bounded() -> None:
    entries = [[str(n), 1.0] for n in range(1000)]
    assert len(read(Readings(), fabric_link_up_ratio=entries).fabric_link_up_ratio) == LABELS_MAX


def test_every_entry_of_the_catalogue_can_be_read() -> None:
    metrics = {metric.name: 1.0 for metric in METRICS}
    families = {family.name: [["a", 1.0]] for family in FAMILIES if family.name != "implausible_readings_total"}
    sample = read(Readings(), **metrics, **families)
    assert all(getattr(sample, name) == 1.0 for name in metrics)
    assert all(getattr(sample, name) == (("a", 1.0),) for name in families)
    assert sample.implausible_readings_total == ()


def test_what_a_helper_counts_itself_may_begin_anew_with_another_helper_and_nothing_else_may() -> None:
    readings = Readings()
    reply = {"throttle_seconds_total": [["power_cap", 5.0]], "ecc_corrected_total": 7.0}
    fresh = {"throttle_seconds_total": [["power_cap", 0.5]], "ecc_corrected_total": 3.0}
    assert readings.sample(GpuId("G"), 0.0, reply, source=1).throttle_seconds_total == (("power_cap", 5.0),)
    sample = readings.sample(GpuId("G"), 1.0, fresh, source=2)
    assert sample.throttle_seconds_total == (("power_cap", 0.5),)
    assert dict(sample.implausible_readings_total) == {"ecc_corrected_total": 1.0}
