"""How answers are made: JSON of the model, one shape of error, entity tags, compression."""

import gzip
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fleetd.web.limits import Buckets

GZIP_FROM_BYTES = 1024
"""Shorter bodies are not worth it."""

_encode = msgspec.json.Encoder().encode


class Problem(Exception):  # noqa: N818 - it is an answer
    """An answer that is an error: `{"error": "what, where, what to do"}`."""

    def __init__(self, status: int, error: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The answer itself."""
        return Response(_encode({"error": self.error}), self.status, self.headers, "application/json")


def take(buckets: Buckets, whose: str, what: str) -> None:
    """Let one of `what` pass that somebody asks for. Raises Problem: he asks too often."""
    wait_s = buckets.wait_s(whose)
    if wait_s:
        seconds = int(wait_s) + 1
        raise Problem(429, f"too many {what}; try again in {seconds} s", {"Retry-After": str(seconds)})


def answer(request: Request, body: Any, *, tag: str | None = None) -> Response:
    """A body as JSON; with a tag that the client has already, 304 and no body.

    Nothing that is told here may be mixed with a secret: it is compressed.
    """
    if tag is not None and has(request, tag):
        return Response(None, 304, {"ETag": tag})
    return packed(request, _encode(body), "application/json", tag=tag)


def packed(request: Request, body: bytes, media_type: str, *, tag: str | None = None) -> Response:
    """A body, compressed where the client takes that."""
    headers = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if tag is not None:
        headers["ETag"] = tag
    if len(body) >= GZIP_FROM_BYTES and takes_gzip(request):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=1, mtime=0)
    return Response(body, 200, headers, media_type)


def takes_gzip(request: Request) -> bool:
    """Whether the client says that it can read gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")


def has(request: Request, tag: str) -> bool:
    """Whether `If-None-Match` names a tag (RFC 9110: compared weakly)."""
    given = (one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(","))
    return any(one in {"*", tag.removeprefix("W/")} for one in given if one)


def digest(value: Any) -> str:
    """A short text that is equal for equal values of the model only."""
    return blake2b(_encode(value), digest_size=12).hexdigest()
