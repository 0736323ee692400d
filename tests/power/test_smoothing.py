"""XID 162 to 165: who has lost its power smoothing, and when it is back."""

import pytest

from fleetd.core.power.smoothing import (
    BACK,
    DROPPED,
    LOW,
    USED_UP,
    Smoothing,
    Word,
    heard,
    is_lost,
    placed,
    standing,
    why_lost,
)
from fleetd.model.ids import GpuId

GPU, OTHER = GpuId("GPU-0"), GpuId("GPU-1")


def after(*codes: str, gpu: GpuId | None = GPU, device: str | None = None) -> Smoothing:
    state = Smoothing()
    for code in codes:
        state = heard(state, Word(code=code, gpu=gpu, device=device))
    return state


@pytest.mark.parametrize(
    ("codes", "lost"),
    [
        ((), None),
        (("nvidia.xid.79",), None),
        ((LOW,), False),
        ((BACK,), False),
        ((DROPPED,), True),
        ((DROPPED, BACK), False),
        ((DROPPED, BACK, DROPPED), True),
        ((DROPPED, DROPPED, BACK), False),
        ((USED_UP,), True),
        ((USED_UP, BACK), True),
        ((DROPPED, USED_UP, BACK), True),
    ],
)
def test_what_a_gpu_said_of_its_smoothing(codes: tuple[str, ...], lost: bool | None) -> None:
    state = after(*codes)
    assert is_lost(state, GPU) is lost
    assert is_lost(state, OTHER) is None, "it is nobody else's"
    assert bool(why_lost(state, GPU)) is bool(lost)


def test_a_word_from_before_the_gpus_were_known_finds_its_gpu() -> None:
    places = {"0:03:00": GPU, "0:05:00": OTHER}
    state = after(DROPPED, gpu=None, device="0:03:00")
    assert is_lost(state, GPU) is None, "not yet"
    state = placed(state, places)
    assert (is_lost(state, GPU), is_lost(state, OTHER)) == (True, None)
    assert not is_lost(heard(state, Word(code=BACK, gpu=GPU, device="0:03:00")), GPU)
    before = after(DROPPED, BACK, gpu=None, device="0:03:00")
    assert is_lost(placed(before, places), GPU) is False
    elsewhere = placed(after(DROPPED, gpu=None, device="0:7f:00"), places)
    assert (is_lost(elsewhere, GPU), is_lost(elsewhere, OTHER)) == (None, None), "none of this host's GPUs"


def test_a_line_that_names_no_device_may_be_any_gpus() -> None:
    state = placed(after(DROPPED, gpu=None), {"0:03:00": GPU})
    assert (is_lost(state, GPU), is_lost(state, OTHER)) == (True, True)


def test_after_a_restart_what_stands_is_lost_until_162_is_heard() -> None:
    words = [Word(code=DROPPED, gpu=GPU), Word(code=BACK, gpu=GPU), Word(code="nvidia.xid.13", gpu=OTHER)]
    for order in (words, words[::-1]):
        state = standing(order)
        assert "XID 163" in why_lost(state, GPU)
        assert is_lost(state, OTHER) is None
        assert not is_lost(heard(state, Word(code=BACK, gpu=GPU)), GPU)
