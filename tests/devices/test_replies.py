"""What a helper answers about several GPUs: taken apart when it is such an answer, refused when it is not."""

import mmap
import os

import pytest

from fleetd.devices.replies import read_replies
from fleetd.devices.steps import Steps
from fleetd.model.ids import GpuId
from fleetd.ports import DeviceError

A, B = GpuId("A"), GpuId("B")
GOOD = {"reading": {"power_watts": 1.0}, "began_s": 10.0, "over_s": 11.0}
SLOW = {"error": "lost", "began_s": 11.0, "over_s": 14.0}


def test_each_gpu_has_its_share_of_the_time() -> None:
    first, second = read_replies([A, B], {A: GOOD, B: SLOW})
    assert (first.reading, first.took_ratio, first.ago_ratio) == ({"power_watts": 1.0}, 0.25, 0.75)
    assert (second.reading, second.trouble, second.took_ratio, second.ago_ratio) == (None, "lost", 0.75, 0.0)


def test_a_clock_that_stands_still_divides_nothing() -> None:
    (only,) = read_replies([A], {A: GOOD | {"over_s": 10.0}})
    assert (only.took_ratio, only.ago_ratio) == (0.0, 0.0)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        7,
        [],
        {},
        {A: None, B: GOOD},
        {A: GOOD},
        {A: GOOD | {"began_s": "x"}, B: GOOD},
        {A: GOOD | {"began_s": 12.0}, B: GOOD},
        {A: GOOD | {"over_s": float("nan")}, B: GOOD},
        {A: GOOD | {"over_s": float("inf")}, B: GOOD},
    ],
)
def test_what_is_no_answer_is_refused(reply: object) -> None:
    with pytest.raises(DeviceError, match="the helper sent samples that are none"):
        read_replies([A, B], reply)


def test_a_reading_that_is_none_is_a_trouble_of_that_gpu() -> None:
    odd, good = read_replies([A, B], {A: GOOD | {"reading": [1]}, B: GOOD})
    assert (odd.reading, odd.trouble) == (None, "it sent no reading")
    assert good.reading is not None


def test_steps_are_those_of_the_request_only() -> None:
    parent, descriptor = Steps.shared()
    helper = Steps.at(descriptor)
    assert os.fstat(descriptor).st_size == mmap.PAGESIZE
    os.close(descriptor)
    assert parent.of(1) is None
    helper.begin(1, 63)
    assert (parent.of(1), parent.of(2), parent.of(1 + (1 << 32))) == (63, None, 63)
    helper.begin(2, 0)
    assert (parent.of(1), parent.of(2)) == (None, 0)
