"""Preemption victims for a task ahead of them: as few as possible, from the end of the queue.

Determined preempts tasks from the lowest priority and the newest on until the pending one fits, and releases all of
them, needed or not. Here redundant victims keep their slots.

Victims are found by counting, without a change to the working copy: whether a task fits depends on how many agents have
how many free slots, and only a task on a suitable agent can make room for a task that needs a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from detlab_hub.core.scheduling.fit.fitting import FreeCapacity
from detlab_hub.core.scheduling.fit.free_index import WORD, FitCounter, FreeNode
from detlab_hub.core.scheduling.fit.multi_node import Placement
from detlab_hub.core.scheduling.fit.shapes import AgentNeeds, TaskShape
from detlab_hub.core.scheduling.model import SchedulerTask

_Where: TypeAlias = tuple[AgentNeeds, frozenset[str]]
"""Which agents a task may use: its kind, and those that it blocks."""


_STALE = 32
"""A row of candidates is rebuilt when this many have been taken, and more of a long one."""


class _Reaches:
    """How far down the row of candidates one has to go on each agent, for tasks of a number of slots on one agent.

    Attributes:
        heap: (number of the last candidate to preempt, agent), as a heap; exact or too low, for instance where a task
            was placed since.
        seen: Number of changes that it includes.
    """

    __slots__ = ("heap", "seen")

    def __init__(self, heap: list[tuple[int, str]], seen: int) -> None:
        self.heap = heap
        self.seen = seen


class _Left:
    """The free resources of an agent, for tasks that request CPUs or memory."""

    __slots__ = ("_memory", "_millicpus", "_shape", "_slots")

    def __init__(self, node: FreeNode, shape: TaskShape) -> None:
        self._shape = shape
        self._slots, self._millicpus, self._memory = node.free, node.millicpus, node.memory

    def change(self, task: SchedulerTask, slots: int, sign: int) -> None:
        """Release what a task holds there (`sign` 1), or let it keep that after all (-1)."""
        self._slots += sign * slots
        self._millicpus += sign * task.millicpus
        self._memory += sign * task.memory

    @property
    def slots(self) -> int:
        """Slots that tasks of the shape can use: none if CPUs or memory are short."""
        wanted = self._shape
        short = (wanted.millicpus and self._millicpus < wanted.millicpus) or (
            wanted.memory and self._memory < wanted.memory
        )
        return 0 if short else self._slots


class Victims:
    """Running tasks that may be preempted, the least valuable first.

    Args:
        capacity: The working copy; what `make_room` decides is changed there.
        candidates: In the order in which they are preempted.
    """

    def __init__(self, capacity: FreeCapacity, candidates: Sequence[SchedulerTask]) -> None:
        self._capacity = capacity
        self._candidates = list(candidates)
        self._taken = bytearray(len(self._candidates))
        self._by_agent: dict[str, list[int]] = {}
        for number, task in enumerate(self._candidates):
            for name in task.on:
                self._by_agent.setdefault(name, []).append(number)
        self._suits: dict[_Where, frozenset[str]] = {}
        self._rows: dict[_Where, tuple[list[int], int]] = {}
        self._reaches: dict[TaskShape, _Reaches] = {}
        self._gained: list[str] = []
        """Agents on which candidates were taken, one after the other."""
        self._failed: dict[TaskShape, int] = {}
        self.checked = 0
        """How often an agent was checked for how far one has to go."""

    @property
    def count(self) -> int:
        """How many candidates there are."""
        return len(self._candidates)

    def leave_out(self, agents: Iterable[str]) -> None:
        """Choose no victims on these agents from now on: the slots that they would release are reserved."""
        for name in agents:
            for number in self._by_agent.get(name, ()):
                self._taken[number] = 1

    def make_room(self, task: SchedulerTask, limit: int) -> tuple[Placement | None, list[SchedulerTask]]:
        """Take as few of the first `limit` candidates as let the task fit.

        Returns:
            Where it then fits, though it is not placed there, and the victims; None and no victims if even all of the
            candidates are not enough.
        """
        shape = self._capacity.shape(task)
        if self._failed.get(shape, 0) >= limit:
            return None, []
        if task.slots == 0:
            chosen = self._in_order(task, limit)
        elif task.single_node or task.slots == 1:
            chosen = self._on_one(shape, limit)
        else:
            chosen = self._on_several(shape, limit)
        if chosen is None:
            self._failed[shape] = limit
            return None, []
        victims = [self._candidates[number] for number in chosen]
        for number in chosen:
            self._take(number)
        if self._on_one_agent(task, shape, victims):
            return dict.fromkeys(victims[0].on, task.slots), victims  # nowhere else did anything change
        return self._capacity.fit(task), victims

    def _on_one_agent(self, task: SchedulerTask, shape: TaskShape, victims: Sequence[SchedulerTask]) -> bool:
        """Whether the task can only be placed on the one agent of the victims."""
        return task.slots > 0 and (shape.single_node or task.slots == 1) and all(len(one.on) == 1 for one in victims)

    def _take(self, number: int) -> None:
        self._taken[number] = 1
        victim = self._candidates[number]
        self._capacity.remove(victim, victim.on)
        self._gained += victim.on

    def _may_have(self, shape: TaskShape) -> frozenset[str]:
        """Return the agents with candidates that a task of this shape may use."""
        where = shape.kind, shape.blocked_nodes
        found = self._suits.get(where)
        if found is None:
            names = (node.agent.id for node in self._capacity.open_to(shape))
            found = self._suits[where] = frozenset(name for name in names if name in self._by_agent)
        return found

    # --- on one agent

    def _on_one(self, shape: TaskShape, limit: int) -> list[int] | None:
        last = self._first_reach(shape, limit)
        if last is None:
            return None
        if len(self._candidates[last].on) == 1 and not shape.demanding:
            return self._on_its_agent(last, shape.slots)
        # Of all that stand before the last one only those on the agents where it makes the room are needed.
        near = self._may_have(shape).intersection(self._candidates[last].on)
        agents = {name for name in near if self._reach(name, shape) == last}
        left = {name: _Left(self._capacity.nodes[name], shape) for name in agents}
        row = sorted({number for name in agents for number in self._by_agent[name] if number <= last})
        chosen = [number for number in row if not self._taken[number]]
        for number in chosen:
            self._add(left, number, 1)
        for number in reversed(chosen.copy()):
            self._add(left, number, -1)
            if max(one.slots for one in left.values()) >= shape.slots:
                chosen.remove(number)
            else:
                self._add(left, number, 1)
        return chosen

    def _on_its_agent(self, last: int, slots: int) -> list[int]:
        """List the victims on the last one's agent without which the task would not fit."""
        ((name, _),) = self._candidates[last].on.items()
        chosen = [number for number in self._by_agent[name] if number <= last and not self._taken[number]]
        held = [self._candidates[number].on[name] for number in chosen]
        spare = self._capacity.nodes[name].free + sum(held) - slots
        for place in range(len(chosen) - 1, -1, -1):
            if held[place] <= spare:
                spare -= held[place]
                del chosen[place]
        return chosen

    def _add(self, left: dict[str, _Left], number: int, sign: int) -> None:
        task = self._candidates[number]
        for name, slots in task.on.items():
            if name in left:
                left[name].change(task, slots, sign)

    def _first_reach(self, shape: TaskShape, limit: int) -> int | None:
        """Return the number of the last candidate to preempt until one agent has room; None if that is never enough."""
        heap = self._reaches_of(shape, limit).heap
        while heap and heap[0][0] < limit:
            reach, name = heap[0]
            now = self._reach(name, shape)
            if now == reach:
                return reach
            if now is None:
                heappop(heap)
            else:
                heapreplace(heap, (now, name))
        return None

    def _reaches_of(self, shape: TaskShape, limit: int) -> _Reaches:
        """Return how far one has to go at least on each agent; the exact number is computed where it matters.

        Tasks may differ widely, above all in CPUs and memory: only for few of them are all agents checked.
        """
        known, gained = self._reaches.get(shape), self._gained
        if known is None or (shape.demanding and known.seen + _STALE < len(gained)):
            known = self._reaches[shape] = self._begun(shape, limit)
        elif known.seen < len(gained):
            # Where somebody left who stands further back, one need not go as far as before.
            for name in self._may_have(shape).intersection(gained[known.seen :]):
                first = self._first_left(name)
                if first is not None:
                    heappush(known.heap, (first, name))
            known.seen = len(gained)
        return known

    def _begun(self, shape: TaskShape, limit: int) -> _Reaches:
        """Start from the reach of tasks that request less, which many share; failing that, from the first candidate."""
        if shape.demanding:
            less = self._capacity.coarser(shape)
            self._first_reach(less, limit)  # what is looked up for it need not be for the others
            heap = self._reaches[less].heap.copy()
        else:
            firsts = ((self._first_left(name), name) for name in self._may_have(shape))
            heap = [(first, name) for first, name in firsts if first is not None]
            heapify(heap)
        return _Reaches(heap, len(self._gained))

    def _first_left(self, name: str) -> int | None:
        taken = self._taken
        for number in self._by_agent[name]:
            if not taken[number]:
                return number
        return None

    def _reach(self, name: str, shape: TaskShape) -> int | None:
        """Return the number of the last candidate to preempt for room on an agent; None if that is never enough."""
        self.checked += 1
        slots, node = shape.slots, self._capacity.nodes[name]
        free, taken, candidates = node.free, self._taken, self._candidates
        if shape.demanding:
            # What it does not ask for never lacks, though it may be less than nothing.
            millicpus = node.millicpus if shape.millicpus else WORD
            memory = node.memory if shape.memory else WORD
            for number in self._by_agent[name]:
                if not taken[number]:
                    task = candidates[number]
                    free += task.on[name]
                    millicpus += task.millicpus
                    memory += task.memory
                    if free >= slots and millicpus >= shape.millicpus and memory >= shape.memory:
                        return number
            return None
        for number in self._by_agent[name]:
            if not taken[number]:
                free += candidates[number].on[name]
                if free >= slots:
                    return number
        return None

    # --- on several

    def _on_several(self, shape: TaskShape, limit: int) -> list[int] | None:
        """Add the first `limit` candidates one by one until the task fits; then drop the redundant ones."""
        where = shape.kind, shape.blocked_nodes
        names, room = self._may_have(shape), self._capacity.fit_counter_for(shape)
        change = (self._counting_all if shape.demanding else self._counting_slots)(shape, names, room)
        chosen: list[int] = []
        for number in self._row(where, names):
            if number >= limit:
                return None
            if not self._taken[number]:
                change(number, 1)
                chosen.append(number)
                if room.enough:
                    break
        else:
            return None
        for number in reversed(chosen.copy()):
            change(number, -1)
            if room.enough:
                chosen.remove(number)
            else:
                change(number, 1)
        return chosen

    def _counting_slots(self, shape: TaskShape, names: frozenset[str], room: FitCounter) -> Callable[[int, int], None]:
        """Return a function that notes that a candidate leaves (1), or stays after all (-1)."""
        free: dict[str, int] = {}

        def change(number: int, sign: int) -> None:
            for name, slots in self._candidates[number].on.items():
                if name in names:
                    old = free.get(name)
                    before = self._capacity.nodes[name].free if old is None else old
                    free[name] = before + sign * slots
                    room.change(before, free[name])

        return change

    def _counting_all(self, shape: TaskShape, names: frozenset[str], room: FitCounter) -> Callable[[int, int], None]:
        """Return the same counter for tasks that request CPUs or memory, too."""
        lefts: dict[str, _Left] = {}

        def change(number: int, sign: int) -> None:
            task = self._candidates[number]
            for name, slots in task.on.items():
                if name in names:
                    left = lefts.get(name)
                    if left is None:
                        left = lefts[name] = _Left(self._capacity.nodes[name], shape)
                    before = left.slots
                    left.change(task, slots, sign)
                    room.change(before, left.slots)

        return change

    def _row(self, where: _Where, names: frozenset[str]) -> list[int]:
        """List the candidates on agents that a task of this shape may use, without most of those that were taken."""
        known = self._rows.get(where)
        if known is not None and len(self._gained) - known[1] < _STALE + len(known[0]) // _STALE:
            return known[0]
        row = {number for name in names for number in self._by_agent[name]} if known is None else known[0]
        left = sorted(number for number in row if not self._taken[number])
        self._rows[where] = left, len(self._gained)
        return left

    # --- tasks without slots

    def _in_order(self, task: SchedulerTask, limit: int) -> list[int] | None:
        """Add the first `limit` candidates one by one until the task fits; then drop the redundant ones."""
        chosen: list[int] = []
        for number in range(min(limit, len(self._candidates))):
            if self._taken[number]:
                continue
            self._capacity.remove(self._candidates[number], self._candidates[number].on)
            chosen.append(number)
            if self._capacity.fit(task) is not None:
                break
        fits = self._capacity.fit(task) is not None
        for number in reversed(chosen.copy()):
            victim = self._candidates[number]
            self._capacity.place(victim, victim.on)
            if fits and self._capacity.fit(task) is None:
                self._capacity.remove(victim, victim.on)
            elif fits:
                chosen.remove(number)
        if not fits:
            return None
        for number in chosen:
            self._capacity.place(self._candidates[number], self._candidates[number].on)
        return chosen
