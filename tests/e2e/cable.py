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
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._thread.join()
        self._listener.close()

    def cut(self) -> None:
        """Break every connection; new ones are broken at once."""
        with self._lock:
            self._whole = False
            for end in self._sockets:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Take connections again."""
        with self._lock:
            self._whole = True

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target_port), timeout=30)
                far.settimeout(None)
            except (ConnectionRefusedError, TimeoutError):
                near.close()  # nobody is there to forward to
                continue
            except OSError:
                return
            with self._lock:
                if not self._whole:
                    near.close()
                    far.close()
                    continue
                self._sockets |= {near, far}
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        down = threading.Thread(target=_pump, args=(far, near), daemon=True)
        with near, far:
            down.start()
            _pump(near, far)
            down.join()
        with self._lock:
            self._sockets -= {near, far}


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
