"""The real server on the loopback: certificates, their rotation, its end."""

import asyncio
import json
import shutil
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from fleetd.ports import UplinkError
from fleetd.system import RealClock
from fleetd.uplink.keyfile import read_key
from fleetd.uplink.pki import DevPki, make_dev_pki
from fleetd.web.config import WebConfig
from fleetd.web.server import Certificates, WebServer, serve_web
from fleetd.web.tokens import WebError
from tests.web.conftest import site
from tests.web.served import LISTEN, Play, pki_in, serving, tls_of, until_cut


@pytest.fixture(name="pki", scope="module")
def _shared_pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pki_in(tmp_path_factory.mktemp("web") / "pki")


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
        async with serving(tmp_path, **tls_of(pki)) as (_here, server), _client(server, pki, who) as client:
            assert (await client.get("/api/v1/fleet")).status_code == reads
            answer = await client.post("/api/v1/hosts/h00001/quarantine", json={"reason": "x"})
            assert answer.status_code == changes
            if changes == 200:
                assert answer.json()["holds"][0]["owner"] == "operator:bob"

    play(scene())


def test_a_token_does_without_a_certificate(play: Play, tmp_path: Path, pki: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path, **tls_of(pki)) as (here, server):
            headers = {"Authorization": f"Bearer {here.token['viewer']}"}
            async with _client(server, pki, headers=headers) as client:
                assert (await client.get("/api/v1/session")).json()["name"] == "viewer1"

    play(scene())


def test_a_certificate_of_another_authority_is_shut_out(play: Play, tmp_path: Path, pki: Path) -> None:
    async def scene() -> None:
        other = pki_in(tmp_path / "other")
        shutil.copy(f"{pki}/ca.crt", other / "ca.crt")  # it believes our server, and shows its own certificate
        async with (
            serving(tmp_path, **tls_of(pki)) as (_here, server),
            _client(server, other, "operators/bob") as client,
        ):
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
        tls = tls_of(pki, ca=str(both))
        async with serving(tmp_path, **tls) as (_here, server), _client(server, old, "operators/bob") as client:
            with pytest.raises(httpx.TransportError):
                await client.get("/api/v1/fleet")

    play(scene())


def test_a_connection_ends_with_its_certificate(play: Play, tmp_path: Path, pki: Path) -> None:
    """TLS looks at it once; a browser keeps a connection for as long as it is used, and a stream has no end."""

    async def scene() -> None:
        async with (
            serving(tmp_path, **tls_of(pki)) as (here, server),
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
    config = WebConfig(**tls_of(live))
    see_key = partial(read_key, where="web")
    certificates = Certificates(config, see_key=see_key)
    fresh = pki_in(tmp_path / "fresh")
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
        first, second = pki_in(tmp_path / "first"), pki_in(tmp_path / "second")
        live = tmp_path / "live"
        shutil.copytree(first, live)
        async with (
            serving(tmp_path, **tls_of(live)) as (_here, server),
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
        Certificates(WebConfig(**{**tls_of(pki), **paths}))


def test_a_port_that_is_taken_is_told(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as (here, server):
            taken = WebConfig(listen=f"127.0.0.1:{server.port}", insecure=True)
            with pytest.raises(WebError, match="Address already in use; stop what listens there"):
                await serve_web(taken, here.app, asyncio.get_running_loop().create_future())

    play(scene())


def test_a_head_that_is_too_large_or_no_http_is_an_answer(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as (_here, server):
            for sent in (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000, b"\x16\x03\x01\x02\x00\x01\r\n\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(sent)
                assert (await until_cut(reader)).startswith(b"HTTP/1.1 400")
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
