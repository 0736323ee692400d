"""The real server on the loopback, and clients that are slow or say nothing."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fleetd.system import RealClock
from fleetd.uplink.pki import DevPki, make_dev_pki
from fleetd.web.config import WebConfig
from fleetd.web.limits import Patience
from fleetd.web.server import WebServer, serve_web
from tests.web.conftest import Site, site

Play = Callable[[Coroutine[Any, Any, None]], None]
LISTEN = "127.0.0.1:0"


def pki_in(folder: Path) -> Path:
    wanted = DevPki(hosts=("h00001",), operators=("bob",), viewers=("eve",), sans=())
    make_dev_pki(folder, wanted, now_s=RealClock().wall_s())
    return folder


def tls_of(pki: Path, **more: Any) -> dict[str, Any]:
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


async def until_cut(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server hangs up."""
    found = b""
    try:
        while piece := await reader.read(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


async def until(there: Callable[[], object]) -> None:
    while not there():
        await asyncio.wait([asyncio.ensure_future(RealClock().sleep_s(0.005))])


async def connect(
    server: WebServer, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = None if tls is None else "localhost"
    return await asyncio.open_connection("127.0.0.1", server.port, limit=1024, ssl=tls, server_hostname=name)


async def ask(
    server: WebServer, here: Site, path: str, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask, with the smallest buffers, and read nothing."""
    reader, writer = await connect(server, tls)
    served = server._server.server_state.connections
    await until(lambda: served)
    for one in served:  # on the loopback the kernel would take megabytes
        one.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {here.token['viewer']}\r\n\r\n"
    writer.write(head.encode())
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return reader, writer
