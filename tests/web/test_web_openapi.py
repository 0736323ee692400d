"""The OpenAPI document and the application agree: Schemathesis asks all that the document has, rightly and wrongly."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from fleetd.model.event import FindingReceived
from fleetd.model.ids import HostName
from fleetd.web.config import WebConfig
from fleetd.web.server import serve_web
from tests.web.conftest import NOW_S, PATIENCE_S, site
from tests.web.made import fault_of

EXAMPLES = 12
"""Of each operation and kind. What is drawn depends on what else is loaded: Hypothesis draws constants of modules."""
NO_END = "/api/v1/events"


@dataclass(frozen=True)
class Served:
    url: str
    token: dict[str, str]
    document: dict[str, Any]


@pytest.fixture(name="served", scope="module")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A site and its server on a loop of their own, for a client that blocks."""
    folder = tmp_path_factory.mktemp("openapi")
    ready: list[Served] = []
    started, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with site(folder, 60, changes_per_minute=1e9, reads_per_second=1e9) as here:
            host = here.controller.judge.hosts[HostName("h00001")]
            await here.controller.judge.submit(FindingReceived(host=host.name, finding=fault_of(host, at_s=NOW_S)))
            bug: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            config = WebConfig(listen="127.0.0.1:0", insecure=True, tokens=here.tokens)
            server = await serve_web(config, here.app, bug)
            url = f"http://127.0.0.1:{server.port}"
            headers = {"Authorization": f"Bearer {here.token['viewer']}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
                document = (await client.get("/api/v1/openapi.json")).json()
            ready.append(Served(url=url, token=here.token, document=document))
            started.set()
            await stop.wait()
            await server.stop()
            bug.cancel()

    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failed.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(PATIENCE_S)
    if ready:
        yield ready[0]
        loops[0].call_soon_threadsafe(stop.set)
    thread.join(PATIENCE_S)
    if failed:  # also a bug that a request has met with
        raise failed[0]


def _operations(document: dict[str, Any]) -> list[Any]:
    schema = schemathesis.openapi.from_dict(document)
    operations = [result.ok() for result in schema.get_all_operations()]
    return [operation for operation in operations if operation.path != NO_END]


def test_the_document_has_every_route(served: Served) -> None:
    asked = {(path, method) for path, methods in served.document["paths"].items() for method in methods}
    assert len(asked) == 30
    assert (NO_END, "get") in asked
    closed = {
        path for path, methods in served.document["paths"].items() for one in methods.values() if "security" not in one
    }
    assert {"/healthz", "/readyz", "/api/v1/session"}.isdisjoint(closed)
    assert "/metrics" in closed


@pytest.mark.parametrize("host", ["drawn", "h00001"])
def test_what_the_document_allows_is_understood(served: Served, host: str) -> None:
    operations = [o for o in _operations(served.document) if host == "drawn" or "{name}" in o.path]
    assert len(operations) > 9
    for operation in operations:
        _ask(served, operation, GenerationMode.POSITIVE, host=None if host == "drawn" else host)


def test_what_the_document_does_not_allow_is_refused(served: Served) -> None:
    operations = [o for o in _operations(served.document) if o.path_parameters or o.query or o.body]
    assert len(operations) > 9
    for operation in operations:
        _ask(served, operation, GenerationMode.NEGATIVE)


def _ask(served: Served, operation: Any, mode: GenerationMode, *, host: str | None = None) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.headers.pop("if-match", None)  # none that is drawn is the host's
        if host is not None:
            case.path_parameters["name"] = host
        headers = {"Authorization": f"Bearer {served.token['operator']}"}
        answer = case.call(base_url=served.url, headers=headers, timeout=PATIENCE_S)
        case.validate_response(answer)
        if answer.status_code >= 400:
            assert set(answer.json()) == {"error"}
            assert "\n" not in answer.json()["error"]

    ask()
