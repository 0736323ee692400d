"""The stream of changes: what is told, to whom it ends, and what a slow reader costs."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName
from fleetd.ports import Peer, StoreError
from fleetd.system import secret
from fleetd.web.events import BEAT_S, HOSTS_MAX, PAUSE_S, STREAMS_EACH, STREAMS_MAX
from fleetd.web.shapes import FLAGS
from fleetd.web.tokens import new_token
from tests.web.conftest import Site, site

Play = Callable[[Coroutine[Any, Any, None]], None]
OPERATOR = Peer(name="alice", role="operator")


class Stream:
    """One reader of `/api/v1/events`, without a network between."""

    def __init__(self, here: Site, *, last: str | None = None, role: str = "viewer") -> None:
        self._here = here
        self._left = asyncio.Event()
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        headers = [(b"authorization", f"Bearer {here.token[role]}".encode())]
        if last is not None:
            headers.append((b"last-event-id", last.encode()))
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/v1/events",
            "raw_path": b"/api/v1/events",
            "root_path": "",
            "headers": headers,
            "scheme": "http",
            "query_string": b"",
            "state": {},
        }
        self.task = asyncio.create_task(here.app.asgi(self._scope, self._receive, self._said.put))

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def status(self) -> int:
        start = await self._said.get()
        assert start["type"] == "http.response.start"
        return int(start["status"])

    async def text(self) -> str | None:
        """The next piece; None: the stream has ended."""
        message = await self._said.get()
        return message["body"].decode() if message.get("more_body") else None

    async def event(self) -> tuple[str, str, dict[str, Any]]:
        """Kind, id and data of the next event."""
        text = await self.text()
        assert text is not None
        fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
        return fields["event"], fields["id"], json.loads(fields["data"])

    async def leave(self) -> None:
        self._left.set()
        await self.task

    @property
    def waiting(self) -> int:
        """Pieces that were sent and not read."""
        return self._said.qsize()


@asynccontextmanager
async def reading(here: Site, **how: Any) -> AsyncIterator[Stream]:
    stream = Stream(here, **how)
    assert await stream.status() == 200
    try:
        yield stream
    finally:
        await stream.leave()


async def _asleep(here: Site, count: int) -> None:
    """Until so many wait for time to pass."""
    while len(here.clock.sleepers) < count:
        await asyncio.wait([asyncio.ensure_future(_yield())])


async def _yield() -> None:
    loop = asyncio.get_running_loop()
    turn = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn


def test_a_change_is_told_with_the_hosts_it_is_about(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, reading(here) as stream:
            kind, _id, data = await stream.event()
            assert (kind, data) == ("hello", {"position": here.controller.view.position})
            await here.controller.desk.quarantine(OPERATOR, HostName("h00001"), "a test")
            kind, _id, data = await stream.event()
            assert (kind, data["hosts"], data["fleet"]) == ("change", ["h00001"], False)
            state = list(Lifecycle).index(Lifecycle.QUARANTINED)
            flags = FLAGS["held"] | FLAGS["away"]
            assert data["rows"] == [["h00001", state, flags, 8, "train-a", "r000"]]
            await _asleep(here, 1)
            await here.controller.desk.stop_automation(OPERATOR, "a test")
            here.clock.pass_s(PAUSE_S)
            kind, _id, data = await stream.event()
            assert (kind, data["hosts"], data["fleet"]) == ("change", [], True)
            assert data["position"] == here.controller.view.position

    play(scene())


def test_changes_in_quick_succession_are_one_event(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, 30) as here, reading(here) as stream:
            await stream.event()
            await here.controller.desk.quarantine(OPERATOR, HostName("h00001"), "first")
            await stream.event()
            await _asleep(here, 1)
            for number in (7, 3, 5, 3):
                await here.controller.desk.quarantine(OPERATOR, HostName(f"h0000{number}"), "a test")
            assert stream.waiting == 0
            here.clock.pass_s(PAUSE_S)
            _kind, _id, data = await stream.event()
            assert data["hosts"] == ["h00003", "h00005", "h00007"]

    play(scene())


def test_who_comes_back_hears_what_he_missed(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            async with reading(here) as stream:
                _kind, last, _data = await stream.event()
            await here.controller.desk.quarantine(OPERATOR, HostName("h00002"), "meanwhile")
            async with reading(here, last=last) as stream:
                kind, last, data = await stream.event()
                assert (kind, data["hosts"]) == ("change", ["h00002"])
            async with reading(here, last=last) as stream:
                await here.controller.desk.quarantine(OPERATOR, HostName("h00003"), "only then")
                kind, _last, data = await stream.event()
                assert (kind, data["hosts"]) == ("change", ["h00003"])

    play(scene())


def test_who_comes_back_too_late_or_from_elsewhere_loads_everything(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            now = here.controller.view.position
            for last in (
                "",
                "0",
                f"other-{now}",
                f"{now}9",
                "a.-1",
                "\u00b2.\u00b2",
                "x" * 5000,
                "a.99999999999999999999",
            ):
                async with reading(here, last=last) as stream:
                    kind, _id, data = await stream.event()
                    assert (kind, data) == ("reload", {"position": now}), last
            async with reading(here) as stream:
                _kind, first, _data = await stream.event()
            for number in range(9000):
                here.controller.changes.note(HostName(f"h{number}"))
            async with reading(here, last=first) as stream:
                assert (await stream.event())[0] == "reload"

    play(scene())


def test_many_hosts_at_once_are_no_list(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, reading(here) as stream:
            await stream.event()
            for number in range(HOSTS_MAX + 1):
                here.controller.changes.note(HostName(f"h{number}"))
            assert (await stream.event())[0] == "reload"

    play(scene())


def test_a_stream_that_is_quiet_shows_that_it_lives(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, reading(here) as stream:
            await stream.event()
            for _ in range(3):
                await _asleep(here, 1)
                here.clock.pass_s(BEAT_S)
                assert await stream.text() == ": beat\n\n"

    play(scene())


def test_a_withdrawn_token_ends_its_stream_at_the_next_beat(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, reading(here) as stream:
            await stream.event()
            assert here.tokens is not None
            here.tokens.write_text("")
            await _asleep(here, 1)
            here.clock.pass_s(BEAT_S)
            assert await stream.text() is None

    play(scene())


def test_a_withdrawn_token_ends_a_busy_stream_too(play: Play, tmp_path: Path) -> None:
    """Where something changes all the time no beat is ever due."""

    async def scene() -> None:
        async with site(tmp_path) as here, reading(here) as stream:
            await stream.event()
            assert here.tokens is not None
            here.tokens.write_text("")
            told = 0
            while True:
                here.controller.changes.note(HostName("h00001"))
                if await stream.text() is None:
                    break
                told += 1
                await _asleep(here, 1)
                here.clock.pass_s(PAUSE_S)
            assert told * PAUSE_S <= BEAT_S + PAUSE_S

    play(scene())


def test_a_server_that_stops_ends_all_streams(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, reading(here) as one, reading(here) as other:
            await one.event()
            await other.event()
            here.controller.changes.note(HostName("h00001"))
            await one.event()  # it pauses now, the other one waits
            here.app.streams.stop()
            await one.task
            await other.task

    play(scene())


def _more_viewers(here: Site, number: int) -> list[str]:
    """Let more people in; returns what `Site.token` calls them."""
    assert here.tokens is not None
    names = [f"viewer{n}" for n in range(2, number + 2)]
    with here.tokens.open("a") as file:
        for name in names:
            here.token[name], line = new_token(name, "viewer", entropy=secret())
            file.write(f"{line}\n")
    here.clock.pass_s(2)  # by then the file is looked at
    return names


def test_streams_are_counted_and_only_so_many_are_served(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            viewers = _more_viewers(here, STREAMS_MAX // STREAMS_EACH)
            streams = [Stream(here, role=viewer) for viewer in viewers for _ in range(STREAMS_EACH)]
            assert {await stream.status() for stream in streams} == {200}
            assert len(streams) == here.app.streams.open == STREAMS_MAX
            late = Stream(here)
            assert await late.status() == 503
            await streams[0].leave()
            again = Stream(here)
            assert await again.status() == 200
            for stream in (*streams[1:], again):
                await stream.leave()
            assert (here.app.streams.open, here.app.streams.of) == (0, {})

    play(scene())


def test_one_peer_cannot_take_all_streams(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            streams = [Stream(here) for _ in range(STREAMS_EACH)]
            assert {await stream.status() for stream in streams} == {200}
            assert await Stream(here).status() == 429
            other = Stream(here, role="operator")
            assert await other.status() == 200
            await streams[0].leave()
            again = Stream(here)
            assert await again.status() == 200
            for stream in (*streams[1:], again, other):
                await stream.leave()
            assert here.app.streams.of == {}

    play(scene())


def test_nobody_waits_for_a_stream_that_nobody_reads(play: Play, tmp_path: Path) -> None:
    """A send that does not return holds one stream and one event, however much happens."""

    async def scene() -> None:
        async with site(tmp_path) as here:
            sent: list[dict[str, Any]] = []
            stuck = asyncio.Event()

            async def send(message: dict[str, Any]) -> None:
                sent.append(message)
                if message["type"] == "http.response.body":
                    stuck.set()
                    await asyncio.Event().wait()

            stream = Stream(here)
            slow = asyncio.create_task(here.app.asgi(stream._scope, stream._receive, send))
            await stuck.wait()
            for number in range(20_000):
                here.controller.changes.note(HostName(f"h{number}"))
            await here.controller.desk.quarantine(OPERATOR, HostName("h00001"), "all goes on")
            assert len(sent) == 2
            assert len(here.controller.changes._kept) == here.controller.changes._kept.maxlen
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            await stream.leave()

    play(scene())


class Leaving:
    """The view of a controller that ceases to judge when the test says so."""

    def __init__(self, view: Any) -> None:
        self._view = view
        self._over = asyncio.Event()

    def end(self) -> None:
        self._over.set()

    @property
    def position(self) -> str:
        if self._over.is_set():
            raise StoreError("this controller is not the judge any more: ask the one that is")
        return str(self._view.position)

    def since(self, position: str) -> Any:
        return self._view.since(position)

    async def changed(self, _position: str) -> None:
        await self._over.wait()
        raise StoreError("this controller is not the judge any more: ask the one that is")


def test_a_stream_ends_with_the_turn_of_its_controller(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            leaving = here.app.streams._view = Leaving(here.controller.view)
            async with reading(here) as stream:
                assert (await stream.event())[0] == "hello"
                leaving.end()
                assert await stream.text() is None
            late = Stream(here)
            assert await late.status() == 503
            await late.leave()

    play(scene())


def test_a_turn_that_ends_unheard_ends_the_stream_at_the_next_beat(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            leaving = here.app.streams._view = Leaving(here.controller.view)
            leaving.changed = here.controller.view.changed  # type: ignore[method-assign]
            async with reading(here) as stream:
                assert (await stream.event())[0] == "hello"
                await _asleep(here, 1)
                leaving.end()
                here.clock.pass_s(BEAT_S)
                assert await stream.text() is None

    play(scene())
