"""Whose slots are taken for a task that comes first: as few as will do, of the last in the queue.

Determined takes tasks away from the lowest priority and the newest on until the one that waits fits, and releases all
of them, needed or not. Here each that turns out not to be needed keeps its slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from detlab_hub.core.scheduling.pools.fitting import Kind, Placement, Rooms, Shape, suits
from detlab_hub.core.scheduling.pools.model import Task


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
        self._heaps: dict[tuple[int, Kind], list[tuple[int, str]]] = {}
        self._failed: dict[Shape, int] = {}

    def make_room(self, task: Task, limit: int) -> tuple[Placement | None, list[Task]]:
        """Take as few of the first `limit` candidates as let the task fit.

        Returns:
            Where it then fits, though it is not placed there, and who was taken; None and nobody if all of them would
            not do.
        """
        shape = self._rooms.shape(task)
        if self._failed.get(shape, 0) >= limit:
            return None, []
        chosen = self._on_one(task, limit)
        if chosen is None and not task.single_node and task.slots > 1:
            chosen = self._anywhere(task, limit)
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

    # --- room on one agent

    def _on_one(self, task: Task, limit: int) -> list[int] | None:
        """The victims on the agent that has room first when the candidates go one after the other."""
        kind = self._rooms.shape(task).kind
        heap = self._heaps.get((task.slots, kind))
        if heap is None:
            heap = []
            for name in self._by_agent:
                reach = self._reach(name, task.slots, kind)
                if reach is not None:
                    heap.append((reach, name))
            heapify(heap)
            self._heaps[task.slots, kind] = heap
        while heap and heap[0][0] < limit:
            reach, name = heap[0]
            now = self._reach(name, task.slots, kind)  # others may have been placed or taken there
            if now == reach:
                return self._needed(name, task.slots, reach)
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
        if free >= slots:
            return None  # room without anybody's leaving is not asked for here
        for number in self._by_agent[name]:
            if not self._taken[number]:
                free += self._candidates[number].on[name]
                if free >= slots:
                    return number
        return None

    def _needed(self, name: str, slots: int, reach: int) -> list[int]:
        """Those up to `reach` without whom there would be too little, the most valuable ones spared first."""
        chosen = [number for number in self._by_agent[name] if number <= reach and not self._taken[number]]
        free = self._rooms.nodes[name].free + sum(self._candidates[number].on[name] for number in chosen)
        for number in reversed(chosen.copy()):
            given = self._candidates[number].on[name]
            if free - given >= slots:
                free -= given
                chosen.remove(number)
        return chosen

    # --- room on several agents

    def _anywhere(self, task: Task, limit: int) -> list[int] | None:
        """One after the other until it fits; then each that is not needed comes back."""
        rooms, chosen = self._rooms, []
        for number in range(min(limit, len(self._candidates))):
            victim = self._candidates[number]
            if self._taken[number] or victim.slots == 0:
                continue
            rooms.remove(victim, victim.on)
            chosen.append(number)
            if rooms.fit(task) is not None:
                break
        else:
            for number in chosen:
                rooms.place(self._candidates[number], self._candidates[number].on)
            return None
        for number in reversed(chosen.copy()):
            victim = self._candidates[number]
            rooms.place(victim, victim.on)
            if rooms.fit(task) is None:
                rooms.remove(victim, victim.on)
            else:
                chosen.remove(number)
        for number in chosen:
            rooms.place(self._candidates[number], self._candidates[number].on)
        return chosen
