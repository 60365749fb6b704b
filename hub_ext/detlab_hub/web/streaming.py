"""Newline-delimited JSON streams: one model a line, an empty line as keep-alive, an end when the client disconnects."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel
from tornado.iostream import IOStream, StreamClosedError

from detlab.errors import DetlabError, Forbidden, Unavailable
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.streams.batches import StreamPart
from detlab_hub.services.streams.stream import EventStream
from detlab_hub.web.base import Guarded
from detlab_hub.web.openstreams import Account, Streams

log = logging.getLogger("detlab.web")
SEND_BUFFER = 128 * 1024
"""Bytes that the kernel keeps for the reader of a stream (it takes twice as much)."""


class StreamHandler(Guarded):
    """Base of the streaming routes."""

    keep_alive: ClassVar[float] = 5.0
    """Seconds of silence after which an empty line goes out; readers give up after `client.session`'s 12."""
    header_wait: ClassVar[float] = 0.2
    """Seconds that the source has to refuse or to say something before the headers go out."""
    recheck: ClassVar[float] = 60.0
    """Seconds after which the token is looked at again."""

    def initialize(self) -> None:
        """Begin with nothing streamed."""
        super().initialize()
        self._pump: asyncio.Task[None] | None = None

    def on_connection_close(self) -> None:
        """Stop reading the source when the reader has gone."""
        super().on_connection_close()
        if self._pump is not None:
            self._pump.cancel()

    async def stream(self, batches: AsyncIterator[Sequence[BaseModel]] | EventStream) -> None:
        """Send batches until the source ends, or the reader disconnects, lags too far, or loses its permission.

        Raises:
            TooMany: The caller has too many streams.
        """
        streams: Streams = self.settings["streams"]
        caller = self.caller if isinstance(self.caller, Caller) else None
        user = None if caller is None else caller.name
        account = streams.account_of(user, () if caller is None else caller.groups)
        try:
            await self._stream(batches, streams, account)
        finally:
            streams.leave(user, account)

    async def _stream(
        self, batches: AsyncIterator[Sequence[BaseModel]] | EventStream, streams: Streams, account: Account
    ) -> None:
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("X-Accel-Buffering", "no")
        wire = _Wire(self, account, streams.slow_limit)
        sending = self._run(batches, wire) if isinstance(batches, EventStream) else self._send_all(batches, wire)
        self._pump = asyncio.create_task(sending)
        streams.add(self._pump)
        try:
            await self._pump
            if not self.services[Cluster].healthy():  # the source ended because the master does
                self._cut()
        except (asyncio.CancelledError, StreamClosedError):
            log.debug("stream %s ended by its reader or by shutdown", self.request.path)
            self._cut()
        except TimeoutError:
            log.warning("stream %s: the reader is too slow, dropped", self.request.path)
            self._cut()
        except DetlabError as error:
            if not self._headers_written:
                raise
            log.info("stream %s: %s", self.request.path, error)
            self._cut()

    @property
    def headers_sent(self) -> bool:
        """Whether the head of the reply has gone out."""
        return self._headers_written

    def _cut(self) -> None:
        """Close the connection without the end mark, so that the reader knows that there was more."""
        self.request.connection.stream.close()  # type: ignore[union-attr]  # over HTTP/1 there is one

    async def _run(self, source: EventStream, wire: _Wire) -> None:
        """Let the source write to the connection itself; send keep-alives when it is silent."""
        checked = time.monotonic()
        running = asyncio.ensure_future(source.run(wire))
        try:
            while True:
                # a reader of a silent source gets its headers soon; a refusal comes before them
                quiet = time.monotonic() - wire.written
                patience = self.keep_alive - quiet if self._headers_written else self.header_wait
                await asyncio.wait({running}, timeout=max(patience, 0.0))
                if running.done():
                    running.result()
                    return
                if time.monotonic() - checked > self.recheck:
                    checked = time.monotonic()
                    await self._still_allowed()
                if not self._headers_written or time.monotonic() - wire.written >= self.keep_alive:
                    wire.beat()
                    await wire.sent()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _send_all(self, batches: AsyncIterator[Sequence[BaseModel]], wire: _Wire) -> None:
        checked = time.monotonic()
        pending: asyncio.Task[Any] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(_next(batches, wire))
                # a reader of a silent source gets its headers soon; a refusal comes before them
                patience = self.keep_alive if self._headers_written else self.header_wait
                done, _ = await asyncio.wait({pending}, timeout=patience)
                if time.monotonic() - checked > self.recheck:
                    checked = time.monotonic()
                    await self._still_allowed()
                if not done:
                    wire.beat()
                    await wire.sent()
                    continue
                try:
                    text = _lines(pending.result())
                except StopAsyncIteration:
                    return
                pending = None  # and with it what was read: while the client does not read, only the text is kept
                wire.send(text)
                del text
                await wire.room()
        finally:
            await _close(batches, pending)

    async def _still_allowed(self) -> None:
        """End the stream if the Hub no longer knows the caller, or has changed the rights that its source relies on."""
        before = self.caller
        if hasattr(self, "_cached_hub_user"):
            del self._cached_hub_user  # the Hub's code remembers its answer on the handler
        try:
            await self.authorise(self.operation)
        except Unavailable:
            log.debug("stream %s: the Hub is away, the token's check waits", self.request.path)
        if self.caller != before:
            raise Forbidden("your scopes or groups have changed", hint="Open the stream again.")


class _Wire:
    """A connection as the sink of a stream: ready data is written immediately, and nothing is queued behind it.

    The handler sends the head of the reply, with the first line. Later data is encoded as a chunk once for all readers,
    and written past the handler: what it does for each chunk costs more than the sending.
    """

    def __init__(self, handler: StreamHandler, account: Account, slow_limit: float) -> None:
        connection: Any = handler.request.connection
        self._handler = handler
        self._account = account
        self._slow_limit = slow_limit
        self._stream: IOStream = connection.stream
        self._stream.set_nodelay(True)
        # else the kernel takes megabytes for each reader who does not read
        self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._chunked = handler.request.version == "HTTP/1.1"
        self._unsent: asyncio.Future[None] | None = None
        """Done when what was written has left the process."""
        self.written = time.monotonic()
        """When something was written last."""

    def put(self, part: StreamPart) -> bool:
        """Write a part; False: what was written before has not left yet, or the reader has gone."""
        if self._full() or self._account.full:
            return False
        if part.framed is None:
            part.framed = _chunk(part.text)
        return self._write(part.framed if self._chunked else part.text)

    def send(self, text: bytes) -> None:
        """Write lines that are for this reader alone, once there is room."""
        self._write(_chunk(text) if self._chunked else text)

    def beat(self) -> None:
        """Write an empty line, if there is room."""
        if not self._full():
            self._write(_chunk(b"\n") if self._chunked else b"\n")

    async def room(self) -> None:
        """Wait until what was written has left the process, and the user's other streams are not full.

        Raises:
            TimeoutError: The reader has not taken it in `slow_limit` seconds.
            StreamClosedError: The reader has gone.
        """
        await self.sent()
        await self.others_sent()

    async def others_sent(self) -> None:
        """Wait until the user's streams together are not full."""
        await self._account.room()

    async def sent(self) -> None:
        """Wait until what was written has left the process.

        Raises:
            TimeoutError: The reader has not taken it in `slow_limit` seconds.
            StreamClosedError: The reader has gone.
        """
        if self._stream.closed():
            raise StreamClosedError(self._stream.error)
        if self._unsent is not None:
            await asyncio.wait_for(asyncio.shield(self._unsent), self._slow_limit)

    def _full(self) -> bool:
        if self._unsent is not None and self._unsent.done():
            self._unsent = None
        return self._unsent is not None or self._stream.closed()

    def _write(self, data: bytes) -> bool:
        """Write; False: the reader has gone."""
        self.written = time.monotonic()
        if not self._handler.headers_sent:
            self._handler.flush()  # without a body: the head alone
            if self._stream.closed():  # sending the head has found the reader gone
                return False
        sent = 0 if self._stream.writing() else self._sent_at_once(data)
        if sent < len(data):
            self._unsent = self._stream.write(memoryview(data)[sent:])
            self._account.wait_for(self._unsent, len(data) - sent)
        return True

    def _sent_at_once(self, data: bytes) -> int:
        """Return how many bytes the socket took, usually all: a future for each reader costs more than that."""
        try:
            return self._stream.write_to_fd(memoryview(data)) or 0
        except OSError:  # full, or broken: `write` finds out and acts
            return 0


async def _next(batches: AsyncIterator[Sequence[BaseModel]], wire: _Wire) -> Sequence[BaseModel]:
    await wire.others_sent()
    return await anext(batches)


def _lines(batch: Sequence[BaseModel]) -> bytes:
    return b"".join(line.model_dump_json().encode() + b"\n" for line in batch)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _close(batches: AsyncIterator[Any], pending: asyncio.Task[Any] | None) -> None:
    if pending is not None and not pending.done():
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
    close = getattr(batches, "aclose", None)
    if close is not None:
        await close()
