"""A client's channel to the controller, and its failures in one line each."""

from collections.abc import Iterable
from typing import Any

import grpc

from fleetd.ports import Refused, UplinkError
from fleetd.uplink.config import KEEPALIVE_ANSWER_SECONDS, KEEPALIVE_SECONDS, TlsFiles
from fleetd.uplink.tls import channel_credentials
from fleetd.uplink.wire import clean

END_OF_STREAM: object = grpc.aio.EOF  # type: ignore[attr-defined]  # the stub forgets it
"""What reading a stream gives when the other side has ended it."""

_DETAILS_CHARS = 200

STANDS_BY = (("fleetd-stands-by", "1"),)
"""Goes with the answer of a controller that is not the judge: nothing was done, another one is to be asked."""


class StandsByError(UplinkError):
    """The controller answered that another one is the judge."""


def open_channel(
    address: str,
    tls: TlsFiles | None,
    *,
    receive_max_bytes: int,
    credentials: grpc.ChannelCredentials | None = None,
) -> grpc.aio.Channel:
    """Make a channel, reading the certificates now; nothing is sent yet. Raises UplinkError on unusable files.

    `credentials` stand in for `tls` where there is no certificate to show; without both it is plain text.
    """
    options = [
        ("grpc.max_receive_message_length", receive_max_bytes),
        # A dead peer or a silent firewall is noticed within 40 s.
        ("grpc.keepalive_time_ms", int(KEEPALIVE_SECONDS * 1000)),
        ("grpc.keepalive_timeout_ms", int(KEEPALIVE_ANSWER_SECONDS * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
        # Each channel connects by itself: the waiting between attempts is ours, not gRPC's shared back-off.
        ("grpc.use_local_subchannel_pool", 1),
        # A proxy from the environment would carry plain text off this host.
        ("grpc.enable_http_proxy", 0),
    ]
    if tls is not None:
        credentials = channel_credentials(tls, where=address)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


def failure(error: grpc.aio.AioRpcError, address: str, *, secure: bool) -> UplinkError | Refused:
    """Say in one line what went wrong, and what to do.

    Returns:
        Refused when the controller answered no; UplinkError when it did not answer, or could not.
    """
    details = clean(error.details() or "")
    match error.code():
        case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.FAILED_PRECONDITION | grpc.StatusCode.UNAUTHENTICATED:
            return Refused(details)
        case grpc.StatusCode.UNAVAILABLE if _stands_by(error):
            return StandsByError(f"{address}: {details}")
        case grpc.StatusCode.UNAVAILABLE:
            return UplinkError(_unavailable(details, address, secure=secure))
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return UplinkError(f"the controller at {address} turned this away: {details}")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return UplinkError(f"the controller at {address} does not answer: look at its log, or try again")
        case code:
            return UplinkError(f"the connection to the controller at {address} failed ({code.name}: {details})")


def _stands_by(error: grpc.aio.AioRpcError) -> bool:
    said: Iterable[Any] = error.trailing_metadata() or ()  # pairs, whatever the stub says
    return any(tuple(pair) in STANDS_BY for pair in said)


def _unavailable(details: str, address: str, *, secure: bool) -> str:
    # gRPC says that it failed to connect to all addresses, and then, what helps, with which error.
    details = details.rpartition("last error: ")[2][:_DETAILS_CHARS]
    if "handshake" in details.lower() or "certificate" in details.lower():
        return f"no secure connection to the controller at {address}: check ca, cert and key on both sides ({details})"
    # With TLS 1.3 a server that turns our certificate down looks like one that hangs up.
    checks = "that it runs, that the address is right" + (", that it accepts this certificate" if secure else "")
    return f"cannot reach the controller at {address}: check {checks} ({details})"
