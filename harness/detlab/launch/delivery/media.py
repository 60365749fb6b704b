"""Media on their way to the master: files that the training leaves in its spool, sent one by one in their own thread.

Metrics and output never wait behind them. What the master refuses is dropped, and said once in the task's output for
each reason: media never fail a task, and what cannot be kept is not kept for ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlencode

from detlab.backoff import Backoff
from detlab.launch.delivery.sender import TransportError
from detlab.launch.delivery.shipping import Fenced, Rejected, judge
from detlab.launch.delivery.spool import open_regular

POLL = 0.5
"""Seconds between two looks at the folder."""
PATIENCE = 300.0
"""Seconds without an answer of the master after which an ended task stops waiting to send what is left."""
_MOST_FACTS = 64 * 1024
_FACTS = ("key", "step", "place", "kind", "media_type", "caption")


class FileTransport(Protocol):
    """PUT of a file to the master; the seam that tests fill in their own way."""

    def put_file(self, path: str, file: BinaryIO, size: int, token: str) -> tuple[int, bytes]:
        """Send a file below the API; return status and body.

        Raises:
            TransportError: No answer came.
        """
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class MediaSender:
    """Sends what is in a folder, oldest first, until it is told to finish.

    Args:
        open_transport: Makes the transport, in the thread, when there is something to send.
        folder: Where the training leaves media: for each a `.bin`, and then a `.json` that says what it is.
        token: Returns the task's token as it is now.
        say: Writes a line into the task's output.
        clock: Seconds, for waiting.
    """

    def __init__(
        self,
        open_transport: Callable[[], FileTransport],
        folder: Path,
        token: Callable[[], str],
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_transport = open_transport
        self._folder = folder
        self._token = token
        self._say = say
        self._clock = clock
        self._transport: FileTransport | None = None
        self._backoff = Backoff(first=0.5, cap=30.0)
        self._ending = threading.Event()
        self._stopped = threading.Event()
        self._fenced = False
        self._said: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="media", daemon=True)
        self.dropped = 0
        """How many the master has refused."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, timeout: float = PATIENCE) -> int:
        """Send what is there, then end; return how many are left, since the master did not answer for `timeout`."""
        self._ending.set()
        last, left = self._clock(), self._waiting()
        while self._thread.is_alive() and self._clock() - last < timeout:
            self._thread.join(POLL)
            if len(now := self._waiting()) < len(left):
                last, left = self._clock(), now
        self._stopped.set()
        self._thread.join(1.0)
        return 0 if self._fenced else len(self._waiting())

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                # Read first: what was left before `finish` is then surely seen by this round.
                ending = self._ending.is_set()
                pause = self._round()
                if ending and not pause:
                    return
                (self._stopped if ending else self._ending).wait(pause or POLL)
        except OSError as error:  # the folder is gone, or its disk fails
            self._say_once("disk", f"what is left cannot be read: {error}")
        finally:
            if self._transport is not None:
                self._transport.close()

    def _round(self) -> float:
        """Send what is there; return the seconds until the next attempt, 0 if all is settled."""
        for facts in self._waiting():
            if self._stopped.is_set():
                break
            if not self._send(facts):
                return self._backoff.next_pause()
            self._backoff.failures = 0
        return 0.0

    def _waiting(self) -> list[Path]:
        try:
            return sorted(self._folder.glob("*.json"))
        except OSError:
            return []

    def _send(self, facts: Path) -> bool:
        """Send one; return whether it is settled, and the next may be sent."""
        body = facts.with_suffix(".bin")
        try:
            with open_regular(facts) as stream:
                told = json.loads(stream.read(_MOST_FACTS))
            known = {name: told[name] for name in _FACTS}
            since = {"logged_at": told["logged_at"]} if "logged_at" in told else {}  # not in what earlier code has left
            query = urlencode({**known, **since})
            file = open_regular(body)
        except (OSError, ValueError, KeyError, TypeError) as error:  # something else has changed the folder
            self._say_once("spool", f"a file in the spool cannot be read: {type(error).__name__}: {error}")
            self._remove(facts)
            return True
        with file:
            size = os.fstat(file.fileno()).st_size
            try:
                self._transport = self._transport or self._open_transport()
                status, reply = self._transport.put_file(f"task/media?{query}", file, size, self._token())
            except TransportError:
                return False
        return self._settle(facts, status, reply)

    def _settle(self, facts: Path, status: int, reply: bytes) -> bool:
        if not 200 <= status < 300:
            outcome = judge(status, reply)
            if isinstance(outcome, Fenced):  # a newer attempt logs: nothing of this one counts
                self._fenced = True
                self._stopped.set()
                return True
            refused = isinstance(outcome, Rejected) or status in {403, 404, 405, 409}
            if not refused:
                return False
            self.dropped += 1
            code, why = _said_by(status, reply)
            self._say_once(code, why)
        self._remove(facts)
        return True

    def _say_once(self, code: str, why: str) -> None:
        if code not in self._said:
            self._said.add(code)
            self._say(f"detlab: media were not kept: {why[:500]} (said once; the task continues)")

    @staticmethod
    def _remove(facts: Path) -> None:
        for file in (facts, facts.with_suffix(".bin")):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)


def _said_by(status: int, reply: bytes) -> tuple[str, str]:
    """Return the code and the words of a refusal; of a master that does not know media yet, ours."""
    try:
        told = json.loads(reply)
        code, message = str(told["code"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        code, message = f"http.{status}", f"status {status}"
    if status in {404, 405}:
        return "unknown", f"this master does not take media; its version may be older ({message})"
    return code, message
