"""A scheduling pass's cache of the previous one: the rows it read, and the tasks and agents made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from detlab_hub.backends.base import Node
from detlab_hub.core.scheduling import Agent, AgentState, SchedulerTask
from detlab_hub.services.base.offers import agent_of
from detlab_hub.services.placement.active_rows import PlacedRow, WaitingRow, read_placed, read_waiting
from detlab_hub.store.prepared import Seen
from detlab_hub.store.queries import parts


class PreviousPassTasks:
    """The tasks of the previous pass: an unchanged one is the same object again.

    Thousands wait, and from one pass to the next few are new. Making a task from a row takes longer than everything
    that a pass asks of it, and so does making a row from what the driver gives.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[tuple[Any, ...], SchedulerTask]] = {}
        self._now: dict[str, tuple[tuple[Any, ...], SchedulerTask]] = {}
        self._waiting: dict[str, Seen[WaitingRow]] = {}
        self._placed: dict[str, Seen[PlacedRow]] = {}
        self._seats: dict[str, Mapping[str, frozenset[str]]] = {}
        self._agents: dict[str, tuple[Node, AgentState, Agent]] = {}
        self._agents_now: dict[str, tuple[Node, AgentState, Agent]] = {}

    def begin(self) -> None:
        """Begin another pass: what the last one did not see is forgotten."""
        self._before, self._now = self._now, {}
        self._agents, self._agents_now = self._agents_now, {}

    def waiting(self, s: Session) -> list[WaitingRow]:
        """Read the pending allocations."""
        self._waiting = read_waiting(s, self._waiting)
        return [row for _, row in self._waiting.values()]

    def placed(self, s: Session) -> list[PlacedRow]:
        """Read the placed allocations."""
        self._placed = read_placed(s, self._placed)
        return [row for _, row in self._placed.values()]

    def seats(self, s: Session) -> Mapping[str, Mapping[str, frozenset[str]]]:
        """Return the slots by agent of each of `placed`, the chief's first; they never change while it is placed."""
        fresh: dict[str, dict[str, frozenset[str]]] = {name: {} for name in self._placed if name not in self._seats}
        for name, agent_id, slots in parts.places(s, fresh):
            fresh[name][agent_id] = fresh[name].get(agent_id, frozenset()).union(slots)
        self._seats = {name: fresh[name] if name in fresh else self._seats[name] for name in self._placed}
        return self._seats

    def get(self, name: str, made_of: tuple[Any, ...]) -> SchedulerTask | None:
        """Return the known task of this name if it was made of the same values."""
        known = self._before.get(name)
        if known is None or known[0] != made_of:
            return None
        self._now[name] = known
        return known[1]

    def keep(self, made_of: tuple[Any, ...], task: SchedulerTask) -> SchedulerTask:
        """Keep a task for the next pass, too."""
        self._now[task.id] = made_of, task
        return task

    def agent(self, node: Node, state: AgentState) -> Agent:
        """Return a node as the scheduler sees it, in the state that an administrator set."""
        known = self._agents.get(node.id)
        if known is None or known[0] is not node or known[1] is not state:
            known = node, state, agent_of(node, state)
        self._agents_now[node.id] = known
        return known[2]
