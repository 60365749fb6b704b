"""A few agents of a pool that give the same answer as all of them about a task that is alone in the pool.

A thousand agents are of a handful of kinds. Whether an idle cluster could ever run something does not depend on the
hundredth of a kind, and each submission checks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from detlab_hub.backends.base import Node
from detlab_hub.core.scheduling import Agent
from detlab_hub.services.base.offers import agent_of


@dataclass(frozen=True)
class Present:
    """The connected agents of one pool; a suspect one counts as the others do.

    Attributes:
        nodes: What they were made of.
        agents: All.
        kinds: The same, sorted so that equal ones are next to each other.
    """

    nodes: tuple[Node, ...]
    agents: tuple[Agent, ...]
    kinds: tuple[tuple[Agent, ...], ...]

    def few(self, slots: int) -> tuple[Agent, ...]:
        """Return as many agents of each kind as a request for so many slots could need."""
        return tuple(agent for kind in self.kinds for agent in kind[: -(-slots // max(1, kind[0].slots)) or 1])


class PoolAgents:
    """A cache of the agents made from each pool's nodes, until these change."""

    def __init__(self) -> None:
        self._of: dict[str, Present] = {}

    def of(self, pool: str, nodes: Iterable[Node]) -> Present:
        """Return the agents of a pool.

        Args:
            pool: Its name.
            nodes: All its nodes.
        """
        there = tuple(replace(node, suspect=False) if node.suspect else node for node in nodes)
        known = self._of.get(pool)
        if known is None or known.nodes != there:  # the same objects, mostly, for which a comparison is a look
            known = self._of[pool] = _present(there)
        return known


def _present(nodes: Sequence[Node]) -> Present:
    agents = tuple(agent_of(node) for node in nodes)
    kinds: dict[Node, list[Agent]] = {}
    for node, agent in zip(nodes, agents, strict=True):
        # Slots are counted: their names tell apart what is alike.
        alike = replace(node, id="", slots=("",) * len(node.slots))
        kinds.setdefault(alike, []).append(agent)
    return Present(tuple(nodes), agents, tuple(tuple(kind) for kind in kinds.values()))
