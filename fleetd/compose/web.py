"""The wiring of the HTTP API and the page; a file of its own, so that a controller without them loads no FastAPI."""

import asyncio
from functools import partial

from fleetd.controller.reads import FewAtOnce
from fleetd.core import alerts
from fleetd.exporter.page import Page, negotiate
from fleetd.ports import DeskDoor, FleetView
from fleetd.system import RealClock, run_blocking, secret
from fleetd.uplink.keyfile import read_key
from fleetd.web.app import make_app
from fleetd.web.config import WebConfig
from fleetd.web.server import WebServer, serve_web


async def serve_page(config: WebConfig, *, desk: DeskDoor, view: FleetView, metrics: Page) -> WebServer:
    """Serve a controller's desk and view. Raises WebError; UplinkError: others can read the private key."""
    bug: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_bug(error: BaseException) -> None:
        if not bug.done():
            bug.set_exception(error)

    scrapes = FewAtOnce(run_blocking, most=1)

    async def page(accept: str) -> tuple[str, bytes]:
        content_type = negotiate(accept)
        text: list[str] = []
        await scrapes(lambda: text.append(metrics.text(content_type)))
        return content_type, text[0].encode()

    app = make_app(
        config,
        desk=desk,
        view=view,
        clock=RealClock(),
        secret=secret,
        read_alerts=alerts.read,
        metrics=page,
        on_bug=on_bug,
    )
    return await serve_web(config, app, bug, see_key=partial(read_key, where="web"))
