"""The webhook against a receiver that checks what it is sent, as a site's own would."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fleetd.actuators.config import WebhookConfig
from fleetd.actuators.dryrun import DryRun
from fleetd.actuators.routed import Routed
from fleetd.actuators.webhook import Webhook
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import Drain, FleetOrder, Notify, Quarantine, Release
from fleetd.ports import ActuatorError, ActuatorObjection
from fleetd.system import run_blocking
from tests.actuators.test_kubernetes import StillClock

SECRET = b"sixteen bytes at least"
QUARANTINE = Quarantine(
    id=OrderId("h01/1/quarantine"), host=HostName("h01"), issued_at_s=5.0, why='é "x"', drain=Drain.NOW
)
NOTIFY = Notify(id=OrderId("h01/2/notify"), host=HostName("h01"), issued_at_s=5.0, why="look")


@dataclass
class Receiver:
    """Takes what is signed."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    taken: list[dict[str, object]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


@contextmanager
def receiving(receiver: Receiver) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            signed = self.headers["X-Fleetd-Timestamp"].encode() + b"." + body
            expected = f"sha256={hmac.new(SECRET, signed, hashlib.sha256).hexdigest()}"
            right = hmac.compare_digest(expected, self.headers["X-Fleetd-Signature"])
            if right:
                receiver.taken.append(json.loads(body))
                receiver.ids.append(self.headers["X-Fleetd-Id"])
            self.send_response(receiver.status if right else 401)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook?site=a"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(name="secret")
def _secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    return path


def webhook(url: str, secret: Path) -> Webhook:
    config = WebhookConfig(url=url, secret=secret, timeout_seconds=30)
    return Webhook(config, clock=StillClock(), run_blocking=run_blocking)


def send(url: str, secret: Path, order: FleetOrder = QUARANTINE) -> str:
    receipt = asyncio.run(webhook(url, secret).carry_out(order))
    assert receipt.done
    return receipt.why


def test_an_order_is_signed_and_says_all_of_itself(secret: Path) -> None:
    receiver = Receiver()
    with receiving(receiver) as url:
        assert send(url, secret) == "taken by the webhook (204)"
        send(url, secret, NOTIFY)
    assert receiver.ids == ["h01/1/quarantine", "h01/2/notify"]
    assert receiver.taken[0] == {
        "id": "h01/1/quarantine",
        "verb": "quarantine",
        "host": "h01",
        "issued_at_s": 5.0,
        "why": 'é "x"',
        "drain": "now",
    }
    assert "drain" not in receiver.taken[1]


def test_a_wrong_key_is_refused_for_good_and_told(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"another key of sixteen bytes")
    with receiving(Receiver()) as url, pytest.raises(ActuatorObjection, match=r"answers 401.*check its key"):
        send(url, other)


@pytest.mark.parametrize(
    ("status", "objection"),
    [(200, None), (302, False), (400, True), (404, True), (409, False), (410, True), (429, False), (500, False)],
)
def test_what_may_succeed_later_is_tried_again_and_the_rest_is_told(
    status: int, objection: bool | None, secret: Path
) -> None:
    receiver = Receiver(status=status, headers={"Retry-After": "30", "Location": "http://127.0.0.1:1/"})
    with receiving(receiver) as url:
        if objection is None:
            send(url, secret)
            return
        with pytest.raises(ActuatorError, match=f"answers {status}") as caught:
            send(url, secret)
    assert isinstance(caught.value, ActuatorObjection) is objection
    assert objection or caught.value.retry_after_s == 30


def test_a_changed_key_is_taken_up_and_a_bad_one_is_said(secret: Path) -> None:
    with receiving(Receiver()) as url:
        hook = webhook(url, secret)
        secret.write_bytes(b"short")
        with pytest.raises(ActuatorError, match="at least 16 bytes"):
            asyncio.run(hook.carry_out(QUARANTINE))
        secret.unlink()
        with pytest.raises(ActuatorError, match="No such file"):
            webhook(url, secret)


def test_nobody_there_is_tried_again(secret: Path) -> None:
    with pytest.raises(ActuatorError, match=r"127\.0\.0\.1:1 does not answer"):
        send("http://127.0.0.1:1/", secret)


def test_pages_go_to_the_webhook_and_the_rest_to_the_scheduler(secret: Path, tmp_path: Path) -> None:
    receiver = Receiver()
    release = Release(id=OrderId("h01/3/release"), host=HostName("h01"), issued_at_s=6.0, why="proven")
    with receiving(receiver) as url:
        routed = Routed(DryRun(tmp_path / "orders.jsonl", run_blocking=run_blocking), webhook(url, secret))
        for order in (QUARANTINE, NOTIFY, release):
            asyncio.run(routed.carry_out(order))
    assert receiver.ids == ["h01/2/notify"]
    recorded = [json.loads(line)["order"] for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    assert recorded == ["h01/1/quarantine", "h01/3/release"]
    assert asyncio.run(routed.standing([HostName("h01")])) == {}


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["head", "body"])
def test_a_server_that_never_ends_its_answer_is_left(secret: Path, begun: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with server.accept()[0] as client, contextlib.suppress(OSError):
                client.recv(1 << 16)
                client.sendall(begun)
                while not over.wait(0.1):  # each well within what a single read may take
                    client.sendall(b"a")

        over = threading.Event()
        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        config = WebhookConfig(url=f"http://127.0.0.1:{server.getsockname()[1]}/", secret=secret, timeout_seconds=1)
        try:
            with pytest.raises(ActuatorError, match="has not ended its answer in 1 s"):
                asyncio.run(Webhook(config, clock=StillClock(), run_blocking=run_blocking).carry_out(QUARANTINE))
        finally:
            over.set()
            thread.join(60)
