"""When a GPU that hung is asked again: once at the return of its call, then ever later, until it has been well."""

from typing import cast

from fleetd.devices.aside import Asides
from fleetd.devices.child import Child
from fleetd.model.ids import GpuId

GPU = GpuId("GPU-1")


class Call:
    """A helper inside a call for a GPU."""

    def __init__(self) -> None:
        self.returned = False

    def ended(self) -> bool:
        return self.returned


def hangs(asides: Asides, *, now_s: float) -> Call:
    call = Call()
    asides.put(GPU, cast("Child", call), now_s=now_s)
    return call


def waits_s(asides: Asides, *, since_s: float) -> float:
    """How long it is left alone after its call has returned, in steps of ten seconds."""
    return next(s for s in range(0, 10_000, 10) if not asides.rests(GPU, now_s=since_s + s))


def test_a_call_that_took_some_seconds_costs_nothing_once_it_has_returned() -> None:
    asides = Asides()
    call = hangs(asides, now_s=100.0)
    assert asides.rests(GPU, now_s=9_999.0), "for ever, while it does not return"
    call.returned = True
    assert not asides.rests(GPU, now_s=103.0)


def test_each_further_hang_doubles_the_wait_up_to_an_hour_also_when_it_answers_in_between() -> None:
    asides, now_s, waits = Asides(), 0.0, []
    for turn in range(9):
        hangs(asides, now_s=now_s).returned = True
        waits.append(waits_s(asides, since_s=now_s))
        now_s += waits[-1]
        if turn % 2:
            asides.answered(GPU, now_s=now_s)
            assert GPU not in asides
            now_s += 1.0
    assert waits == [0, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_an_hour_of_answers_and_a_close_by_request_forget_the_hangs() -> None:
    asides = Asides()
    for now_s in (0.0, 10.0):
        hangs(asides, now_s=now_s).returned = True
    asides.answered(GPU, now_s=70.0)
    hangs(asides, now_s=70.0 + 3600.0).returned = True
    assert waits_s(asides, since_s=70.0 + 3600.0) == 0
    hangs(asides, now_s=5_000.0).returned = True
    asides.forget_returned()
    assert len(asides) == 0
    hangs(asides, now_s=5_001.0).returned = True
    assert waits_s(asides, since_s=5_001.0) == 0
