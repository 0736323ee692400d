"""Silences: who is told, when, and that each is told once."""

from fleetd.agent.silence import Silence, SilenceWatch
from fleetd.model.finding import DRIVER_MISSING, DRIVER_UNRESPONSIVE
from fleetd.model.ids import GpuId

A, B, C = GpuId("A"), GpuId("B"), GpuId("C")


def watch() -> SilenceWatch:
    return SilenceWatch(after_s=8.0, discovery_s=60.0)


def test_a_gpu_in_trouble_is_overdue_after_the_limit_and_told_once() -> None:
    w = watch()
    w.answers([A], {B: "lost"}, began_s=10.0, began_at_s=110.0)
    assert w.overdue(17.9) == ()
    w.answers([A], {B: "still lost"}, began_s=18.0, began_at_s=118.0)
    expected = Silence(code=DRIVER_UNRESPONSIVE, gpu=B, since_s=10.0, began_at_s=110.0, why="still lost")
    assert w.overdue(18.0) == (expected,)
    w.tell(expected)
    assert w.overdue(1000.0) == ()
    assert w.told_gpus == (B,)


def test_a_new_episode_is_told_again() -> None:
    w = watch()
    for began_s in (10.0, 100.0):
        w.answers([A], {B: "lost"}, began_s=began_s, began_at_s=began_s)
        (silence,) = w.overdue(began_s + 8.0)
        assert silence.began_at_s == began_s
        w.tell(silence)
        assert w.answers([A, B], {}, began_s=began_s + 9.0, began_at_s=0.0) == (silence,)
        assert (w.overdue(1e9), w.told_gpus) == ((), ())


def test_the_driver_has_longer_before_its_first_answer() -> None:
    w = watch()
    w.fails(DRIVER_UNRESPONSIVE, "opening", began_s=0.0, began_at_s=0.0)
    assert w.overdue(59.0) == ()
    assert [silence.gpu for silence in w.overdue(60.0)] == [None]
    w.answers([A], {}, began_s=61.0, began_at_s=0.0)
    w.fails(DRIVER_UNRESPONSIVE, "hung", began_s=70.0, began_at_s=0.0)
    assert len(w.overdue(78.0)) == 1


def test_while_nobody_answers_only_that_is_told() -> None:
    w = watch()
    w.answers([A], {B: "lost"}, began_s=0.0, began_at_s=0.0)
    w.fails(DRIVER_UNRESPONSIVE, "hung", began_s=1.0, began_at_s=1.0)
    assert [silence.gpu for silence in w.overdue(100.0)] == [None]


def test_a_gpu_that_was_not_asked_is_not_silent() -> None:
    w = watch()
    w.answers([A, B, C], {}, began_s=0.0, began_at_s=0.0)
    w.fails(DRIVER_UNRESPONSIVE, "hung", began_s=1.0, began_at_s=1.0)
    w.answers([A], {B: "hung"}, began_s=90.0, began_at_s=90.0)  # C: the helper was lost on B
    assert [silence.gpu for silence in w.overdue(92.0)] == [B]


def test_the_gpu_behind_a_driver_that_failed_has_been_silent_as_long() -> None:
    w = watch()
    w.answers([A, B], {}, began_s=0.0, began_at_s=0.0)
    w.fails(DRIVER_UNRESPONSIVE, "no answer", began_s=1.0, began_at_s=101.0)
    w.answers([B], {A: "left alone"}, began_s=4.0, began_at_s=104.0)
    (silence,) = w.overdue(9.0)
    assert (silence.gpu, silence.since_s, silence.began_at_s) == (A, 1.0, 101.0)


def test_another_kind_of_failure_is_another_episode() -> None:
    w = watch()
    w.answers([A], {}, began_s=0.0, began_at_s=0.0)
    w.fails(DRIVER_UNRESPONSIVE, "hung", began_s=1.0, began_at_s=1.0)
    (first,) = w.overdue(9.0)
    w.tell(first)
    assert w.driver_told
    w.fails(DRIVER_MISSING, "not loaded", began_s=10.0, began_at_s=10.0)
    assert (w.overdue(17.0), w.driver_told) == ((), "")
    (second,) = w.overdue(18.0)
    assert (second.code, second.since_s) == (DRIVER_MISSING, 10.0)
