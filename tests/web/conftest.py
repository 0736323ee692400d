"""A site: the real controller on a ledger in memory, the real application before it, time in the test's hand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleetd.controller.controller import Controller
from fleetd.core import alerts
from fleetd.model.host import Host
from fleetd.ports import Peer, Refused
from fleetd.system import secret
from fleetd.web.app import WebApp, make_app
from fleetd.web.config import WebConfig
from fleetd.web.limits import Patience
from fleetd.web.tokens import new_token
from tests.web.made import controller_of, host_of

NOW_S = 1_800_000_000.0
PATIENCE_S = 120.0
"""A scenario that takes longer has failed; none of them needs a second of it."""


@dataclass
class StillClock:
    """Time passes when the test says so; who sleeps wakes when his time has come."""

    elapsed: float = 0.0
    sleepers: list[tuple[float, asyncio.Event]] = field(default_factory=list)

    def wall_s(self) -> float:
        return NOW_S + self.elapsed

    def elapsed_s(self) -> float:
        return self.elapsed

    async def sleep_s(self, seconds: float) -> None:
        sleeper = (self.elapsed + seconds, asyncio.Event())
        self.sleepers.append(sleeper)
        try:
            await sleeper[1].wait()
        finally:
            if sleeper in self.sleepers:
                self.sleepers.remove(sleeper)

    def pass_s(self, seconds: float) -> None:
        self.elapsed += seconds
        due = [woken for until_s, woken in self.sleepers if until_s <= self.elapsed]
        self.sleepers = [sleeper for sleeper in self.sleepers if sleeper[0] > self.elapsed]
        for woken in due:
            woken.set()


async def at_once(function: Callable[[], Any]) -> Any:
    """Run what blocks here and now: a ledger in memory does not."""
    return function()


@dataclass
class Site:
    controller: Controller
    app: WebApp
    clock: StillClock
    tokens: Path | None
    token: dict[str, str]
    """Role → a token of it; its owner is `ROLE1`."""
    bugs: list[BaseException] = field(default_factory=list)

    def client(self, role: str | None = None, *, certificate: Peer | Refused | None = None) -> httpx.AsyncClient:
        """A client with a token of a role, or with what TLS says of its certificate."""
        state = {"certificate": certificate}
        transport = httpx.ASGITransport(app=_with_state(self.app.asgi, state))
        headers = {} if role is None else {"Authorization": f"Bearer {self.token[role]}"}
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7480", headers=headers)


def _with_state(app: Any, state: dict[str, Any]) -> Any:
    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": dict(state)}, receive, send)

    return wrapped


@asynccontextmanager
async def site(
    folder: Path,
    hosts: Sequence[Host] | int = 4,
    *,
    open_to_all: bool = False,
    patience: Patience = Patience(),  # noqa: B008 - frozen
    metrics: Callable[[str], tuple[str, bytes]] = lambda _accept: ("text/plain", b"fleetd_up 1\n"),
    **config: Any,
) -> AsyncIterator[Site]:
    """A controller that judges, and the application before it. What a request met with that was a bug is raised."""
    clock = StillClock()
    made = [host_of(n, at_s=NOW_S) for n in range(hosts)] if isinstance(hosts, int) else list(hosts)
    controller = controller_of(tuple(made), clock=clock, run_blocking=at_once, folder=folder)
    tokens, lines, path = {}, [], None
    if not open_to_all:
        path = folder / "tokens"
        for role in ("operator", "viewer", "hook"):
            tokens[role], line = new_token(f"{role}1", role, entropy=secret())
            lines.append(line)
        path.write_text("\n".join(lines) + "\n")
    bugs: list[BaseException] = []

    async def page(accept: str) -> tuple[str, bytes]:
        return metrics(accept)

    app = make_app(
        WebConfig(**{"listen": "127.0.0.1:0", "insecure": True, "tokens": path, **config}),
        desk=controller.desk,
        view=controller.view,
        clock=clock,
        secret=secret,
        read_alerts=alerts.read,
        metrics=page,
        on_bug=bugs.append,
        patience=patience,
    )
    running = asyncio.create_task(controller.judge.run())
    try:
        yield Site(controller=controller, app=app, clock=clock, tokens=path, token=tokens, bugs=bugs)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    if bugs:
        raise bugs[0]


@pytest.fixture(name="play")
def _play() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a scene, which ends or fails in time."""

    def play(scene: Coroutine[Any, Any, None]) -> None:
        asyncio.run(asyncio.wait_for(scene, PATIENCE_S))

    return play
