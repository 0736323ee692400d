"""What hangs keeps no decision from the disk."""

import asyncio
import threading
from pathlib import Path

from fleetd.compose.controller import _Parts
from fleetd.config.files import load_controller
from fleetd.model.host import Lifecycle
from fleetd.stores.memory import MemoryStore
from fleetd.system import run_blocking
from tests.controller.test_controller import AGENT, H01, OPERATOR, SPOOL, hello, play

CONFIG = """
apiVersion: fleetd/v1
kind: Controller
state_dir: {state}
server: {{listen: "127.0.0.1:0", insecure: true}}
"""
THREADS = 40
"""More than the default pool of an event loop ever has."""


def test_what_is_decided_waits_for_no_thread_of_others(tmp_path: Path) -> None:
    """The whole pool hangs, in a scheduler or in a slow disk: a host is quarantined all the same."""
    state = tmp_path / "state"
    state.mkdir()
    path = tmp_path / "controller.yaml"
    path.write_text(CONFIG.format(state=state))
    ends = threading.Event()

    async def scene() -> None:
        controller = _Parts(load_controller(path)).controller(MemoryStore())
        controller.load()
        hanging = [asyncio.create_task(run_blocking(ends.wait)) for _ in range(THREADS)]
        judging = asyncio.create_task(controller.judge.run())
        try:
            async with asyncio.timeout(30):
                await controller.intake.hello(AGENT, hello(), SPOOL)
                host = await controller.desk.quarantine(OPERATOR, H01, "smells burnt")
            assert host.state is Lifecycle.QUARANTINED
        finally:
            ends.set()
            await asyncio.gather(*hanging)
            judging.cancel()
            await asyncio.gather(judging, return_exceptions=True)

    play(scene)
