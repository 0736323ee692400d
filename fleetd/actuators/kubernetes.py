"""Closes and opens nodes of Kubernetes: cordon, taint and a condition that says why.

The node itself keeps what was done: annotations name the order, and whether the cordon is ours. All of it changes in
one request that is void if anybody has changed the node since the look (`resourceVersion`). A cordon of somebody else
is never undone; beside it, ours is the taint, so that both stand and each goes by itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fleetd.actuators.claims import Claims
from fleetd.actuators.config import KubernetesConfig
from fleetd.actuators.gone import rfc3339
from fleetd.actuators.kubernetes_api import MERGE, STRATEGIC, Api, ConflictError
from fleetd.actuators.kubernetes_leave import PodsLeaving
from fleetd.actuators.mark import Mark, number_of, reason_of, standing_by
from fleetd.model.ids import HostName
from fleetd.model.order import FleetOrder, Notify, Quarantine, Release
from fleetd.ports import ActuatorError, Clock, NoNode, Receipt, Standing

ORDER = "fleetd/order"
"""Annotation: the mark, `HOST/N/quarantine`."""
CORDONED = "fleetd/cordoned"
"""Annotation: `true` where the cordon is ours, `false` where somebody had cordoned the node before."""
TAINT = "fleetd/quarantined"
CONDITION = "FleetdQuarantined"
CONFLICTS_MAX = 5
"""Looks within one attempt; a node that changes under all of them is left for the next attempt."""


class Kubernetes:
    """The `Actuator` of a Kubernetes cluster."""

    name = "kubernetes"

    def __init__(self, config: KubernetesConfig, *, api: Api, clock: Clock) -> None:
        """`api` asks the server that `config` names."""
        self._api = api
        self._clock = clock
        self._claims = Claims(config.hosts)
        self._leaving = PodsLeaving(config, api=api, clock=clock)

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Cordon or uncordon the host's node. Raises ActuatorError, ActuatorObjection."""
        if isinstance(order, Notify):
            return Receipt(order_id=order.id, done=True, why="logged; nobody else is told: no webhook is configured")
        node = self._claims.node_of(order.host)
        for _ in range(CONFLICTS_MAX):
            try:
                if isinstance(order, Release):
                    return await self._open(order, node)
                return await self._close(order, node)
            except ConflictError:
                continue
        raise ActuatorError(f"{node} changed {CONFLICTS_MAX} times while it was looked at")

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        """How Kubernetes treats the nodes of these hosts. Raises ActuatorError."""
        self._claims.take(hosts)
        listed, _ = await self._api.list("/api/v1/nodes", {})
        found = {host: Standing(closed=False, order_id=None, known=False) for host in self._claims.undisputed.values()}
        for node in listed:
            host = self._claims.undisputed.get(str(node["metadata"]["name"]))
            if host is None:
                continue
            mark = _mark(node) if _tainted(node) else None
            closed = bool(node.get("spec", {}).get("unschedulable"))
            found[host] = standing_by(mark and replace(mark, why=_why(node, mark)), host, closed=closed)
        return found

    # ── orders ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _close(self, order: Quarantine, node: str) -> Receipt:
        there = await self._api.get(_path(node))
        if there is None:
            raise NoNode(
                f"Kubernetes knows no node {node}: if it is called otherwise, say so in `actuator: hosts: nodes` "
                f"({order.host}: NAME)"
            )
        mark = _mark(there)
        if mark is not None and mark.host != order.host:
            raise NoNode(f"{node} is cordoned for {mark.host}: two hosts of the fleet claim it")
        if mark is not None and mark.number > number_of(order.id):
            return Receipt(order_id=order.id, done=True, why=f"stale: {node} is cordoned by the later {mark.order_id}")
        spec = there.get("spec", {})
        theirs = bool(spec.get("unschedulable")) and (mark is None or _annotation(there, CORDONED) == "false")
        if mark is None or not _tainted(there) or not spec.get("unschedulable"):
            taint = {"key": TAINT, "value": "true", "effect": "NoSchedule"}
            others = [t for t in spec.get("taints") or () if t.get("key") != TAINT]
            changed = await self._patch(
                there,
                node,
                annotations={ORDER: order.id, CORDONED: "false" if theirs else "true"},
                spec={"unschedulable": True, "taints": [*others, taint]},
            )
            after = _mark(changed)
            if after is None or after.order_id != order.id or not _tainted(changed):
                raise ActuatorError(f"{node} does not carry {order.id} after it was patched")
        await self._condition(there, node, quarantined=True, why=reason_of(order.id, order.why))
        gone = await self._leaving.look(order, node)
        beside = "; somebody else has cordoned it too" if theirs else ""
        return Receipt(order_id=order.id, done=gone.done, why=f"{node} cordoned and tainted{beside}; {gone.why}")

    async def _open(self, order: Release, node: str) -> Receipt:
        there = await self._api.get(_path(node))
        if there is None:
            why = f"Kubernetes knows no node {node}: there is nothing to give back"
            return Receipt(order_id=order.id, done=True, why=why)
        mark = _mark(there)
        spec = there.get("spec", {})
        if mark is None:
            left = "; it is cordoned by somebody else: left as it is" if spec.get("unschedulable") else ""
            return Receipt(order_id=order.id, done=True, why=f"no cordon of fleetd is on {node}{left}")
        if mark.host != order.host:
            return Receipt(order_id=order.id, done=True, why=f"{node} is cordoned for {mark.host}: left as it is")
        if mark.number > number_of(order.id):
            return Receipt(order_id=order.id, done=True, why=f"stale: {node} is cordoned by the later {mark.order_id}")
        # The condition first: once the mark is gone, nobody would come back for it.
        await self._condition(there, node, quarantined=False, why="released")
        await self._leaving.forget(node, mark.order_id)
        there = await self._api.get(_path(node))  # the condition is a change, too
        if there is None or _mark(there) != mark:
            raise ConflictError(f"{node} has changed while it was looked at")
        spec = there.get("spec", {})
        ours = _annotation(there, CORDONED) == "true"
        others = [t for t in spec.get("taints") or () if t.get("key") != TAINT]
        await self._patch(
            there,
            node,
            annotations={ORDER: None, CORDONED: None},
            spec={"taints": others, **({"unschedulable": None} if ours else {})},
        )
        left = "" if ours or not spec.get("unschedulable") else "; somebody else's cordon stays on it"
        return Receipt(order_id=order.id, done=True, why=f"{node} given back{left}")

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _patch(
        self, seen: Mapping[str, Any], node: str, *, annotations: Mapping[str, str | None], spec: Mapping[str, Any]
    ) -> dict[str, Any]:
        version = seen["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "annotations": annotations}, "spec": spec}
        changed = await self._api.patch(_path(node), patch, MERGE)
        if changed is None:
            raise ActuatorError(f"the node {node} has just been deleted")
        return changed

    async def _condition(self, seen: Mapping[str, Any], node: str, *, quarantined: bool, why: str) -> None:
        """Say on the node why it is closed, or that it is not; what is said already is not written again."""
        status = "True" if quarantined else "False"
        found = (one for one in seen.get("status", {}).get("conditions") or () if one.get("type") == CONDITION)
        before: Mapping[str, Any] = next(found, {})
        if (before.get("status"), before.get("message")) == (status, why):
            return
        now = rfc3339(self._clock.wall_s())
        condition = {
            "type": CONDITION,
            "status": status,
            "reason": "Quarantined" if quarantined else "Released",
            "message": why,
            "lastHeartbeatTime": now,
            "lastTransitionTime": before.get("lastTransitionTime", now) if before.get("status") == status else now,
        }
        await self._api.patch(f"{_path(node)}/status", {"status": {"conditions": [condition]}}, STRATEGIC)


def _path(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}"


def _annotation(node: Mapping[str, Any], key: str) -> str | None:
    return (node["metadata"].get("annotations") or {}).get(key)


def _mark(node: Mapping[str, Any]) -> Mark | None:
    return Mark.of_id(_annotation(node, ORDER) or "")


def _why(node: Mapping[str, Any], mark: Mark) -> str:
    """The reason in our condition, if it is that of this order."""
    for condition in node.get("status", {}).get("conditions") or ():
        said = Mark.of_reason(str(condition.get("message", ""))) if condition.get("type") == CONDITION else None
        if said is not None and said.order_id == mark.order_id:
            return said.why
    return ""


def _tainted(node: Mapping[str, Any]) -> bool:
    return any(taint.get("key") == TAINT for taint in node.get("spec", {}).get("taints") or ())
