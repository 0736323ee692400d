"""Tells orders to something of the site's own: a signed POST, tried again until it is taken.

The receiver checks `X-Fleetd-Signature: sha256=HEX`, the HMAC-SHA256 of `TIMESTAMP.BODY` with the shared key and the
`X-Fleetd-Timestamp` as it came, refuses one that is old, and ignores a body whose `id` it has seen: the same order may
come more than once. The header `X-Fleetd-Id` is for logs and routing: it is not signed.
"""

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping

from fleetd.actuators.config import WebhookConfig
from fleetd.actuators.http import HttpAnswer, HttpRequest, read_secret, request
from fleetd.model.ids import HostName
from fleetd.model.order import FleetOrder, Quarantine
from fleetd.ports import ActuatorError, ActuatorObjection, Clock, Receipt, RunBlocking, Standing

SECRET_MIN_BYTES = 16
_OK = range(200, 300)
_AGAIN = frozenset({408, 409, 423, 425, 429})
"""Of the client errors (RFC 9110, 6585): a later attempt may succeed."""
_CLIENT_ERROR = range(400, 500)


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """`sha256=` and the HMAC-SHA256 (RFC 2104) of `TIMESTAMP.BODY`, in hexadecimal."""
    return f"sha256={hmac.new(secret, timestamp.encode('ascii') + b'.' + body, hashlib.sha256).hexdigest()}"


class Webhook:
    """An `Actuator` that tells, and is answered whether the order is taken."""

    name = "webhook"

    def __init__(self, config: WebhookConfig, *, clock: Clock, run_blocking: RunBlocking) -> None:
        """Raises ActuatorError when there is no usable key."""
        self._config = config
        self._clock = clock
        self._run_blocking = run_blocking
        read_secret(config.secret, at_least=SECRET_MIN_BYTES)

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Send the order. Raises ActuatorError; ActuatorObjection when it is refused for good."""
        message = {
            "id": order.id,
            "verb": type(order).__name__.lower(),
            "host": order.host,
            "issued_at_s": order.issued_at_s,
            "why": order.why,
        }
        if isinstance(order, Quarantine):
            message["drain"] = order.drain.value
        answers: list[HttpAnswer] = []
        body = json.dumps(message, sort_keys=True).encode()
        await self._run_blocking(lambda: answers.append(self._send(order, body)))
        answer = answers[0]
        if answer.status in _OK:
            return Receipt(order_id=order.id, done=True, why=f"taken by the webhook ({answer.status})")
        said = f"the webhook {self._config.url} answers {answer.status}: {_line(answer.body)}"
        if answer.status in _CLIENT_ERROR and answer.status not in _AGAIN:
            raise ActuatorObjection(f"{said}; it refuses what it is sent: check its key and its address")
        raise ActuatorError(said, retry_after_s=answer.retry_after_s)

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        """Nothing is known: a webhook is told, it is not asked."""
        del hosts
        return {}

    def _send(self, order: FleetOrder, body: bytes) -> HttpAnswer:
        secret = read_secret(self._config.secret, at_least=SECRET_MIN_BYTES)  # each time: keys are changed
        timestamp = str(int(self._clock.wall_s()))
        asked = HttpRequest(
            method="POST",
            url=self._config.url,
            headers={
                "Content-Type": "application/json",
                "User-Agent": "fleetd",
                "X-Fleetd-Id": _header(order.id),
                "X-Fleetd-Timestamp": timestamp,
                "X-Fleetd-Signature": signature(secret, timestamp, body),
            },
            body=body,
            timeout_s=self._config.timeout_seconds,
        )
        return request(asked, ca=self._config.ca)


def _header(text: str) -> str:
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)


def _line(body: bytes) -> str:
    text = " ".join(body[:1000].decode(errors="replace").split())
    return "".join(c for c in text if c.isprintable())[:200] or "no words"
