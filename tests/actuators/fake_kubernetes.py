"""A strict API server of a small cluster: refuses what the real one refuses, and what deploy/kubernetes does not grant.

Held to the conventions of Kubernetes: resourceVersion against lost changes (409), merge and strategic patches by their
types (415), pages (`limit`, `continue`), watches that expire (410), evictions against disruption budgets (429), bearer
tokens (401), rights by verb and resource (403).
"""

import copy
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

RBAC = Path(__file__).parents[2] / "deploy" / "kubernetes" / "rbac.yaml"
TOKEN = "t0ken"  # noqa: S105 - of the fake

_NODE = re.compile(r"/api/v1/nodes/([^/]+)(/status)?")
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/eviction)?")
_CONDITION_KEYS = {"type", "status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime"}


class RefusedError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


@dataclass
class Cluster:
    """What the server holds, and what is to go wrong."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    protected: set[str] = field(default_factory=set)
    """Names of pods that a disruption budget keeps."""
    changes: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    oldest: int = 0
    """Watches from before this version have expired."""
    next_answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    """Given once each, in place of what was asked."""
    before_patch: list[Callable[["Cluster"], None]] = field(default_factory=list)
    """Done once each just before a patch is looked at: what somebody else does in between."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(verb, resource) of every request that was allowed."""
    page: int = 2
    _version: int = 100

    def version(self) -> str:
        self._version += 1
        return str(self._version)

    def add_node(self, name: str, **spec: Any) -> dict[str, Any]:
        metadata = {"name": name, "resourceVersion": self.version(), "annotations": {"a": "b"}}
        self.nodes[name] = {"metadata": metadata, "spec": spec, "status": {"conditions": [{"type": "Ready"}]}}
        return self.nodes[name]

    def add_pod(self, name: str, node: str, *, gpus: int = 1, phase: str = "Running", **status: Any) -> dict[str, Any]:
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        pod = {
            "metadata": {"name": name, "namespace": "train", "resourceVersion": self.version()},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": limits}}]},
            "status": {"phase": phase, **status},
        }
        self.pods["train", name] = pod
        self.changed("ADDED", pod)
        return pod

    def end_pod(self, name: str, phase: str, *, ran_seconds: int = 10, **status: Any) -> None:
        pod = self.pods["train", name]
        times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": f"2026-01-01T00:00:{ran_seconds:02d}Z"}
        pod["status"] = {"phase": phase, "containerStatuses": [{"state": {"terminated": times}}], **status}
        pod["metadata"]["resourceVersion"] = self.version()
        self.changed("MODIFIED", pod)

    def changed(self, kind: str, pod: dict[str, Any]) -> None:
        self.changes.append((int(pod["metadata"]["resourceVersion"]), kind, copy.deepcopy(pod)))

    def expire(self) -> None:
        """Forget the changes so far."""
        self.oldest = self._version

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, method: str, url: str, kind: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        parts = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()}
        node, pod = _NODE.fullmatch(parts.path), _POD.fullmatch(parts.path)
        if parts.path in {"/api/v1/nodes", "/api/v1/pods"} and method == "GET":
            resource = parts.path.rpartition("/")[2]
            if query.pop("watch", "") == "1":
                self._allow("watch", resource)
                return 200, self._watch(query)
            self._allow("list", resource)
            return 200, self._list(resource, query)
        if node is not None and method == "GET" and node[2] is None:
            self._allow("get", "nodes")
            return 200, json.dumps(_known(self.nodes, node[1])).encode()
        if node is not None and method == "PATCH":
            self._allow("patch", "nodes/status" if node[2] else "nodes")
            while self.before_patch:
                self.before_patch.pop(0)(self)
            return 200, self._patch_node(_known(self.nodes, node[1]), bool(node[2]), kind, body or {})
        if pod is not None and method == "PATCH" and pod[3] is None:
            self._allow("patch", "pods")
            return 200, self._patch_pod(_known(self.pods, (pod[1], pod[2])), kind, body or {})
        if pod is not None and method == "POST" and pod[3] is not None:
            self._allow("create", "pods/eviction")
            return 201, self._evict(pod[1], pod[2], kind, body or {})
        raise RefusedError(405, f"{method} {parts.path} is not allowed")

    def _allow(self, verb: str, resource: str) -> None:
        if (verb, resource) not in granted():
            raise RefusedError(403, f'User "fleetd" cannot {verb} resource "{resource}"')
        self.asked.append((verb, resource))

    def _list(self, resource: str, query: dict[str, str]) -> bytes:
        objects = list(self.nodes.values()) if resource == "nodes" else list(self.pods.values())
        selector = query.pop("fieldSelector", "")
        chosen = [one for one in objects if _selected(one, selector)]
        start = int(query.pop("continue", "0"))
        limit = min(int(query.pop("limit", "500")), self.page)
        if query:
            raise RefusedError(400, f"unknown parameters {sorted(query)}")
        more = str(start + limit) if start + limit < len(chosen) else ""
        metadata = {"resourceVersion": str(self._version), **({"continue": more} if more else {})}
        return json.dumps({"kind": "List", "metadata": metadata, "items": chosen[start : start + limit]}).encode()

    def _watch(self, query: dict[str, str]) -> bytes:
        since, selector = int(query["resourceVersion"]), query.get("fieldSelector", "")
        assert int(query["timeoutSeconds"]) > 0
        if since < self.oldest:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            return json.dumps({"type": "ERROR", "object": status}).encode()
        lines = [
            {"type": kind, "object": pod}
            for version, kind, pod in self.changes
            if version > since and _selected(pod, selector)
        ]
        lines.append({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}})
        return b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    def _patch_node(self, node: dict[str, Any], status: bool, kind: str, patch: dict[str, Any]) -> bytes:
        if status:
            if kind != "application/strategic-merge-patch+json":
                raise RefusedError(415, f"a merge of conditions needs a strategic patch, not {kind}")
            assert set(patch) == {"status"}
            for condition in patch["status"]["conditions"]:
                assert set(condition) == _CONDITION_KEYS
                there = [c for c in node["status"]["conditions"] if c["type"] != condition["type"]]
                node["status"]["conditions"] = [*there, condition]
        else:
            if kind != "application/merge-patch+json":
                raise RefusedError(415, f"{kind} is no patch of this kind")
            if set(patch) - {"metadata", "spec"} or set(patch.get("spec", {})) - {"unschedulable", "taints"}:
                raise RefusedError(422, "that is not to be changed")
            if patch["metadata"].pop("resourceVersion", None) != node["metadata"]["resourceVersion"]:
                raise RefusedError(409, "the object has been modified; please apply your changes to the latest version")
            _merge(node, patch)
        node["metadata"]["resourceVersion"] = self.version()
        return json.dumps(node).encode()

    def _patch_pod(self, pod: dict[str, Any], kind: str, patch: dict[str, Any]) -> bytes:
        if kind != "application/merge-patch+json":
            raise RefusedError(415, f"{kind} is no patch of this kind")
        if set(patch) != {"metadata"} or set(patch["metadata"]) != {"annotations"}:
            raise RefusedError(422, "that is not to be changed")
        _merge(pod, patch)
        pod["metadata"]["resourceVersion"] = self.version()
        return json.dumps(pod).encode()

    def _evict(self, namespace: str, name: str, kind: str, body: dict[str, Any]) -> bytes:
        if kind != "application/json" or (body["apiVersion"], body["kind"]) != ("policy/v1", "Eviction"):
            raise RefusedError(415, "that is no eviction")
        pod = _known(self.pods, (namespace, name))
        if name in self.protected:
            raise RefusedError(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        del self.pods[namespace, name]
        pod["metadata"]["resourceVersion"] = self.version()
        self.changed("DELETED", pod)
        return json.dumps({"kind": "Status", "status": "Success"}).encode()


def granted() -> set[tuple[str, str]]:
    """(verb, resource) that deploy/kubernetes grants."""
    (role,) = [one for one in yaml.safe_load_all(RBAC.read_text()) if one["kind"] == "ClusterRole"]
    return {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


def _known(objects: dict[Any, dict[str, Any]], key: Any) -> dict[str, Any]:
    if key not in objects:
        raise RefusedError(404, f"{key} not found")
    return objects[key]


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7396."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def _selected(one: dict[str, Any], selector: str) -> bool:
    for term in filter(None, selector.split(",")):
        path, negated, value = re.fullmatch(r"(spec\.nodeName|status\.phase)(!?)=(\w[\w.-]*)", term).groups()  # type: ignore[union-attr]
        part, key = path.split(".")
        if (one[part].get(key) == value) is bool(negated):
            return False
    return True


@contextmanager
def serving(cluster: Cluster) -> Iterator[str]:
    """Serve the cluster; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, answer = self._answered(json.loads(body) if body else None)
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers, "Content-Length": len(answer)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(answer)

        def _answered(self, body: dict[str, Any] | None) -> tuple[int, dict[str, str], bytes]:
            with lock:
                if cluster.next_answers:
                    return cluster.next_answers.pop(0)
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    return 401, {}, b'{"message": "Unauthorized"}'
                try:
                    status, answer = cluster.answer(self.command, self.path, self.headers.get("Content-Type", ""), body)
                except RefusedError as refused:
                    text = {"kind": "Status", "status": "Failure", "message": str(refused), "code": refused.status}
                    return refused.status, refused.headers, json.dumps(text).encode()
                return status, {}, answer

        do_GET = do_PATCH = do_POST = _do  # noqa: N815 - as http.server names them

        def log_message(self, *_: object) -> None:
            pass

    lock = threading.Lock()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
