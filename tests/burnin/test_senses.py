"""What a GPU feels: the simulated one's model, readings added up, and how they travel."""

import json
import sys
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from burnin.processes import readers
from burnin.processes.senses import (
    BUSY_WATTS,
    COOL_CELSIUS,
    HOT_CELSIUS,
    IDLE_WATTS,
    READ_EVERY_S,
    SAMPLES_MAX,
    WARMING_S,
    Real,
    Simulated,
    Unfelt,
    Watch,
    open_senses,
)
from burnin.processes.wire import WireError, felt
from burnin.verdict.health import Counters, Felt, Sensors, Spread, together


def celsius(senses: Simulated) -> float:
    read = senses.read().temperature_celsius
    assert read is not None
    return read


def test_a_simulated_gpu_warms_under_load_and_cools_without() -> None:
    senses = Simulated()
    assert senses.read().power_watts == IDLE_WATTS
    seen = [celsius(senses)]
    for _ in range(10):
        senses.passed(WARMING_S / 2, busy=True)
        seen.append(celsius(senses))
    assert seen == sorted(seen)
    assert (seen[0], round(seen[-1])) == (COOL_CELSIUS, HOT_CELSIUS)
    assert senses.read().power_watts == BUSY_WATTS
    senses.passed(20 * WARMING_S, busy=False)
    assert celsius(senses) == pytest.approx(COOL_CELSIUS, abs=0.01)


def test_how_a_stretch_is_cut_changes_nothing() -> None:
    whole, pieces = Simulated(), Simulated()
    whole.passed(30.0, busy=True)
    for _ in range(300):
        pieces.passed(0.1, busy=True)
    assert celsius(pieces) == pytest.approx(celsius(whole), abs=1e-9)


def test_power_samples_are_handed_out_once_and_bounded() -> None:
    senses = Simulated()
    for number in range(2 * SAMPLES_MAX):
        senses.passed(0.01, busy=number % 2 == 1)
    samples = senses.power_samples()
    assert len(samples) == SAMPLES_MAX
    assert set(samples) == {IDLE_WATTS, BUSY_WATTS}
    assert senses.power_samples() == ()


def test_a_device_without_sensors_says_nothing() -> None:
    assert (Unfelt().read(), Unfelt().power_samples()) == (Sensors(), ())
    assert isinstance(open_senses("cpu", "CPU-0", readers.open_reader("cpu", "CPU-0")), Unfelt)
    assert isinstance(open_senses("sim", "SIM-0", readers.open_reader("sim", "SIM-0")), Simulated)
    assert isinstance(open_senses("cuda", "GPU-0", readers.open_reader("sim", "SIM-0")), Real)


def test_a_watch_reads_now_and_then_and_adds_up() -> None:
    readings = [
        Sensors(power_watts=watts, limits=limits) for watts, limits in ((100.0, ()), (400.0, ("cap",)), (250.0, ()))
    ]
    left, now_s = iter(readings), [0.0]
    watch = Watch(lambda: next(left), clock=lambda: now_s[0])
    for at in (0.0, READ_EVERY_S / 2, READ_EVERY_S, 1.5 * READ_EVERY_S):
        now_s[0] = at
        watch.look()
    assert watch.end() == Felt(power_watts=Spread(min=100.0, mean=250.0, max=400.0), limits=("cap",), readings=3)


def test_what_cannot_be_read_stays_absent() -> None:
    assert Watch(Sensors, clock=lambda: 0.0).end() == Felt(readings=1)


def test_stretches_are_put_together_by_their_readings() -> None:
    one = Felt(power_watts=Spread(min=1.0, mean=2.0, max=3.0), limits=("b",), readings=1)
    two = Felt(power_watts=Spread(min=2.0, mean=6.0, max=9.0), limits=("a",), readings=3)
    both = together([one, two])
    assert both == Felt(power_watts=Spread(min=1.0, mean=5.0, max=9.0), limits=("a", "b"), readings=4)
    assert together([]) == Felt()


def test_feelings_travel_as_json() -> None:
    one = Felt(temperature_celsius=Spread(min=30.0, mean=31.5, max=33.0), limits=("cap",), readings=2)
    assert felt(json.loads(json.dumps(asdict(one)))) == one
    assert felt({}) == Felt()


@pytest.mark.parametrize(
    "broken", [{"power_watts": 3}, {"power_watts": {"min": 1}}, {"readings": "many"}, {"limits": 5}]
)
def test_broken_feelings_are_a_wire_error(broken: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="not what a GPU felt"):
        felt(broken)


class _AmdSmiError(Exception):
    pass


def amdsmi(power: dict[str, object], celsius: int, clock: dict[str, object], cap: object = "N/A") -> SimpleNamespace:
    return SimpleNamespace(
        AmdSmiException=_AmdSmiError,
        AmdSmiClkType=SimpleNamespace(GFX="gfx"),
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT="hot"),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT="now"),
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: [1],
        amdsmi_get_gpu_device_uuid=lambda _: "abc",
        amdsmi_get_gpu_total_ecc_count=lambda _: {"uncorrectable_count": 1, "correctable_count": 2},
        amdsmi_get_power_info=lambda _: power,
        amdsmi_get_power_cap_info=lambda _: {"power_cap": cap},
        amdsmi_get_temp_metric=lambda *_: celsius,
        amdsmi_get_clock_info=lambda *_: clock,
    )


@pytest.mark.parametrize(
    ("power", "watts"),
    [
        ({"current_socket_power": 740, "average_socket_power": "N/A"}, 740.0),
        ({"current_socket_power": "N/A", "average_socket_power": 300}, 300.0),
        ({"current_socket_power": "N/A", "average_socket_power": "N/A"}, None),
    ],
)
def test_amd_units_and_missing_values(
    power: dict[str, object], watts: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi(power, 61, {"clk": 2100}))
    reader = readers.open_reader("cuda", "GPU-abc")
    assert reader.sensors().power_limit_watts is None
    assert reader.sensors() == Sensors(power_watts=watts, temperature_celsius=61.0, sm_clock_hertz=2.1e9)
    assert reader.counters() == Counters(source="amdsmi", uncorrectable_total=1, correctable_total=2)


@pytest.mark.parametrize(("cap", "watts"), [(750_000_000, 750.0), (2**64 - 1, None), (0, None), ("N/A", None)])
def test_amds_power_limit_is_told_in_microwatts_and_by_ones_where_there_is_none(
    cap: object, watts: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi({}, 61, {"clk": 2100}, cap))
    assert readers.open_reader("cuda", "GPU-abc").sensors().power_limit_watts == watts


def test_the_lowest_power_limit_of_a_stretch_counts_and_travels() -> None:
    limits = iter((700.0, None, 500.0, 600.0))
    watch = Watch(lambda: Sensors(power_limit_watts=next(limits)), clock=iter((0.0, 1.0, 2.0)).__next__)
    for _ in range(3):
        watch.look()
    seen = watch.end()
    assert seen.power_limit_watts == 500.0
    assert felt(json.loads(json.dumps(asdict(seen)))) == seen
    assert together([seen, Felt(power_limit_watts=400.0), Felt()]).power_limit_watts == 400.0


def test_an_amd_gpu_that_does_not_answer_has_no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise _AmdSmiError

    library = amdsmi({}, 0, {"clk": "N/A"})
    library.amdsmi_get_power_info = library.amdsmi_get_temp_metric = lost
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    assert readers.open_reader("cuda", "GPU-abc").sensors() == Sensors()
