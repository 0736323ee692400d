"""XID 162 to 165: who has lost its power smoothing, and when it is back."""

import pytest

from fleetd.core.power.smoothing import BACK, DROPPED, LOW, USED_UP, Smoothing, Word, heard, is_lost, standing, why_lost
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


def test_a_device_that_no_gpu_is_known_for_may_be_any_until_it_is_back_by_its_place() -> None:
    state = after(DROPPED, gpu=None, device="0000:03:00")
    assert is_lost(state, GPU)
    assert is_lost(state, OTHER)
    elsewhere = heard(state, Word(code=BACK, gpu=OTHER, device="0000:05:00"))
    assert is_lost(elsewhere, GPU)
    back = heard(state, Word(code=BACK, gpu=GPU, device="0000:03:00"))
    assert not is_lost(back, GPU)
    assert not is_lost(back, OTHER)


def test_after_a_restart_what_stands_is_lost_until_162_is_heard() -> None:
    words = [Word(code=DROPPED, gpu=GPU), Word(code=BACK, gpu=GPU), Word(code="nvidia.xid.13", gpu=OTHER)]
    for order in (words, words[::-1]):
        state = standing(order)
        assert "XID 163" in why_lost(state, GPU)
        assert is_lost(state, OTHER) is None
        assert not is_lost(heard(state, Word(code=BACK, gpu=GPU)), GPU)
