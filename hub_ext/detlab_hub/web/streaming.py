"""Newline-delimited JSON streams: one model a line, an empty line as keep-alive, an end when the reader goes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel
from tornado.iostream import StreamClosedError

from detlab.errors import DetlabError, Forbidden, Unavailable
from detlab_hub.web.base import Guarded

log = logging.getLogger("detlab.web")


class Streams:
    """The open streams, so that a stopping server can end them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: asyncio.Task[None]) -> None:
        """Remember a stream until it ends."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all streams; their readers come back with their cursors."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class StreamHandler(Guarded):
    """Base of the streaming routes."""

    keep_alive: ClassVar[float] = 5.0
    """Seconds of silence after which an empty line goes out; readers give up after `client.session`'s 12."""
    header_wait: ClassVar[float] = 0.2
    """Seconds that the source has to refuse or to say something before the headers go out."""
    slow_limit: ClassVar[float] = 30.0
    """Seconds that a reader may leave a flush unread before it is dropped."""
    recheck: ClassVar[float] = 60.0
    """Seconds after which the token is looked at again."""

    def initialize(self) -> None:
        """Nothing is streamed yet."""
        super().initialize()
        self._pump: asyncio.Task[None] | None = None

    def on_connection_close(self) -> None:
        """Stop reading the source when the reader has gone."""
        super().on_connection_close()
        if self._pump is not None:
            self._pump.cancel()

    async def stream(self, batches: AsyncIterator[Sequence[BaseModel]]) -> None:
        """Send batches until the source ends, the reader goes, lags too far, or loses its permission."""
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("X-Accel-Buffering", "no")
        streams: Streams = self.settings["streams"]
        self._pump = asyncio.create_task(self._send_all(batches))
        streams.add(self._pump)
        try:
            await self._pump
            if not self.services.cluster.healthy():  # the source ended because the master does
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

    def _cut(self) -> None:
        """Close the connection without the end mark, so that the reader knows that there was more."""
        self.request.connection.stream.close()  # type: ignore[union-attr]  # over HTTP/1 there is one

    async def _send_all(self, batches: AsyncIterator[Sequence[BaseModel]]) -> None:
        checked = time.monotonic()
        pending: asyncio.Task[Any] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(anext(batches))
                # a reader of a silent source gets its headers soon; a refusal comes before them
                patience = self.keep_alive if self._headers_written else self.header_wait
                done, _ = await asyncio.wait({pending}, timeout=patience)
                if time.monotonic() - checked > self.recheck:
                    checked = time.monotonic()
                    await self._still_allowed()
                if not done:
                    await self._flush(b"\n")
                    continue
                try:
                    batch = pending.result()
                except StopAsyncIteration:
                    return
                pending = None
                await self._flush(b"".join(line.model_dump_json().encode() + b"\n" for line in batch))
        finally:
            await _close(batches, pending)

    async def _flush(self, chunk: bytes) -> None:
        self.write(chunk)
        await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(self.flush())), self.slow_limit)

    async def _still_allowed(self) -> None:
        """End the stream of whom the Hub no longer knows, or knows otherwise: its source goes by what they were."""
        before = self.caller
        if hasattr(self, "_cached_hub_user"):
            del self._cached_hub_user  # the Hub's code remembers its answer on the handler
        try:
            await self.authorise(self.operation)
        except Unavailable:
            log.debug("stream %s: the Hub is away, the token's check waits", self.request.path)
        if self.caller != before:
            raise Forbidden("your scopes or groups have changed", hint="Open the stream again.")


async def _close(batches: AsyncIterator[Any], pending: asyncio.Task[Any] | None) -> None:
    if pending is not None and not pending.done():
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
    close = getattr(batches, "aclose", None)
    if close is not None:
        await close()
