"""What tasks have in common where it is asked where they fit: thousands wait, and few of them differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from detlab_hub.core.scheduling.model import Agent, Constraints, Task

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """What of a task decides which agents are suitable. `Shapes` makes one of each: they are compared by identity.

    Attributes:
        constraints: Of the task.
        runtime: Of the task.
        user: Its owner; "" where no agent serves one user alone.
    """

    constraints: Constraints
    runtime: str
    user: str


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """What of a task decides where it fits: tasks of one shape fit or fail alike. One of each, as of `Kind`.

    Attributes:
        slots: Of the task.
        single_node: Of the task.
        kind: Which agents are suitable.
        blocked_nodes: Those of them that the task must not have.
        millicpus: Of the task: agents with less left are as good as full.
        memory: The same.
        demanding: Whether it asks for CPUs or memory.
        aside: Whether it needs nothing that another task may need.
    """

    slots: int
    single_node: bool
    kind: Kind
    blocked_nodes: frozenset[str]
    millicpus: int
    memory: int
    demanding: bool
    aside: bool


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
        self._kinds: dict[tuple[Constraints, str, str], Kind] = {}
        self._shapes: dict[tuple[int, bool, Kind, frozenset[str], int, int], Shape] = {}
        self._asked: dict[tuple[int, bool, Constraints, str, str, frozenset[str], int, int], Shape] = {}
        self._suitable: dict[Kind, Sequence[Agent]] = {}

    def of(self, task: Task) -> Shape:
        """That of a task."""
        found = self.known.get(task.id)
        return self.of_all((task,))[0] if found is None else found

    def of_all(self, tasks: Iterable[Task]) -> list[Shape]:
        """Those of tasks, in their order."""
        known, asked, personal = self.known, self._asked, self._personal
        shapes: list[Shape] = []
        for task in tasks:
            wanted = (
                task.slots, task.single_node, task.constraints, task.runtime, task.user if personal else "",
                task.blocked_nodes, task.millicpus, task.memory,
            )  # fmt: skip
            found = asked.get(wanted)
            if found is None:
                found = asked[wanted] = self._made(task)
            known[task.id] = found
            shapes.append(found)
        return shapes

    def _made(self, task: Task) -> Shape:
        key = task.constraints, task.runtime, task.user if self._personal else ""
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = Kind(*key)
        blocked = task.blocked_nodes.intersection(self._names) if task.blocked_nodes else _NONE
        return self._one(task.slots, task.single_node, kind, blocked, task.millicpus, task.memory)

    def suitable(self, kind: Kind) -> Sequence[Agent]:
        """The agents on which tasks of a kind may run, whether or not they are open."""
        found = self._suitable.get(kind)
        if found is None:
            found = self._suitable[kind] = [agent for agent in self._agents if suits(kind, agent)]
        return found

    def undemanding(self, shape: Shape) -> Shape:
        """The same of tasks that ask for no CPUs and no memory."""
        return self._one(shape.slots, shape.single_node, shape.kind, shape.blocked_nodes, 0, 0)

    def coarser(self, shape: Shape) -> Shape:
        """The same of tasks that ask for less, one for many: CPUs and memory of a power of two, then none."""
        millicpus, memory = _power(shape.millicpus), _power(shape.memory)
        if (millicpus, memory) == (shape.millicpus, shape.memory):
            return self.undemanding(shape)
        return self._one(shape.slots, shape.single_node, shape.kind, shape.blocked_nodes, millicpus, memory)

    def avoiding(self, shape: Shape, names: frozenset[str]) -> Shape:
        """The same with more blocked nodes."""
        blocked = shape.blocked_nodes | names
        return self._one(shape.slots, shape.single_node, shape.kind, blocked, shape.millicpus, shape.memory)

    def _one(
        self, slots: int, single_node: bool, kind: Kind, blocked: frozenset[str], millicpus: int, memory: int
    ) -> Shape:
        key = slots, single_node, kind, blocked, millicpus, memory
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = Shape(*key, bool(millicpus or memory), not (slots or millicpus or memory))
        return found


def _power(number: int) -> int:
    """The largest power of two that is no more; 0 of 0."""
    return 1 << number.bit_length() - 1 if number else 0


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
