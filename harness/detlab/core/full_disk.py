"""Waiting for space on a full disk: data is kept in memory and written once there is space."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

logger = logging.getLogger("detlab.core")

T = TypeVar("T")
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
PAUSE = 1.0
"""Seconds between two attempts."""
PATIENCE = 24 * 3600.0
"""Seconds after which a disk that stays full is an error: long enough for somebody to come in the morning."""


@dataclass
class _Wait:
    """The outermost wait of this thread: waits inside of it sleep as it does, and use its patience up."""

    sleep: Callable[[float], Any]
    seconds: float = 0.0


_outermost: ContextVar[_Wait | None] = ContextVar("outermost_wait", default=None)


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is that of a disk or a quota without room."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error is not None and error.errno in NO_ROOM


def await_room(
    attempt: Callable[[], T],
    what: str,
    *,
    sleep: Callable[[float], Any] = time.sleep,
    may_repeat: Callable[[BaseException], bool] = is_full,
) -> T:
    """Return what `attempt` returns; while it fails because a disk is full, log that once and keep trying.

    What waits inside of another wait is ended by that one's `sleep`, and both together last `PATIENCE`.

    Args:
        attempt: Writes something; leaves nothing behind when it fails.
        what: What waits, for the log: "the report of step 3".
        sleep: Waits for a number of seconds; an exception from it ends the waiting.
        may_repeat: Whether there is an error after which `attempt` may be called again.

    Raises:
        Exception: As `attempt` does; that of a full disk only after `PATIENCE`.
    """
    outer = _outermost.get()
    if outer is not None:
        return _await_room(attempt, what, may_repeat, outer)
    own = _Wait(sleep)
    token = _outermost.set(own)
    try:
        return _await_room(attempt, what, may_repeat, own)
    finally:
        _outermost.reset(token)


def _await_room(attempt: Callable[[], T], what: str, may_repeat: Callable[[BaseException], bool], wait: _Wait) -> T:
    waited = 0.0
    while True:
        try:
            result = attempt()
        except Exception as error:  # a store wraps the system's error in its own
            if not may_repeat(error) or wait.seconds >= PATIENCE:
                raise
            if not waited:
                logger.warning("disk full: %s. %s waits for free space (df -h)", error, what)
            waited += PAUSE
            wait.seconds += PAUSE
        else:
            if waited:
                logger.warning("disk has space again: %s waited about %.0f s, nothing is lost", what, waited)
            return result
        wait.sleep(PAUSE)
