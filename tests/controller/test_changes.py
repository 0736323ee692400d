"""Which hosts changed: remembered within bounds, told to whoever asks, however late he comes."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from fleetd.controller.changes import KEPT, ChangeLog
from fleetd.model.ids import HostName
from fleetd.ports.view import Changes


def test_what_changed_is_told_once_and_by_name() -> None:
    log = ChangeLog(epoch="e")
    begin = log.position
    assert log.since(begin) == Changes(position=begin)
    for name in ("b", "a", "b"):
        log.note(HostName(name))
    middle = log.position
    assert log.since(begin) == Changes(position=middle, hosts=(HostName("a"), HostName("b")))
    log.note(None)
    assert log.since(middle) == Changes(position=log.position, fleet=True)


def test_a_position_that_is_not_remembered_means_everything() -> None:
    log = ChangeLog(epoch="e")
    begin = log.position
    for number in range(KEPT):
        log.note(HostName(f"h{number}"))
    assert not log.since(begin).everything
    log.note(None)
    everything = Changes(position=log.position, fleet=True, everything=True)
    assert log.since(begin) == everything
    for foreign in ("", ".", "e", "e.", "f.1", "e.-1", "e.x", "e.²", f"{log.position}0", "e." + "9" * 30):
        assert log.since(foreign) == everything, foreign


@given(st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30), st.integers(min_value=0, max_value=30))
def test_it_answers_as_a_list_of_all_changes_would(noted: list[str], after: int) -> None:
    log = ChangeLog(epoch="e")
    positions = [log.position]
    for name in noted:
        log.note(HostName(name) if name else None)
        positions.append(log.position)
    after = min(after, len(noted))
    found = log.since(positions[after])
    assert found.hosts == tuple(sorted({name for name in noted[after:] if name}))
    assert found.fleet == ("" in noted[after:])
    assert len(set(positions)) == len(positions)


def test_all_who_wait_are_woken_by_the_next_change() -> None:
    async def scene() -> None:
        log = ChangeLog(epoch="e")
        waiting = [asyncio.create_task(log.changed(log.position)) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0.01)
        assert not any(task.done() for task in waiting)
        before = log.position
        log.note(HostName("a"))
        await asyncio.gather(*waiting)
        await log.changed(before)  # it has changed already

    asyncio.run(asyncio.wait_for(scene(), 20))
