"""Sending bytes without holding the loop, the memory or a thread for a client that has disconnected."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from tornado.iostream import StreamClosedError

from detlab.errors import DetlabError
from detlab_hub.services.base.threads import Workers, user_of
from detlab_hub.services.checkpoints.archives import ArchiveContents
from detlab_hub.web.base import Guarded

_CHUNK = 1024 * 1024
PATIENCE = 120.0
"""Seconds that a client may leave a chunk unread before the download is cut."""
HEAD_SECONDS = 3.0
"""Seconds after which a client is told that its download has begun, whether or not there is a byte of it."""
_log = logging.getLogger(__name__)


class Download(Guarded):
    """Base of routes that send files: a limited number at a time for each user, and none for a client that is gone."""

    def initialize(self) -> None:
        """Begin with nothing sent."""
        super().initialize()
        self._sending: asyncio.Task[None] | None = None

    def on_connection_close(self) -> None:
        """Stop the work when the client has gone."""
        super().on_connection_close()
        if self._sending is not None:
            self._sending.cancel()

    async def send_path(self, path: Path, media: str) -> None:
        """Send a file of the master's own, as a download.

        Raises:
            Unavailable: Too many downloads are under way.
        """
        await self._while_here(lambda: self._send_file(path.open("rb"), media))

    async def send_file(
        self,
        opening: Coroutine[Any, Any, tuple[BinaryIO, int]],
        media: str,
        name: str | None = None,
        *,
        inline: bool = False,
        in_parts: bool = False,
    ) -> None:
        """Send a file that is still to be found and checked, as a download, and close it.

        Args:
            opening: Finds the file and its size.
            media: Its media type; browsers are told not to guess another.
            name: File name of the download: letters, digits, dots and dashes.
            inline: Whether a browser shows it: only for what a policy of content holds in an origin of its own.
            in_parts: Whether a reader may ask for a range of bytes, as players of video do.

        Raises:
            Unavailable: Too many downloads are under way.
        """

        async def send() -> None:
            source, size = await opening
            await self._send_file(source, media, size, name, inline=inline, in_parts=in_parts)

        await self._while_here(send, opening.close)

    async def send_contents(self, opening: Coroutine[Any, Any, ArchiveContents], media: str) -> None:
        """Send what is checked, and packed, meanwhile; see `send_file`."""

        async def send() -> None:
            found = await opening
            with _closing(found.chunks) as chunks:
                await self._send_chunks(chunks, media, found.size, found.name)

        await self._while_here(send, opening.close)

    async def _while_here(
        self, send: Callable[[], Coroutine[Any, Any, None]], unused: Callable[[], None] | None = None
    ) -> None:
        try:
            with self._workers.open_downloads.of(user_of(self.caller)):
                self._sending = asyncio.ensure_future(send())
                await asyncio.wait({self._sending})
        finally:
            if self._sending is None and unused is not None:
                unused()
            elif self._sending is not None:
                self._sending.cancel()
        if self._sending.cancelled():
            _log.debug("%s: the client has gone", self.request.path)
        else:
            self._sending.result()

    @property
    def _workers(self) -> Workers:
        return self.services.context.workers

    async def _send_file(
        self,
        source: BinaryIO,
        media: str,
        size: int | None = None,
        name: str | None = None,
        *,
        inline: bool = False,
        in_parts: bool = False,
    ) -> None:
        with source:
            length = os.fstat(source.fileno()).st_size if size is None else size
            part = range(length)
            if in_parts:
                self.set_header("Accept-Ranges", "bytes")
                part = asked_range(self.request.headers.get("Range", ""), length)
            if len(part) < length:
                self.set_status(206)
                self.set_header("Content-Range", f"bytes {part.start}-{part.stop - 1}/{length}")
                source.seek(part.start)
            await self._send_chunks(_read(source, len(part)), media, len(part), name, inline=inline)

    async def _send_chunks(
        self, chunks: Iterator[bytes], media: str, size: int, name: str | None = None, *, inline: bool = False
    ) -> None:
        """Send bytes as they are made, as a download.

        An error before the first of them is answered like any other; after that the connection is closed, and the
        reader sees from the length that the rest is missing. If the first takes long, as hundreds of gigabytes to check
        do, the head goes before it: what stands between, and a browser, wait only so long for a sign of life.

        Args:
            chunks: Made in threads; an empty one means that the next takes longer.
            media: Their media type.
            size: Bytes over all chunks.
            name: File name of the download: letters, digits, dots and dashes.
            inline: See `send_file`.
        """
        self.set_header("Content-Type", media)
        said = f'attachment; filename="{name}"' if name else "attachment"
        self.set_header("Content-Disposition", "inline" if inline else said)
        self.set_header("Content-Length", str(size))
        run = partial(self._workers.downloads.run, user_of(self.caller))
        begun, at = False, time.monotonic() + HEAD_SECONDS
        try:
            while (chunk := await run(next, chunks, None)) is not None:
                if chunk or (not begun and time.monotonic() > at):
                    begun = True
                    self.write(chunk)
                    await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(self.flush())), PATIENCE)
        except StreamClosedError:
            return
        except (DetlabError, TimeoutError) as problem:
            if not begun:
                raise
            _log.warning("%s broke off: %s", self.request.path, str(problem) or "the client does not read")
            self.request.connection.stream.close()  # type: ignore[union-attr]  # over HTTP/1 there is one


_RANGE = re.compile(r"bytes=([0-9]{1,15})-([0-9]{0,15})")


def asked_range(said: str, size: int) -> range:
    """Return the bytes that a `Range` header asks for; all of them if it says something else, or several ranges."""
    found = _RANGE.fullmatch(said)
    start = int(found[1]) if found else 0
    last = min(int(found[2]), size - 1) if found and found[2] else size - 1
    return range(start, last + 1) if start <= last else range(size)


def _read(source: BinaryIO, size: int) -> Iterator[bytes]:
    left = size
    while left > 0 and (chunk := source.read(min(left, _CHUNK))):
        left -= len(chunk)
        yield chunk


@contextmanager
def _closing(chunks: Generator[bytes]) -> Iterator[Generator[bytes]]:
    """Close what makes chunks, unless a call that was too slow is still at it: then it is closed after that."""
    try:
        yield chunks
    finally:
        with suppress(ValueError):
            chunks.close()


class StreamedDownload(Download):
    """Base of routes that send a file whose length is not known before its end."""

    async def send_parts(self, opening: Coroutine[Any, Any, tuple[str, str, AsyncGenerator[bytes]]]) -> None:
        """Send a file that is made meanwhile, as a download.

        An error before its first byte is answered like any other; after that the connection is closed, and the reader
        sees that the end is missing.

        Args:
            opening: Finds out what is sent: its name, its media type, and its bytes.

        Raises:
            Unavailable: Too many downloads are under way.
        """

        async def send() -> None:
            name, media, parts = await opening
            async with aclosing(parts):
                await self._send_parts(name, media, parts)

        await self._while_here(send, opening.close)

    async def _send_parts(self, name: str, media: str, parts: AsyncGenerator[bytes]) -> None:
        begun = False
        try:
            async for part in parts:
                if part and not begun:
                    self.set_header("Content-Type", media)
                    self.set_header("Content-Disposition", f'attachment; filename="{name}"')
                begun = begun or bool(part)
                if part:
                    self.write(part)
                    await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(self.flush())), PATIENCE)
        except StreamClosedError:
            return
        except (DetlabError, TimeoutError) as problem:
            if not begun:
                raise
            _log.warning("%s broke off: %s", self.request.path, str(problem) or "the client does not read")
            self.request.connection.stream.close()  # type: ignore[union-attr]  # over HTTP/1 there is one
