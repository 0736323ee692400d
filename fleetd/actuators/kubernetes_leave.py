"""How pods leave a node of Kubernetes that was cordoned: at their end, at a checkpoint, or now.

Only pods that ask for GPUs are jobs: agents, exporters and what else runs on every node stay, a burn-in needs them.
Pods are evicted, never deleted, so that disruption budgets hold. What a pod was told stands in an annotation, which it
can read as a file (downward API).
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fleetd.actuators.config import KubernetesConfig
from fleetd.actuators.gone import Gone, leave_by_s, rfc3339
from fleetd.actuators.kubernetes_api import MERGE, Api
from fleetd.model.ids import OrderId
from fleetd.model.order import Drain, Quarantine
from fleetd.ports import Clock

LEAVE_BY = "fleetd/leave-by"
"""Annotation of a pod: until when it should have left after its next checkpoint (RFC 3339)."""
LEAVE_FOR = "fleetd/leave-for"
"""Annotation of a pod: the order that sends it away."""
_ENDED = frozenset({"Succeeded", "Failed"})


class PodsLeaving:
    """Looks after the pods of cordoned nodes. Keeps nothing in memory: the cluster and the order say what is next."""

    def __init__(self, config: KubernetesConfig, *, api: Api, clock: Clock) -> None:
        self._config = config
        self._api = api
        self._clock = clock

    async def look(self, order: Quarantine, node: str) -> Gone:
        """Do what is next for the pods of a cordoned node. Raises ActuatorError."""
        if order.drain is Drain.JOB_END:
            return Gone(done=True, why="its pods run to their end")
        pods = await self._pods(node)
        if not pods:
            return Gone(done=True, why="no pod with a GPU is left on it")
        by_s = leave_by_s(order, self._config.checkpoint_seconds)
        if order.drain is Drain.CHECKPOINT and self._clock.wall_s() < by_s:
            by = rfc3339(by_s)
            for pod in pods:
                if (pod["metadata"].get("annotations") or {}).get(LEAVE_FOR) != order.id:
                    await self._annotate(pod, {LEAVE_BY: by, LEAVE_FOR: order.id})
            return Gone(done=False, why=f"{len(pods)} pods were told to leave at their next checkpoint, by {by}")
        kept = []
        for pod in pods:
            if pod["metadata"].get("deletionTimestamp") is None:
                said = await self._api.evict(pod["metadata"]["namespace"], pod["metadata"]["name"])
                if said is not None:
                    kept.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}: {said}")
        kept_by = f", {len(kept)} of them are kept for now ({kept[0]})" if kept else ""
        return Gone(done=False, why=f"{len(pods)} pods were asked to leave{kept_by}")

    async def forget(self, node: str, order_id: OrderId) -> None:
        """Take back what pods of a node were told: it is opened again. Raises ActuatorError."""
        for pod in await self._pods(node):
            if (pod["metadata"].get("annotations") or {}).get(LEAVE_FOR) == order_id:
                await self._annotate(pod, {LEAVE_BY: None, LEAVE_FOR: None})

    async def _pods(self, node: str) -> tuple[dict[str, Any], ...]:
        listed, _ = await self._api.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
        return tuple(pod for pod in listed if self._is_job(pod))

    def _is_job(self, pod: Mapping[str, Any]) -> bool:
        if pod.get("status", {}).get("phase") in _ENDED:
            return False
        asked = (container.get("resources", {}).get("limits") or {} for container in pod["spec"].get("containers", ()))
        return any(resource in limits for limits in asked for resource in self._config.gpu_resources)

    async def _annotate(self, pod: Mapping[str, Any], annotations: Mapping[str, str | None]) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{quote(metadata['namespace'])}/pods/{quote(metadata['name'])}"
        await self._api.patch(path, {"metadata": {"annotations": annotations}}, MERGE)
