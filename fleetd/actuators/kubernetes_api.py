"""The few requests to a Kubernetes API server that are needed, and what its refusals mean."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from fleetd.actuators.config import KubernetesConfig
from fleetd.actuators.http import HttpAnswer, HttpRequest, read_token, request
from fleetd.ports import ActuatorError, ActuatorObjection, RunBlocking

MERGE = "application/merge-patch+json"
"""RFC 7396. Replaces lists whole: with a resourceVersion in the patch, so that nobody's change in between is lost."""
STRATEGIC = "application/strategic-merge-patch+json"
"""Kubernetes' own: merges a node's conditions by their type."""
_PAGE = 500
_PAGES_MAX = 4000
"""Pages of a list: two million pods; a server that always has one more is not believed."""

_NOT_FOUND, _CONFLICT, _GONE, _TOO_MANY = 404, 409, 410, 429


class ConflictError(ActuatorError):
    """Somebody changed the object between the look and the change: look again."""


class ExpiredError(ActuatorError):
    """The server has forgotten the point from which changes were asked for: list again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of a watch."""

    kind: str
    """`ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`."""
    object: Mapping[str, Any]


class Api:
    """Asks the API server; each call is one request with a deadline."""

    def __init__(self, config: KubernetesConfig, *, run_blocking: RunBlocking) -> None:
        self._config = config
        self._run_blocking = run_blocking

    async def get(self, path: str) -> dict[str, Any] | None:
        """One object; None when there is none. Raises ActuatorError."""
        answer = await self._ask("GET", path)
        return None if answer.status == _NOT_FOUND else _good(answer, path)

    async def patch(self, path: str, patch: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
        """Change an object; None when there is none. Raises ConflictError, ActuatorError."""
        answer = await self._ask("PATCH", path, body=patch, kind=kind)
        return None if answer.status == _NOT_FOUND else _good(answer, path)

    async def evict(self, namespace: str, pod: str) -> str | None:
        """Ask for a pod to be evicted; returns why that is not possible now. Raises ActuatorError."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/eviction"
        answer = await self._ask("POST", path, body=body, kind="application/json")
        if answer.status == _NOT_FOUND:
            return None
        if answer.status == _TOO_MANY and _message(answer):
            return _message(answer)  # a disruption budget (or the server's load): it is asked again
        _good(answer, path)
        return None

    async def list(self, path: str, query: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        """All objects, page by page, and the version as of which they are. Raises ExpiredError, ActuatorError."""
        found: list[dict[str, Any]] = []
        more = ""
        for _ in range(_PAGES_MAX):
            asked = {**query, "limit": str(_PAGE), **({"continue": more} if more else {})}
            answer = _good(await self._ask("GET", f"{path}?{urlencode(asked)}"), path)
            metadata = answer.get("metadata", {})
            found.extend(answer.get("items", ()))
            more = metadata.get("continue", "")
            if not more:
                return found, str(metadata.get("resourceVersion", ""))
        raise ActuatorError(f"{path}: more than {_PAGES_MAX * _PAGE} objects, or a server that goes on and on")

    async def watch(self, path: str, query: Mapping[str, str], version: str, for_s: int) -> tuple[Change, ...]:
        """What changed since a version, for at most so many seconds. Raises ExpiredError, ActuatorError."""
        asked = {
            **query,
            "watch": "1",
            "resourceVersion": version,
            "timeoutSeconds": str(for_s),
            "allowWatchBookmarks": "true",
        }
        answer = await self._ask("GET", f"{path}?{urlencode(asked)}", more_s=for_s)
        if answer.status != 200:  # noqa: PLR2004 - OK
            _good(answer, path)
        return tuple(_changes(answer))

    async def _ask(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, kind: str = "", more_s: float = 0.0
    ) -> HttpAnswer:
        answers: list[HttpAnswer] = []

        def ask() -> None:
            headers = {"Accept": "application/json", "User-Agent": "fleetd"}
            if self._config.token is not None:
                headers["Authorization"] = f"Bearer {read_token(self._config.token)}"
            if body is not None:
                headers["Content-Type"] = kind
            asked = HttpRequest(
                method=method,
                url=f"{self._config.server.rstrip('/')}{path}",
                headers=headers,
                body=None if body is None else json.dumps(body).encode(),
                timeout_s=self._config.timeout_seconds + more_s,
            )
            answers.append(request(asked, ca=self._config.ca))

        await self._run_blocking(ask)
        return answers[0]


def _good(answer: HttpAnswer, path: str) -> dict[str, Any]:
    """The object that a server answers with; else what its refusal means. Raises ActuatorError."""
    if answer.status in (200, 201):
        return answer.json()
    said = f"the API server answers {answer.status} for {path}: {_message(answer) or 'no words'}"
    if answer.status == _CONFLICT:
        raise ConflictError(said)
    if answer.status == _GONE:
        raise ExpiredError(said)
    if answer.status in (401, 403):
        raise ActuatorObjection(f"{said}; see deploy/kubernetes for the rights that fleetd needs")
    raise ActuatorError(said, retry_after_s=answer.retry_after_s)


def _message(answer: HttpAnswer) -> str:
    try:
        message = json.loads(answer.body).get("message", "")
    except (ValueError, AttributeError):
        return ""
    return " ".join(str(message).split())[:300]


def _changes(answer: HttpAnswer) -> Iterator[Change]:
    for line in answer.body.splitlines():
        if not line.strip():
            continue
        try:
            body = json.loads(line)
            change = Change(kind=body["type"], object=body["object"])
        except (ValueError, KeyError, TypeError):
            raise ActuatorError(f"the API server's watch is not understood: {line[:80]!r}") from None
        if change.kind == "ERROR":
            if change.object.get("code") == _GONE:
                raise ExpiredError("the watch has expired")
            raise ActuatorError(f"the watch ended: {change.object.get('message', 'no words')}")
        yield change
