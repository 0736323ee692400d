"""A controller that hangs gives no sign of life, to systemd and to Kubernetes alike; one that stands by does."""

import asyncio
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from fleetd.compose.sign_of_life import BEAT_S, SILENT_S, STUCK_S, SignOfLife, judge_stuck
from fleetd.controller.turn import Turn
from fleetd.exporter.server import HEALTH, Exporter
from fleetd.stores.memory import MemoryStore
from fleetd.system import Systemd
from tests.controller.test_controller import OPERATOR, Scheduler, StillClock, play, running

DEPLOY = Path(__file__).parents[2] / "deploy"


class Steps:
    """Time that the test moves; it ends whoever waits for longer than there is."""

    def __init__(self, left: int) -> None:
        self.now_s, self.left = 0.0, left
        self.waited: list[float] = []

    def wall_s(self) -> float:
        return self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.left -= 1
        if self.left < 0:
            raise asyncio.CancelledError
        self.now_s += seconds


def signs(tmp_path: Path, stuck: list[str], *, usec: str = "60000000") -> tuple[SignOfLife, Steps, list[bytes]]:
    """Run as many turns as `stuck` has answers."""
    clock, answers = Steps(len(stuck) - 1), iter(stuck)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(0)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": usec}
        life = SignOfLife(Systemd(environ), clock, stuck=lambda: next(answers))

        async def until_over() -> None:
            await asyncio.wait([asyncio.create_task(life.run())])

        asyncio.run(until_over())
        heard = []
        with suppress(BlockingIOError):
            while True:
                heard.append(manager.recv(100))
    return life, clock, heard


def test_signs_come_often_enough_and_stay_away_while_the_judge_is_stuck(tmp_path: Path) -> None:
    life, clock, heard = signs(tmp_path, ["", "", "stuck", "stuck", ""])
    assert heard == [b"WATCHDOG=1"] * 3
    assert set(clock.waited) == {BEAT_S}
    assert life.trouble() == ""


def test_a_short_watchdog_has_three_signs_in_its_time(tmp_path: Path) -> None:
    assert set(signs(tmp_path, ["", ""], usec="6000000")[1].waited) == {2.0}


def test_without_a_service_manager_it_is_known_all_the_same() -> None:
    clock = Steps(0)
    life = SignOfLife(Systemd({}), clock, stuck=lambda: "")
    assert life.trouble() == ""
    clock.now_s = SILENT_S + 1
    assert life.trouble() == f"the event loop has not turned for {SILENT_S + 1:.0f} s"


def test_a_judge_whose_ledger_does_not_answer_is_stuck_and_one_that_stands_by_is_not() -> None:
    async def scene() -> None:
        turn, clock = Turn(), StillClock()
        assert judge_stuck(turn, clock) == ""
        async with running(MemoryStore(), Scheduler()) as controller:
            clock = controller.judge._clock  # type: ignore[assignment]
            turn.begin(controller)
            assert judge_stuck(turn, clock) == "", "nothing is in hand"
            wait, inside = asyncio.Event(), asyncio.Event()

            async def never(_function: object) -> None:
                inside.set()
                await wait.wait()

            controller.judge._run_blocking = never  # type: ignore[assignment]
            task = asyncio.create_task(controller.desk.stop_automation(OPERATOR, "x"))
            await inside.wait()
            assert judge_stuck(turn, clock) == "", "it has just begun"
            clock.now_s += STUCK_S + 1
            assert "its ledger does not answer" in judge_stuck(turn, clock)
            turn.end()
            assert judge_stuck(turn, clock) == "", "another one judges now"
            turn.begin(controller)
            wait.set()
            await asyncio.wait([task])
            assert judge_stuck(turn, clock) == ""

    play(scene)


def test_kubernetes_asks_where_it_is_said() -> None:
    why = [""]
    exporter = Exporter("127.0.0.1:0", [], trouble=lambda: why[0])
    try:
        url = f"http://127.0.0.1:{exporter.port}{HEALTH}"
        with urllib.request.urlopen(url) as answer:
            assert (answer.status, answer.read()) == (200, b"alive\n")
        why[0] = "it hangs"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url)
        with refused.value as answer:
            assert (answer.code, answer.read()) == (503, b"it hangs\n")
    finally:
        exporter.close()
    assert f"path: {HEALTH}" in (DEPLOY / "kubernetes" / "controller.yaml").read_text()
    assert f"WatchdogSec={SILENT_S:.0f}\n" in (DEPLOY / "systemd" / "fleetd-controller.service").read_text()
