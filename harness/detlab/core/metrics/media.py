"""Reports of media: encoded in the task, left in its spool, from which the launcher sends them.

A training never fails because of what it logs here: what cannot be logged is one warning, which says the key, the
type and the likely cause. Nothing waits either: while the master is away media collect in the spool, up to a limit.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detlab.core.metrics.values import check_steps
from detlab.media import kinds
from detlab.media.base import EncodedMedia, MediaError
from detlab.media.convert import media_of

logger = logging.getLogger("detlab.core")

MOST_WAITING = 1024 * 1024 * 1024
"""Bytes that wait for the master; what would be more is dropped."""
_MOST_WARNINGS = 50
_numbers = itertools.count(1)


class MediaSpool:
    """Where media wait for the launcher: two files for each, of which the one that names it comes last.

    Args:
        folder: Made when there is something to put into it.
        most: Bytes that may wait.
    """

    def __init__(self, folder: Path, most: int = MOST_WAITING) -> None:
        self._folder = folder
        self._most = most
        self._written = 0

    def add(self, key: str, step: int, place: int, encoded: EncodedMedia) -> None:
        """Leave one for the launcher.

        Raises:
            MediaError: Too much waits already.
            OSError: The disk fails, or is full.
        """
        self._make_room(len(encoded.body))
        name = f"{time.time_ns():020d}-{os.getpid():010d}-{next(_numbers):08d}"
        facts = {
            "key": key,
            "step": step,
            "place": place,
            "kind": encoded.kind,
            "media_type": encoded.media_type,
            "caption": encoded.caption,
            "logged_at": time.time(),
        }
        self._folder.mkdir(mode=0o700, exist_ok=True)
        body, partial = self._folder / f"{name}.bin", self._folder / f"{name}.part"
        try:
            body.write_bytes(encoded.body)
            partial.write_text(json.dumps(facts), encoding="utf-8")
            partial.rename(self._folder / f"{name}.json")
        except OSError:
            for left in (partial, body):
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)
            raise

    def _make_room(self, size: int) -> None:
        if self._written + size > self._most:  # what was sent meanwhile does not wait any more
            with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as found:
                self._written = sum(_size(entry) for entry in found)
            if self._written + size > self._most:
                raise MediaError(f"{self._written:,} bytes of media wait for the master, and more are not kept")
        self._written += size


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


class MediaReporter:
    """Takes what a training reports, and never raises.

    Args:
        spool: Where it goes; None: off-cluster it is checked and logged.
        rank: Of this process: only the chief reports.
    """

    def __init__(self, spool: MediaSpool | None, rank: int = 0) -> None:
        self._spool = spool
        self._rank = rank
        self._warned: set[tuple[str, str]] = set()

    def report(self, steps_completed: Any, media: Any) -> None:
        """Report media of a step; see `TrainContext.report_media`."""
        if self._rank != 0:
            self._warn("", "rank", f"media are reported by the chief (rank 0), and this is rank {self._rank}")
            return
        try:
            step = check_steps(0 if type(steps_completed) is int and steps_completed < 0 else steps_completed)
            if not isinstance(media, Mapping):
                raise TypeError(f"give a dict of key to object, not a {type(media).__name__}")
        except (TypeError, ValueError) as error:
            self._warn("", type(error).__name__, str(error))
            return
        for key, value in media.items():
            self._report_key(key, step, value)

    def _report_key(self, key: Any, step: int, value: Any) -> None:
        values = list(value) if isinstance(value, list | tuple) else [value]
        for place, one in enumerate(values[: kinds.MOST_AT_ONCE]):
            try:
                self._report_one(_checked_key(key), step, place, one)
            except Exception as error:  # a training goes on, whatever a library raises for an object
                self._warn(str(key)[: kinds.MOST_KEY], type(one).__name__, _said(error))
        if len(values) > kinds.MOST_AT_ONCE:
            left = len(values) - kinds.MOST_AT_ONCE
            self._warn(str(key)[: kinds.MOST_KEY], "list", f"{left} more than {kinds.MOST_AT_ONCE} were left out")

    def _report_one(self, key: str, step: int, place: int, value: Any) -> None:
        encoded = media_of(value).encode()
        if self._spool is None:
            logger.info("media %r at step %d: %s, %d bytes", key, step, encoded.kind, len(encoded.body))
        else:
            self._spool.add(key, step, place, encoded)

    def _warn(self, key: str, kind: str, why: str) -> None:
        """Warn once for each key and type."""
        if (key, kind) in self._warned or len(self._warned) >= _MOST_WARNINGS:
            return
        self._warned.add((key, kind))
        what = f"{key!r} ({kind})" if key else "a report"
        logger.warning("media: %s was not logged: %s. The training continues; this is said once.", what, why)


def _checked_key(key: Any) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= kinds.MOST_KEY or "\0" in key:
        raise MediaError(f"a key is a text of 1 to {kinds.MOST_KEY} characters, not {key!r:.100}")
    return key.encode(errors="replace").decode()


def _said(error: Exception) -> str:
    if isinstance(error, MediaError):
        return f"{error.message}{f' ({error.hint})' if error.hint else ''}"
    return f"{type(error).__name__}: {str(error)[:300]}"
