"""Who asks takes only so many threads."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from fleetd.controller.reads import READS_AT_ONCE, FewAtOnce
from fleetd.model.fact import FactQuery
from fleetd.stores.memory import MemoryStore
from fleetd.system import thread_of_its_own
from tests.controller.test_controller import AGENT, H01, SPOOL, Scheduler, hello, play, running, settled


def test_a_few_run_at_once_and_the_others_wait_for_their_turn() -> None:
    async def scene() -> None:
        begun: list[int] = []
        go_on = [asyncio.Event() for _ in range(5)]

        async def run(function: Callable[[], object]) -> object:
            number = function()
            assert isinstance(number, int)
            begun.append(number)
            await go_on[number].wait()
            if number == 3:
                raise ValueError("it broke")
            return number

        few = FewAtOnce(run, most=2)
        asked = [asyncio.create_task(few(lambda n=n: n)) for n in range(5)]  # type: ignore[misc]
        await settled(lambda: begun == [0, 1])
        asked[0].cancel()
        asked[2].cancel()
        await asyncio.gather(asked[0], asked[2], return_exceptions=True)
        assert begun == [0, 1], "who went away waits no more; what he has begun still takes its place"
        go_on[0].set()
        await settled(lambda: begun == [0, 1, 3])
        go_on[3].set()
        with pytest.raises(ValueError, match="it broke"):
            await asked[3]
        await settled(lambda: begun == [0, 1, 3, 4])
        go_on[4].set()
        go_on[1].set()
        assert await asyncio.gather(asked[1], asked[4]) == [1, 4]

    play(scene)


def test_readers_take_only_so_many_threads() -> None:
    async def scene() -> None:
        began: list[None] = []
        answers = asyncio.Event()

        async def slow(function: Callable[[], object]) -> object:
            began.append(None)
            await answers.wait()
            return function()

        async def at_once(function: Callable[[], object]) -> object:
            return function()

        async with running(MemoryStore(), Scheduler(), run_blocking=slow, run_deciding=at_once) as controller:
            await controller.intake.hello(AGENT, hello(), SPOOL)
            asked = [asyncio.create_task(controller.desk.facts(FactQuery(limit=1))) for _ in range(9)]
            asked += [asyncio.create_task(controller.view.history(H01)) for _ in range(9)]
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(began) == READS_AT_ONCE
            answers.set()
            assert len(await asyncio.gather(*asked)) == 18

    play(scene)


def test_a_thread_of_its_own_runs_one_after_the_other() -> None:
    async def scene() -> None:
        run = thread_of_its_own("mine")
        names: list[str] = []
        await asyncio.gather(*(run(lambda: names.append(threading.current_thread().name)) for _ in range(3)))
        assert len(names) == 3
        assert set(names) == {"mine_0"}

    play(scene)
