"""The scheduler without what makes it fast: each question is answered by looking at all agents and all candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import pytest

from detlab_hub.core.scheduling import (
    Agent,
    AgentState,
    Fitting,
    Job,
    PlacementDecision,
    SchedulerTask,
    Snapshot,
    backfill,
    fair_share,
    planner,
    priority,
    reservation,
    schedule,
)
from detlab_hub.core.scheduling.fit.fitting import FreeCapacity
from detlab_hub.core.scheduling.fit.free_index import FreeNode, hash_of
from detlab_hub.core.scheduling.fit.multi_node import Placement
from detlab_hub.core.scheduling.fit.shapes import suits


class PlainRooms(FreeCapacity):
    """Fits as they are defined."""

    def fit(self, task: SchedulerTask, *, avoid: frozenset[str] = frozenset()) -> Placement | None:
        """The slots that the task would get now."""
        shape = self.shape(task)
        barred = shape.blocked_nodes | avoid
        nodes = [
            node
            for name, node in self.nodes.items()
            if name not in barred
            and suits(shape.kind, node.agent)
            and (self._empty or node.agent.state is AgentState.ENABLED)
        ]
        number = hash_of(task.id)
        if task.slots == 0:
            able = [node for node in nodes if node.zero_slot_tasks < node.agent.max_zero_slot_tasks and has(node, task)]
            able = _most_preferred(able, task)
            return {_first(able, self._zero_value, number).agent.id: 0} if able else None
        nodes = [_Usable(node, task) for node in nodes]
        able = _most_preferred([node for node in nodes if node.free >= task.slots], task)
        if able:
            return {_first(able, self._value, number).agent.id: task.slots}
        if task.single_node or task.slots == 1:
            return None
        for least in sorted({preference(node.agent, task) for node in nodes}, reverse=True):
            dear = [node for node in nodes if preference(node.agent, task) >= least]
            if (found := self._on_many(task.slots, dear, number)) is not None:
                return found
        return None

    def _value(self, node: FreeNode) -> float:
        if self._pool.fitting is Fitting.BEST:
            return 1 / (1 + node.free)
        return node.free / node.agent.slots if node.agent.slots else 0.0

    def _zero_value(self, node: FreeNode) -> float:
        if node.free != node.agent.slots:
            return self._value(node)
        most = node.agent.max_zero_slot_tasks
        left = most - node.zero_slot_tasks
        return 1 / (1 + left) if self._pool.fitting is Fitting.BEST else left / most

    def _on_many(self, slots: int, nodes: Sequence[FreeNode], number: int) -> Placement | None:
        idle = [node for node in nodes if node.free and node.free == node.agent.slots]
        for each in sorted({node.free for node in idle}, reverse=True):
            alike = [node for node in idle if node.free == each]
            if slots % each == 0 and len(alike) * each >= slots:
                return {node.agent.id: each for node in _near(alike, number)[: slots // each]}
        if self._pool.heterogeneous and (whole := _whole(slots, idle, number)) is not None:
            return whole
        for each in range(slots // 2, 0, -1):
            roomy = [node for node in nodes if node.free >= each]
            if slots % each == 0 and len(roomy) * each >= slots:
                best = sorted(_near(roomy, number), key=self._value, reverse=True)
                return {node.agent.id: each for node in best[: slots // each]}
        if not self._pool.heterogeneous or sum(node.free for node in nodes) < slots:
            return None
        found: Placement = {}
        for node in sorted(_near(nodes, number), key=lambda node: -node.free):
            if left := slots - sum(found.values()):
                found[node.agent.id] = min(left, node.free)
        return found


def preference(agent: Agent, task: SchedulerTask) -> int:
    """The weights of all that a task prefers and an agent has."""
    total = 0
    for (label, values, negated), weight in task.constraints.preferred:
        there = label in agent.labels and (agent.labels[label] in values or not values)
        total += weight if there != negated else 0
    return total


def _most_preferred(nodes: Sequence[FreeNode], task: SchedulerTask) -> list[FreeNode]:
    most = max((preference(node.agent, task) for node in nodes), default=0)
    return [node for node in nodes if preference(node.agent, task) == most]


def has(node: FreeNode, task: SchedulerTask) -> bool:
    """Whether the CPUs and the memory that a task asks for are there."""
    return node.millicpus >= task.millicpus and node.memory >= task.memory


class _Usable(FreeNode):
    """A node as a task sees it: full if it has too little of what the task asks for."""

    def __init__(self, node: FreeNode, task: SchedulerTask) -> None:
        super().__init__(node.agent)
        self.free = node.free if has(node, task) else 0


def _distance(node: FreeNode, number: int) -> tuple[int, str]:
    return (number - hash_of(node.agent.id)) % 2**64, node.agent.id


def _near(nodes: Iterable[FreeNode], number: int) -> list[FreeNode]:
    return sorted(nodes, key=lambda node: _distance(node, number))


def _first(nodes: Sequence[FreeNode], value: Callable[[FreeNode], float], number: int) -> FreeNode:
    return min(nodes, key=lambda node: (-value(node), _distance(node, number)))


def _whole(slots: int, idle: Sequence[FreeNode], number: int) -> Placement | None:
    found: Placement = {}
    for node in sorted(_near(idle, number), key=lambda node: -node.free):
        if node.free <= slots - sum(found.values()):
            found[node.agent.id] = node.free
    return found if sum(found.values()) == slots else None


class PlainVictims:
    """One candidate after the other leaves until the task fits; then each that is not needed comes back."""

    def __init__(self, capacity: FreeCapacity, candidates: Sequence[SchedulerTask]) -> None:
        self._capacity, self._left = capacity, dict(enumerate(candidates))
        self.count = len(candidates)

    def leave_out(self, agents: Iterable[str]) -> None:
        """As `Victims.leave_out`."""
        self._left = {number: task for number, task in self._left.items() if not set(agents) & task.on.keys()}

    def make_room(self, task: SchedulerTask, limit: int) -> tuple[Placement | None, list[SchedulerTask]]:
        """As `Victims.make_room`."""
        gone: list[int] = []
        for number in [number for number in self._left if number < limit]:
            if self._capacity.fit(task) is None:
                self._capacity.remove(self._left[number], self._left[number].on)
                gone.append(number)
        fits = self._capacity.fit(task) is not None
        for number in reversed(gone.copy()):
            self._capacity.place(self._left[number], self._left[number].on)
            if fits and self._capacity.fit(task) is None:
                self._capacity.remove(self._left[number], self._left[number].on)
            else:
                gone.remove(number)
        return self._capacity.fit(task), [self._left.pop(number) for number in gone]


def _plain_order(tasks: Iterable[SchedulerTask], jobs: Mapping[str, Job]) -> list[SchedulerTask]:
    def place(task: SchedulerTask) -> tuple[float, float, float, str]:
        job = jobs[task.job]
        return (
            job.submitted if job.position is None else job.position,
            job.submitted,
            *attrgetter("requested", "id")(task),
        )

    return sorted(tasks, key=place)


def plain_schedule(snapshot: Snapshot) -> PlacementDecision:
    """What `schedule` decides, found without any shortcut."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (planner, backfill, reservation):
            patch.setattr(module, "FreeCapacity", PlainRooms)
        for module in (reservation, priority, fair_share):
            patch.setattr(module, "Victims", PlainVictims)
        patch.setattr(planner, "in_order", _plain_order)
        return schedule(snapshot)
