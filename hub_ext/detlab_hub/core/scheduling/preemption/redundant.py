"""Redundant victims: chosen for one of several pending tasks, and not needed in the end.

For each pending task as few victims as possible are chosen. Together they may be more than needed: a victim for the
second task may make room for the first one, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from detlab_hub.core.scheduling.fit.fitting import FreeCapacity
from detlab_hub.core.scheduling.model import SchedulerTask
from detlab_hub.core.scheduling.planner import Planner

_FITS = 20_000
"""Most fits that are tried, about a tenth of a second, to find redundant victims."""


def redundant_victims(planner: Planner, victims: Sequence[SchedulerTask], served: Sequence[SchedulerTask]) -> set[str]:
    """Return the names of redundant victims: all pending tasks that wait for their slots fit without them, too.

    Slots that are free but reserved for a task ahead count as room: that task waits anyway, so they are no reason to
    take more. As the pending tasks use nearly all that is freed, most victims hold more than would be left: for those
    nothing is tried.

    Args:
        planner: The pass.
        victims: The most valuable first: it is the first to keep its slots.
        served: The pending tasks, in the order in which they were served.
    """
    if not victims or planner.reserved < 2:
        return set()  # for one alone as few leave as will do
    names = {victim.id for victim in victims}
    capacity = FreeCapacity(planner.pool, planner.agents)
    for task in planner.running:
        if task.id not in names and not task.leaving:
            capacity.place(task, task.on)
    for task, placement in planner.started.values():
        capacity.place(task, placement)
    left = _Left(capacity, served)
    found: set[str] = set()
    fits = 0
    for victim in victims:
        held = left.held(victim)
        if not left.covers(held) or fits > _FITS:
            continue
        capacity.place(victim, victim.on)
        fitting = _how_many_fit(capacity, served)
        fits += fitting + 1
        if fitting == len(served):
            found.add(victim.id)
            left.take(held)
        else:
            capacity.remove(victim, victim.on)
    return found


def all_fit(capacity: FreeCapacity, tasks: Sequence[SchedulerTask]) -> bool:
    """Whether the tasks fit, one after the other; leave the capacity as it was."""
    return _how_many_fit(capacity, tasks) == len(tasks)


def _how_many_fit(capacity: FreeCapacity, tasks: Sequence[SchedulerTask]) -> int:
    """Count the tasks that fit, one after the other, up to the first that does not; leave the capacity as it was."""
    placed: list[tuple[SchedulerTask, Mapping[str, int]]] = []
    for task in tasks:
        placement = capacity.fit(task)
        if placement is None:
            break
        capacity.place(task, placement)
        placed.append((task, placement))
    for task, where in placed:
        capacity.remove(task, where)
    return len(placed)


class _Amount(NamedTuple):
    """The resources of agents, summed over all of them."""

    slots: int
    zero_slot_tasks: int
    millicpus: int
    memory: int


class _Left:
    """What remains on the suitable agents of pending tasks when these have their slots, wherever they are placed.

    A victim that holds more than that cannot stay, however the others are placed.
    """

    def __init__(self, capacity: FreeCapacity, served: Sequence[SchedulerTask]) -> None:
        shapes = {capacity.shape(task) for task in served}
        self._nodes = {node.agent.id: node for shape in shapes for node in capacity.open_to(shape)}
        free = _total(
            _Amount(
                max(0, node.free),
                max(0, node.agent.max_zero_slot_tasks - node.zero_slot_tasks),
                max(0, node.millicpus),
                max(0, node.memory),
            )
            for node in self._nodes.values()
        )
        needed = _total(_Amount(task.slots, task.slots == 0, task.millicpus, task.memory) for task in served)
        self._left = _less(free, needed)

    def held(self, victim: SchedulerTask) -> _Amount:
        """Return how much less others could have if a removed task stayed; an agent may be overfull already."""
        slots = zero = millicpus = memory = 0
        for name, count in victim.on.items():
            node = self._nodes.get(name)
            if node is not None:
                slots += min(count, max(0, node.free))
                zero += victim.slots == 0 and node.zero_slot_tasks < node.agent.max_zero_slot_tasks
                millicpus += min(victim.millicpus, max(0, node.millicpus))
                memory += min(victim.memory, max(0, node.memory))
        return _Amount(slots, zero, millicpus, memory)

    def covers(self, held: _Amount) -> bool:
        """Whether this amount is left."""
        return min(_less(self._left, held)) >= 0

    def take(self, held: _Amount) -> None:
        """Let a victim keep its slots."""
        self._left = _less(self._left, held)


def _total(amounts: Iterable[_Amount]) -> _Amount:
    slots = zero = millicpus = memory = 0
    for amount in amounts:
        slots += amount.slots
        zero += amount.zero_slot_tasks
        millicpus += amount.millicpus
        memory += amount.memory
    return _Amount(slots, zero, millicpus, memory)


def _less(one: _Amount, other: _Amount) -> _Amount:
    return _Amount(*(a - b for a, b in zip(one, other, strict=True)))
