"""A reservation for a task that has waited for too long, so that no task waits for ever.

There is one reservation at a time, for the oldest such task. Where it does not fit, the agents are found on which it
has room soonest: those on which the last to end, of all that must end for it, has run the longest. From then on no
other task gets what it needs there. Another pass may find other agents, but only such on which all that must end has
run longer still. So the task starts at the latest when all that ran when the reservation was first made has ended.

Tasks that may run for ever (they are not preemptible and have no maximum time, as notebooks) count as the last to end;
otherwise a place would be reserved behind one of them while others come and go elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

from detlab_hub.core.scheduling.fit.fitting import FreeCapacity
from detlab_hub.core.scheduling.model import SchedulerTask
from detlab_hub.core.scheduling.planner import Planner
from detlab_hub.core.scheduling.preemption.victims import Victims


def serve_aged(
    planner: Planner, entitled: Callable[[SchedulerTask], bool], take: Callable[[SchedulerTask], bool]
) -> frozenset[str]:
    """Start aged tasks with slots, the oldest first, up to the first one that does not fit.

    Args:
        planner: The pass.
        entitled: Whether a task may go ahead of all others. Tasks that `max_slots` or a quota holds back never may.
        take: Starts the task, or has slots released for it; returns whether it could.

    Returns:
        The agents of the reservation.
    """
    late = [task for task in planner.pending if task.aged and task.slots]
    for task in sorted(late, key=attrgetter("since")):  # of equal ones the first in the queue
        if planner.limits.now(task) is not None or not entitled(task):
            continue
        if not take(task):
            return reserve_place(planner, task)
        if task.id not in planner.started:
            break
    return frozenset()


def reserve_place(planner: Planner, task: SchedulerTask) -> frozenset[str]:
    """Reserve a place for a pending task; return its agents, none if only tasks that start now block it."""
    capacity, holding = planner.capacity.copy(), [task for task in planner.running if not task.aside]
    holding += [replace(one, on=placement, began=None) for one, placement in planner.started.values() if not one.aside]
    return _keep_soonest(planner, task, capacity, holding)


def reserve_place_beside(
    planner: Planner, task: SchedulerTask, takes: Callable[[SchedulerTask], bool]
) -> frozenset[str]:
    """Reserve a place as `reserve_place` does, where the task can preempt some tasks once that is enough.

    Those tasks do not block it. Returns the names of the place's agents.

    Args:
        planner: The pass.
        task: The task that gets the place.
        takes: Whether the task can preempt a task.
    """
    capacity = FreeCapacity(planner.pool, planner.agents)
    holding = [one for one in planner.running if not one.aside and not takes(one)]
    holding += [
        replace(one, on=on, began=None) for one, on in planner.started.values() if not one.aside and not takes(one)
    ]
    for one in holding:
        capacity.place(one, one.on)
    return _keep_soonest(planner, task, capacity, holding)


def _keep_soonest(
    planner: Planner, task: SchedulerTask, capacity: FreeCapacity, holding: Sequence[SchedulerTask]
) -> frozenset[str]:
    placement = capacity.fit(task)
    if placement is None:
        placement, _ = Victims(capacity, sorted(holding, key=_end)).make_room(task, len(holding))
    if placement is None:
        return frozenset()
    planner.keep(task, placement)
    return frozenset(placement)


def _end(task: SchedulerTask) -> tuple[bool, bool, float]:
    """Return a sort key: lower for tasks that are expected to end sooner."""
    endless = not task.preemptible and task.max_time is None
    return not task.leaving, endless, math.inf if task.began is None else task.began
