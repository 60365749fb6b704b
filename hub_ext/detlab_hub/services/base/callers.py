"""The callers of services. The web layer authenticates them; the services authorise by them."""

from __future__ import annotations

from dataclasses import dataclass, field

READ = "custom:detlab:read"
WRITE = "custom:detlab:write"
ADMIN = "custom:detlab:admin"


@dataclass(frozen=True)
class Caller:
    """A person, by a Hub token."""

    name: str
    scopes: frozenset[str] = field(default_factory=frozenset)
    admin: bool = False
    """Sees and changes the experiments of all users."""
    groups: frozenset[str] = field(default_factory=frozenset)
    """Groups of the Hub that they are in."""
    run: str | None = None
    """The allocation whose notebook run speaks for them, by its own token; None: themselves."""


@dataclass(frozen=True)
class TaskCaller:
    """One attempt to run a trial or a user task, by its task token; either `trial_id` or `task_id` is set."""

    allocation_id: str
    trial_id: int | None
    experiment_id: int | None
    run: int
    task_id: str | None = None
    owner: str = field(default="", compare=False)
    """The user whose task it is, in whose turn its work runs."""


@dataclass(frozen=True)
class AgentCaller:
    """An agent, by its own key."""

    agent_id: str
    key_hash: str = field(default="", compare=False)
    """SHA-256 of that key, which may become void while the agent is still connecting."""


@dataclass(frozen=True)
class HubCaller:
    """The Hub's spawner, by its own token: may ask for servers of any user, and nothing else."""


@dataclass(frozen=True)
class EnrolCaller:
    """The holder of an enrolment token: may enrol agents and nothing else."""

    token_hash: str = ""
