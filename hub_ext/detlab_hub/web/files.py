"""Sending a file's bytes without holding the loop or the memory."""

from __future__ import annotations

import asyncio
import os
from typing import BinaryIO

from tornado.iostream import StreamClosedError

from detlab_hub.web.base import Guarded

_CHUNK = 1024 * 1024


async def send_file(handler: Guarded, source: BinaryIO, media: str, size: int | None = None) -> None:
    """Send an open file, as a download, and close it.

    Args:
        handler: The request to answer.
        source: Open binary file.
        media: Its media type; browsers are told not to guess another.
        size: Bytes, when known already.
    """
    with source:
        handler.set_header("Content-Type", media)
        handler.set_header("Content-Disposition", "attachment")
        handler.set_header("Content-Length", str(os.fstat(source.fileno()).st_size if size is None else size))
        try:
            while chunk := await asyncio.to_thread(source.read, _CHUNK):
                handler.write(chunk)
                await handler.flush()
        except StreamClosedError:
            return
