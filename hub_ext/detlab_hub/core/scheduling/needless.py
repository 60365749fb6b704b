"""Who was chosen to leave and turns out not to be needed, when several wait.

For each that waits as few leave as will do. Together they may be more than are needed: who leaves for the second may
make room for the first one, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from detlab_hub.core.scheduling.fitting import Rooms
from detlab_hub.core.scheduling.model import Task
from detlab_hub.core.scheduling.planner import Planner

_TRIES = 3000
"""So many times at most, victims by who waits for them, it is looked whether one of them could be spared."""


def spared(planner: Planner, victims: Sequence[Task], served: Sequence[Task]) -> set[str]:
    """The names of victims without which all who wait for slots of theirs would find room all the same.

    What is free, but kept for a task that comes first, is room: for that one waits, it is no reason to take more.

    Args:
        planner: The pass.
        victims: The most valuable first: it is the first that keeps its slots.
        served: Who waits, in the order in which they were served.
    """
    if len(victims) * len(served) > _TRIES or (len(served) < 2 and planner.kept_for is None):
        return set()
    names = {victim.id for victim in victims}
    rooms = Rooms(planner.pool, planner.agents)
    for task in planner.running:
        if task.id not in names and not task.leaving:
            rooms.place(task, task.on)
    for task, placement in planner.started.values():
        rooms.place(task, placement)
    found: set[str] = set()
    for victim in victims:
        rooms.place(victim, victim.on)
        if all_fit(rooms, served):
            found.add(victim.id)
        else:
            rooms.remove(victim, victim.on)
    return found


def all_fit(rooms: Rooms, tasks: Sequence[Task]) -> bool:
    """Whether the tasks fit, one after the other; the rooms are afterwards as they were."""
    placed: list[tuple[Task, Mapping[str, int]]] = []
    for task in tasks:
        placement = rooms.fit(task)
        if placement is None:
            break
        rooms.place(task, placement)
        placed.append((task, placement))
    for task, where in placed:
        rooms.remove(task, where)
    return len(placed) == len(tasks)
