"""The ends of pods that had GPUs: listed once, then watched from there on, and listed again when the watch expires."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from fleetd.actuators.claims import Claims
from fleetd.actuators.config import KubernetesConfig
from fleetd.actuators.kubernetes_api import Api, ExpiredError
from fleetd.model.ids import HostName
from fleetd.model.job import EndedJob
from fleetd.ports import Clock

LOOK_BACK_SECONDS = 3600.0
"""Pods of an older end that are still there are no news: they stay for days where nobody removes them."""
WATCH_SECONDS = 20
"""How long one look waits for changes."""
_PATH = "/api/v1/pods"
_NOT_ITS_FAULT = frozenset({"Evicted", "Preempting", "Shutdown", "Terminated", "NodeShutdown", "DeadlineExceeded"})
"""Reasons of a failed pod that was sent away or ran out of its time: neither its failure nor its host's."""
_QUERY: Mapping[str, str] = {"fieldSelector": "status.phase!=Pending,status.phase!=Running"}


class KubernetesJobs:
    """The `JobEnds` of a Kubernetes cluster. A pod is a job; one that its controller starts again is another one."""

    def __init__(self, config: KubernetesConfig, *, api: Api, clock: Clock) -> None:
        """The clock's wall time says which of the pods that are listed ended long ago."""
        self._config = config
        self._clock = clock
        self._api = api
        self._version = ""  # empty: to be listed

    async def ended(self, hosts: Collection[HostName]) -> tuple[EndedJob, ...]:
        """Pods that ended since the last look; at the first, within the last hour. Raises ActuatorError."""
        by_node = Claims.nodes_of(self._config.hosts, hosts)
        pods: list[Mapping[str, Any]] = []
        if not self._version:
            listed, self._version = await self._api.list(_PATH, _QUERY)
            since_s = self._clock.wall_s() - LOOK_BACK_SECONDS
            pods += [pod for pod in listed if (_times_s(pod.get("status", {})) or (0.0, 0.0))[1] >= since_s]
        else:
            try:
                changes = await self._api.watch(_PATH, _QUERY, self._version, WATCH_SECONDS)
            except ExpiredError:
                self._version = ""
                return await self.ended(hosts)
            for change in changes:
                self._version = str(change.object.get("metadata", {}).get("resourceVersion", self._version))
                # A pod that is deleted at once after its end may show its end in nothing else.
                if change.kind in {"ADDED", "MODIFIED", "DELETED"}:
                    pods.append(change.object)
        return tuple(job for pod in pods if (job := self._job(pod, by_node)) is not None)

    def _job(self, pod: Mapping[str, Any], by_node: Mapping[str, HostName]) -> EndedJob | None:
        spec, status, metadata = pod.get("spec", {}), pod.get("status", {}), pod["metadata"]
        host = by_node.get(spec.get("nodeName", ""))
        phase = status.get("phase")
        if host is None or phase not in {"Succeeded", "Failed"} or status.get("reason") in _NOT_ITS_FAULT:
            return None
        limits = [container.get("resources", {}).get("limits") or {} for container in spec.get("containers", ())]
        if not any(resource in limit for limit in limits for resource in self._config.gpu_resources):
            return None
        times_s = _times_s(status)
        if times_s is None:
            return None  # it never ran
        job = f"{metadata['namespace']}/{metadata['name']}"
        return EndedJob(host=host, job=job, ok=phase == "Succeeded", ran_seconds=max(0.0, times_s[1] - times_s[0]))


def _times_s(status: Mapping[str, Any]) -> tuple[float, float] | None:
    """The first start of a container and the last end, in wall time; None when none has run."""
    ends = [
        terminated
        for container in status.get("containerStatuses") or ()
        if (terminated := (container.get("state") or {}).get("terminated")) is not None
    ]
    times = [(_at_s(end.get("startedAt")), _at_s(end.get("finishedAt"))) for end in ends]
    known = [(start, end) for start, end in times if start is not None and end is not None]
    if not known:
        return None
    return min(start for start, _ in known), max(end for _, end in known)


def _at_s(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None
