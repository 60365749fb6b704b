"""Backfill without preemption: tasks that may start ahead of pending ones without delaying any of them.

For each pending task the latest time at which it could start alone is known: when the running tasks have used up their
maximum times. A task that ends before that delays nothing; one that ends later, or at an unknown time, may start only
where the pending task never could.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from detlab_hub.core.scheduling.fit.fitting import FreeCapacity
from detlab_hub.core.scheduling.fit.multi_node import Placement
from detlab_hub.core.scheduling.fit.shapes import TaskShape
from detlab_hub.core.scheduling.model import SchedulerTask
from detlab_hub.core.scheduling.planner import Planner

_AT_ONCE = 64
"""Tasks that end between two checks whether any pending task fits; each end is checked only if one does."""
_NEVER: frozenset[str] = frozenset()


class Ahead:
    """Pending tasks that no task behind them may delay.

    Args:
        planner: The pass. Tasks that start in it count as running ones.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._agents: dict[TaskShape, frozenset[str]] = {}
        """Where tasks of each shape could ever run."""
        self._starts: dict[TaskShape, float] = {}
        """Latest start of each checked task, in seconds from now; -inf: unknown."""
        self._new: dict[TaskShape, SchedulerTask] = {}
        self._known: tuple[list[float], list[frozenset[str]]] = ([], [_NEVER])
        """Their starts, sorted, and where those that start first could run: none, the first, the first two."""

    def add(self, tasks: Iterable[SchedulerTask]) -> None:
        """Note tasks as pending."""
        capacity = self._planner.capacity
        for task in tasks:
            shape = capacity.shape(task)
            if shape not in self._agents:
                self._agents[shape] = frozenset(agent.id for agent in capacity.suitable(task))
                self._new[shape] = task

    def fit(self, task: SchedulerTask, placement: Placement) -> Placement | None:
        """Return where a task that has room may start, None if nowhere."""
        barred = self._barred(math.inf if task.max_time is None else task.max_time)
        return self._planner.capacity.fit(task, avoid=barred) if barred else placement

    def _barred(self, end: float) -> frozenset[str]:
        """Return the agents on which pending tasks could run that may start before `end`, or at it."""
        if end == math.inf:
            return _NEVER.union(*self._agents.values())
        if self._new:
            self._update_starts()
        starts, agents = self._known
        return agents[bisect_right(starts, end)]

    def _update_starts(self) -> None:
        """Find the starts of the tasks that were added since."""
        known = dict(latest_starts(self._planner, list(self._new.values())))
        self._starts |= {shape: known.get(task.id, -math.inf) for shape, task in self._new.items()}
        self._new.clear()
        shapes = sorted(self._starts, key=self._starts.__getitem__)
        agents = [_NEVER]
        for shape in shapes:
            agents.append(agents[-1] | self._agents[shape])
        self._known = [self._starts[shape] for shape in shapes], agents


def latest_starts(planner: Planner, tasks: Sequence[SchedulerTask]) -> Iterator[tuple[str, float]]:
    """Return in how many seconds each task has room at the latest, alone, if running tasks use their maximum times.

    Tasks whose start is unknown are left out: they wait for a task without a known maximum time.
    """
    capacity = FreeCapacity(planner.pool, planner.agents)
    holding = [(task, task.on) for task in planner.running]
    holding += planner.started.values()
    for task, placement in holding:
        capacity.place(task, placement)
    known = [(task.max_time, task.id, task, placement) for task, placement in holding if task.max_time is not None]
    known.sort(key=lambda one: one[:2])
    waiting = list(tasks)
    for begin, end in pairwise([*range(0, len(known), _AT_ONCE), len(known)]):
        ending = known[begin:end]
        for _, _, task, placement in ending:
            capacity.remove(task, placement)
        soon = [task for task in waiting if capacity.fit(task) is not None]
        if not soon:
            continue
        waiting = [task for task in waiting if task not in soon]
        for _, _, task, placement in ending:
            capacity.place(task, placement)
        for seconds, _, task, placement in ending:
            capacity.remove(task, placement)
            for fitting in [one for one in soon if capacity.fit(one) is not None]:
                soon.remove(fitting)
                yield fitting.id, seconds
