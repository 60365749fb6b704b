"""How the processes of a run stand, and so the run: pure, without a clock."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from detlab.schemas.wire.runs import is_drawn_key

RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
SILENT_SECONDS = 300.0
"""After which a process that was not heard from counts as lost: it says that it lives every half minute."""
SHOWN_DIGITS = 8
"""Of an id or a drawn key: those that people read."""


class WriterState(StrEnum):
    """How one process of a run stands."""

    OPEN = "OPEN"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    LOST = "LOST"
    """Not heard from any more. It is open again as soon as it is."""


@dataclass(frozen=True)
class WriterFacts:
    """A process of a run: when it began and ended by its own clock, in milliseconds."""

    state: WriterState
    begun_ms: int = 0
    ended_ms: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class RunStanding:
    """How a run stands."""

    status: RunStatus
    ended_ms: int | None = None
    reason: str = ""


def standing_of(writers: Sequence[WriterFacts]) -> RunStanding:
    """Return how a run stands by its processes. One that had ended when another began is the past: it was resumed."""
    newest = max((one.begun_ms for one in writers), default=0)
    current = [one for one in writers if one.ended_ms is None or one.ended_ms > newest or one.begun_ms == newest]
    states = {one.state for one in current}
    if not states or WriterState.OPEN in states:
        return RunStanding("RUNNING")
    ended = max(one.ended_ms or one.begun_ms for one in current)
    reason = next((one.reason for one in current if one.reason), "")
    if states & {WriterState.FAILED, WriterState.LOST}:
        return RunStanding("FAILED", ended, reason)
    return RunStanding("KILLED" if WriterState.KILLED in states else "FINISHED", ended, reason)


def run_id_of_key(owner: str, key: str) -> str:
    """Return the id of a user's run by the key that their script has drawn or chosen for it.

    Keys of two users never meet: another's key leads to a run of one's own, as one that nobody has does. An id
    begins as a drawn key does: what the script prints and what others see of the run have the same first digits.
    """
    digest = _digest_of(owner, key)
    return key[:SHOWN_DIGITS] + digest[SHOWN_DIGITS:] if is_drawn_key(key) else digest


def run_ids_of_key(owner: str, key: str) -> tuple[str, ...]:
    """Return the ids that a run of a key may have: that of now, and that of runs from before ids began as keys do."""
    return tuple(dict.fromkeys((run_id_of_key(owner, key), _digest_of(owner, key))))


def _digest_of(owner: str, key: str) -> str:
    return hashlib.sha256(f"{len(owner)}:{owner}:{key}".encode()).hexdigest()[:32]
