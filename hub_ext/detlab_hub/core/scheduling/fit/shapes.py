"""The shape of a task's request: thousands of tasks are pending, with few different shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from detlab_hub.core.scheduling.labels import Preference, liking
from detlab_hub.core.scheduling.model import Agent, Constraints, SchedulerTask

_NONE: frozenset[str] = frozenset()
_INDIFFERENT: frozenset[Preference] = frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class AgentNeeds:
    """The part of a task that decides which agents are suitable. `Shapes` makes one of each: compared by identity.

    Attributes:
        constraints: Of the task, without what it prefers.
        runtime: Of the task.
        user: Its owner; "" where no agent serves one user alone.
    """

    constraints: Constraints
    runtime: str
    user: str


@dataclass(frozen=True, eq=False, slots=True)
class TaskShape:
    """What of a task decides where it fits: those of one shape fit or fail alike. One of each, like `AgentNeeds`.

    Attributes:
        slots: Of the task.
        single_node: Of the task.
        kind: Which agents are suitable.
        blocked_nodes: Those of them where the task must not run.
        millicpus: Of the task: agents with less left count as full.
        memory: Likewise.
        demanding: Whether it requests CPUs or memory.
        aside: Whether it needs nothing that another task may need.
        preferred: Which of the agents it prefers: decides where it fits, never whether.
    """

    slots: int
    single_node: bool
    kind: AgentNeeds
    blocked_nodes: frozenset[str]
    millicpus: int
    memory: int
    preferred: frozenset[Preference]
    demanding: bool
    aside: bool


class Shapes:
    """The known shapes of tasks; everything made from the same agents may share them.

    Args:
        agents: All of the pool.
    """

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._agents = agents
        self._names = frozenset(agent.id for agent in agents)
        self._personal = any(agent.serves_user is not None for agent in agents)
        self.known: dict[str, TaskShape] = {}
        """The shape of each task that was looked up."""
        self._kinds: dict[tuple[Constraints, str, str], AgentNeeds] = {}
        self._shapes: dict[
            tuple[int, bool, AgentNeeds, frozenset[str], int, int, frozenset[Preference]], TaskShape
        ] = {}
        self._asked: dict[tuple[int, bool, Constraints, str, str, frozenset[str], int, int], TaskShape] = {}
        self._suitable: dict[AgentNeeds, Sequence[Agent]] = {}
        self._labelled: dict[AgentNeeds, Sequence[Sequence[Agent]]] = {}
        self._parts: dict[tuple[AgentNeeds, frozenset[int]], AgentNeeds] = {}
        self._better: dict[tuple[AgentNeeds, frozenset[Preference]], tuple[tuple[AgentNeeds, AgentNeeds], ...]] = {}

    def of(self, task: SchedulerTask) -> TaskShape:
        """Return the shape of a task."""
        found = self.known.get(task.id)
        return self.of_all((task,))[0] if found is None else found

    def of_all(self, tasks: Iterable[SchedulerTask]) -> list[TaskShape]:
        """Return the shapes of tasks, in their order."""
        known, asked, personal = self.known, self._asked, self._personal
        shapes: list[TaskShape] = []
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

    def _made(self, task: SchedulerTask) -> TaskShape:
        wanted, preferred = task.constraints, task.constraints.preferred
        if preferred:
            wanted = wanted._replace(preferred=_INDIFFERENT)
        key = wanted, task.runtime, task.user if self._personal else ""
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = AgentNeeds(*key)
        blocked = task.blocked_nodes.intersection(self._names) if task.blocked_nodes else _NONE
        return self._one(task.slots, task.single_node, kind, blocked, task.millicpus, task.memory, preferred)

    def suitable(self, kind: AgentNeeds) -> Sequence[Agent]:
        """List the agents on which tasks of a kind may run, whether or not they are open."""
        found = self._suitable.get(kind)
        if found is None:
            found = self._suitable[kind] = [agent for agent in self._agents if suits(kind, agent)]
        return found

    def better(self, shape: TaskShape, *, several: bool) -> Iterator[TaskShape]:
        """Yield the shape limited to the agents that its tasks prefer most, then to those they prefer next, and so on.

        The agents that they prefer least are not among these.

        Args:
            shape: The shape with the preferences.
            several: Whether each step adds its agents to those of the steps before, instead of replacing them; a task
                may then use several agents.
        """
        key = shape.kind, shape.preferred
        kinds = self._better.get(key)
        if kinds is None:
            kinds = self._better[key] = tuple(self._preferring(*key))
        single = shape.single_node or not several
        for alone, together in kinds:
            kind = together if several else alone
            yield self._one(shape.slots, single, kind, shape.blocked_nodes, shape.millicpus, shape.memory)

    def _preferring(
        self, kind: AgentNeeds, preferred: frozenset[Preference]
    ) -> Iterator[tuple[AgentNeeds, AgentNeeds]]:
        """Yield kinds for suitable agents that are preferred equally, and for these and all that are preferred more."""
        scores = [liking(preferred, alike[0].labels) for alike in self._alike(kind)]
        for score in sorted(set(scores), reverse=True)[:-1]:
            alone = frozenset(number for number, each in enumerate(scores) if each == score)
            yield self._part(kind, alone), self._part(kind, alone.union(n for n, s in enumerate(scores) if s > score))

    def _alike(self, kind: AgentNeeds) -> Sequence[Sequence[Agent]]:
        """Group the suitable agents by their labels."""
        found = self._labelled.get(kind)
        if found is None:
            by_labels: dict[frozenset[tuple[str, str]], list[Agent]] = {}
            for agent in self.suitable(kind):
                by_labels.setdefault(frozenset(agent.labels.items()), []).append(agent)
            found = self._labelled[kind] = list(by_labels.values())
        return found

    def _part(self, kind: AgentNeeds, numbers: frozenset[int]) -> AgentNeeds:
        """Return the one kind for some of the suitable agents, whatever preferences lead to these."""
        found = self._parts.get((kind, numbers))
        if found is None:
            found = self._parts[kind, numbers] = AgentNeeds(kind.constraints, kind.runtime, kind.user)
            groups = self._alike(kind)
            self._suitable[found] = [agent for number in sorted(numbers) for agent in groups[number]]
        return found

    def undemanding(self, shape: TaskShape) -> TaskShape:
        """Return the shape of the same tasks without a request for CPUs or memory."""
        return self._one(shape.slots, shape.single_node, shape.kind, shape.blocked_nodes, 0, 0)

    def coarser(self, shape: TaskShape) -> TaskShape:
        """Return a shape of lower demands that many share: CPUs and memory rounded down to powers of two, then 0."""
        millicpus, memory = _power(shape.millicpus), _power(shape.memory)
        if (millicpus, memory) == (shape.millicpus, shape.memory):
            return self.undemanding(shape)
        return self._one(shape.slots, shape.single_node, shape.kind, shape.blocked_nodes, millicpus, memory)

    def avoiding(self, shape: TaskShape, names: frozenset[str]) -> TaskShape:
        """Return the shape with more blocked nodes."""
        blocked = shape.blocked_nodes | names
        said = shape.millicpus, shape.memory, shape.preferred
        return self._one(shape.slots, shape.single_node, shape.kind, blocked, *said)

    def _one(
        self,
        slots: int,
        single_node: bool,
        kind: AgentNeeds,
        blocked: frozenset[str],
        millicpus: int,
        memory: int,
        preferred: frozenset[Preference] = _INDIFFERENT,
    ) -> TaskShape:
        key = slots, single_node, kind, blocked, millicpus, memory, preferred
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = TaskShape(*key, bool(millicpus or memory), not (slots or millicpus or memory))
        return found


def _power(number: int) -> int:
    """Return the largest power of two that is not above `number`; 0 for 0."""
    return 1 << number.bit_length() - 1 if number else 0


def suits(kind: AgentNeeds, agent: Agent) -> bool:
    """Whether tasks of a kind may run on an agent that has room."""
    wanted = kind.constraints
    return (
        agent.serves_user in (None, kind.user)
        and (not kind.runtime or kind.runtime in agent.runtimes)
        and (not wanted.slot_type or wanted.slot_type == agent.slot_type)
        and (not wanted.gpu or _model(wanted.gpu).search(agent.gpu) is not None)
        and wanted.memory <= agent.memory
        and all(agent.labels.get(name) == value for name, value in wanted.labels)
        and all(rule.holds(agent.labels) for rule in wanted.required)
        and wanted.requires <= agent.enforces
    )


@lru_cache(maxsize=1000)
def _model(name: str) -> re.Pattern[str]:
    """Return a pattern that finds a GPU's model as whole words in a longer name: `A10` is not in `NVIDIA A100`."""
    return re.compile(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", re.IGNORECASE)
