"""Moving a job ahead of another in its queue, or behind it: the new positions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from detlab_hub.core.scheduling.model import Job
from detlab_hub.core.scheduling.order import place_of_job, position_of

_STEP = 1e-6
"""Seconds between neighbours if there is no room left between two positions."""


class Overtaking(Exception):
    """The move would put a job ahead of one whose owner has no say in it.

    Attributes:
        overtaken: The first such job.
    """

    def __init__(self, overtaken: str) -> None:
        super().__init__(f"would overtake {overtaken}")
        self.overtaken = overtaken


def move(
    jobs: Sequence[Job], moving: str, target: str, *, ahead: bool, mine: Collection[str] | None = None
) -> dict[str, float]:
    """Put a job directly ahead of another one, or directly behind it.

    A mover with rights to only some of the jobs overtakes no one else's: where the job would, it moves within the
    positions of the mover's own jobs, if the target is one of them.

    Args:
        jobs: The jobs of one queue, in any order: of one pool, and under the priority scheduler of one priority.
        moving: The job that moves.
        target: The job next to which it is put.
        ahead: Ahead of it, not behind.
        mine: The jobs that the mover may move; None: all of them.

    Returns:
        The new positions of all jobs whose position changes; empty if the job is there already.

    Raises:
        Overtaking: It would overtake another user's job.
    """
    line = sorted(jobs, key=place_of_job)
    wanted = [job for job in line if job.id != moving]
    beside = next(place for place, job in enumerate(wanted) if job.id == target)
    wanted.insert(beside if ahead else beside + 1, next(job for job in line if job.id == moving))
    if wanted == line:
        return {}
    if mine is None:
        return _inserted(wanted, moving)
    own, own_wanted = ([job for job in each if job.id in mine] for each in (line, wanted))
    if target in mine and own == own_wanted:
        return {}
    overtaken = _overtaken(line, wanted, moving, mine)
    if overtaken is None:
        return _inserted(wanted, moving)
    if target not in mine:
        raise Overtaking(overtaken)
    return _permuted(own, own_wanted)


def _overtaken(line: Sequence[Job], wanted: Sequence[Job], moving: str, mine: Collection[str]) -> str | None:
    """Return the first job of others that was ahead of the moved one and no longer would be; None if there is none."""
    before = [job.id for job in line]
    after = [job.id for job in wanted]
    behind = set(after[after.index(moving) :])
    return next((name for name in before[: before.index(moving)] if name in behind and name not in mine), None)


def _inserted(wanted: Sequence[Job], moving: str) -> dict[str, float]:
    at = next(place for place, job in enumerate(wanted) if job.id == moving)
    low = position_of(wanted[at - 1]) if at else None
    high = position_of(wanted[at + 1]) if at + 1 < len(wanted) else None
    if low is None:
        return {moving: (high or 0.0) - 1.0}
    if high is None:
        return {moving: low + 1.0}
    middle = low + (high - low) / 2
    if low < middle < high:
        return {moving: middle}
    # Two that stand at one position: all behind make room, as little as is needed, and keep their order.
    moved: dict[str, float] = {}
    for job in wanted[at:]:
        if job.id != moving and position_of(job) > low:
            break
        low += _STEP
        moved[job.id] = low
    return moved


def _permuted(own: Sequence[Job], wanted: Sequence[Job]) -> dict[str, float]:
    """Give the jobs' positions to the same jobs in another order."""
    moved: dict[str, float] = {}
    last: float | None = None
    for place, job in zip((position_of(job) for job in own), wanted, strict=True):
        last = place if last is None or place > last else last + _STEP
        if last != position_of(job):
            moved[job.id] = last
    return moved
