"""One helper process by itself: how long its answer is waited for, and its end."""

import asyncio
import gc
import os
import select
import time
from pathlib import Path

import pytest

from fleetd.devices.child import Child, ChildError
from tests.devices.nvidia_bench import gone, run

READER = '''
import os

class Blocked:
    """Reads a FIFO that nobody has opened for writing: such a call does not return."""

    def open(self): pass

    def inventory(self): return []

    def sample(self, gpu, *, slow): return {"power_watts": float(open(os.environ["FIFO"]).read())}

    def close(self): pass
'''


async def started(folder: Path) -> Child:
    (folder / "blocked_vendor.py").write_text(READER)
    os.mkfifo(folder / "fifo")
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = await Child.start(
        "blocked_vendor:Blocked", {**os.environ, "PYTHONPATH": path, "FIFO": str(folder / "fifo")}
    )
    await child.ask({"do": "open"}, 30.0)
    return child


def test_one_that_is_inside_a_call_which_nobody_waits_for_is_not_waited_for_either(tmp_path: Path) -> None:
    async def case() -> None:
        child = await started(tmp_path)
        call = asyncio.create_task(child.ask({"do": "sample", "gpus": ["G"], "slow": []}, 60.0))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        began_s = time.monotonic()
        assert not await child.end(100.0)
        assert time.monotonic() - began_s < 50.0
        await gone(child.pid)  # it was asked to end, and this call lets itself be broken off

    run(case())


def test_one_that_answered_has_its_time_to_end(tmp_path: Path) -> None:
    async def case() -> None:
        child = await started(tmp_path)
        assert await child.end(30.0)
        assert child.ended()

    run(case())


def test_one_whose_end_nobody_waits_for_any_more_is_looked_after_all_the_same(tmp_path: Path) -> None:
    async def case() -> None:
        child = await started(tmp_path)
        pid, end = child.pid, asyncio.create_task(child.end(100.0))
        await asyncio.sleep(0)
        end.cancel()
        await asyncio.wait({end})
        assert end.cancelled()
        del child, end
        gc.collect()  # a process that is forgotten while it runs is a warning, and a warning is an error
        await gone(pid)

    run(case())


def test_an_answer_that_came_while_this_process_stood_still_counts(tmp_path: Path) -> None:
    async def case() -> None:
        child = await started(tmp_path)
        call = asyncio.create_task(child.ask({"do": "inventory"}, 0.8))
        await asyncio.sleep(0)
        began_s = time.monotonic()
        # A virtual machine that is paused: the event loop stands still until long after the deadline.
        assert select.select([child._process.stdout], [], [], 30.0)[0]
        select.select([], [], [], max(0.0, began_s + 1.0 - time.monotonic()))
        assert await call == []
        assert await child.end(30.0)

    run(case())


@pytest.mark.parametrize("said", ['{"id": Infinity, "ok": 1}', "[" * 100_000, '{"id": null}', "1"])
def test_what_is_no_reply_is_an_error_of_the_helper(tmp_path: Path, said: str) -> None:
    async def case() -> None:
        child = await started(tmp_path)
        child._reader.feed_data(f"{said}\n".encode())
        with pytest.raises(ChildError, match="no reply"):
            await child.ask({"do": "inventory"}, 30.0)
        await child.end(30.0)

    run(case())
