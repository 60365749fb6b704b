"""Waiting for space on a full disk, and for a store that is away: data is kept and written once there is space."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from detlab.backoff import Backoff
from detlab.errors import StorageAway

logger = logging.getLogger("detlab.core")

T = TypeVar("T")
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
PAUSE = 1.0
"""Seconds between two attempts."""
LONGEST_PAUSE = 30.0
"""Seconds between two attempts to reach a store that has been away for a while, at most."""
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


def is_away(error: BaseException | None) -> bool:
    """Whether an error is that of a store which does not answer now."""
    return isinstance(error, StorageAway)


def passes(error: BaseException | None) -> bool:
    """Whether an error passes by itself, or with somebody's help: a full disk, a store that is away."""
    return is_away(error) or is_full(error)


def await_room(
    attempt: Callable[[], T],
    what: str,
    *,
    sleep: Callable[[float], Any] = time.sleep,
    may_repeat: Callable[[BaseException], bool] = is_full,
) -> T:
    """Return what `attempt` returns; while it fails for a reason that passes, log that once and keep trying.

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
    waited, away = 0.0, Backoff(PAUSE, LONGEST_PAUSE)
    while True:
        try:
            result = attempt()
        except Exception as error:  # a store wraps the system's error in its own
            if not may_repeat(error) or wait.seconds >= PATIENCE:
                raise
            if not waited:
                logger.warning(*_told(error, what))
            pause = away.next_pause() if is_away(error) else PAUSE
            waited += pause
            wait.seconds += pause
            again = "the storage answers again" if is_away(error) else "disk has space again"
        else:
            if waited:
                logger.warning("%s: %s waited about %.0f s, nothing is lost", again, what, waited)
            return result
        wait.sleep(pause)


def _told(error: BaseException, what: str) -> tuple[str, BaseException | str, str]:
    if is_away(error):
        message = getattr(error, "message", str(error))
        return "the checkpoint storage is away: %s. %s waits for it", message, what
    return "disk full: %s. %s waits for free space (df -h)", error, what
