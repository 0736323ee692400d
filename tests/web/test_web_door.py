"""How long clients are waited for, and who makes room when there are too many."""

import asyncio
import json
import ssl
from pathlib import Path

import httpx
import pytest

from fleetd.model.ids import HostName
from fleetd.system import RealClock
from fleetd.web.limits import Patience
from tests.web.served import Play, ask, connect, pki_in, serving, tls_of, until, until_cut


@pytest.fixture(name="pki", scope="module")
def _shared_pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pki_in(tmp_path_factory.mktemp("web") / "pki")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_does_not_come_is_waited_for_only_so_long(play: Play, tmp_path: Path, sent: bytes) -> None:
    async def scene() -> None:
        async with serving(tmp_path, patience=Patience(head_s=0.1)) as (_here, server):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(sent)
            assert await until_cut(reader) == b""
            writer.close()

    play(scene())


def test_the_second_head_of_a_connection_is_waited_for_no_longer(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, patience=Patience(head_s=0.2)) as (_here, server):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"ok\n")
            writer.write(b"GET /hea")
            assert await until_cut(reader) == b""
            writer.close()

    play(scene())


def test_a_slow_reader_of_the_stream_is_hung_up_on_and_costs_nothing_until_then(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, patience=Patience(send_s=0.2)) as (here, server):
            _reader, writer = await ask(server, here, "/api/v1/events")
            served = server._server.server_state.connections
            buffered = 0
            await until(lambda: here.app.streams.open)
            while here.app.streams.open:
                # Each event fills what is left of the kernel's buffers by its many long names.
                for number in range(250):
                    here.controller.changes.note(HostName(f"{number:0250d}"))
                here.clock.pass_s(1)
                await asyncio.wait([asyncio.ensure_future(RealClock().sleep_s(0.001))])
                buffered = max(buffered, *(one.transport.get_write_buffer_size() for one in served), 0)
            assert 0 < buffered < 1 << 20
            assert not served
            assert here.controller.changes.position != ""
            writer.close()

    play(scene())


def test_who_takes_no_answer_does_not_keep_his_place(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        patience = Patience(send_s=0.2, head_s=1.0)
        async with serving(tmp_path, hosts=3000, patience=patience) as (here, server):
            writers = [(await ask(server, here, "/sd/agents"))[1] for _ in range(3)]
            served = server._server.server_state.connections
            await until(lambda: served)
            await until(lambda: not served)
            for writer in writers:
                writer.close()

    play(scene())


def test_who_rests_makes_room_for_who_asks(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, connections_max=4) as (_here, server):
            url = f"http://127.0.0.1:{server.port}"
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(8)]
                assert (await client.get("/healthz")).status_code == 200
                assert [await until_cut(reader) for reader, _writer in idle[:5]] == [b""] * 5
                assert len(server._server.server_state.connections) <= 4
                assert (await client.get("/healthz")).status_code == 200
            for _reader, writer in idle:
                writer.close()

    play(scene())


def test_who_rests_after_an_answer_makes_room_too_and_one_that_asks_stays(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, connections_max=4) as (here, server):
            _reader, busy = await ask(server, here, "/api/v1/events")
            await until(lambda: here.app.streams.open)
            rested = []
            for _ in range(6):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert b"200 OK" in await reader.readuntil(b"ok\n")
                rested.append((reader, writer))
            assert [await until_cut(reader) for reader, _writer in rested[:3]] == [b""] * 3
            assert here.app.streams.open == 1
            for writer in (busy, *(writer for _reader, writer in rested)):
                writer.close()

    play(scene())


@pytest.mark.parametrize("secure", [False, True])
def test_who_still_reads_its_answer_does_not_rest(*, play: Play, tmp_path: Path, pki: Path, secure: bool) -> None:
    """The application has said all; a browser on a slow line has not heard it yet."""

    async def scene() -> None:
        more = tls_of(pki) if secure else {}
        async with serving(tmp_path, connections_max=3, hosts=3000, **more) as (here, server):
            shown = ssl.create_default_context(cafile=f"{pki}/ca.crt") if secure else None
            reader, slow = await ask(server, here, "/sd/agents", shown)
            await until(lambda: server._server.server_state.total_requests)
            idle = [await connect(server, shown) for _ in range(8)]
            assert [await until_cut(reader) for reader, _writer in idle[:5]] == [b""] * 5
            slow.transport.resume_reading()  # type: ignore[attr-defined]
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            assert length > 1 << 18
            assert len(json.loads(await reader.readexactly(length))) == 3000
            for writer in (slow, *(writer for _reader, writer in idle)):
                writer.close()

    play(scene())


def test_only_so_many_are_served_at_once(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, connections_max=3) as (here, server):
            busy = [await ask(server, here, "/api/v1/events") for _ in range(2)]
            await until(lambda: here.app.streams.open == 2)
            url = f"http://127.0.0.1:{server.port}"
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                assert (await client.get("/healthz")).status_code == 503
            assert here.app.streams.open == 2
            for _reader, writer in busy:
                writer.close()
            await until(lambda: not here.app.streams.open)
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                assert (await client.get("/healthz")).status_code == 200

    play(scene())
