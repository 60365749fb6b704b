"""A long poll over plain HTTP with the standard library, which another thread can end at once.

A trial first queries whether it should stop. Creating an event loop and an asynchronous client for that takes longer
than the answer.
"""

from __future__ import annotations

import http.client
import socket
import threading
from urllib.parse import urlsplit

from detlab.loopback.connections import LoopbackConnection


class PollClosed(Exception):
    """The poll was closed: the answer is no longer wanted."""


class PlainPoll:
    """GET requests to one master over a kept connection.

    Args:
        address: Base of the API, `http://…/`.
        connect_timeout: Seconds that a connection may take.
    """

    def __init__(self, address: str, connect_timeout: float = 10.0) -> None:
        parts = urlsplit(address)
        self._path = parts.path
        self._connection = LoopbackConnection(parts.hostname or "", parts.port, timeout=connect_timeout)
        self._connect_timeout = connect_timeout
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.closed = threading.Event()

    def get(self, path: str, headers: dict[str, str], timeout: float) -> tuple[int, bytes]:
        """Return status and body; a reply may take `timeout` seconds.

        Raises:
            PollClosed: It was closed in the meantime.
            OSError: No answer came.
            http.client.HTTPException: The answer is not valid HTTP.
        """
        try:
            self._connect()
            assert self._connection.sock is not None
            self._connection.sock.settimeout(timeout)
            self._connection.request("GET", self._path + path, headers=headers)
            reply = self._connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            self.drop()
            if self.closed.is_set():
                raise PollClosed from None
            raise

    def _connect(self) -> None:
        if self._connection.sock is None:
            self._connection.timeout = self._connect_timeout
            self._connection.connect()
        with self._lock:
            # From here on `close` has a socket to wake us by.
            self._socket = self._connection.sock
            if self.closed.is_set():
                raise PollClosed

    def drop(self) -> None:
        """Close the connection; the next request opens one. For the thread that asks."""
        with self._lock:
            self._socket = None
        self._connection.close()

    def close(self) -> None:
        """Make the polling thread's current and all further requests fail with `PollClosed`."""
        with self._lock:
            self.closed.set()
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the master has ended it already
