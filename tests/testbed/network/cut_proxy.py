"""A way to a server of this machine that can be cut: a relay of TCP connections.

with CutProxy(port) as proxy:
    httpx.get(f"http://127.0.0.1:{proxy.port}/")
    proxy.cut()                  # all connections break; new ones are taken
    proxy.close()                # nobody listens any more
    proxy.open()                 # again, at the same port
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)


class CutProxy:
    """A relay to 127.0.0.1:`target`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._listener: socket.socket | None = None
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> CutProxy:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Listen; at the same port as before, if there was one."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections, and break those that are there."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections, as a machine on the way that forgot them does."""
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            with self._lock:
                if self._listener is not listener:  # closed while this connection was being made
                    near.close()
                    far.close()
                    return
                self._ends |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
