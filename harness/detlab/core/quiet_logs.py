"""Keeps the log lines of the HTTP client's libraries, about our own calls, out of the user's training log.

Their levels stay as the user set them: only records made inside `quiet()` are dropped.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Iterator

_LOGGERS = (
    "asyncio",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.proxy",
    "httpx",
)
_active: contextvars.ContextVar[bool] = contextvars.ContextVar("detlab_quiet", default=False)


class _OwnCalls(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or not _active.get()


_FILTER = _OwnCalls()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop what those libraries log below WARNING while the block runs, in this thread or task."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # adding it again changes nothing
    token = _active.set(True)
    try:
        yield
    finally:
        _active.reset(token)
