"""Taking an address for a gRPC server, and why it could not be taken."""

import socket

import grpc

from fleetd.ports import UplinkError
from fleetd.uplink.config import split_address


def bind(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials | None) -> int:
    """Take an address and return the port; `credentials` None: plain text. Raises UplinkError."""
    host, port = split_address(listen, where="listen")
    try:
        if credentials is None:
            return server.add_insecure_port(listen)
        return server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise UplinkError(f"cannot listen on {listen}: {_why_not(host, port)}") from error


def _why_not(host: str, port: int) -> str:
    """Bind by hand to learn what gRPC does not say."""
    try:
        family, kind, proto, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return f"{error.strerror}; stop what uses it or choose another `listen`"
    return "gRPC could not use it; check the certificate and its key, or try again"
