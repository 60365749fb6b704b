"""The transport of the standard library, by which launchers deliver to masters without TLS."""

from __future__ import annotations

import socket
import threading

import pytest

from detlab.launch.delivery.plain_http import PlainTransport
from detlab.launch.delivery.sender import TransportError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Master:
    """Answers so many requests on each connection, then ends it."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.asked: list[bytes] = []
        self.ended = threading.Semaphore(0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}/api/v1/"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                for _ in range(self.each):
                    data = b""
                    while not data.endswith(b"{}"):
                        if not (piece := connection.recv(65536)):
                            break
                        data += piece
                    if not data:
                        break
                    self.asked.append(data)
                    connection.sendall(OK)
            self.ended.release()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5.0)


def test_posts_go_over_one_connection() -> None:
    master = Master(each=3)
    transport = PlainTransport(master.address)
    try:
        for _ in range(3):
            assert transport.post("task/records", b"{}", "secret") == (200, b"{}")
    finally:
        transport.close()
        master.close()
    assert len(master.asked) == 3
    assert master.asked[0].startswith(b"POST /api/v1/task/records HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in master.asked[0]


def test_a_kept_connection_that_the_master_ended_costs_no_attempt() -> None:
    master = Master(each=1)
    transport = PlainTransport(master.address)
    try:
        for _ in range(3):
            assert transport.post("task/records", b"{}", "secret") == (200, b"{}")
            assert master.ended.acquire(timeout=5.0)
    finally:
        transport.close()
        master.close()


def test_a_master_that_is_away_is_an_error_of_the_transport() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    transport = PlainTransport(f"http://127.0.0.1:{port}/api/v1/")
    with pytest.raises(TransportError, match="Refused"):
        transport.post("task/records", b"{}", "secret")
    transport.close()
