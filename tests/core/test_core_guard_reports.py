"""What an agent takes of a job's word: about its own GPUs, seldom, and never as an accusation."""

from typing import Any

import pytest

from burnin.spec import GUARD_SCHEMA
from fleetd.core.guard_reports import HOST_PER_HOUR, PER_HOUR, Report, Taken, admit, parse
from fleetd.model.ids import GpuId

A, B = GpuId("GPU-a"), GpuId("GPU-b")
LINE: dict[str, Any] = {
    "schema": GUARD_SCHEMA, "code": "sdc.link", "check": "bad", "fault_class": "link", "gpu": "GPU-a", "rank": 3,
    "step": 70, "why": "w", "asks": ["copy"],
}  # fmt: skip


def report(gpu: GpuId | None = A) -> Report:
    return Report(code="sdc.link", check="bad", gpu=gpu, rank=3, step=70, why="w")


def test_a_line_is_read() -> None:
    assert parse(LINE) == report()
    assert parse({**LINE, "gpu": None}).gpu is None
    assert parse({**LINE, "why": "a\nb" + "x" * 1000}).why == "a b" + "x" * 297


@pytest.mark.parametrize(
    "change",
    [{"schema": "x"}, {"code": "sdc.none"}, {"code": "nvidia.xid.79"}, {"check": "ok"}, {"gpu": 3}, {"rank": "1"},
     {"step": "1"}, {"why": None}],
)  # fmt: skip
def test_what_is_no_report_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"schema|code|gpu|step"):
        parse({**LINE, **change})


def test_only_gpus_that_the_sender_holds() -> None:
    assert admit(Taken(), report(), held={A, B}, now_s=0.0).gpu == A
    for held in ((), (B,)):
        refused = admit(Taken(), report(), held=held, now_s=0.0)
        assert (refused.ok, refused.taken) == (False, Taken())
    assert admit(Taken(), report(None), held={B}, now_s=0.0).gpu == B
    several = admit(Taken(), report(None), held={A, B}, now_s=0.0)
    assert (several.ok, several.gpu) == (True, None)


def test_reports_are_limited_by_gpu_and_by_host_and_the_limit_forgets() -> None:
    taken = Taken()
    for number in range(PER_HOUR):
        admission = admit(taken, report(), held={A, B}, now_s=float(number))
        assert admission.ok
        taken = admission.taken
    assert not admit(taken, report(), held={A, B}, now_s=10.0).ok
    assert admit(taken, report(B), held={A, B}, now_s=10.0).ok
    assert admit(taken, report(), held={A, B}, now_s=3600.0).ok
    many = {GpuId(str(number)) for number in range(HOST_PER_HOUR + 1)}
    taken, told = Taken(), []
    for gpu in sorted(many):
        admission = admit(taken, report(gpu), held=many, now_s=1.0)
        taken = admission.taken
        told.append(admission.ok)
    assert sum(told) == HOST_PER_HOUR
