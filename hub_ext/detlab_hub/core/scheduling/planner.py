"""The shared base of a pool's schedulers: the working copy, the limits, and the decision as it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from detlab_hub.core.scheduling.fit.fitting import FreeCapacity
from detlab_hub.core.scheduling.fit.free_index import AgentOrder, FreeNode
from detlab_hub.core.scheduling.fit.multi_node import Placement
from detlab_hub.core.scheduling.fit.shapes import AgentNeeds, Shapes, TaskShape
from detlab_hub.core.scheduling.fit.unmet import named, why_unsuitable
from detlab_hub.core.scheduling.limits import MEBIBYTE, SlotLimits, count_bytes, count_cpus, count_slots, demanded
from detlab_hub.core.scheduling.model import (
    Agent,
    AgentState,
    Job,
    PlacementDecision,
    Reason,
    ReasonCode,
    SchedulerTask,
    Snapshot,
    TaskState,
)
from detlab_hub.core.scheduling.order import in_order

_WHY_CLOSED = {
    AgentState.DRAINING: "is draining",
    AgentState.DISABLED: "is disabled",
    AgentState.SUSPECT: "is out of contact",
}


class Planner:
    """One pass over a pool.

    Attributes:
        capacity: What is free, as the pass continues. Released slots count as free here, for the task that they are
            for.
        limits: What jobs and users hold.
        pending: Tasks that could start if there were room, in queue order. Those that could not, whatever the other
            tasks do, have their reason already and block no other.
        shapes: Their shapes, in the same order.
        running: Tasks that hold slots, in queue order.
        started: Tasks that start in this pass, so far.
        release: Tasks that are to release their slots, so far.
        gathered: Which tasks release slots for which, as far as that was noted (`releasing`).
        reserved_for: The task which holds a reservation until it is free, if there is one.
        reserved: Number of tasks that do not start but have a reservation.
        usage: For shares of users: slot-seconds that each user has used of late.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.pool, self.usage = snapshot.pool, snapshot.usage
        self.jobs: Mapping[str, Job] = snapshot.jobs
        self.limits = SlotLimits(snapshot)
        self.agents = snapshot.agents
        self._private = snapshot.private
        pool, agents = snapshot.pool, snapshot.agents
        shapes, order = Shapes(agents), AgentOrder(agent.id for agent in agents)
        self.capacity = FreeCapacity(pool, agents, shapes=shapes, order=order)
        self.started: dict[str, tuple[SchedulerTask, Placement]] = {}
        self.release: list[SchedulerTask] = []
        self.reserved_for: SchedulerTask | None = None
        self.reserved = 0
        self._whole = FreeCapacity(pool, agents, empty=True, shapes=shapes, order=order)
        all_open = all(agent.state is AgentState.ENABLED for agent in agents)
        self._idle = self._whole if all_open else FreeCapacity(pool, agents, shapes=shapes, order=order)
        self._waiting: dict[str, Reason] = {}
        self.gathered: dict[str, tuple[str, ...]] = {}
        self._for_room: list[tuple[SchedulerTask, TaskShape, bool]] = []
        self.wait_for_room = self._for_room.append
        """`wait` without a reason, for many."""
        self._never: dict[TaskShape, Reason | None] = {}
        self._totals: dict[tuple[AgentNeeds, frozenset[str]], int] = {}
        self._roomy: dict[TaskShape, Sequence[FreeNode]] = {}
        pending, self.running = _told_apart(in_order(snapshot.tasks, snapshot.jobs))
        for task in self.running:
            self.capacity.place(task, task.on)
        self._free = self.capacity.copy()
        """The free resources at the end of the pass, without reservations and releases."""
        self._later: frozenset[str] = frozenset()
        self.pending, self.shapes = self._possible(pending, shapes.of_all(pending))

    def _possible(
        self, tasks: list[SchedulerTask], shapes: list[TaskShape]
    ) -> tuple[list[SchedulerTask], list[TaskShape]]:
        """Return the tasks that could start if there were room; note the reason for the others."""
        never, unlimited = self._never, self.limits.none
        firsts = dict(zip(reversed(shapes), reversed(tasks), strict=True))
        for shape, task in firsts.items():
            never[shape] = self._look_whether_ever(task)
        if unlimited and not any(never.values()):
            return tasks, shapes
        possible: list[SchedulerTask] = []
        theirs: list[TaskShape] = []
        for task, shape in zip(tasks, shapes, strict=True):
            reason = None if unlimited else self.limits.never(task)
            if reason is None:
                reason = never[shape]
                if reason is not None and reason.code is ReasonCode.NO_AGENT and not unlimited:
                    reason = self.limits.now(task) or reason  # an agent that came would not help
            if reason is None:
                possible.append(task)
                theirs.append(shape)
            else:
                self._waiting[task.id] = reason
        return possible, theirs

    # --- what is decided ----------------------------------------------------------------------------------

    def allowed(self, task: SchedulerTask) -> bool:
        """Whether `max_slots` and quotas let the task start now; if not, note that as its pending reason."""
        if self.limits.none:
            return True
        reason = self.limits.now(task)
        if reason is not None:
            self._waiting[task.id] = reason
        return reason is None

    def start(self, task: SchedulerTask, placement: Placement) -> None:
        """Start the task there."""
        self.capacity.place(task, placement)
        self._free.place(task, placement)
        self.limits.hold(task)
        self.started[task.id] = task, placement

    def now(
        self, task: SchedulerTask, placement: Placement, *, avoid: frozenset[str] = frozenset()
    ) -> Placement | None:
        """Return the placement if its slots are free, not just being released; else a free one; None: there is none.

        Args:
            task: The task to start.
            placement: Where it fits.
            avoid: Agents where it must not start: those on which that placement was not looked for either.
        """
        if self._is_free(task, placement):
            return placement
        later = self._being_released()
        return self.capacity.fit(task, avoid=avoid | later if avoid else later)

    def _being_released(self) -> frozenset[str]:
        """Return the agents on which something is being released that is not reserved yet."""
        touched = self.capacity.touched | self._free.touched
        if touched:
            nodes, free, before = self.capacity.nodes, self._free.nodes, self._later
            later = {
                name
                for name in touched
                if nodes[name].free > free[name].free
                or nodes[name].zero_slot_tasks < free[name].zero_slot_tasks
                or nodes[name].millicpus > free[name].millicpus
                or nodes[name].memory > free[name].memory
            }
            if later != before & touched:  # else it stays the same object, whose hash is known
                self._later = (before - touched) | later
            self.capacity.touched.clear()
            self._free.touched.clear()
        return self._later

    def _is_free(self, task: SchedulerTask, placement: Placement) -> bool:
        nodes = [(self._free.nodes[name], slots) for name, slots in placement.items()]
        if task.slots == 0:
            return all(node.zero_slot_tasks < node.agent.max_zero_slot_tasks and node.has(task) for node, _ in nodes)
        return all(node.free >= slots and node.has(task) for node, slots in nodes)

    def reserve(self, task: SchedulerTask, placement: Placement) -> None:
        """Reserve these slots for the task: no other gets them in this pass. `wait` notes its pending reason."""
        self.capacity.place(task, placement)
        self.limits.hold(task)
        self.reserved += 1

    def keep(self, task: SchedulerTask, placement: Placement) -> None:
        """Reserve the free part of this for the task in this pass; the rest becomes free when other tasks end."""
        nodes = self.capacity.nodes
        self.reserve(task, {name: max(0, min(slots, nodes[name].free)) for name, slots in placement.items()})
        self.reserved_for = task

    def wait(self, task: SchedulerTask, reason: Reason | None = None, *, next_in_line: bool = False) -> None:
        """Leave the task pending, for the reason given or else for want of room.

        Args:
            task: The pending task.
            reason: Why it waits; None: there is no room.
            next_in_line: Whether it would start now with fewer slots, if there were room for those.
        """
        if reason is None:
            self.wait_for_room((task, self.capacity.known[task.id], next_in_line))
        else:
            self._waiting[task.id] = reason

    def decision(self) -> PlacementDecision:
        """Return the decision; called once, at the end."""
        known: dict[bool, dict[TaskShape, Reason]] = {True: {}, False: {}}
        waiting = self._waiting
        for task, shape, next_in_line in self._for_room:
            alike = known[next_in_line]
            reason = alike.get(shape)
            if reason is None:
                reason = alike[shape] = self._no_room(task, next_in_line)
            waiting[task.id] = reason
        allocate = {name: placement for name, (_, placement) in self.started.items()}
        return PlacementDecision(allocate, tuple(task.id for task in self.release), self._waiting, self.gathered)

    # --- what is said of others ---------------------------------------------------------------------------

    def name_for(self, other: SchedulerTask, task: SchedulerTask) -> str:
        """Return what a task's owner may read of another: its id, if both have one owner or nothing is private (I9)."""
        return "another user's task" if self._private and other.user != task.user else other.id

    def wait_for_release(self, task: SchedulerTask, victims: Sequence[SchedulerTask]) -> Reason:
        """Return the reason of a task for which others release slots; note these for the decision."""
        self.gathered[task.id] = tuple(victim.id for victim in victims)
        names = [victim.id for victim in victims if not self._private or victim.user == task.user]
        others = len(victims) - len(names)
        if others:
            names.append("another user's task" if others == 1 else f"{others} tasks of others")
        what = f"{named(names, ', ')} to release their slots" if victims else "slots that other users are releasing"
        return Reason(ReasonCode.RELEASING, f"waits for {what}")

    # --- why there is no room -----------------------------------------------------------------------------

    def _look_whether_ever(self, task: SchedulerTask) -> Reason | None:
        """Explain why the task could not start even if it were the only one; None if it could."""
        if not self.agents:
            return Reason(ReasonCode.NO_AGENT, "no agent is connected")
        if self._whole.fit(task) is not None and (self._idle is self._whole or self._idle.fit(task) is not None):
            return None
        suitable = self.capacity.suitable(task)
        if not suitable:
            why = why_unsuitable(task, self.agents, private=self._private)
            return Reason(ReasonCode.NO_SUITABLE_AGENT, why)
        if self._whole.fit(task) is None:
            explain = _why_too_much if self._whole.fits_but_for_demands(task) else _why_too_large
            return Reason(ReasonCode.TOO_LARGE, explain(task, suitable, len(self.agents)))
        closed = [agent for agent in suitable if agent.state is not AgentState.ENABLED]
        told = [f"agent {agent.id} {_WHY_CLOSED[agent.state]}" for agent in closed]
        return Reason(ReasonCode.AGENTS_UNAVAILABLE, named(told, "; "))

    def _no_room(self, task: SchedulerTask, next_in_line: bool) -> Reason:
        short = (task.millicpus or task.memory) and self._free.fit(task) is None
        if short and self._free.fits_but_for_demands(task):
            return self._no_resources(task, next_in_line)
        if task.slots == 0 and self._free.fit(task) is not None:
            return Reason(ReasonCode.BEHIND, "there is room, reserved for tasks ahead of it")
        if task.slots == 0:
            return Reason(ReasonCode.NO_FREE_SLOTS, "every agent runs as many tasks without slots as it may")
        total = self._open_slots(task)
        free = self._free.free_slots(task)
        if self._free.fit(task) is not None:
            return Reason(ReasonCode.BEHIND, f"{free} of {total} slots are free, reserved for tasks ahead of it")
        most = self._free.largest(task) if next_in_line else 0
        hint = f"; would start now with {count_slots(most)}" if most else ""
        if free >= task.slots:
            where = "on one agent" if task.single_node else "in a way that fits"
            detail = f"needs {count_slots(task.slots)}: {free} of {total} free, but not {where}{hint}"
            return Reason(ReasonCode.FRAGMENTED, detail)
        detail = f"needs {count_slots(task.slots)}: {free or 'none'} of {total} free{hint}"
        return Reason(ReasonCode.NO_FREE_SLOTS, detail)

    def _open_slots(self, task: SchedulerTask) -> int:
        """Count the slots of the agents that it may use; to be called once nothing changes any more."""
        shape = self.capacity.known[task.id]
        where = shape.kind, shape.blocked_nodes
        if where not in self._totals:
            suitable = self.capacity.suitable(task)
            self._totals[where] = sum(agent.slots for agent in suitable if agent.state is AgentState.ENABLED)
        return self._totals[where]

    def _with_slots(self, task: SchedulerTask) -> Sequence[FreeNode]:
        """List the agents that have the task's slots free; to be called once nothing changes any more."""
        shape = self._free.undemanding(self.capacity.known[task.id])
        if shape not in self._roomy:
            self._roomy[shape] = self._free.with_slots(task)
        return self._roomy[shape]

    def _no_resources(self, task: SchedulerTask, next_in_line: bool) -> Reason:
        nodes, one = self._with_slots(task), task.single_node or task.slots < 2
        detail = f"waits for {demanded(task)} on {'one agent' if one else 'each of its agents'}"
        if one and nodes:
            most = [
                *([f"at most {count_cpus(max(node.millicpus for node in nodes))}"] if task.millicpus else []),
                *([f"at most {count_bytes(max(node.memory for node in nodes))}"] if task.memory else []),
            ]
            detail += f": an agent{' with room for its slots' if task.slots else ''} has {' and '.join(most)} free"
        return Reason(ReasonCode.NO_FREE_RESOURCES, detail + (self._less(task, nodes) if next_in_line else ""))

    def _less(self, task: SchedulerTask, nodes: Sequence[FreeNode]) -> str:
        """Explain with how much less of one resource it would start now; if no agent has enough slots, with how few."""
        memory = max((n.memory for n in nodes if n.millicpus >= task.millicpus), default=0)
        cpus = max((n.millicpus for n in nodes if n.memory >= task.memory), default=0)
        most = self._free.largest(task) if task.slots else 0
        if task.memory > memory >= MEBIBYTE:
            told = f"memory {count_bytes(memory)}"
        elif task.millicpus > cpus > 0:
            told = f"cpus {cpus / 1000:g}"
        else:
            told = count_slots(most) if most else ""
        return f"; would start now with {told}" if told else ""


def _told_apart(tasks: Sequence[SchedulerTask]) -> tuple[list[SchedulerTask], list[SchedulerTask]]:
    """Separate pending tasks from running ones."""
    waits, runs = TaskState.PENDING, TaskState.RUNNING  # names of an enumeration are found slowly, and there are many
    return [task for task in tasks if task.state is waits], [task for task in tasks if task.state is runs]


def _why_too_large(task: SchedulerTask, suitable: Sequence[Agent], agents: int) -> str:
    which = " that suits it" if len(suitable) < agents else ""
    if task.slots == 0:
        return "the agents run no tasks without slots"
    total, largest = sum(agent.slots for agent in suitable), max(agent.slots for agent in suitable)
    if task.single_node:
        return f"needs {count_slots(task.slots)}; the largest agent{which} has {largest}"
    if len(suitable) == 1:
        return f"needs {count_slots(task.slots)}; the only suitable agent, {suitable[0].id}, has {total}"
    detail = f"needs {count_slots(task.slots)}; the {len(suitable)} suitable agents have {total}, the largest {largest}"
    return detail if task.slots > total else f"{detail}, which cannot give as many on each"


def _why_too_much(task: SchedulerTask, suitable: Sequence[Agent], agents: int) -> str:
    """Return the reason of a task that would fit without its CPUs and memory."""
    which = " that suits it" if len(suitable) < agents else ""
    large = [agent for agent in suitable if agent.slots >= task.slots] or suitable
    has = [
        *([count_cpus(max(agent.millicpus for agent in large))] if task.millicpus else []),
        *([count_bytes(max(agent.host_memory for agent in large))] if task.memory else []),
    ]
    slots = f"{count_slots(task.slots)} with " if task.slots else ""
    where = "on one agent" if task.single_node or task.slots < 2 else "on each of its agents"
    return f"needs {slots}{demanded(task)} {where}; an agent{which} has at most {' and '.join(has)}"
