"""Shipping of spooled records: the decisions what to send when, without I/O.

One `StreamShipper` per stream turns (records offered, replies, time) into (batch to send, time of the next poll). It
promises order, at most `MAX_RECORDS` records or `MAX_BYTES` a batch, one batch in flight, endless retries, and that
only an acknowledgement of the master moves the mark. The master keeps the same mark per allocation, so that a batch
sent twice counts once. Threads and HTTP are in `detlab.launch.delivery.sender`; the agent ships the remaining records
of a dead launcher
with the same code.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

from detlab.backoff import Backoff
from detlab.launch.delivery.spool import SpoolEntry

MAX_RECORDS = 1_000
MAX_BYTES = 4_000_000

Stream = Literal["metrics", "logs"]


# --- replies of the master --------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordRefusal:
    """A record that the master will never take (RefusedRecord of the wire)."""

    seq: int
    code: str
    message: str


@dataclass(frozen=True)
class Acked:
    """Committed up to `seq`, except what is refused."""

    seq: int
    refused: tuple[RecordRefusal, ...] = ()


@dataclass(frozen=True)
class Failed:
    """No answer or a passing trouble: the same batch again, later."""

    why: str


@dataclass(frozen=True)
class Unauthorised:
    """The token was not taken: read or renew it, then the same batch again."""

    why: str


@dataclass(frozen=True)
class Rejected:
    """The batch as a whole is not acceptable: something in it is malformed or it is too large."""

    code: str
    message: str


@dataclass(frozen=True)
class Fenced:
    """A newer attempt of the trial is writing: records of this one no longer count."""

    message: str


Outcome = Acked | Failed | Unauthorised | Rejected | Fenced


def judge(status: int, body: bytes) -> Outcome:
    """Interpret a reply to POST …/records.

    Args:
        status: HTTP status.
        body: `RecordAck` or `ErrorView` as JSON; anything else (a proxy's page) counts as a passing trouble.
    """
    try:
        value: Any = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        value = {}
    code, message = str(value.get("code", "")), str(value.get("message", ""))
    if 200 <= status < 300 and isinstance(value.get("acked"), int):
        return Acked(value["acked"], tuple(_refusals(value.get("refused"))))
    if status == 409 and code == "stale_attempt":
        return Fenced(message)
    if status in {400, 413, 422} and (code or status == 413):
        return Rejected(code or "too_large", message or f"status {status}")
    if status == 401:
        return Unauthorised(message or "status 401")
    return Failed(f"status {status} {code} {message}".strip())


def _refusals(value: Any) -> list[RecordRefusal]:
    if not isinstance(value, list):
        return []
    return [
        RecordRefusal(int(item["seq"]), str(item.get("code", "")), str(item.get("message", "")))
        for item in value
        if isinstance(item, dict) and isinstance(item.get("seq"), int)
    ]


# --- one stream --------------------------------------------------------------------------------------------


class Phase(enum.Enum):
    """What a stream waits for."""

    HUNGRY = "records to send"
    READY = "somebody to send the batch"
    IN_FLIGHT = "the reply"
    PAUSED = "the end of a back-off"
    FENCED = "nothing: a newer attempt writes"


@dataclass(frozen=True)
class UnsentBatch:
    """Records to send as one request."""

    stream: Stream
    entries: tuple[SpoolEntry, ...]

    def body(self) -> bytes:
        """Return the RecordBatch as JSON. The lines are JSON already, so they are sent as they were spooled."""
        lines = b",".join(entry.line for entry in self.entries)
        return b'{"stream":"%s","records":[%s]}' % (self.stream.encode(), lines)


@dataclass
class StreamShipper:
    """Order, batches, marks and retries of one stream.

    Args:
        stream: Which stream.
        acked: Highest seq that the master has committed.
        backoff: Pauses between retries.
    """

    stream: Stream
    acked: int = 0
    backoff: Backoff = field(default_factory=Backoff)
    phase: Phase = Phase.HUNGRY
    resume_at: float = 0.0
    """When a pause ends; the same clock as every `now`."""
    last_failure: str = ""
    refused: list[RecordRefusal] = field(default_factory=list)
    """Refusals since the caller last took them."""
    acked_end: int = 0
    """File offset behind the last committed record."""
    _queue: list[SpoolEntry] = field(default_factory=list)
    _limit: int = MAX_RECORDS

    @property
    def pending(self) -> int:
        """Records loaded and not yet committed."""
        return len(self._queue)

    def load(self, entries: Sequence[SpoolEntry]) -> None:
        """Take the next records of the spool, in order; only while HUNGRY.

        Raises:
            RuntimeError: The stream is in another phase.
        """
        if self.phase is not Phase.HUNGRY:
            raise RuntimeError(f"records loaded while the stream waits for {self.phase.value}")
        self._queue.extend(entry for entry in entries if entry.seq > self.acked)
        if self._queue:
            self.phase = Phase.READY

    def poll(self, now: float) -> UnsentBatch | None:
        """Return the batch to send now, or None. After a batch, `settle` must follow."""
        if self.phase is Phase.PAUSED and now >= self.resume_at:
            self.phase = Phase.READY
        if self.phase is not Phase.READY:
            return None
        self.phase = Phase.IN_FLIGHT
        return UnsentBatch(self.stream, tuple(self._queue[: self._limit]))

    def settle(self, outcome: Outcome, now: float) -> None:
        """Record the outcome of the batch in flight.

        Raises:
            RuntimeError: No batch is in flight.
        """
        if self.phase is not Phase.IN_FLIGHT:
            raise RuntimeError(f"a reply while the stream waits for {self.phase.value}")
        match outcome:
            case Acked():
                self._on_ack(outcome, now)
            case Failed(why) | Unauthorised(why):
                self._pause(why, now)
            case Rejected(code, message):
                self._on_rejected(code, message)
            case Fenced(message):
                self.last_failure = message
                self._queue.clear()
                self.phase = Phase.FENCED
            case _:
                assert_never(outcome)

    def retry_now(self) -> None:
        """End a pause early: the token was renewed, or the task ended and only this delivery is left."""
        if self.phase is Phase.PAUSED:
            self.phase = Phase.READY

    def _on_ack(self, ack: Acked, now: float) -> None:
        self.refused.extend(ack.refused)
        done = [entry for entry in self._queue if entry.seq <= ack.seq]
        if not done:
            # A 200 that moves nothing would spin: the master must have its reason, so wait like after a failure.
            self._pause(f"the master committed up to {ack.seq} only", now)
            return
        self.backoff.reset()
        self.last_failure = ""
        self._limit = MAX_RECORDS
        self._advance(len(done), max(ack.seq, done[-1].seq))

    def _on_rejected(self, code: str, message: str) -> None:
        """Find the record at fault by halving, so that one bad record never holds up the others."""
        size = min(self._limit, len(self._queue))
        if size > 1:
            self._limit = size // 2
            self.phase = Phase.READY
            return
        culprit = self._queue[0]
        self.refused.append(RecordRefusal(culprit.seq, code, message))
        self._limit = MAX_RECORDS
        self._advance(1, culprit.seq)

    def _advance(self, count: int, acked: int) -> None:
        self.acked_end = self._queue[count - 1].end
        del self._queue[:count]
        self.acked = max(self.acked, acked)
        self.phase = Phase.READY if self._queue else Phase.HUNGRY

    def _pause(self, why: str, now: float) -> None:
        self.last_failure = why
        self.resume_at = now + self.backoff.next_pause()
        self.phase = Phase.PAUSED
