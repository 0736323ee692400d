"""What other programs ask and hand in: Prometheus finds the agents, Alertmanager tells alerts, all see the health."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from fleetd.model.alert import Alert
from fleetd.model.host import Lifecycle
from fleetd.ports import AlertsTaken, DeskDoor, FleetView
from fleetd.web.answers import Problem, answer, packed
from fleetd.web.change import who
from fleetd.web.rows import sku_of
from fleetd.web.shapes import AlertsReport, SdTarget
from fleetd.web.words import CHANGE_ERRORS, ERRORS, no_query

_log = structlog.get_logger(__name__)


class AlertsRead(Protocol):
    """What the body of a hook says."""

    @property
    def alerts(self) -> Sequence[Alert]:
        """Those that fire and name a host."""

    @property
    def resolved(self) -> int:
        """How many do not fire any more."""

    @property
    def refused(self) -> Sequence[str]:
        """One line for each that cannot be used."""


ReadAlerts = Callable[[object], AlertsRead]
"""Reads the body of Alertmanager's webhook. Raises ValueError, in one line."""
Metrics = Callable[[str], Awaitable[tuple[str, bytes]]]
"""The page of metrics for an `Accept` header: its content type and the text."""


_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["alerts"],
                    "properties": {"alerts": {"type": "array", "items": {}, "maxItems": 1000}},
                }
            }
        },
    }
}
"""Alertmanager's webhook, version 4; what is not used of it is not described."""


def hook_routes(
    desk: DeskDoor, view: FleetView, *, read_alerts: ReadAlerts, metrics: Metrics, agents_port: int
) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(responses=ERRORS, dependencies=[Depends(no_query)], tags=["other programs"])

    @routes.get("/sd/agents", response_model=list[SdTarget])
    async def agents(request: Request) -> Response:
        """Prometheus's HTTP service discovery of the agents: every host that is not retired.

        Format: https://prometheus.io/docs/prometheus/latest/http_sd/
        """
        targets = []
        for host in view.hosts():
            if host.state is Lifecycle.RETIRED:
                continue
            labels = {"host": host.name, "pool": host.place.pool, "rack": host.place.rack, "sku": sku_of(host)}
            known = {f"__meta_fleetd_{name}": value for name, value in labels.items() if value is not None}
            targets.append(SdTarget(targets=[f"{host.name}:{agents_port}"], labels=known))
        return answer(request, targets)

    @routes.post("/hooks/alertmanager", response_model=AlertsReport, responses=CHANGE_ERRORS, openapi_extra=_BODY)
    async def alertmanager(request: Request) -> Response:
        """Make findings of the alerts in the body of Alertmanager's webhook, each counted once.

        What cannot be used is said in `refused` and is no error: Alertmanager would send the same again and again.
        """
        try:
            found = read_alerts(json.loads(await request.body()))
        except (ValueError, RecursionError) as error:
            said = " ".join(str(error).split())[:200]
            raise Problem(422, f"the body cannot be read: {said}") from error
        taken = await desk.alerts(who(request), found.alerts) if found.alerts else AlertsTaken(taken=0, refused=())
        _log.info("alerts", who=who(request).name, firing=len(found.alerts), taken=taken.taken)
        body = AlertsReport(
            firing=len(found.alerts),
            resolved=found.resolved,
            taken=taken.taken,
            refused=[*found.refused, *taken.refused],
        )
        return answer(request, body)

    _health_routes(routes, view, metrics)
    return routes


def _health_routes(routes: APIRouter, view: FleetView, metrics: Metrics) -> None:
    @routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def get_metrics(request: Request) -> Response:
        """The controller's metrics, derived from the ledger's image at each scrape."""
        content_type, text = await metrics(request.headers.get("accept", ""))
        return packed(request, text, content_type)

    @routes.get("/healthz", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def healthz() -> Response:
        """Whether the process answers."""
        return Response("ok\n", media_type="text/plain")

    @routes.get("/readyz", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def readyz() -> Response:
        """Whether this controller can be relied on now; 503 says why not."""
        why = view.unready()
        if why:
            raise Problem(503, why)
        return Response("ok\n", media_type="text/plain")
