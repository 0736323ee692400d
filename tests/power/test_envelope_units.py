"""Units (A18), energies, and what is promised of a window."""

import pytest

from fleetd.core.power.energy import Energy, from_counter, from_samples, steps
from fleetd.model.power_units import PowerUnit, from_base, to_base

TABLE = [
    (PowerUnit.MILLIWATT, 700_000, 1, 700.0),
    (PowerUnit.MILLIWATT, 65_535, 1, 65.535),
    (PowerUnit.MICROWATT, 750_000_000, 1, 750.0),
    (PowerUnit.WATT, 1000, 1, 1000.0),
    (PowerUnit.MILLIWATT_PER_SECOND, 20_000_000, 1, 20_000.0),
    (PowerUnit.WATT_PER_SECOND, 20_000, 1, 20_000.0),
    (PowerUnit.NODE_TOTAL_WATT, 8_000, 8, 1000.0),
]


@pytest.mark.parametrize(("unit", "vendor", "gpus", "base"), TABLE)
def test_a18_units(unit: PowerUnit, vendor: int, gpus: int, base: float) -> None:
    assert to_base(vendor, unit, gpus=gpus) == pytest.approx(base)
    assert from_base(base, unit, gpus=gpus) == vendor


def test_a18_every_unit_is_in_the_table() -> None:
    assert {row[0] for row in TABLE} == set(PowerUnit)


@pytest.mark.parametrize("unit", list(PowerUnit))
@pytest.mark.parametrize("value", [2**32 - 1, 2**64 - 1])
def test_a18_no_value_is_none(unit: PowerUnit, value: float) -> None:
    assert to_base(value, unit) is None


def test_a18_sixteen_bits_without_a_value() -> None:
    assert to_base(65_535, PowerUnit.WATT) is None


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a18_what_is_no_power(value: float) -> None:
    with pytest.raises(ValueError, match="is no power"):
        to_base(value, PowerUnit.WATT)


def test_a18_a_limit_is_rounded_down_and_a_whole_one_kept() -> None:
    assert from_base(699.9996, PowerUnit.MILLIWATT) == 699_999
    assert from_base(699.9, PowerUnit.WATT) == 699
    assert from_base(0.29, PowerUnit.MICROWATT) == 290_000


def test_a_counter_that_went_backward_has_no_energy() -> None:
    assert from_counter(10, 9, resolution_joules=1, gain_error=0.03) is None
    assert from_counter(10, 110, resolution_joules=2, gain_error=0.03) == Energy(joules=100, error_joules=5)


def test_energy_of_steps_adds_up_to_the_job() -> None:
    samples = [(n / 10, 500 + 100 * (n % 3)) for n in range(41)]
    each = steps(samples, [0.05, 1.0, 2.5, 3.95], gain_error=0.03, gap_max_s=0.2)
    job = from_samples(samples, since_s=0.05, until_s=3.95, gain_error=0.03, gap_max_s=0.2)
    assert job is not None
    total = Energy(joules=0, error_joules=0)
    for step in each:
        assert step is not None
        total += step
    assert total.joules == pytest.approx(job.joules)
    assert total.error_joules == pytest.approx(job.error_joules)
    assert job.error_joules >= 0.03 * job.joules


def test_the_bound_holds_for_the_worst_that_lies_between_two_samples() -> None:
    bound = from_samples([(0, 100), (1, 900)], since_s=0, until_s=1, gain_error=0, gap_max_s=1)
    assert bound == Energy(joules=500, error_joules=400)  # 100 J if it rose at the end, 900 J if at once


@pytest.mark.parametrize(
    ("samples", "since", "until"),
    [
        ([(0, 1), (1, 1)], -0.5, 1),  # begins before the samples
        ([(0, 1), (1, 1)], 0, 1.5),  # ends after them
        ([(0, 1), (5, 1)], 0, 5),  # a gap
        ([(0, 1)], 0, 0),
    ],
)
def test_an_unknown_energy_is_none(samples: list[tuple[float, float]], since: float, until: float) -> None:
    assert from_samples(samples, since_s=since, until_s=until, gain_error=0, gap_max_s=1) is None


@pytest.mark.parametrize("samples", [[(1, 1), (0, 1)], [(0, 1), (0, 1)], [(0, float("nan")), (1, 1)]])
def test_samples_that_are_none(samples: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=r"the samples are|a sample is"):
        from_samples(samples, since_s=0, until_s=1, gain_error=0, gap_max_s=1)
