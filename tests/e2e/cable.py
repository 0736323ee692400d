"""A TCP cable between an agent and its controller that a test can cut and mend."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Cable:
    """Forwards connections of a loopback port of its own to another; `cut` breaks all and takes no new ones."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._whole = True
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self.bytes_up = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """Break every connection; new ones are broken at once."""
        with self._lock:
            self._whole = False
            for end in self._sockets:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()

    def mend(self) -> None:
        """Take connections again."""
        with self._lock:
            self._whole = True

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target_port), timeout=2)
                far.settimeout(None)
            except OSError:
                if self._listener.fileno() < 0:
                    return
                continue
            with self._lock:
                if not self._whole:
                    near.close()
                    far.close()
                    continue
                self._sockets |= {near, far}
            threading.Thread(target=self._pump, args=(near, far), kwargs={"up": True}, daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near), kwargs={"up": False}, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, *, up: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.bytes_up += len(data) if up else 0
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
