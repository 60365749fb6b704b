"""What the services ask of a place where tasks run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from detlab.schemas.wire import MasterMessage


@dataclass(frozen=True, slots=True)
class Node:
    """A node that may take work now, or soon again. What it runs is in the database."""

    id: str
    slots: tuple[str, ...]
    serves_user: str | None = None
    suspect: bool = False
    runtimes: tuple[str, ...] = ("process",)


class Backend(Protocol):
    """Carries messages to nodes and says which there are.

    Nothing else belongs here: what must happen is decided by the lifecycle and stored before it is delivered,
    and a message that is not delivered is derived from the database again when the node comes back.
    """

    def deliver(self, node_id: str, message: MasterMessage) -> None:
        """Send a message if the node is connected; else do nothing. Never raises, never blocks."""

    def nodes(self, now: float) -> tuple[Node, ...]:
        """Connected nodes and those that are missed but not yet lost."""
