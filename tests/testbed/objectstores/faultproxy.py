"""A proxy before a store that is slow, busy, away, lies or breaks off, when a test says so."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"}


@dataclass
class Asked:
    """A request, as it came."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """What is sent back."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Cut(Exception):
    """Close the connection instead of an answer."""


Before = Callable[[Asked], Answer | None]
After = Callable[[Asked, Answer], Answer]


class FaultProxy:
    """Forwards HTTP to a server on loopback.

    Attributes:
        before: Called with each request; may give an answer itself, change the request, wait, or raise `Cut`.
        after: Called with each request and the server's answer; gives what is sent back.
        rate: Bytes per second and connection, if the link is slow.
        seen: All requests, in order.
    """

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._creating = threading.Lock()
        self.reset()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):
                    return lambda: proxy._serve(self)
                raise AttributeError(name)

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # clients are killed in the middle of their requests

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        """Forward everything as it is, and forget what was seen."""
        self.before: Before = lambda asked: None
        self.after: After = lambda asked, answer: answer
        self.rate: float | None = None
        self.seen: list[Asked] = []
        self._numbers = itertools.count(1)

    @contextmanager
    def failing(self, before: Before | None = None, after: After | None = None) -> Iterator[None]:
        """Fail in a way while the block lasts; requests are counted from 1 anew."""
        self.reset()
        self.before = before or self.before
        self.after = after or self.after
        try:
            yield
        finally:
            self.reset()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length)
        with self._lock:
            asked = Asked(next(self._numbers), handler.command, handler.path, dict(handler.headers.items()), body)
            self.seen.append(asked)
        try:
            self._wait(len(body))
            answer = self.before(asked)
            if answer is None:
                # moto looks and then writes, without a lock: two could create one object, which S3 does not let them.
                creates = any(name.lower() == "if-none-match" for name in asked.headers)
                with self._creating if creates else contextlib.nullcontext():
                    answer = self._forward(asked)
            answer = self.after(asked, answer)
        except Cut:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        handler.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _HOP_BY_HOP or (asked.method == "HEAD" and name.lower() == "content-length"):
                handler.send_header(name, value)
        if asked.method != "HEAD" and answer.status not in {204, 304}:
            handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        self._wait(len(answer.body))
        handler.wfile.write(answer.body)

    def _wait(self, size: int) -> None:
        if self.rate and size:
            time.sleep(size / self.rate)

    def _forward(self, asked: Asked) -> Answer:
        upstream = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=60)
        try:
            upstream.putrequest(asked.method, asked.path, skip_host=True, skip_accept_encoding=True)
            for name, value in asked.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(len(asked.body)))
            upstream.endheaders(asked.body)
            answer = upstream.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            upstream.close()


def busy(times: int, status: int = 503) -> Before:
    """Answer the first requests as S3 does when there are too many."""

    def before(asked: Asked) -> Answer | None:
        return Answer(status, {"Content-Type": "application/xml"}, SLOW_DOWN) if asked.number <= times else None

    return before


def away(seconds: float) -> Before:
    """Break off all connections for some seconds, from the first one on."""
    began: list[float] = []

    def before(asked: Asked) -> Answer | None:
        began.append(time.monotonic())
        if time.monotonic() - began[0] < seconds:
            raise Cut
        return None

    return before


def away_until(back: Callable[[], bool]) -> Before:
    """Break off all connections until something holds, as what a client said of them, however slow the machine is."""

    def before(asked: Asked) -> Answer | None:
        if not back():
            raise Cut
        return None

    return before


def refusing(status: int, code: str, message: str) -> Before:
    """Answer every request with an error of the store."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return lambda asked: Answer(status, {"Content-Type": "application/xml"}, body)


def flipping(part: str, times: int) -> After:
    """Flip a bit in the first answers to GET requests whose path has a part."""
    left = [times]

    def after(asked: Asked, answer: Answer) -> Answer:
        if asked.method == "GET" and part in asked.path and answer.body and left[0]:
            left[0] -= 1
            answer.body = bytes([answer.body[0] ^ 1]) + answer.body[1:]
        return answer

    return after


def empty_lists(asked: Asked, answer: Answer) -> Answer:
    """Answer lists of S3 as if nothing were there yet."""
    if asked.method == "GET" and "list-type=2" in asked.path and answer.status == 200:
        answer.body = (
            b"<?xml version='1.0'?><ListBucketResult><Name>b</Name><KeyCount>0</KeyCount>"
            b"<IsTruncated>false</IsTruncated></ListBucketResult>"
        )
    return answer
