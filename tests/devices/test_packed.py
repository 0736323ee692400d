"""Samples on their way from a helper: every double arrives as it was, and nonsense is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.devices.packed import pack, unpack
from fleetd.devices.power_readings import power_readings
from fleetd.devices.reader import VendorError
from fleetd.devices.vendor import answer
from fleetd.model.ids import GpuId
from fleetd.model.power import PowerReading
from fleetd.ports import DeviceError

GPU = GpuId("GPU-0")
NUMBERS = st.floats(allow_nan=False)


@given(st.lists(st.tuples(NUMBERS, NUMBERS)))
def test_what_is_packed_comes_out_as_it_was(pairs: list[tuple[float, float]]) -> None:
    assert list(zip(*unpack(pack(pairs)), strict=True)) == pairs


@pytest.mark.parametrize("pairs", [[(1.0,)], [(1.0, 2.0, 3.0)], [(1.0, "2")], [1.0], [(1.0, None)], None])
def test_what_is_no_pair_of_numbers_is_not_packed(pairs: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        pack(pairs)


@pytest.mark.parametrize("text", [[[1.0, 2.0]], "AAAA", "A", pack([(1.0, 2.0)])[:16], 7])
def test_what_was_not_packed_is_refused(text: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        unpack(text)


class Telling:
    """A reader whose GPU tells these samples."""

    def __init__(self, samples: Any) -> None:
        self._samples = samples

    def open(self) -> None: ...

    def inventory(self) -> list[dict[str, Any]]:
        return []

    def sample(self, gpu: str, *, slow: bool) -> dict[str, Any]:
        raise VendorError(f"{gpu} is asked for its power only{', not slowly' if slow else ''}")

    def close(self) -> None: ...

    def power(self, gpu: str, *, energy: bool, samples: bool) -> dict[str, Any]:
        assert (gpu, energy, samples) == (GPU, False, True)
        knobs = [["limit", 700.0, 200.0, 700.0, 700.0]]
        numbers = dict.fromkeys(("enforced_watts", "power_watts", "temperature_celsius", "clock_hertz", "mark"), 600.0)
        return {
            **numbers,
            "knobs": knobs,
            "brake": False,
            "locked": "",
            "energy_joules": None,
            "samples": self._samples,
        }


def told(samples: Any) -> PowerReading:
    """What arrives of a reader's samples."""
    request = {"id": 1, "do": "power", "gpus": [GPU], "energy": False, "samples": [GPU]}
    reply = json.loads(json.dumps(answer(Telling(samples), request)))
    (reading,) = power_readings([GPU], 1.0, reply["ok"])
    return reading


def test_samples_arrive_and_what_cannot_be_one_is_left_out() -> None:
    nan, inf = float("nan"), float("inf")
    samples = [(1.0, 600.25), (nan, 1.0), (1.02, -1.0), (1.04, nan), (1.06, inf), (1701375961.24, 913)]
    assert told(samples).samples == ((1.0, 600.25), (1701375961.24, 913.0))


@pytest.mark.parametrize("watts", [0.0, 0, -1.0, float("nan"), float("inf"), 4294967.294])
def test_a_limit_that_cannot_be_one_is_none(watts: float) -> None:
    reply = dict.fromkeys(("power_watts", "temperature_celsius", "energy_joules", "clock_hertz", "mark"))
    reply |= {"knobs": [["limit", watts, 0.0, 700.0, 700.0]], "enforced_watts": watts}
    reply |= {"brake": False, "locked": "", "samples": ""}
    (reading,) = power_readings([GPU], 1.0, {GPU: reply})
    assert (reading.knobs[0].set_watts, reading.enforced_watts) == (None, None)
    assert reading.knobs[0].low_watts == 0.0


def test_no_samples_are_none() -> None:
    assert told([]).samples == ()


@pytest.mark.parametrize("samples", [[(1.0, 2.0, 3.0)], [(1.0, "2")], "nonsense", 7])
def test_a_reader_whose_samples_are_none_is_refused(samples: Any) -> None:
    with pytest.raises(DeviceError):
        told(samples)
