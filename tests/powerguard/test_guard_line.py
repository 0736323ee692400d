"""What the agent's line says, heard by a guard that is only a socket."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fleetd.devices.guard_line import GuardLine
from fleetd.system import RealClock
from tests.powerguard.guard_bench import WAIT_S, until

TTL_S = 0.01
"""Short, so that much is said in no time."""


class Listener:
    """Answers what it reads, and only then reads on."""

    def __init__(self, path: Path) -> None:
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.settimeout(WAIT_S)
        self._listening.bind(str(path))
        self._listening.listen(1)
        self.line = GuardLine(path, clock=RealClock(), beat_max_s=WAIT_S)
        self.arm: dict[str, Any] = {}
        """What the answer to `arm` has beside."""

    def hear(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.agent.recv(1 << 16))
        return body

    async def armed(self) -> None:
        """Have the line armed: from then on it renews."""
        asking = asyncio.create_task(self.line.arm([], ttl_s=TTL_S, grace_s=0.0))
        self.agent, _ = await asyncio.to_thread(self._listening.accept)
        self.agent.settimeout(WAIT_S)
        self.say(await asyncio.to_thread(self.hear), **self.arm)
        assert await asking == ""
        self.line.beat()

    def say(self, to: dict[str, Any], **answer: Any) -> None:
        self.agent.send(json.dumps({"seq": to["seq"], "ok": True, "why": "", **answer}).encode())

    def close(self) -> None:
        self._listening.close()
        with suppress(AttributeError):
            self.agent.close()


@pytest.fixture
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    made = Listener(Path("guard.sock"))
    yield made
    made.close()


def test_renewals_are_numbered_told_with_their_time_and_confirmed(guard: Listener) -> None:
    asyncio.run(guard.armed())
    before = {"seq": 0, "sent_s": 0.0}
    for _ in range(20):
        renewal = guard.hear()
        assert renewal.keys() - {"quiet"} == {"seq", "sent_s", "do"}
        assert renewal["do"] == "renew"
        assert renewal["seq"] > before["seq"]
        assert before["sent_s"] < renewal["sent_s"] <= RealClock().elapsed_s()
        before = renewal
    while before.get("quiet"):
        before = guard.hear()
    guard.say(before)
    until(lambda: guard.line.renewed_total >= 20, "all that went before is confirmed")
    assert guard.line.live


def test_a_guard_that_reads_nothing_holds_nobody_up(guard: Listener) -> None:
    asyncio.run(guard.armed())
    until(lambda: "hung up" in guard.line.why, "what was sent fills the socket")
    assert not guard.line.live


def test_a_refusal_ends_the_lease_though_the_renewal_was_quiet(guard: Listener) -> None:
    asyncio.run(guard.armed())
    guard.say(guard.hear(), ok=False, why="the lease lapsed")
    until(lambda: not guard.line.live, "the refusal is read")
    assert guard.line.why == "the lease lapsed"


def test_a_line_that_was_closed_renews_no_more(guard: Listener) -> None:
    async def given_back() -> None:
        await guard.armed()
        leaving = asyncio.create_task(guard.line.disarm())
        while (heard := await asyncio.to_thread(guard.hear))["do"] != "disarm":
            pass
        guard.say(heard)
        assert await leaving == ""

    asyncio.run(given_back())
    with suppress(ConnectionError):
        while packet := guard.agent.recv(1 << 16):
            assert json.loads(packet)["do"] == "renew", "was under way"
    assert not guard.line.live


@pytest.mark.parametrize(
    "garbled",
    [b"[]", b"{", b"[" * 50_000, b'{"seq": []}', b'{"seq": {}}', b'{"seq": 1e999}', b'{"ok": 1, "seq": "0"}', b"\xff"],
)
def test_what_is_no_answer_ends_no_renewing(guard: Listener, garbled: bytes) -> None:
    asyncio.run(guard.armed())
    guard.agent.send(garbled)
    renewal = guard.hear()
    while renewal.get("quiet"):
        renewal = guard.hear()
    guard.say(renewal)
    until(lambda: guard.line.renewed_total > 0, "it is still read")
    assert guard.line.live


def test_a_guard_that_lies_about_clocks_and_gpus_ends_no_governor(guard: Listener) -> None:
    async def case() -> Any:
        await guard.armed()
        asking = asyncio.create_task(guard.line.write({"GPU-0": {"limit": 600.0}}, {}, "test"))
        while (heard := await asyncio.to_thread(guard.hear))["do"] != "set":
            pass
        guard.say(heard, ok=False, errors={"GPU-0": ["no"], "GPU-9": "who?"})
        return await asking

    guard.arm = {"clocks": {"GPU-0": "fast", "GPU-1": [], "GPU-2": 10**400, "GPU-3": -1, "GPU-4": 1410000000}}
    assert asyncio.run(case()) == {"GPU-0": "['no']"}
    assert guard.line.clocks == {"GPU-4": 1.41e9}
