"""Which agent a request fits best, and why it fits none.

Scores and tie-break are Determined's (best fit): the fullest agent that still has room, so that large holes
stay whole; ties are broken by a hash of both names, so that equal agents share the load without state.
"""

import hashlib
from collections.abc import Iterable, Sequence

from detlab_hub.core.scheduling.model import (
    MAX_ZERO_SLOT_TASKS,
    AgentView,
    Reason,
    ReasonCode,
    Request,
)

_WORD = 2**64


class Room:
    """What is left of one agent while a plan is made."""

    def __init__(self, agent: AgentView) -> None:
        self.agent = agent
        self.free = [slot for slot in agent.slots if slot not in agent.used]
        self.zero_slot_tasks = agent.zero_slot_tasks

    @property
    def open(self) -> bool:
        """Whether anything new may start here now."""
        return self.agent.accepting and not self.agent.suspect

    def has_room(self, slots: int) -> bool:
        """Whether that many slots are free now."""
        if slots == 0:
            return self.zero_slot_tasks < MAX_ZERO_SLOT_TASKS
        return len(self.free) >= slots

    def take(self, slots: int) -> tuple[str, ...]:
        """Take the first free slots (for 0: a place for a task without slots)."""
        if slots == 0:
            self.zero_slot_tasks += 1
        taken, self.free = tuple(self.free[:slots]), self.free[slots:]
        return taken

    def score(self, slots: int) -> float:
        """Best-fit score in (0, 1]; higher is better."""
        used = len(self.agent.slots) - len(self.free)
        if used or slots:
            return 1 / (1 + len(self.free))
        return 1 / (1 + MAX_ZERO_SLOT_TASKS - self.zero_slot_tasks)


def may_ever_run(request: Request, agent: AgentView) -> bool:
    """Whether the request could run on the agent if nothing else did."""
    return (
        agent.serves_user in (None, request.user)
        and agent.id not in request.excluded_agents
        and request.runtime in agent.runtimes
        and len(agent.slots) >= request.slots
    )


def best_room(request: Request, rooms: Iterable[Room]) -> Room | None:
    """The best of those rooms that have place for the request now; None if none has."""
    fitting = [room for room in rooms if room.has_room(request.slots)]
    if not fitting:
        return None
    return min(
        fitting,
        key=lambda room: (
            -room.score(request.slots),
            _hash_distance(request.allocation_id, room.agent.id),
            room.agent.id,
        ),
    )


def _hash_distance(allocation_id: str, agent_id: str) -> int:
    return (_name_hash(allocation_id) - _name_hash(agent_id)) % _WORD


def _name_hash(name: str) -> int:
    digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little")


def count_slots(slots: int) -> str:
    """`1 slot`, `4 slots`."""
    return f"{slots} slot" if slots == 1 else f"{slots} slots"


def why_never(request: Request, agents: Sequence[AgentView]) -> Reason | None:
    """Why the request could run on none of the agents even if they were empty; None if on some it could."""
    if not agents:
        return Reason(ReasonCode.NO_AGENT, "no agent is connected")
    if any(may_ever_run(request, agent) for agent in agents):
        return None
    serving = [agent for agent in agents if agent.serves_user in (None, request.user)]
    if not serving:
        owners = ", ".join(f"agent {agent.id} serves only user {agent.serves_user}" for agent in agents)
        return Reason(ReasonCode.WRONG_USER, f"no agent runs tasks of user {request.user}: {owners}")
    able = [agent for agent in serving if request.runtime in agent.runtimes]
    if not able:
        what = "containers (runtime docker)" if request.runtime == "docker" else f"tasks of runtime {request.runtime}"
        return Reason(ReasonCode.NO_RUNTIME, f"no agent can run {what}; `det agent list` shows what each can")
    serving = able
    largest = max(len(agent.slots) for agent in serving)
    if largest < request.slots:
        whose = f" that serves user {request.user}" if len(serving) < len(agents) else ""
        return Reason(
            ReasonCode.TOO_LARGE,
            f"needs {count_slots(request.slots)}; the largest agent{whose} has {largest}",
        )
    excluded = ", ".join(sorted(request.excluded_agents & {agent.id for agent in serving}))
    return Reason(ReasonCode.EXCLUDED, f"every agent that is large enough is excluded for this trial: {excluded}")
