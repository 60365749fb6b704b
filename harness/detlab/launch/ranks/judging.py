"""Which rank hangs, by what is known of all of them, and how that is said. Pure.

Outside of training loops ranks are judged by who waits for whom (`judge`); in them by progress (`judge_loops`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

LIMIT_VARIABLE = "DET_HANG_TIMEOUT"
_PHASES = ("start", "data", "train_batch", "backward", "step", "sync", "callback", "validation", "checkpoint", "end")
"""Of a training loop, in their order within a batch (`detlab.core.distributed.heartbeat.LoopState`)."""
_USERS = frozenset({"data", "train_batch", "callback", "validation", "checkpoint"})
"""Phases in which the trial's own code runs."""
_DOING = {
    "start": "at the start of training",
    "data": "in the data loader, which was to give batch {batch}",
    "train_batch": "in train_batch, at batch {batch}",
    "backward": "in or after backward(), at batch {batch}",
    "step": "in or after step_optimizer(), at batch {batch}",
    "sync": "between batches, after batch {batch}",
    "callback": "in a callback, at batch {batch}",
    "validation": "in a validation, after batch {batch}",
    "checkpoint": "at a checkpoint, after batch {batch}",
    "end": "at the end of training",
}


@dataclass(frozen=True, slots=True)
class Sign:
    """What is known of a rank.

    Attributes:
        rank: Its number.
        state: `inside` an operation with other ranks, in code of `detlab`, or with the `user`.
        since: Seconds that it has been so.
        still: Seconds in which it has neither computed, read nor written anything to speak of.
        silent: Seconds since it last said anything.
        operation: Which operation it is inside of.
        where: The innermost line of the user's own code.
        host: Its machine.
        pid: Its process.
        node: Its node's name; "" where the trial has one.
        phase: What its training loop does; "" where the rank is in none.
        batch: Batches that the loop has completed.
        idle: Seconds in which the loop has made no progress.
        limit: Seconds without progress that count as a hang of the loop.
    """

    rank: int
    state: str
    since: float
    still: float = 0.0
    silent: float = 0.0
    operation: str = ""
    where: str | None = None
    host: str = ""
    pid: int = 0
    node: str = ""
    phase: str = ""
    batch: int = 0
    idle: float = 0.0
    limit: float = 0.0

    @property
    def position(self) -> tuple[int, int]:
        """How far its training loop is; to be compared."""
        return self.batch, _PHASES.index(self.phase) if self.phase in _PHASES else 0


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """The rank that hangs, and those that wait for it: none are named where a training loop makes no progress."""

    sign: Sign
    waiting: tuple[Sign, ...] = ()

    def line(self, limit: float) -> str:
        """Return the message for people, in one line; the master reads it, too (`services.rank_faults`)."""
        sign = self.sign
        node = f"node {sign.node}, " if sign.node else ""
        setting = f"{LIMIT_VARIABLE} in environment.environment_variables"
        if sign.phase:
            what, limit, setting = self._in_loop(), sign.limit, "pytorch.init(hang_timeout=…)"
        else:
            what = self._outside(limit)
        return (
            f"detlab: rank {sign.rank} ({node}host {sign.host}, pid {sign.pid}) hangs: {what}. This attempt ends now,"
            " and the trial restarts from its last checkpoint. If the work is only slow, raise the limit of"
            f" {limit:g} s: {setting}"
        )

    def _in_loop(self) -> str:
        sign = self.sign
        where = f" ({sign.where})" if sign.where else ""
        place = _DOING.get(sign.phase, sign.phase).format(batch=sign.batch)
        if sign.silent >= sign.limit / 2:
            return f"its process has been stopped or blocked for {sign.silent:.1f} s; it was last {place}{where}"
        return f"for {sign.idle:.1f} s it has been {place}{where}, while the others wait for it"

    def _outside(self, limit: float) -> str:
        sign, first = self.sign, self.waiting[0]
        where = f" ({sign.where})" if sign.where else ""
        if sign.silent >= limit:
            what = f"its process has been stopped or blocked for {sign.silent:.1f} s; it was last active{where}"
        elif sign.state == "inside":
            what = f"for {sign.since:.1f} s it has been in {sign.operation}(){where}"
        else:
            what = f"for {sign.since:.1f} s it has been running code outside of collective operations{where}"
        ranks = ", ".join(str(other.rank) for other in self.waiting[:8])
        others = f"rank {ranks} waits" if len(self.waiting) == 1 else f"ranks {ranks} wait"
        return f"{what}, while {others} in {first.operation}()"


def judge(signs: Mapping[int, Sign], size: int, limit: float, busy: float = math.inf) -> HangVerdict | None:
    """Return which rank hangs, None while that cannot be told. Pure.

    At least one rank must have waited for the whole limit, and each rank that is not waiting must have done nothing for
    as long (or have been away for `busy` seconds): a rank may be slow because it needs another that is at work.

    Args:
        signs: By rank, what is known.
        size: How many ranks there are; with fewer signs the result is None.
        limit: Seconds of waiting that count as a hang.
        busy: Seconds that a rank at work may stay away.
    """
    if len(signs) < size:
        return None
    # One that says nothing any more is not with the others, wherever it was last.
    waiting = [s for s in signs.values() if s.state == "inside" and s.silent < limit]
    outside = [s for s in signs.values() if s not in waiting]
    if not any(s.since >= limit for s in waiting):
        return None
    if not outside:
        return _out_of_step(waiting, limit)
    if not all(_is_away(s, limit, busy) for s in outside):
        return None
    guilty = min(outside, key=lambda s: (s.silent < limit, -s.still, s.rank))
    return HangVerdict(guilty, tuple(sorted(waiting, key=lambda s: (-s.since, s.rank))))


def judge_loops(signs: Mapping[int, Sign], limit: float) -> HangVerdict | None:
    """Return which rank of a training loop hangs, None while any of them makes progress. Pure.

    A silent process comes first, then one in the trial's own code, then one that does not wait for other ranks, then
    the one that is furthest behind.

    Args:
        signs: By rank, what is known; all ranks are in their loop.
        limit: Seconds without progress that count as a hang.
    """
    silent = any(sign.silent >= limit for sign in signs.values())
    if not silent and (not signs or min(sign.idle + sign.silent for sign in signs.values()) < limit):
        return None

    def blame(sign: Sign) -> tuple[int, tuple[int, int], int]:
        if sign.silent >= limit / 2:
            degree = 0
        elif sign.state == "inside":
            degree = 3
        else:
            degree = 1 if sign.phase in _USERS else 2
        return degree, sign.position, sign.rank

    return HangVerdict(min(signs.values(), key=blame))


def _is_away(sign: Sign, limit: float, busy: float) -> bool:
    if sign.silent >= limit:
        return sign.still >= limit
    if sign.state != "user":
        return False  # we ourselves let it wait: for the master, or for room on a disk
    return sign.since >= limit and (sign.still >= limit or sign.since >= busy)


def _out_of_step(waiting: list[Sign], limit: float) -> HangVerdict | None:
    """All wait, in different operations: the one that the fewest are in is wrong; of equals, that of the last rank."""
    if any(sign.since < limit or sign.still < limit for sign in waiting):
        return None  # one that computes, reads or writes does so in threads of its own
    count: dict[str, int] = {}
    for sign in waiting:
        count[sign.operation] = count.get(sign.operation, 0) + 1
    if len(count) < 2:
        return None
    guilty = min(waiting, key=lambda s: (count[s.operation], -s.rank))
    others = [sign for sign in waiting if sign.operation != guilty.operation]
    return HangVerdict(guilty, tuple(sorted(others, key=lambda s: s.rank)))
