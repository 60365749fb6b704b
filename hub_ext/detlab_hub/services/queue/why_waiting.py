"""Why tasks of a job are pending: the scheduler's own reason, on a snapshot of now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from detlab.schemas.jobwire import HintView, WaitView
from detlab_hub.core.scheduling import (
    PlacementDecision,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    hand_over,
    schedule,
)
from detlab_hub.core.scheduling.hints import Hint, hints
from detlab_hub.core.scheduling.order import in_order
from detlab_hub.services.base.settings import A_COPY
from detlab_hub.services.queue.job_views import QueueEntry
from detlab_hub.store.queries.jobs import Live

EXPLAINED = 10
"""Tasks of one job that are explained."""
_TRIED = 3
"""Most different tasks for which hints are tried: each try is a pass."""
DRAINING = "draining"
"""Beside the scheduler's reasons: nothing starts until the master is restarted."""
COPY = "copy"
"""Beside them: this cluster is a copy, which starts nothing until it takes over."""
BATCH_SYSTEM = "batch_system"
"""Beside them, too: it was handed to the pool's batch system, in whose queue it waits."""
STARTING = "starting"
"""It starts with the next pass."""


Awaited = Callable[[str, str], str]
"""From the name of a pool and of a waiting task to the instances that are on their way for it, in words."""


def halted_code(halted: str) -> str:
    """Return the code of why nothing starts at all."""
    return COPY if halted == A_COPY else DRAINING


def nothing_awaited(pool: str, task: str) -> str:
    """Return "": the answer where no pool is elastic."""
    return ""


def explained(
    snapshots: Mapping[str, Snapshot],
    entry: QueueEntry,
    wanted: Sequence[Live],
    now: float,
    forecast: Callable[[str, Snapshot, float], Mapping[str, float | None]],
    *,
    halted: str,
    awaited: Awaited = nothing_awaited,
    queue: str | None = None,
) -> list[WaitView]:
    """Explain why each of a job's waiting tasks waits, for the first `EXPLAINED` at most.

    Args:
        snapshots: The pools now.
        entry: The job.
        wanted: Its waiting allocations.
        now: The time, in seconds since the epoch.
        forecast: Seconds until tasks start, by pool, its snapshot and the time; see `Forecasts.starts`.
        halted: Why nothing new starts at all; empty: it does.
        awaited: Which instances of an elastic pool a task waits for.
        queue: Whose batch system places the tasks of the pool; None: the master places them.
    """
    snapshot = snapshots.get(entry.pool)
    if snapshot is None:
        return []
    line = queue_of(snapshot)
    places = {task.id: place for place, task in enumerate(line, 1)}
    own = {one.allocation_id for one in entry.waiting}
    found = sorted((one for one in wanted if one.allocation_id in places), key=lambda one: places[one.allocation_id])
    starts = {} if halted or queue is not None else forecast(entry.pool, snapshot, now)
    outlook = _Outlook(snapshots, entry.pool, starts, queue, halted=halted)
    return [
        _with_instances(
            _view(one, outlook, places, sum(task.id not in own for task in line[: places[one.allocation_id] - 1]), now),
            awaited(entry.pool, one.allocation_id),
        )
        for one in found[:EXPLAINED]
    ]


def elsewhere(entry: QueueEntry, handed: Sequence[Live], said: Mapping[str, str]) -> list[WaitView]:
    """Return what tasks of a job wait for that were handed to the pool's batch system, in its words.

    Args:
        entry: The job.
        handed: Its allocations that have a place.
        said: By allocation, what it waits for there.
    """
    return [
        WaitView(
            trial_id=one.trial_id,
            task_id=one.task_id,
            slots=one.slots_needed,
            pool=entry.pool,
            place=0,
            waiting_since=one.requested_at,
            reason=BATCH_SYSTEM,
            detail=said[one.allocation_id],
        )
        for one in handed
        if one.allocation_id in said
    ]


def _with_instances(view: WaitView, awaited: str) -> WaitView:
    return view.model_copy(update={"detail": f"{view.detail}; {awaited}"}) if awaited else view


def queue_of(snapshot: Snapshot) -> list[SchedulerTask]:
    """Return the pending tasks of a pool, in the scheduler's order."""
    ordered = [task for task in in_order(snapshot.tasks, snapshot.jobs) if task.state is TaskState.PENDING]
    if snapshot.pool.scheduler is Scheduler.PRIORITY:
        ordered.sort(key=lambda task: snapshot.jobs[task.job].priority)
    return ordered


class _Outlook:
    """The scheduler's decision on a pool, computed once."""

    def __init__(
        self,
        snapshots: Mapping[str, Snapshot],
        pool: str,
        starts: Mapping[str, float | None],
        queue: str | None,
        *,
        halted: str,
    ) -> None:
        self.halted = halted
        self.pool = pool
        self._snapshot = snapshots[pool]
        self._others = {name: snapshot for name, snapshot in snapshots.items() if name != pool}
        self._handed = queue is not None
        self.decision: PlacementDecision = (
            schedule(self._snapshot) if queue is None else hand_over(self._snapshot, queue)
        )
        self.starts = starts
        self._known: dict[tuple[int, int, int, str], tuple[Hint, ...]] = {}
        self._asked = {task.id: (task.millicpus, task.memory) for task in self._snapshot.tasks}

    def hints(self, task_id: str, slots: int) -> tuple[Hint, ...]:
        """Return hints that would let a task start; tasks of one size and reason are tried once."""
        reason = self.decision.waiting.get(task_id)
        if reason is None or self.halted or self._handed:
            return ()
        key = slots, *self._asked[task_id], reason.code.value
        if key not in self._known and len(self._known) < _TRIED:
            self._known[key] = hints(self._snapshot, task_id, schedule, self._others)
        return self._known.get(key, ())


def _view(one: Live, outlook: _Outlook, places: Mapping[str, int], ahead: int, now: float) -> WaitView:
    code, detail = STARTING, "it starts with the next pass of the scheduler"
    reason = outlook.decision.waiting.get(one.allocation_id)
    if outlook.halted:
        code, detail = halted_code(outlook.halted), outlook.halted
    elif reason is not None:
        code, detail = reason.code.value, reason.detail
    seconds = outlook.starts.get(one.allocation_id)
    hints = outlook.hints(one.allocation_id, one.slots_needed)
    for hint in hints:  # the list of jobs has it in the reason; here it has a line of its own
        detail = detail.removesuffix(f"; {hint.text}")
    return WaitView(
        trial_id=one.trial_id,
        task_id=one.task_id,
        slots=one.slots_needed,
        pool=outlook.pool,
        place=places[one.allocation_id],
        ahead=ahead,
        waiting_since=one.requested_at,
        reason=code,
        detail=detail,
        hints=[HintView(change=hint.change, value=hint.value, text=hint.text) for hint in hints],
        estimated_start=None if seconds is None else now + seconds,
    )
