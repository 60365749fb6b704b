"""A way to a server that can be cut: connections are passed on until somebody breaks them off."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Line:
    """Listens at a free port of an address, and passes what comes to another port of it.

    Args:
        address: Of both.
        port: Where it passes connections on to.
    """

    def __init__(self, address: str, port: int) -> None:
        self._to = (address, port)
        self._server = socket.create_server((address, 0))
        self.port: int = self._server.getsockname()[1]
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._to, 10.0) as other:
            other.settimeout(None)
            with self._lock:
                self._ends |= {client, other}
            back = threading.Thread(target=_copy, args=(other, client), daemon=True)
            back.start()
            _copy(client, other)
            back.join()
            with self._lock:
                self._ends -= {client, other}

    def cut(self) -> int:
        """Break off every connection; return how many there were."""
        with self._lock:
            ends = list(self._ends)
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        return len(ends) // 2

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        self._thread.join(10.0)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
