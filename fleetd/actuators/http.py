"""One HTTP request with a deadline and a bounded answer, by the standard library; it blocks.

Connections are not kept: a scheduler is asked every few seconds at most, and a connection that died unseen costs more.
Redirects are not followed: an order goes where the configuration says, or nowhere.
"""

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fleetd.ports import ActuatorError

ANSWER_MAX_BYTES = 256 << 20
"""A list of all pods of a large cluster; what is longer is no answer."""
_CHUNK = 1 << 16
_SECRET_BYTES_MAX = 65_536
_TOKEN = re.compile(rb"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def retry_after_s(self) -> float | None:
        """After how many seconds the server wants to be asked again; None: it does not say."""
        value = self.headers.get("retry-after", "").strip()
        return float(value) if value.isascii() and value.isdigit() else None

    def json(self) -> dict[str, Any]:
        """The JSON object in the body. Raises ActuatorError when it is none, whatever the server calls it."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ActuatorError(f"the server answers with {kind or 'no content type'} in place of application/json")
        try:
            value = json.loads(self.body)
        except ValueError:
            raise ActuatorError("the server's answer is no JSON") from None
        if not isinstance(value, dict):
            raise ActuatorError("the server's answer is no JSON object")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """What is asked."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    timeout_s: float
    """Of connecting (each address that the name has), and of everything from then on to the end of the answer."""


def request(asked: HttpRequest, *, ca: Path | None) -> HttpAnswer:
    """Ask once.

    Raises:
        ActuatorError: There was no answer in time, or none that HTTP allows. Whether the server has acted on the
            request is not known then.
    """
    parts = urlsplit(asked.url)
    where = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    connection = _connection(parts.scheme, str(parts.hostname), parts.port, asked.timeout_s, ca)
    late = threading.Event()
    try:
        connection.connect()
        with _hung_up_after(connection.sock, asked.timeout_s, late):
            connection.request(asked.method, path, body=asked.body, headers=dict(asked.headers))
            with contextlib.closing(connection.getresponse()) as response:  # it has a hold on the socket, too
                chunks: list[bytes] = []
                size = 0
                while chunk := response.read1(_CHUNK):
                    size += len(chunk)
                    if size > ANSWER_MAX_BYTES:
                        raise ActuatorError(f"{where} answers with more than {ANSWER_MAX_BYTES} bytes")
                    chunks.append(chunk)
    except (OSError, http.client.HTTPException) as error:
        if not late.is_set():
            raise ActuatorError(f"{where} does not answer: {_words(error)}") from error
    finally:
        connection.close()
    if late.is_set():  # an answer that is cut off may look whole
        raise ActuatorError(f"{where} has not ended its answer in {asked.timeout_s:g} s")
    headers = {name.lower(): value for name, value in response.getheaders()}
    return HttpAnswer(status=response.status, headers=headers, body=b"".join(chunks))


@contextlib.contextmanager
def _hung_up_after(channel: socket.socket, seconds: float, late: threading.Event) -> Iterator[None]:
    """A limit for the whole: with one for each read, a server that sends a byte now and then would never be left."""

    def hang_up() -> None:
        late.set()
        with contextlib.suppress(OSError):  # it has just ended by itself
            socket.socket.shutdown(channel, socket.SHUT_RDWR)  # below TLS, whose state is the reading thread's

    limit = threading.Timer(seconds, hang_up)
    limit.daemon = True
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def _connection(
    scheme: str, host: str, port: int | None, timeout_s: float, ca: Path | None
) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ActuatorError(f"{ca}: no certificates can be read: {_words(error)}") from error
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


def _words(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


def read_secret(path: Path, *, at_least: int = 1) -> bytes:
    """The content of a small file with a key, without white space around it. Raises ActuatorError."""
    try:
        with path.open("rb") as file:
            secret = file.read(_SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise ActuatorError(f"{path}: {error.strerror}") from error
    if not at_least <= len(secret) <= _SECRET_BYTES_MAX or b"\n" in secret:
        raise ActuatorError(f"{path}: must hold one line of at least {at_least} bytes (at most {_SECRET_BYTES_MAX})")
    return secret


def read_token(path: Path) -> str:
    """The content of a small file with a bearer token, fit for a header. Raises ActuatorError."""
    token = read_secret(path)
    if not _TOKEN.fullmatch(token):
        raise ActuatorError(f"{path}: a token is one word of printable ASCII characters")
    return token.decode("ascii")
