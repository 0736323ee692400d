"""What is said over the guard's socket: one JSON object a packet (SOCK_SEQPACKET), both ways.

Requests, each with `do` and a `seq` that the answer repeats:
  arm        `sent_s ttl_s grace_s gpus`: declare the GPUs and begin a lease; nothing is written yet
  renew      `sent_s [seen] [quiet]`: go on; `seen` is {gpu: {knob: watts}} where less is in force than was written;
             `quiet` true: answer a refusal only
  set        `sent_s limits reason [clocks]`: {gpu: {knob: watts}}, written in this order for each GPU; `clocks` is
             {gpu: hertz}, the highest that may run, null to unlock it
  hand_over  `seconds`: the sender is being replaced; its end is no reason to fall within that time
  disarm     end the lease in good order: everything falls to its safe cap
  status     anybody who may connect may ask
  restore    `to` safe or prior: an operator's; ends the lease
Answers: `{"seq", "ok": bool, "why": text, …}`. An answer to `arm` has `clocks`: {gpu: hertz} that are locked; one to
`set` and `restore` has `errors`: {gpu: text}.
"""

import json
import socket
from typing import Any

PACKET_BYTES_MAX = 1 << 16
WHY_MAX = 300
NUMBER_MAX = 1e300


class BadRequest(ValueError):  # noqa: N818 - it says what it is
    """What was said is no request; the message is one line."""


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next request; None: the other end is gone. Raises BlockingIOError when there is none, BadRequest."""
    try:
        packet = connection.recv(PACKET_BYTES_MAX + 1)
    except (ConnectionResetError, BrokenPipeError):
        return None
    if not packet:
        return None
    if len(packet) > PACKET_BYTES_MAX:
        raise BadRequest(f"longer than {PACKET_BYTES_MAX} bytes")
    try:
        body = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"no JSON: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("do"), str):
        raise BadRequest("an object with `do` is needed")
    if not isinstance(body.get("seq", 0), int | None):  # it is sent back, so nothing that could not be
        raise BadRequest("seq: a whole number is needed")
    return body


def send(connection: socket.socket, body: dict[str, Any]) -> bool:
    """Answer without waiting; False: the other end is gone, or does not read."""
    try:
        connection.send(json.dumps(body).encode())
    except OSError:
        return False
    return True


def number(body: dict[str, Any], name: str) -> float:
    """A number of a request. Raises BadRequest."""
    value = body.get(name)
    # Said as what must hold: NaN fulfils nothing, and JSON's integers may be longer than any float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < NUMBER_MAX:
        raise BadRequest(f"{name}: a number is needed")
    return float(value)


def watts_of(body: object, gpus: dict[str, set[str]], what: str) -> dict[str, dict[str, float]]:
    """{gpu: {knob: watts}} of a request, for known GPUs and knobs only. Raises BadRequest."""
    if not isinstance(body, dict):
        raise BadRequest(f"{what}: an object is needed")
    for gpu, limits in body.items():
        if gpu not in gpus:
            raise BadRequest(f"{what}: {gpu!r:.80} was not declared")
        if not isinstance(limits, dict) or not limits.keys() <= gpus[gpu]:
            raise BadRequest(f"{what}: {gpu}: limits of this GPU are {', '.join(sorted(gpus[gpu]))}")
        for knob, watts in limits.items():
            if isinstance(watts, bool) or not isinstance(watts, int | float) or not 0 < watts < 1e6:  # noqa: PLR2004
                raise BadRequest(f"{what}: {gpu}: {knob}: a positive number of watts is needed")
    return {gpu: {knob: float(w) for knob, w in limits.items()} for gpu, limits in body.items()}


def hertz_of(body: object, gpus: set[str], what: str) -> dict[str, float | None]:
    """{gpu: hertz, or null} of a request, for GPUs whose clock can be locked. Raises BadRequest."""
    if not isinstance(body, dict):
        raise BadRequest(f"{what}: an object is needed")
    found: dict[str, float | None] = {}
    for gpu, hertz in body.items():
        if gpu not in gpus:
            raise BadRequest(f"{what}: {gpu!r:.80} was not declared, or is no part whose clock can be locked")
        if hertz is None:
            found[gpu] = None
        elif isinstance(hertz, bool) or not isinstance(hertz, int | float) or not 1e8 <= hertz < 1e11:  # noqa: PLR2004
            raise BadRequest(f"{what}: {gpu}: a clock in hertz is needed, or null")
        else:
            found[gpu] = float(hertz)
    return found
