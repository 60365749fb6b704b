"""Estimated starts of pending tasks, from the maximum times of running ones, or from how long tasks of their job took.

The future is simulated with the scheduler itself: a task ends at its maximum time, or where it has none when it has run
as long as those of its job did, and the next pass follows. Tasks that end early bring a start forward; later
submissions, agents that come or go, and moved jobs change it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from detlab_hub.core.scheduling.model import PlacementDecision, SchedulerTask, Snapshot, TaskState

_MOST_PASSES = 64
_LONGER = 0.1
"""Of the time that it ran: what a task is given that has run longer than those of its job did."""
_MOST_WORK = 20_000
"""Most passes, by the number of tasks. A start that is not found by then is reported as unknown."""


def estimated_starts(
    snapshot: Snapshot,
    schedule: Callable[[Snapshot], PlacementDecision],
    observed: Mapping[str, float] | None = None,
    now: float = 0.0,
) -> Mapping[str, float | None]:
    """Return in how many seconds each pending task starts; None if that is not known.

    Args:
        snapshot: The pool now.
        schedule: The pass (`scheduling.schedule`).
        observed: How many seconds tasks of a job took that have ended, by job.
        now: The time, on the scale of `SchedulerTask.began`.
    """
    pending = [task.id for task in snapshot.tasks if task.state is TaskState.PENDING]
    future = _Future(snapshot, observed or {}, now)
    for _ in range(max(2, min(_MOST_PASSES, _MOST_WORK // (len(snapshot.tasks) + 1)))):
        if len(future.started) == len(pending) or not future.advance(schedule):
            break
    return {name: future.started.get(name) for name in pending}


class _Future:
    """The state of a pool at a future time.

    Attributes:
        started: When each task that is pending now starts, in seconds from now.
    """

    def __init__(self, snapshot: Snapshot, observed: Mapping[str, float], at: float) -> None:
        self.started: dict[str, float] = {}
        self._observed = observed
        self._snapshot = snapshot
        self._now = 0.0
        self._tasks = {task.id: task for task in snapshot.tasks}
        self._ends: dict[str, float] = {}
        self._waited = {task.id for task in snapshot.tasks if task.state is TaskState.PENDING}
        for task in snapshot.tasks:
            if task.state is TaskState.RUNNING:
                self._runs(task, 0.0 if task.began is None else max(0.0, at - task.began))

    def _runs(self, task: SchedulerTask, ran: float = 0.0) -> None:
        if task.max_time is not None:
            self._ends[task.id] = self._now + max(0.0, task.max_time)
        elif task.job in self._observed:
            self._ends[task.id] = self._now + max(self._observed[task.job] - ran, _LONGER * ran)

    def advance(self, schedule: Callable[[Snapshot], PlacementDecision]) -> bool:
        """Simulate one pass, or the next end; False if no further event is known."""
        decision = schedule(replace(self._snapshot, tasks=tuple(map(self._at_present, self._tasks.values()))))
        for name, placement in decision.allocate.items():
            task = replace(self._tasks[name], state=TaskState.RUNNING, on=placement)
            self._tasks[name] = task
            self._runs(task)
            if name in self._waited:
                self.started.setdefault(name, self._now)
        for name in decision.release:
            left = self._ends.pop(name, None)
            rest = None if left is None or self._tasks[name].max_time is None else left - self._now
            self._tasks[name] = replace(self._tasks[name], state=TaskState.PENDING, on={}, max_time=rest)
        # What starts cannot make room, and what gives back its slots is looked at in the next pass.
        return bool(decision.release) or self._next_end()

    def _at_present(self, task: SchedulerTask) -> SchedulerTask:
        end = self._ends.get(task.id)
        return task if end is None or task.max_time is None else replace(task, max_time=end - self._now)

    def _next_end(self) -> bool:
        if not self._ends:
            return False
        self._now = min(self._ends.values())
        for name in [name for name, end in self._ends.items() if end <= self._now]:
            del self._ends[name]
            del self._tasks[name]
        return True
