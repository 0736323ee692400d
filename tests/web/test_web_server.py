"""The real server on the loopback: certificates, their rotation, slow clients, its end."""

import asyncio
import json
import shutil
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from fleetd.model.ids import HostName
from fleetd.ports import UplinkError
from fleetd.system import RealClock
from fleetd.uplink.keyfile import read_key
from fleetd.uplink.pki import DevPki, make_dev_pki
from fleetd.web.config import WebConfig
from fleetd.web.limits import Patience
from fleetd.web.server import Certificates, WebServer, serve_web
from fleetd.web.tokens import WebError
from tests.web.conftest import Site, site

Play = Callable[[Coroutine[Any, Any, None]], None]
LISTEN = "127.0.0.1:0"


def _pki(folder: Path) -> Path:
    wanted = DevPki(hosts=("h00001",), operators=("bob",), viewers=("eve",), sans=())
    make_dev_pki(folder, wanted, now_s=RealClock().wall_s())
    return folder


@pytest.fixture(name="pki", scope="module")
def _shared_pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _pki(tmp_path_factory.mktemp("web") / "pki")


def _tls(pki: Path, **more: Any) -> dict[str, Any]:
    files = {"ca": f"{pki}/ca.crt", "cert": f"{pki}/controller.crt", "key": f"{pki}/controller.key"}
    return {"insecure": False, "listen": LISTEN, **files, **more}


@asynccontextmanager
async def serving(folder: Path, **config: Any) -> AsyncIterator[tuple[Site, WebServer]]:
    patience, hosts = config.pop("patience", Patience()), config.pop("hosts", 4)
    async with site(folder, hosts, patience=patience, **config) as here:
        bug: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        settings = {"listen": LISTEN, "insecure": True, "tokens": here.tokens, **config}
        server = await serve_web(WebConfig(**settings), here.app, bug)
        try:
            yield here, server
        finally:
            await server.stop()
            bug.cancel()


def _client(server: WebServer, pki: Path, who: str | None = None, **more: Any) -> httpx.AsyncClient:
    context = ssl.create_default_context(cafile=f"{pki}/ca.crt")
    if who is not None:
        context.load_cert_chain(f"{pki}/{who}.crt", f"{pki}/{who}.key")
    return httpx.AsyncClient(base_url=f"https://localhost:{server.port}", verify=context, trust_env=False, **more)


@pytest.mark.parametrize(
    ("who", "reads", "changes"),
    [("operators/bob", 200, 200), ("viewers/eve", 200, 403), ("agents/h00001", 403, 403), (None, 401, 401)],
)
def test_who_you_are_is_what_your_certificate_says(
    *, play: Play, tmp_path: Path, pki: Path, who: str | None, reads: int, changes: int
) -> None:
    async def scene() -> None:
        async with serving(tmp_path, **_tls(pki)) as (_here, server), _client(server, pki, who) as client:
            assert (await client.get("/api/v1/fleet")).status_code == reads
            answer = await client.post("/api/v1/hosts/h00001/quarantine", json={"reason": "x"})
            assert answer.status_code == changes
            if changes == 200:
                assert answer.json()["holds"][0]["owner"] == "operator:bob"

    play(scene())


def test_a_token_does_without_a_certificate(play: Play, tmp_path: Path, pki: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, **_tls(pki)) as (here, server):
            headers = {"Authorization": f"Bearer {here.token['viewer']}"}
            async with _client(server, pki, headers=headers) as client:
                assert (await client.get("/api/v1/session")).json()["name"] == "viewer1"

    play(scene())


def test_a_certificate_of_another_authority_is_shut_out(play: Play, tmp_path: Path, pki: Path) -> None:
    async def scene() -> None:
        other = _pki(tmp_path / "other")
        shutil.copy(f"{pki}/ca.crt", other / "ca.crt")  # it believes our server, and shows its own certificate
        async with serving(tmp_path, **_tls(pki)) as (_here, server), _client(server, other, "operators/bob") as client:
            with pytest.raises(httpx.TransportError):
                await client.get("/api/v1/fleet")

    play(scene())


def test_an_expired_certificate_is_shut_out(play: Play, tmp_path: Path, pki: Path) -> None:
    async def scene() -> None:
        old = tmp_path / "old"
        wanted = DevPki(hosts=("h1",), operators=("bob",), viewers=(), sans=())
        make_dev_pki(old, wanted, now_s=RealClock().wall_s() - 2 * 366 * 86400)
        both = tmp_path / "both.crt"
        both.write_bytes((pki / "ca.crt").read_bytes() + (old / "ca.crt").read_bytes())
        shutil.copy(pki / "ca.crt", old / "ca.crt")
        tls = _tls(pki, ca=str(both))
        async with serving(tmp_path, **tls) as (_here, server), _client(server, old, "operators/bob") as client:
            with pytest.raises(httpx.TransportError):
                await client.get("/api/v1/fleet")

    play(scene())


def test_a_connection_ends_with_its_certificate(play: Play, tmp_path: Path, pki: Path) -> None:
    """TLS looks at it once; a browser keeps a connection for as long as it is used, and a stream has no end."""

    async def scene() -> None:
        async with (
            serving(tmp_path, **_tls(pki)) as (here, server),
            _client(server, pki, "operators/bob") as client,
            client.stream("GET", "/api/v1/events") as events,
        ):
            lines = events.aiter_lines()
            assert await anext(lines) == "retry: 2000"
            assert (await client.get("/api/v1/fleet")).status_code == 200
            here.clock.pass_s(11 * 366 * 86400.0)
            answer = await client.post("/api/v1/automation/stop", json={"reason": "x"})
            assert (answer.status_code, answer.headers["connection"]) == (401, "close")
            assert "has ended" in answer.json()["error"]
            assert here.controller.judge.record.stopped is None
            assert not [line async for line in lines if line.startswith("event: change")]  # and it is over

    play(scene())


def test_a_key_that_others_can_read_is_not_taken_up(tmp_path: Path, pki: Path) -> None:
    """Neither at the start nor when it is replaced."""
    live = tmp_path / "live"
    shutil.copytree(pki, live)
    key = live / "controller.key"
    config = WebConfig(**_tls(live))
    see_key = partial(read_key, where="web")
    certificates = Certificates(config, see_key=see_key)
    fresh = _pki(tmp_path / "fresh")
    for name in ("controller.crt", "controller.key"):
        shutil.copy(fresh / name, live / name)
    key.chmod(0o644)
    with capture_logs() as logs:
        certificates._hello(ssl.SSLObject.__new__(ssl.SSLObject), None, certificates.context)
    assert certificates._current is certificates.context, "the last good ones stay in use"
    assert f"the private key {key} may be used by others (mode 0644)" in logs[0]["why"]
    with pytest.raises(UplinkError, match="chmod 600"):
        Certificates(config, see_key=see_key)


async def _shown(server: WebServer) -> bytes:
    """The certificate that the server shows to a new client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


def test_certificates_rotate_without_an_end_of_anything(play: Play, tmp_path: Path) -> None:
    """A connection goes on; new ones are shown the new certificate and are held against the new authority."""

    async def scene() -> None:
        first, second = _pki(tmp_path / "first"), _pki(tmp_path / "second")
        live = tmp_path / "live"
        shutil.copytree(first, live)
        async with (
            serving(tmp_path, **_tls(live)) as (_here, server),
            _client(server, first, "operators/bob") as open_one,
        ):
            assert (await open_one.get("/api/v1/fleet")).status_code == 200
            before = await _shown(server)
            (live / "controller.key").write_text("nonsense")
            assert await _shown(server) == before  # half of a rotation: the last good ones stay
            for name in ("controller.key", "controller.crt", "ca.crt"):
                shutil.copy(second / name, tmp_path / name)
                (tmp_path / name).replace(live / name)
            assert await _shown(server) != before
            assert (await open_one.get("/api/v1/fleet")).status_code == 200
            async with _client(server, second, "operators/bob") as client:
                assert (await client.get("/api/v1/fleet")).status_code == 200
            shutil.copy(second / "ca.crt", first / "ca.crt")
            async with _client(server, first, "operators/bob") as client:
                with pytest.raises(httpx.TransportError):
                    await client.get("/api/v1/fleet")

    play(scene())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"cert": "none.crt"}, "cannot read none.crt"),
        ({"key": "viewers/eve.key"}, "the key the cert's"),
        ({"cert": "nonsense"}, "must be PEM"),
        ({"ca": "nonsense"}, "must be PEM"),
    ],
)
def test_files_that_cannot_be_used_are_told(tmp_path: Path, pki: Path, files: dict[str, str], said: str) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nonsense")
    paths = {
        name: path if path == "none.crt" else str(nonsense if path == "nonsense" else pki / path)
        for name, path in files.items()
    }
    with pytest.raises(WebError, match=said):
        Certificates(WebConfig(**{**_tls(pki), **paths}))


def test_a_port_that_is_taken_is_told(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as (here, server):
            taken = WebConfig(listen=f"127.0.0.1:{server.port}", insecure=True)
            with pytest.raises(WebError, match="Address already in use; stop what listens there"):
                await serve_web(taken, here.app, asyncio.get_running_loop().create_future())

    play(scene())


async def _until_cut(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server hangs up."""
    found = b""
    try:
        while piece := await reader.read(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_does_not_come_is_waited_for_only_so_long(play: Play, tmp_path: Path, sent: bytes) -> None:
    async def scene() -> None:
        async with serving(tmp_path, patience=Patience(head_s=0.1)) as (_here, server):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(sent)
            assert await _until_cut(reader) == b""
            writer.close()

    play(scene())


def test_the_second_head_of_a_connection_is_waited_for_no_longer(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, patience=Patience(head_s=0.2)) as (_here, server):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"ok\n")
            writer.write(b"GET /hea")
            assert await _until_cut(reader) == b""
            writer.close()

    play(scene())


async def _until(there: Callable[[], object]) -> None:
    while not there():
        await asyncio.wait([asyncio.ensure_future(RealClock().sleep_s(0.005))])


async def _ask(server: WebServer, here: Site, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask, with the smallest buffers, and read nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {here.token['viewer']}\r\n\r\n"
    writer.write(head.encode())
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return reader, writer


def test_a_slow_reader_of_the_stream_is_hung_up_on_and_costs_nothing_until_then(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, patience=Patience(send_s=0.2)) as (here, server):
            _reader, writer = await _ask(server, here, "/api/v1/events")
            served = server._server.server_state.connections
            buffered = 0
            await _until(lambda: here.app.streams.open)
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
            writers = [(await _ask(server, here, "/sd/agents"))[1] for _ in range(3)]
            served = server._server.server_state.connections
            await _until(lambda: served)
            await _until(lambda: not served)
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
                assert [await _until_cut(reader) for reader, _writer in idle[:5]] == [b""] * 5
                assert len(server._server.server_state.connections) <= 4
                assert (await client.get("/healthz")).status_code == 200
            for _reader, writer in idle:
                writer.close()

    play(scene())


def test_who_rests_after_an_answer_makes_room_too_and_one_that_asks_stays(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, connections_max=4) as (here, server):
            _reader, busy = await _ask(server, here, "/api/v1/events")
            await _until(lambda: here.app.streams.open)
            rested = []
            for _ in range(6):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert b"200 OK" in await reader.readuntil(b"ok\n")
                rested.append((reader, writer))
            assert [await _until_cut(reader) for reader, _writer in rested[:3]] == [b""] * 3
            assert here.app.streams.open == 1
            for writer in (busy, *(writer for _reader, writer in rested)):
                writer.close()

    play(scene())


def test_only_so_many_are_served_at_once(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, connections_max=3) as (here, server):
            busy = [await _ask(server, here, "/api/v1/events") for _ in range(2)]
            await _until(lambda: here.app.streams.open == 2)
            url = f"http://127.0.0.1:{server.port}"
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                assert (await client.get("/healthz")).status_code == 503
            assert here.app.streams.open == 2
            for _reader, writer in busy:
                writer.close()
            await _until(lambda: not here.app.streams.open)
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                assert (await client.get("/healthz")).status_code == 200

    play(scene())


def test_a_head_that_is_too_large_or_no_http_is_an_answer(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as (_here, server):
            for sent in (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000, b"\x16\x03\x01\x02\x00\x01\r\n\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(sent)
                assert (await _until_cut(reader)).startswith(b"HTTP/1.1 400")
                writer.close()

    play(scene())


def test_a_server_that_stops_ends_its_streams_in_time_and_lets_nobody_in(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as (here, server):
            url = f"http://127.0.0.1:{server.port}"
            headers = {"Authorization": f"Bearer {here.token['viewer']}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
                async with client.stream("GET", "/api/v1/events") as stream:
                    assert stream.headers["content-type"].startswith("text/event-stream")
                    lines = stream.aiter_lines()
                    assert (await anext(lines)).startswith("retry:")
                    assert await anext(lines) == "event: hello"
                    assert (await anext(lines)).startswith("id: ")
                    assert json.loads((await anext(lines)).removeprefix("data: "))
                    await server.stop()
                    assert [line async for line in lines] == [""]
                with pytest.raises(httpx.ConnectError):
                    await client.get("/healthz")

    play(scene())


def test_a_bug_ends_the_wait_of_the_server(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            bug: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            server = await serve_web(WebConfig(listen=LISTEN, insecure=True, tokens=here.tokens), here.app, bug)
            waiting = asyncio.create_task(server.wait())
            bug.set_exception(RuntimeError("a bug"))
            with pytest.raises(RuntimeError, match="a bug"):
                await waiting
            await server.stop()

    play(scene())
