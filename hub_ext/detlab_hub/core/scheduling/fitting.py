"""Which agents a task gets: a working copy of the pool's agents, and the search for a fit on it.

Scores and tie-breaks are Determined's: a task goes to the agent with the best score; of equal ones to that whose
name's hash comes first before the hash of the task's name, so that equal agents share the load without state. A task
that no one agent has room for goes to several idle ones of the same size, all of whose slots it gets. Determined stops
there. Here it may have a part of the slots of several agents, too: the same number on each, as many as can be.

A task may ask for CPUs and memory of each agent that it is on. To such a task an agent that has too little of them left
is one without a free slot; all else is as for the others.

Agents are kept in lists by their size and number of free slots, in the order of their hashes, so that a fit costs a few
binary searches, whatever the number of agents.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple, TypeAlias

from detlab_hub.core.scheduling.model import Agent, AgentState, Constraints, Fitting, Pool, Task

_WORD = 2**64
_TRIED = 256
"""So many sizes beyond what one agent has are tried to tell with how many slots a task could start."""
Placement: TypeAlias = dict[str, int]
"""Slots by agent; {agent: 0} for a task without slots."""
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """What of a task decides which agents are suitable. `Shapes` makes one of each: they are compared by identity.

    Attributes:
        constraints: Of the task.
        runtime: Of the task.
        user: Its owner; "" where no agent serves one user alone.
        millicpus: Of the task: agents with less left are as good as full.
        memory: The same.
    """

    constraints: Constraints
    runtime: str
    user: str
    millicpus: int = 0
    memory: int = 0

    @property
    def demanding(self) -> bool:
        """Whether its tasks ask for CPUs or memory."""
        return bool(self.millicpus or self.memory)


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """What of a task decides where it fits: tasks of one shape fit or fail alike. One of each, as of `Kind`.

    Attributes:
        slots: Of the task.
        single_node: Of the task.
        kind: Which agents are suitable.
        blocked_nodes: Those of them that the task must not have.
    """

    slots: int
    single_node: bool
    kind: Kind
    blocked_nodes: frozenset[str]


class Shapes:
    """The shapes of tasks, as far as they are known; all that is made of the same agents may share them.

    Args:
        agents: All of the pool.
    """

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._agents = agents
        self._names = frozenset(agent.id for agent in agents)
        self._personal = any(agent.serves_user is not None for agent in agents)
        self.known: dict[str, Shape] = {}
        """Of each task that was asked about."""
        self._kinds: dict[tuple[Constraints, str, str, int, int], Kind] = {}
        self._shapes: dict[tuple[int, bool, Kind, frozenset[str]], Shape] = {}
        self._asked: dict[tuple[int, bool, Constraints, str, str, frozenset[str], int, int], Shape] = {}
        self._suitable: dict[Kind, Sequence[Agent]] = {}

    def of(self, task: Task) -> Shape:
        """That of a task."""
        found = self.known.get(task.id)
        if found is None:
            user = task.user if self._personal else ""
            asked = (
                task.slots, task.single_node, task.constraints, task.runtime, user, task.blocked_nodes,
                task.millicpus, task.memory,
            )  # fmt: skip
            found = self._asked.get(asked)
            if found is None:
                found = self._asked[asked] = self._made(task, user)
            self.known[task.id] = found
        return found

    def _made(self, task: Task, user: str) -> Shape:
        kind = self._kind((task.constraints, task.runtime, user, task.millicpus, task.memory))
        blocked = task.blocked_nodes.intersection(self._names) if task.blocked_nodes else _NONE
        return self._one(task.slots, task.single_node, kind, blocked)

    def suitable(self, kind: Kind) -> Sequence[Agent]:
        """The agents on which tasks of a kind may run, whether or not they are open."""
        found = self._suitable.get(kind)
        if found is None:
            found = self._suitable[kind] = [agent for agent in self._agents if suits(kind, agent)]
        return found

    def undemanding(self, shape: Shape) -> Shape:
        """The same of tasks that ask for no CPUs and no memory."""
        kind = shape.kind
        plain = self._kind((kind.constraints, kind.runtime, kind.user, 0, 0))
        return self._one(shape.slots, shape.single_node, plain, shape.blocked_nodes)

    def _kind(self, key: tuple[Constraints, str, str, int, int]) -> Kind:
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = Kind(*key)
        return found

    def avoiding(self, shape: Shape, names: frozenset[str]) -> Shape:
        """The same with more blocked nodes."""
        return self._one(shape.slots, shape.single_node, shape.kind, shape.blocked_nodes | names)

    def _one(self, slots: int, single_node: bool, kind: Kind, blocked: frozenset[str]) -> Shape:
        key = slots, single_node, kind, blocked
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = Shape(*key)
        return found


class _Size(NamedTuple):
    """Agents that are alike to the scores."""

    free: int
    slots: int


@lru_cache(maxsize=10_000)
def _size(free: int, slots: int) -> _Size:
    return _Size(free, slots)


class Node:
    """What is left of one agent while a pass is made.

    Attributes:
        agent: It.
        free: Its slots that nobody holds.
        zero_slot_tasks: So many it runs.
        hash: Of its name.
        key: Its place in a list.
        size: Where it is listed.
        millicpus: Thousandths of a CPU that nobody asked for.
        memory: Bytes of its own memory that nobody asked for.
    """

    __slots__ = ("agent", "free", "hash", "key", "memory", "millicpus", "size", "zero_slot_tasks")

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.free = agent.slots
        self.zero_slot_tasks = 0
        self.hash = hash_of(agent.id)
        self.key = self.hash, agent.id
        self.size = _size(agent.slots, agent.slots)
        self.millicpus = agent.millicpus
        self.memory = agent.host_memory

    def has(self, wanted: Kind | Task) -> bool:
        """Whether the CPUs and the memory are there, whatever is of the slots; what asks for none is not counted."""
        return (not wanted.millicpus or self.millicpus >= wanted.millicpus) and (
            not wanted.memory or self.memory >= wanted.memory
        )

    def size_for(self, kind: Kind) -> _Size:
        """Its size as tasks of a kind see it."""
        return self.size if self.has(kind) else _size(0, self.agent.slots)


class _Index:
    """The open agents that are suitable for tasks of one kind, by size."""

    def __init__(self, nodes: Iterable[Node], kind: Kind) -> None:
        self.sizes: dict[_Size, list[tuple[int, str]]] = {}
        self.names: set[str] = set()
        self.kind = kind
        self.demanding = kind.demanding
        self._listed: dict[str, _Size] = {}
        """Where each agent is: to tasks that ask for CPUs or memory that may be another size than its own."""
        for node in nodes:
            self.names.add(node.key[1])
            size = self._listed[node.key[1]] = node.size_for(kind)
            self.sizes.setdefault(size, []).append(node.key)
        for keys in self.sizes.values():
            keys.sort()

    def look_again(self, node: Node) -> None:
        """An agent has more or less left of what tasks that ask for CPUs or memory need."""
        name = node.key[1]
        if name in self.names:
            old, new = self._listed[name], node.size_for(self.kind)
            if old != new:
                self._listed[name] = new
                self.move(node.key, old, new)

    def move(self, key: tuple[int, str], old: _Size, new: _Size) -> None:
        """An agent has another number of free slots."""
        if key[1] not in self.names:
            return
        keys = self.sizes[old]
        del keys[bisect_right(keys, key) - 1]
        if not keys:
            del self.sizes[old]
        insort(self.sizes.setdefault(new, []), key)


Sizes: TypeAlias = Mapping[_Size, list[tuple[int, str]]]
"""Agents by size, each list in the order of hashes."""


class Room:
    """Whether a task would fit if agents had other numbers of free slots: counted only, nothing is changed.

    A task fits on one agent that has all its slots; on several if enough of them have the same part of its slots each,
    or, where they may have different parts, as many slots together. Idle agents are no exception to that.

    Args:
        slots: So many it needs.
        sizes: The agents that it may have.
        several: It may be on several of them.
        heterogeneous: With different numbers of slots on them.
    """

    __slots__ = ("_counts", "_parts", "_several", "_slots", "_total")

    def __init__(self, slots: int, sizes: Sizes, *, several: bool, heterogeneous: bool) -> None:
        self._slots = slots
        self._several = several and heterogeneous
        parts = [slots, *(each for each in range(slots // 2, 0, -1) if slots % each == 0)] if several else [slots]
        self._parts = tuple(enumerate(parts))
        free = [(size.free, len(keys)) for size, keys in sizes.items()]
        self._counts = [sum(count for slots, count in free if slots >= each) for each in parts]
        self._total = sum(slots * count for slots, count in free)

    def change(self, before: int, after: int) -> None:
        """An agent has another number of free slots."""
        self._total += after - before
        for place, each in self._parts:
            self._counts[place] += (after >= each) - (before >= each)

    @property
    def enough(self) -> bool:
        """Whether the task would fit."""
        if self._several and self._total >= self._slots:
            return True
        return any(self._counts[place] * each >= self._slots for place, each in self._parts)


class Rooms:
    """The agents of a pool with what is free on each; placing and removing tasks changes it.

    Args:
        pool: Fitting and whether fits may be heterogeneous.
        agents: All of the pool.
        shapes: Those of tasks; all of one pass share them.
        empty: Leave out what makes agents refuse new work: for asking whether a task could ever run.
    """

    def __init__(
        self, pool: Pool, agents: Sequence[Agent], *, empty: bool = False, shapes: Shapes | None = None
    ) -> None:
        self._pool = pool
        self._shapes = Shapes(agents) if shapes is None else shapes
        self.shape = self._shapes.of
        self.known = self._shapes.known
        self.nodes = {agent.id: Node(agent) for agent in agents}
        self._empty = empty
        self._indexes: dict[Kind, _Index] = {}
        self.failed: dict[Shape, int] = {}
        """How often slots had become free (`widened`) when there was no room for tasks of a shape."""
        self.widened = 0
        """How often slots became free: what did not fit before may fit now."""

    # --- what changes -------------------------------------------------------------------------------------

    def place(self, task: Task, placement: Mapping[str, int]) -> None:
        """A task takes slots. Agents that are not known are left out: their slots are nobody's to give."""
        for name, slots in placement.items():
            node = self.nodes.get(name)
            if node is None:
                continue
            if task.millicpus or task.memory:
                node.millicpus -= task.millicpus
                node.memory -= task.memory
            if task.slots == 0:
                node.zero_slot_tasks += 1
                self._look_again(node)
            else:
                self._set_free(node, node.free - slots)

    def remove(self, task: Task, placement: Mapping[str, int]) -> None:
        """A task gives its slots back."""
        self.widened += 1
        for name, slots in placement.items():
            node = self.nodes.get(name)
            if node is None:
                continue
            if task.millicpus or task.memory:
                node.millicpus += task.millicpus
                node.memory += task.memory
            if task.slots == 0:
                node.zero_slot_tasks -= 1
                self._look_again(node)
            else:
                self._set_free(node, node.free + slots)

    def _set_free(self, node: Node, free: int) -> None:
        old = node.size
        node.free = free
        node.size = _size(free, node.agent.slots)
        for index in self._indexes.values():
            if index.demanding:
                index.look_again(node)
            else:
                index.move(node.key, old, node.size)

    def _look_again(self, node: Node) -> None:
        for index in self._indexes.values():
            if index.demanding:
                index.look_again(node)

    # --- questions ----------------------------------------------------------------------------------------

    def suitable(self, task: Task) -> list[Agent]:
        """The agents on which the task could run if it fits, whether or not they are open."""
        shape = self.shape(task)
        return [agent for agent in self._shapes.suitable(shape.kind) if agent.id not in shape.blocked_nodes]

    def open_to(self, shape: Shape) -> Iterator[Node]:
        """The agents that tasks of a shape may have now, if they have room."""
        for agent in self._shapes.suitable(shape.kind):
            if agent.id not in shape.blocked_nodes and (self._empty or agent.state is AgentState.ENABLED):
                yield self.nodes[agent.id]

    def fit(self, task: Task, *, avoid: frozenset[str] = frozenset()) -> Placement | None:
        """The slots that the task would get now, None if there is no room for it.

        Args:
            task: It.
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
        return found

    def fits_but_for_demands(self, task: Task) -> bool:
        """Whether there would be room for the task if it asked for no CPUs and no memory."""
        shape = self._shapes.undemanding(self.shape(task))
        return (self._fit_zero(task.id, shape) if task.slots == 0 else self._fit(task.id, shape)) is not None

    def with_slots(self, task: Task) -> list[Node]:
        """The agents that have all slots for the task free, whatever is of their CPUs and their memory."""
        return [
            node
            for node in self.open_to(self.shape(task))
            if node.free >= task.slots and (task.slots or node.zero_slot_tasks < node.agent.max_zero_slot_tasks)
        ]

    def largest(self, task: Task) -> int:
        """The largest number of slots with which the task would fit now; 0 if there is none."""
        sizes = self._sizes(self.shape(task))
        one = min(max((size.free for size in sizes), default=0), task.slots)
        if task.single_node:
            return one
        total = sum(size.free * len(keys) for size, keys in sizes.items())
        for slots in range(min(total, task.slots, one + _TRIED), one, -1):
            if self._several(task.id, slots, sizes) is not None:
                return slots
        return one

    def free_slots(self, task: Task) -> int:
        """How many slots are free on open agents that are suitable for the task, whatever else it asks for."""
        sizes = self._sizes(self._shapes.undemanding(self.shape(task)))
        return sum(size.free * len(keys) for size, keys in sizes.items())

    def room_for(self, shape: Shape) -> Room:
        """Whether there is room for tasks of a shape, which wants slots, and how that changes."""
        several = not shape.single_node and shape.slots > 1
        sizes = self._sizes(shape)
        return Room(shape.slots, sizes, several=several, heterogeneous=self._pool.heterogeneous)

    def _index(self, kind: Kind) -> _Index:
        """The open agents that are suitable for a kind of tasks."""
        found = self._indexes.get(kind)
        if found is None:
            suitable = self._shapes.suitable(kind)
            nodes = self.nodes
            found = _Index([nodes[a.id] for a in suitable if self._empty or a.state is AgentState.ENABLED], kind)
            self._indexes[kind] = found
        return found

    def _sizes(self, shape: Shape) -> Sizes:
        """The agents that a task of this shape may have now."""
        sizes = self._index(shape.kind).sizes
        if not shape.blocked_nodes:
            return sizes
        left = {size: [key for key in keys if key[1] not in shape.blocked_nodes] for size, keys in sizes.items()}
        return {size: keys for size, keys in left.items() if keys}

    # --- fits ---------------------------------------------------------------------------------------------

    def _fit_zero(self, name: str, shape: Shape) -> Placement | None:
        names = self._index(shape.kind).names - shape.blocked_nodes
        rooms = [self.nodes[name] for name in names]
        fitting = [
            node for node in rooms if node.zero_slot_tasks < node.agent.max_zero_slot_tasks and node.has(shape.kind)
        ]
        if not fitting:
            return None
        number = hash_of(name)
        best = min(fitting, key=lambda node: (-self._zero_score(node), (number - node.hash) % _WORD, node.agent.id))
        return {best.agent.id: 0}

    def _zero_score(self, node: Node) -> float:
        """The score of an agent for a task without slots."""
        agent, most = node.agent, node.agent.max_zero_slot_tasks
        if node.free != agent.slots:
            return self._score(node.size)
        left = most - node.zero_slot_tasks
        return 1 / (1 + left) if self._pool.fitting is Fitting.BEST else left / most

    def _score(self, size: _Size) -> float:
        if self._pool.fitting is Fitting.BEST:
            return 1 / (1 + size.free)
        return size.free / size.slots if size.slots else 0.0

    def _fit(self, name: str, shape: Shape) -> Placement | None:
        sizes = self._sizes(shape)
        one = self._one(name, shape.slots, sizes)
        if one is not None or shape.single_node or shape.slots < 2:
            return one
        return self._several(name, shape.slots, sizes)

    def _one(self, name: str, slots: int, sizes: Sizes) -> Placement | None:
        """All on one agent."""
        fitting = [(self._score(size), keys) for size, keys in sizes.items() if size.free >= slots]
        if not fitting:
            return None
        number, top = hash_of(name), max(score for score, _ in fitting)
        firsts = [_first_before(number, keys) for score, keys in fitting if score == top]
        first = firsts[0] if len(firsts) == 1 else min(firsts, key=lambda key: ((number - key[0]) % _WORD, key[1]))
        return {first[1]: slots}

    def _several(self, name: str, slots: int, sizes: Sizes) -> Placement | None:
        """On several agents: idle ones of one size; idle ones of any size; parts of any."""
        number = hash_of(name)
        idle: dict[int, list[tuple[int, str]]] = {}
        for size, keys in sizes.items():
            if size.free and size.free == size.slots:
                idle[size.free] = keys
        for each in sorted(idle, reverse=True):
            if slots % each == 0 and len(idle[each]) * each >= slots:
                return {key[1]: each for key in _nearest(number, idle[each], slots // each)}
        if self._pool.heterogeneous and (whole := _whole_nodes(number, slots, idle)) is not None:
            return whole
        return self._parts(number, slots, sizes)

    def _parts(self, number: int, slots: int, sizes: Sizes) -> Placement | None:
        """The same number of slots of each of as few agents as can be; else, where that may be, different numbers."""
        largest = max((size.free for size in sizes), default=0)
        for each in range(min(largest, slots // 2), 0, -1):
            if slots % each:
                continue
            roomy = [size for size in sizes if size.free >= each]
            if sum(len(sizes[size]) for size in roomy) * each >= slots:
                return dict.fromkeys(self._take(number, slots // each, roomy, sizes), each)
        if not self._pool.heterogeneous:
            return None
        found: Placement = {}
        left = slots
        for rank, keys in _merged({size: keys for size, keys in sizes.items() if size.free}, lambda size: -size.free):
            each = round(-rank)
            for key in _nearest(number, keys, -(-left // each)):
                found[key[1]] = min(left, each)
                left -= found[key[1]]
            if left == 0:
                return found
        return None

    def _take(self, number: int, count: int, roomy: Sequence[_Size], sizes: Sizes) -> list[str]:
        """The names of `count` agents, those with the best scores first."""
        names: list[str] = []
        for _, keys in _merged({size: sizes[size] for size in roomy}, lambda size: -self._score(size)):
            names += [key[1] for key in _nearest(number, keys, count - len(names))]
            if len(names) == count:
                break
        return names


def _merged(sizes: Sizes, rank: Callable[[_Size], float]) -> Iterator[tuple[float, Sequence[tuple[int, str]]]]:
    """The agents of sizes of equal rank together, in the order of hashes; the least rank first."""
    for least, group in groupby(sorted(sizes, key=rank), rank):
        lists = [sizes[size] for size in group]
        yield least, lists[0] if len(lists) == 1 else sorted(chain.from_iterable(lists))


def _whole_nodes(number: int, slots: int, idle: Mapping[int, list[tuple[int, str]]]) -> Placement | None:
    """All slots of idle agents, from the largest to the smallest, if that comes out exactly."""
    found: Placement = {}
    left = slots
    for each in sorted(idle, reverse=True):
        for key in _nearest(number, idle[each], left // each):
            found[key[1]] = each
            left -= each
    return None if left else found


def _first_before(number: int, keys: Sequence[tuple[int, str]]) -> tuple[int, str]:
    """The agent of which (number - hash) modulo 2**64 is least."""
    place = bisect_right(keys, (number, "\U0010ffff")) - 1  # below 0 it goes round: the last one
    key = keys[place]
    while place > 0 and keys[place - 1][0] == key[0]:  # of equal hashes the first name
        place -= 1
        key = keys[place]
    return key


def _nearest(number: int, keys: Sequence[tuple[int, str]], count: int) -> Iterator[tuple[int, str]]:
    """The first `count` agents by (number - hash) modulo 2**64."""
    start = bisect_right(keys, (number, "\U0010ffff")) - 1
    for step in range(min(count, len(keys))):
        yield keys[start - step]


def suits(kind: Kind, agent: Agent) -> bool:
    """Whether tasks of a kind may run on an agent that has room."""
    wanted = kind.constraints
    return (
        agent.serves_user in (None, kind.user)
        and (not kind.runtime or kind.runtime in agent.runtimes)
        and (not wanted.slot_type or wanted.slot_type == agent.slot_type)
        and (not wanted.gpu or _model(wanted.gpu).search(agent.gpu) is not None)
        and wanted.memory <= agent.memory
        and all(agent.labels.get(name) == value for name, value in wanted.labels)
    )


@lru_cache(maxsize=1000)
def _model(name: str) -> re.Pattern[str]:
    """A pattern that finds a GPU's model as words of a longer name: `A10` is not in `NVIDIA A100`."""
    return re.compile(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", re.IGNORECASE)


@lru_cache(maxsize=100_000)
def hash_of(name: str) -> int:
    """The first 8 bytes of the MD5 of a name, little-endian, as Determined takes them."""
    digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little")
