"""The number of new instances for the pending tasks.

The tasks that could start if there were room are packed by the scheduler's own fitting, in the order of the queue:
first into what is free now and into instances whose agents have not connected yet, then into empty new ones. Determined
divides the sum of their slots by those of an instance: that is too few where tasks do not pack (five notebooks of
three slots need five instances of four), and too many where an idle agent has room for a part of a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from detlab_hub.core.provisioning.model import Awaited, Situation
from detlab_hub.core.scheduling.fit.fitting import FreeCapacity
from detlab_hub.core.scheduling.fit.multi_node import Placement
from detlab_hub.core.scheduling.fit.shapes import TaskShape
from detlab_hub.core.scheduling.limits import SlotLimits as Held
from detlab_hub.core.scheduling.model import Agent, AgentState, Pool, SchedulerTask, TaskState
from detlab_hub.core.scheduling.order import in_order

_NEW = "\0new "
"""No agent's name begins like this."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of pending tasks.

    Attributes:
        new: Number of new instances; at most one more than may be launched, which means that those are too few.
        used: Agents, connected or expected, that pending tasks would start on.
        unplaced: Whether a pending task needs more instances than are allowed, or must wait until others leave.
        infeasible: Tasks that would not start on any number of empty instances.
        unfit: Of those, the ones that are too large for them, or not for such agents; others may never hold as much.
        awaited: By task, the instances that it would start on and whose agents are not connected yet.
    """

    new: int
    used: frozenset[str]
    unplaced: bool
    infeasible: tuple[str, ...]
    unfit: frozenset[str]
    awaited: Mapping[str, Awaited]


def demand_of(situation: Situation, starting: Sequence[str], room: int, most: int) -> Demand:
    """Pack the pending tasks.

    Args:
        situation: The pool.
        starting: Agents of instances that have not connected yet.
        room: New instances that may be launched now.
        most: Most instances that there may ever be.
    """
    packing = _Packing(situation, starting, room, most)
    for task in _in_order(situation):
        packing.take(task)
    used = frozenset(packing.used)
    unfit = frozenset(packing.unfit)
    return Demand(packing.opened, used, packing.unplaced, tuple(packing.infeasible), unfit, packing.awaited)


def _in_order(situation: Situation) -> list[SchedulerTask]:
    """Return the pending tasks in the scheduler's order.

    Their preferences are left out, as these need no new instances: the tasks start where there is room already.
    """
    jobs = situation.pool.jobs
    waiting = (_indifferent(task) for task in situation.pool.tasks if task.state is TaskState.PENDING)
    return sorted(in_order(waiting, jobs), key=lambda task: jobs[task.job].priority)


def _indifferent(task: SchedulerTask) -> SchedulerTask:
    wanted = task.constraints
    return replace(task, constraints=wanted._replace(preferred=frozenset())) if wanted.preferred else task


def _copies(template: Agent, names: Iterable[str]) -> list[Agent]:
    return [replace(template, id=name, state=AgentState.ENABLED) for name in names]


class _Packing:
    """Tasks as they would be placed on agents, on expected instances, and on new ones that are opened one by one."""

    def __init__(self, situation: Situation, starting: Sequence[str], room: int, most: int) -> None:
        self.opened = 0
        self.used: set[str] = set()
        self.unplaced = False
        self.infeasible: list[str] = []
        self.unfit: set[str] = set()
        self.awaited: dict[str, Awaited] = {}
        self._starting = frozenset(starting)
        self._names = [f"{_NEW}{number}" for number in range(room)]
        self._held = Held(situation.pool)
        pool = situation.pool
        agents = [*pool.agents, *_copies(situation.template, starting), *_copies(situation.template, self._names)]
        self._capacity = FreeCapacity(pool.pool, agents)
        for task in pool.tasks:
            if task.state is TaskState.RUNNING:
                self._capacity.place(task, task.on)
        fixed = [agent for agent in pool.agents if agent.id not in {i.agent_id for i in situation.instances}]
        self._ever = _Ever(pool.pool, [*fixed, *_copies(situation.template, (f"{_NEW}{n}" for n in range(most)))])

    @property
    def _closed(self) -> frozenset[str]:
        """New instances that no task has used yet."""
        return frozenset(self._names[self.opened :])

    def take(self, task: SchedulerTask) -> None:
        """Find a place for a task that could start if there were room."""
        never = self._held.never(task)
        if never or not self._ever.fits(task, self._capacity.shape(task)):
            self.infeasible.append(task.id)
            if not never:
                self.unfit.add(task.id)
            return
        if self._held.now(task):
            return  # `max_slots` or a quota holds it, not the lack of room
        placement = self._place(task)
        if placement is None:
            self.unplaced = True
            return
        self._capacity.place(task, placement)
        self._held.hold(task)
        self.used.update(placement)
        coming = tuple(sorted(self._starting.intersection(placement)))
        new = sum(name.startswith(_NEW) for name in placement)
        if coming or new:
            self.awaited[task.id] = Awaited(coming, new)

    def _place(self, task: SchedulerTask) -> Placement | None:
        found = self._capacity.fit(task, avoid=self._closed)
        if found is not None or self.opened == len(self._names):
            return found
        if self._capacity.fit(task) is None:
            # Even all that may be had are too few now: they are had, and the rest is waited for.
            if self._ever.needs_new(task):
                self.opened = len(self._names)
            return None
        while found is None and self.opened < len(self._names):
            self.opened += 1
            found = self._capacity.fit(task, avoid=self._closed)
        return found


class _Ever:
    """Whether tasks would start if nothing else ran on as many instances as are allowed."""

    def __init__(self, pool: Pool, agents: Sequence[Agent]) -> None:
        self._all = FreeCapacity(pool, agents, empty=True)
        self._new = FreeCapacity(pool, [agent for agent in agents if agent.id.startswith(_NEW)], empty=True)
        self._known: dict[TaskShape, bool] = {}

    def fits(self, task: SchedulerTask, shape: TaskShape) -> bool:
        """Whether it would start at all."""
        if shape not in self._known:
            self._known[shape] = self._all.fit(task) is not None
        return self._known[shape]

    def needs_new(self, task: SchedulerTask) -> bool:
        """Whether new instances are suitable for it."""
        return bool(self._new.suitable(task))
