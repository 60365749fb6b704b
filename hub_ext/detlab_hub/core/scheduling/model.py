"""What the scheduler looks at, and what it answers."""

from dataclasses import dataclass
from enum import StrEnum

DEFAULT_PRIORITY = 42
"""Of 1 to 99; lower goes first."""

MAX_ZERO_SLOT_TASKS = 100
"""Tasks without slots that one agent runs at a time."""


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent at the moment of the snapshot.

    Attributes:
        id: Its name.
        slots: Ids of its enabled slots, in the agent's order.
        used: Those of them that an allocation owns.
        serves_user: The one user whose tasks it runs; None for any user.
        accepting: False while it is disabled or drained: what runs goes on, nothing new starts.
        suspect: Contact is lost, but not yet for long enough to give it up.
        zero_slot_tasks: Running tasks without slots.
        runtimes: How it can run tasks: process, docker.
    """

    id: str
    slots: tuple[str, ...]
    used: frozenset[str] = frozenset()
    serves_user: str | None = None
    accepting: bool = True
    suspect: bool = False
    zero_slot_tasks: int = 0
    runtimes: frozenset[str] = frozenset({"process"})


@dataclass(frozen=True, slots=True)
class Request:
    """An allocation that waits for a place.

    Attributes:
        allocation_id: Its name.
        experiment_id: Whose `max_slots` counts; None for tasks outside experiments.
        user: Owner of the task.
        slots: Slots needed, all on one agent; 0 for a task that needs none.
        priority: 1 to 99, lower first.
        submitted_at: When its experiment was submitted, seconds.
        order: Position among the requests of one submission.
        max_slots: Slots that the experiment may hold at a time; None for no limit.
        excluded_agents: Agents where it must not run (again).
        runtime: How it must be run.
    """

    allocation_id: str
    experiment_id: int | None
    user: str
    slots: int
    priority: int = DEFAULT_PRIORITY
    submitted_at: float = 0.0
    order: int = 0
    max_slots: int | None = None
    excluded_agents: frozenset[str] = frozenset()
    runtime: str = "process"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment.

    Attributes:
        agents: Connected and suspect agents.
        pending: Requests without a place, in any order.
        running: (experiment id, slots) of each placed allocation, for `max_slots`; an experiment may occur
            more than once.
    """

    agents: tuple[AgentView, ...]
    pending: tuple[Request, ...] = ()
    running: tuple[tuple[int | None, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """Run an allocation on an agent, in these of its slots."""

    allocation_id: str
    agent_id: str
    slots: tuple[str, ...]


class ReasonCode(StrEnum):
    """Why a request waits."""

    NO_AGENT = "no_agent"
    WRONG_USER = "wrong_user"
    TOO_LARGE = "too_large"
    EXCLUDED = "excluded"
    NO_RUNTIME = "no_runtime"
    OVER_MAX_SLOTS = "over_max_slots"
    AT_MAX_SLOTS = "at_max_slots"
    UNAVAILABLE = "unavailable"
    NO_FREE_SLOTS = "no_free_slots"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class Reason:
    """The dominant reason why a request waits, in words for people."""

    code: ReasonCode
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start now, and why everything else waits: each pending request is in exactly one of them."""

    assignments: tuple[Assignment, ...]
    reasons: dict[str, Reason]
