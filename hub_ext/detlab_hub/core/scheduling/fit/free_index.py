"""An index of agents by their free slots: lists in the order of hashes, so that a fit costs a few binary searches.

In the lists, agents are represented by their ranks in the order of hashes, which compare faster than names.

One index serves all tasks that the same agents suit, whatever CPUs and memory they request: these are checked on the
way through a list, and each list has a known bound above which none of its agents can fit.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from detlab_hub.core.scheduling.fit.shapes import TaskShape
from detlab_hub.core.scheduling.model import Agent, SchedulerTask

WORD = 2**64


class Size(NamedTuple):
    """Agents that are alike to the scores."""

    free: int
    slots: int


Sizes: TypeAlias = Mapping[Size, list[int]]
"""Ranks of agents by size, each list in order."""


@lru_cache(maxsize=10_000)
def size_of(free: int, slots: int) -> Size:
    """Return the one object for each size."""
    return Size(free, slots)


@lru_cache(maxsize=100_000)
def hash_of(name: str) -> int:
    """Return the first 8 bytes of the MD5 of a name as a little-endian number, as Determined does."""
    digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little")


class AgentOrder:
    """The agents of a pool in the order of their hashes; of equal ones the last name first.

    Args:
        names: The agents' names.

    Attributes:
        names: By rank.
        ranks: By name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(sorted(names, reverse=True), key=hash_of)
        self.ranks = {name: rank for rank, name in enumerate(self.names)}
        self._hashes = [hash_of(name) for name in self.names]

    def end(self, name: str) -> int:
        """Return the rank after that of the agent nearest to a task of this name; lower ranks are farther away.

        The nearest agent is the one for which the task's hash minus the agent's is smallest modulo 2**64: below rank 0
        the order wraps around.
        """
        return bisect_right(self._hashes, hash_of(name))


class FreeNode:
    """The free resources of one agent during a pass.

    Attributes:
        agent: The agent.
        free: Its free slots.
        zero_slot_tasks: Number of tasks without slots that it runs.
        rank: Its rank in the lists.
        size: The size under which it is listed.
        millicpus: Unrequested thousandths of a CPU.
        memory: Unrequested bytes of its main memory.
    """

    __slots__ = ("agent", "free", "memory", "millicpus", "rank", "size", "zero_slot_tasks")

    def __init__(self, agent: Agent, rank: int = 0) -> None:
        self.agent = agent
        self.free = agent.slots
        self.zero_slot_tasks = 0
        self.rank = rank
        self.size = size_of(agent.slots, agent.slots)
        self.millicpus = agent.millicpus
        self.memory = agent.host_memory

    def copy(self) -> FreeNode:
        """Copy the node with what is left now."""
        other = FreeNode.__new__(FreeNode)
        other.agent, other.rank = self.agent, self.rank
        other.free, other.size, other.zero_slot_tasks = self.free, self.size, self.zero_slot_tasks
        other.millicpus, other.memory = self.millicpus, self.memory
        return other

    def has(self, wanted: TaskShape | SchedulerTask) -> bool:
        """Whether CPUs and memory suffice, regardless of slots; a resource that is not requested is not checked."""
        return (not wanted.millicpus or self.millicpus >= wanted.millicpus) and (
            not wanted.memory or self.memory >= wanted.memory
        )


class Index:
    """The open agents that are suitable for tasks of one kind, by size.

    Attributes:
        sizes: Their ranks.
        nodes: The agents by rank.
        checked: How many of them were checked for CPUs and memory.
    """

    def __init__(self, nodes: Iterable[FreeNode]) -> None:
        self.sizes: dict[Size, list[int]] = {}
        self.nodes = {node.rank: node for node in nodes}
        for rank in sorted(self.nodes):
            self.sizes.setdefault(self.nodes[rank].size, []).append(rank)
        self._most: dict[Size, tuple[int, int]] = {}
        """No agent of a size has more CPUs left, or more memory, where it is known."""
        self.checked = 0

    def move(self, node: FreeNode, old: Size) -> None:
        """Record that an agent's number of free slots has changed."""
        rank, sizes = node.rank, self.sizes
        if rank not in self.nodes:
            return
        ranks = sizes[old]
        if len(ranks) == 1:
            del sizes[old]
        else:
            del ranks[bisect_left(ranks, rank)]
        listed = sizes.get(node.size)
        if listed is None:
            sizes[node.size] = [rank]
        else:
            insort(listed, rank)
        if self._most:
            self.reindex(node)

    def reindex(self, node: FreeNode) -> None:
        """Record that an agent of unchanged size may have more CPUs or memory left than before."""
        most = self._most.get(node.size)
        if most is not None and node.rank in self.nodes:
            self._most[node.size] = max(most[0], node.millicpus), max(most[1], node.memory)

    def first_able(self, end: int, shape: TaskShape, size: Size) -> int | None:
        """Return the nearest agent of one size to a task that has the CPUs and the memory."""
        if self._in_vain(shape, size):
            return None
        nodes = self.nodes
        millicpus, memory = shape.millicpus or -WORD, shape.memory or -WORD
        for checked, rank in enumerate(nearest(end, self.sizes[size]), 1):
            node = nodes[rank]
            if node.millicpus >= millicpus and node.memory >= memory:
                self.checked += checked
                return rank
        self._bound(size)
        return None

    def able(self, shape: TaskShape) -> dict[Size, list[int]]:
        """Return, by size, the agents with free slots that have the CPUs and the memory."""
        nodes, found = self.nodes, dict[Size, list[int]]()
        millicpus, memory = shape.millicpus or -WORD, shape.memory or -WORD
        for size, ranks in self.sizes.items():
            if size.free == 0 or self._in_vain(shape, size):
                continue
            self.checked += len(ranks)
            left = [rank for rank in ranks if (node := nodes[rank]).millicpus >= millicpus and node.memory >= memory]
            if left:
                found[size] = left
            else:
                self._bound(size)
        return found

    def _in_vain(self, shape: TaskShape, size: Size) -> bool:
        most = self._most.get(size)
        return most is not None and (most[0] < shape.millicpus > 0 or most[1] < shape.memory > 0)

    def _bound(self, size: Size) -> None:
        nodes = [self.nodes[rank] for rank in self.sizes[size]]
        self.checked += len(nodes)
        self._most[size] = max(node.millicpus for node in nodes), max(node.memory for node in nodes)


class FitCounter:
    """Whether a task would fit if agents had other numbers of free slots: this only counts and changes nothing.

    A task fits on one agent that has all its slots; on several if enough of them have the same part of its slots each,
    or, where they may have different parts, as many slots together. Idle agents are no exception to that.

    Args:
        slots: Slots that the task needs.
        sizes: The agents that it may use.
        several: It may be on several of them.
        heterogeneous: With different numbers of slots on them.
    """

    __slots__ = ("_counts", "_parts", "_several", "_slots", "_total")

    def __init__(self, slots: int, sizes: Sizes, *, several: bool, heterogeneous: bool) -> None:
        self._slots = slots
        self._several = several and heterogeneous
        parts = [slots, *(each for each in range(slots // 2, 0, -1) if slots % each == 0)] if several else [slots]
        self._parts = tuple(enumerate(parts))
        agents: dict[int, int] = {}
        for (free, _), ranks in sizes.items():
            agents[free] = agents.get(free, 0) + len(ranks)
        self._counts = [sum([count for free, count in agents.items() if free >= each]) for each in parts]
        self._total = sum([free * count for free, count in agents.items()])

    def change(self, before: int, after: int) -> None:
        """Record that an agent's number of free slots has changed."""
        self._total += after - before
        for place, each in self._parts:
            self._counts[place] += (after >= each) - (before >= each)

    @property
    def enough(self) -> bool:
        """Whether the task would fit."""
        if self._several and self._total >= self._slots:
            return True
        slots, counts = self._slots, self._counts
        return any(counts[place] * each >= slots for place, each in self._parts)


def first_before(end: int, ranks: Sequence[int]) -> int:
    """Return the nearest agent to a task whose search begins before this rank."""
    return ranks[bisect_left(ranks, end) - 1]  # below 0 it goes round: the last one


def nearest(end: int, ranks: Sequence[int], count: int | None = None) -> Iterator[int]:
    """Yield the nearest ranks, at most `count` of them (None: all)."""
    start = bisect_left(ranks, end) - 1
    for step in range(len(ranks) if count is None else min(count, len(ranks))):
        yield ranks[start - step]
