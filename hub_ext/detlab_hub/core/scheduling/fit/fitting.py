"""Which agents a task gets: a working copy of the pool's agents, and the search for a fit on it.

Scores and tie-breaks are Determined's: a task goes to the agent with the best score; of equal ones to that whose
name's hash comes first before the hash of the task's name, so that equal agents share the load without state. A task
that no one agent has room for goes to several idle ones of the same size, all of whose slots it gets. Determined stops
there. Here it may also get a part of the slots of several agents: the same number on each, as large as possible.

A task may request CPUs and memory on each of its agents. For such a task, an agent with too little of them left counts
as one without a free slot; all else is as for other tasks.

Preferences come before scores. If one agent has room for the task, it gets the one that it prefers most; on several
agents, the least preferred of them is preferred as much as possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from detlab_hub.core.scheduling.fit.free_index import (
    AgentOrder,
    FitCounter,
    FreeNode,
    Index,
    Size,
    Sizes,
    first_before,
    size_of,
)
from detlab_hub.core.scheduling.fit.multi_node import Placement, on_several, score
from detlab_hub.core.scheduling.fit.shapes import AgentNeeds, Shapes, TaskShape
from detlab_hub.core.scheduling.model import Agent, AgentState, Fitting, Pool, SchedulerTask

_TRIED = 256
"""Sizes beyond a single agent's slots that are tried to find how many slots a task could start with."""


class FreeCapacity:
    """The agents of a pool with what is free on each; placing and removing tasks changes it.

    Args:
        pool: Fitting and whether fits may be heterogeneous.
        agents: All of the pool.
        shapes: Shapes of tasks; shared by all of one pass.
        order: Order of the agents; likewise.
        empty: Ignore what makes agents refuse new work, to find out whether a task could ever run.
    """

    def __init__(
        self,
        pool: Pool,
        agents: Sequence[Agent],
        *,
        empty: bool = False,
        shapes: Shapes | None = None,
        order: AgentOrder | None = None,
    ) -> None:
        self._pool = pool
        self._shapes = Shapes(agents) if shapes is None else shapes
        self.shape = self._shapes.of
        self.coarser, self.undemanding = self._shapes.coarser, self._shapes.undemanding
        self.known = self._shapes.known
        self._order = AgentOrder(agent.id for agent in agents) if order is None else order
        ranks = self._order.ranks
        self.nodes = {agent.id: FreeNode(agent, ranks[agent.id]) for agent in agents}
        self._empty = empty
        self._indexes: dict[AgentNeeds, Index] = {}
        self.failed: dict[TaskShape, int] = {}
        """How often slots had become free (`widened`) when there was no room for tasks of a shape."""
        self.widened = 0
        """How often slots became free: a task that did not fit before may fit now."""
        self.touched: set[str] = set()
        """Agents on which something was placed or removed since this was last emptied."""

    def copy(self) -> FreeCapacity:
        """Copy the agents with what is free on them now."""
        other = type(self)(self._pool, (), empty=self._empty, shapes=self._shapes, order=self._order)
        other.nodes = {name: node.copy() for name, node in self.nodes.items()}
        return other

    @property
    def checked(self) -> int:
        """How many agents were checked for CPUs and memory."""
        return sum(index.checked for index in self._indexes.values())

    # --- what changes -------------------------------------------------------------------------------------

    def place(self, task: SchedulerTask, placement: Mapping[str, int]) -> None:
        """Give a task its slots. Unknown agents are left out: their slots cannot be assigned."""
        for name, slots in placement.items():
            node = self.nodes.get(name)
            if node is None:
                continue
            self.touched.add(name)
            if task.millicpus or task.memory:
                node.millicpus -= task.millicpus
                node.memory -= task.memory
            if task.slots == 0:
                node.zero_slot_tasks += 1
            else:
                self._set_free(node, node.free - slots)

    def remove(self, task: SchedulerTask, placement: Mapping[str, int]) -> None:
        """Take a task's slots back."""
        self.widened += 1
        for name, slots in placement.items():
            node = self.nodes.get(name)
            if node is None:
                continue
            self.touched.add(name)
            if task.millicpus or task.memory:
                node.millicpus += task.millicpus
                node.memory += task.memory
            if task.slots == 0:
                node.zero_slot_tasks -= 1
                for index in self._indexes.values():
                    index.reindex(node)
            else:
                self._set_free(node, node.free + slots)

    def _set_free(self, node: FreeNode, free: int) -> None:
        old = node.size
        node.free = free
        node.size = size_of(free, old.slots)
        for index in self._indexes.values():
            index.move(node, old)

    # --- questions ----------------------------------------------------------------------------------------

    def suitable(self, task: SchedulerTask) -> list[Agent]:
        """List the agents on which the task could run if it fits, whether or not they are open."""
        shape = self.shape(task)
        return [agent for agent in self._shapes.suitable(shape.kind) if agent.id not in shape.blocked_nodes]

    def open_to(self, shape: TaskShape) -> Iterator[FreeNode]:
        """Yield the agents that tasks of a shape may use now, if they have room."""
        for agent in self._shapes.suitable(shape.kind):
            if agent.id not in shape.blocked_nodes and (self._empty or agent.state is AgentState.ENABLED):
                yield self.nodes[agent.id]

    def fit(self, task: SchedulerTask, *, avoid: frozenset[str] = frozenset()) -> Placement | None:
        """Return the slots that the task would get now, None if there is no room for it.

        Args:
            task: The task to fit.
            avoid: Agents where it must not start, besides those that it blocks itself.
        """
        shape = self.shape(task)
        if avoid:
            shape = self._shapes.avoiding(shape, avoid)
        if self.failed.get(shape) == self.widened:
            return None  # since it did not fit nothing became free
        found = self._fit_zero(task.id, shape) if task.slots == 0 else self._fit(task.id, shape)
        if found is None:
            self.failed[shape] = self.widened
        elif shape.preferred:
            return self._preferred(task.id, shape, found)
        return found

    def _preferred(self, name: str, shape: TaskShape, found: Placement) -> Placement:
        """Replace a fit by one on the agents that the task prefers: on one if it fits on one, else on several."""
        fit = self._fit if shape.slots else self._fit_zero
        better = (fit(name, each) for each in self._shapes.better(shape, several=len(found) > 1))
        return next((each for each in better if each is not None), found)

    def fits_but_for_demands(self, task: SchedulerTask) -> bool:
        """Whether there would be room for the task if it requested no CPUs and no memory."""
        shape = self._shapes.undemanding(self.shape(task))
        return (self._fit_zero(task.id, shape) if task.slots == 0 else self._fit(task.id, shape)) is not None

    def with_slots(self, task: SchedulerTask) -> list[FreeNode]:
        """List the agents that have all slots for the task free, regardless of their CPUs and memory."""
        return [
            node
            for node in self.open_to(self.shape(task))
            if node.free >= task.slots and (task.slots or node.zero_slot_tasks < node.agent.max_zero_slot_tasks)
        ]

    def largest(self, task: SchedulerTask) -> int:
        """Return the largest number of slots with which the task would fit now; 0 if it fits with none."""
        sizes = self._sizes(self.shape(task))
        one = min(max((size.free for size in sizes), default=0), task.slots)
        if task.single_node:
            return one
        total = sum(size.free * len(ranks) for size, ranks in sizes.items())
        end = self._order.end(task.id)
        for slots in range(min(total, task.slots, one + _TRIED), one, -1):
            if on_several(self._pool, end, slots, sizes) is not None:
                return slots
        return one

    def free_slots(self, task: SchedulerTask) -> int:
        """Count the free slots on open agents that are suitable for the task, regardless of its other requests."""
        sizes = self._sizes(self._shapes.undemanding(self.shape(task)))
        return sum(size.free * len(ranks) for size, ranks in sizes.items())

    def fit_counter_for(self, shape: TaskShape) -> FitCounter:
        """Return a counter that tells whether tasks of a shape with slots would fit as free slots change."""
        return self._fit_counter(shape, self._sizes(shape))

    def _fit_counter(self, shape: TaskShape, sizes: Sizes) -> FitCounter:
        several = not shape.single_node and shape.slots > 1
        return FitCounter(shape.slots, sizes, several=several, heterogeneous=self._pool.heterogeneous)

    def _index(self, kind: AgentNeeds) -> Index:
        """Return the index of the open agents that are suitable for a kind of tasks."""
        found = self._indexes.get(kind)
        if found is None:
            suitable = self._shapes.suitable(kind)
            nodes = self.nodes
            found = Index([nodes[a.id] for a in suitable if self._empty or a.state is AgentState.ENABLED])
            self._indexes[kind] = found
        return found

    def _sizes(self, shape: TaskShape) -> Sizes:
        """Return the agents that a task of this shape may use now, by size."""
        index = self._index(shape.kind)
        sizes = index.able(shape) if shape.demanding else index.sizes
        if not shape.blocked_nodes:
            return sizes
        blocked = {self._order.ranks[name] for name in shape.blocked_nodes if name in self._order.ranks}
        left = {size: [rank for rank in ranks if rank not in blocked] for size, ranks in sizes.items()}
        return {size: ranks for size, ranks in left.items() if ranks}

    # --- fits ---------------------------------------------------------------------------------------------

    def _fit_zero(self, name: str, shape: TaskShape) -> Placement | None:
        nodes, blocked = self._index(shape.kind).nodes, shape.blocked_nodes
        fitting = [
            node
            for node in nodes.values()
            if node.zero_slot_tasks < node.agent.max_zero_slot_tasks
            and (not shape.demanding or node.has(shape))
            and (not blocked or node.agent.id not in blocked)
        ]
        if not fitting:
            return None
        far, total = self._order.end(name) - 1, len(self._order.names)
        return {min(fitting, key=lambda node: (-self._zero_score(node), (far - node.rank) % total)).agent.id: 0}

    def _zero_score(self, node: FreeNode) -> float:
        """Score an agent for a task without slots."""
        agent, most = node.agent, node.agent.max_zero_slot_tasks
        if node.free != agent.slots:
            return score(self._pool, node.size)
        left = most - node.zero_slot_tasks
        return 1 / (1 + left) if self._pool.fitting is Fitting.BEST else left / most

    def _fit(self, name: str, shape: TaskShape) -> Placement | None:
        index, end = self._index(shape.kind), self._order.end(name)
        several = not shape.single_node and shape.slots > 1
        if shape.demanding and not shape.blocked_nodes:
            one = self._one_able(end, shape, index)
            # Where it would not even fit if it asked for nothing else, nobody's CPUs are looked at.
            if one is None and several and self._fit_counter(shape, index.sizes).enough:
                return self._named(on_several(self._pool, end, shape.slots, self._sizes(shape)))
        else:
            sizes = self._sizes(shape) if shape.blocked_nodes else index.sizes
            one = self._one(end, shape.slots, sizes)
            if one is None and several:
                return self._named(on_several(self._pool, end, shape.slots, sizes))
        return None if one is None else {self._order.names[one]: shape.slots}

    def _named(self, placed: Mapping[int, int] | None) -> Placement | None:
        names = self._order.names
        return None if placed is None else {names[rank]: slots for rank, slots in placed.items()}

    def _one(self, end: int, slots: int, sizes: Sizes) -> int | None:
        """All on one agent."""
        fitting = [size for size in sizes if size[0] >= slots]
        if not fitting:
            return None
        best = self._best(fitting)
        if len(best) == 1:
            return first_before(end, sizes[best[0]])
        return self._nearest(end, [first_before(end, sizes[size]) for size in best])

    def _nearest(self, end: int, ranks: Sequence[int]) -> int:
        return min(ranks, key=lambda rank: (end - 1 - rank) % len(self._order.names))

    def _best(self, fitting: Sequence[Size]) -> Sequence[Size]:
        """Return the agents with the best score."""
        if len(fitting) == 1:
            return fitting
        if self._pool.fitting is Fitting.BEST:  # as the scores say it
            least = min(fitting)[0]
            return [size for size in fitting if size.free == least]
        scores = [score(self._pool, size) for size in fitting]
        top = max(scores)
        return [size for size, each in zip(fitting, scores, strict=True) if each == top]

    def _one_able(self, end: int, shape: TaskShape, index: Index) -> int | None:
        """All on one agent that has the CPUs and the memory, too."""
        fitting = [size for size in index.sizes if size.free >= shape.slots]
        while fitting:
            best = self._best(fitting)
            firsts = [rank for size in best if (rank := index.first_able(end, shape, size)) is not None]
            if firsts:
                return self._nearest(end, firsts)
            fitting = [size for size in fitting if size not in best]
        return None
