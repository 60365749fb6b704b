"""The choice of a master's backend."""

from __future__ import annotations

from detlab_hub.backends.agents import LiveAgents
from detlab_hub.backends.connection import AgentBackend


def make_backend(suspect_after: float, lost_after: float) -> AgentBackend:
    """Make the backend of a master: agents that dial in.

    Args:
        suspect_after: Seconds of silence after which an agent gets no new work.
        lost_after: Seconds of silence after which its tasks are considered dead.
    """
    return LiveAgents(suspect_after, lost_after)
