"""Whose slots are taken for a task that comes first: as few as will do, of the last in the queue.

Determined takes tasks away from the lowest priority and the newest on until the one that waits fits, and releases all
of them, needed or not. Here each that turns out not to be needed keeps its slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from detlab_hub.core.scheduling.fitting import Kind, Placement, Rooms, Shape, suits
from detlab_hub.core.scheduling.model import Task


class Victims:
    """Running tasks that may be preempted, the least valuable first.

    Args:
        rooms: The working copy; what `make_room` decides is changed there.
        candidates: The first one goes first.
    """

    def __init__(self, rooms: Rooms, candidates: Sequence[Task]) -> None:
        self._rooms = rooms
        self._candidates = list(candidates)
        self._taken = bytearray(len(self._candidates))
        self._by_agent: dict[str, list[int]] = {}
        for number, task in enumerate(self._candidates):
            for name in task.on:
                self._by_agent.setdefault(name, []).append(number)
        self._heaps: dict[tuple[int, Kind, frozenset[str]], list[tuple[int, str]]] = {}
        self._failed: dict[Shape, int] = {}

    @property
    def count(self) -> int:
        """How many candidates there are."""
        return len(self._candidates)

    def make_room(self, task: Task, limit: int) -> tuple[Placement | None, list[Task]]:
        """Take as few of the first `limit` candidates as let the task fit.

        Returns:
            Where it then fits, though it is not placed there, and who was taken; None and nobody if all of them would
            not do.
        """
        shape = self._rooms.shape(task)
        if self._failed.get(shape, 0) >= limit:
            return None, []
        reach = self._reach_of(task, limit) if task.slots else None
        if reach is None and (task.single_node or task.slots == 1):
            chosen = None
        else:
            # What is on one agent alone has to go up to `reach`; with others' slots it may fit before.
            chosen = self._in_order(task, limit if reach is None else reach + 1)
        if chosen is None:
            self._failed[shape] = limit
            return None, []
        for number in chosen:
            self._take(number)
        return self._rooms.fit(task), [self._candidates[number] for number in chosen]

    def _take(self, number: int) -> None:
        self._taken[number] = 1
        victim = self._candidates[number]
        self._rooms.remove(victim, victim.on)

    def _reach_of(self, task: Task, limit: int) -> int | None:
        """The number of the last candidate that has to go until one agent has room for all of the task; None: never."""
        shape = self._rooms.shape(task)
        heap = self._heaps.get((task.slots, shape.kind, shape.blocked_nodes))
        if heap is None:
            names = (name for name in self._by_agent if name not in shape.blocked_nodes)
            reaches = ((self._reach(name, task.slots, shape.kind), name) for name in names)
            heap = [(reach, name) for reach, name in reaches if reach is not None]
            heapify(heap)
            self._heaps[task.slots, shape.kind, shape.blocked_nodes] = heap
        while heap and heap[0][0] < limit:
            reach, name = heap[0]
            now = self._reach(name, task.slots, shape.kind)  # others may have been placed or taken there
            if now == reach:
                return reach
            heappop(heap)
            if now is not None:
                heappush(heap, (now, name))
        return None

    def _reach(self, name: str, slots: int, kind: Kind) -> int | None:
        """The number of the last candidate that has to go for so many free slots on an agent; None: never."""
        node = self._rooms.nodes.get(name)
        if node is None or not suits(kind, node.agent) or not self._rooms.is_open(node):
            return None
        free = node.free
        for number in self._by_agent[name]:
            if not self._taken[number]:
                free += self._candidates[number].on[name]
                if free >= slots:
                    return number
        return None

    def _in_order(self, task: Task, limit: int) -> list[int] | None:
        """One after the other of the first `limit` until the task fits; then each that is not needed comes back."""
        chosen: list[int] = []
        for number in range(min(limit, len(self._candidates))):
            if self._taken[number]:
                continue
            self._rooms.remove(self._candidates[number], self._candidates[number].on)
            chosen.append(number)
            if self._rooms.fit(task) is not None:
                break
        fits = self._rooms.fit(task) is not None
        for number in reversed(chosen.copy()):
            victim = self._candidates[number]
            self._rooms.place(victim, victim.on)
            if fits and self._rooms.fit(task) is None:
                self._rooms.remove(victim, victim.on)
            elif fits:
                chosen.remove(number)
        if not fits:
            return None
        for number in chosen:
            self._rooms.place(self._candidates[number], self._candidates[number].on)
        return chosen
