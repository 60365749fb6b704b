"""Sending bytes without holding the loop or the memory."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import BinaryIO

from tornado.iostream import StreamClosedError

from detlab.errors import DetlabError
from detlab_hub.web.base import Guarded

_CHUNK = 1024 * 1024
_log = logging.getLogger(__name__)


async def send_file(handler: Guarded, source: BinaryIO, media: str, size: int | None = None) -> None:
    """Send an open file, as a download, and close it.

    Args:
        handler: The request to answer.
        source: Open binary file.
        media: Its media type; browsers are told not to guess another.
        size: Bytes, when known already.
    """
    with source:
        length = os.fstat(source.fileno()).st_size if size is None else size
        await send_chunks(handler, iter(lambda: source.read(_CHUNK), b""), media, length)


async def send_chunks(
    handler: Guarded, chunks: Iterator[bytes], media: str, size: int, name: str | None = None
) -> None:
    """Send bytes as they are made, as a download.

    An error before the first of them is answered as any other; after that the connection is closed, and whoever reads
    it sees from its length that the rest is missing.

    Args:
        handler: The request to answer.
        chunks: Made in threads; none is empty.
        media: Their media type; browsers are told not to guess another.
        size: Bytes over all chunks.
        name: For the file that they become: letters, digits, dots and dashes.
    """
    handler.set_header("Content-Type", media)
    handler.set_header("Content-Disposition", f'attachment; filename="{name}"' if name else "attachment")
    handler.set_header("Content-Length", str(size))
    begun = False
    try:
        while chunk := await asyncio.to_thread(next, chunks, b""):
            begun = True
            handler.write(chunk)
            await handler.flush()
    except StreamClosedError:
        return
    except DetlabError as problem:
        if not begun:
            raise
        _log.warning("%s broke off: %s", handler.request.path, problem.message)
        handler.request.connection.stream.close()  # type: ignore[union-attr]  # over HTTP/1 there is one
