"""The words of the table of rights: rights, kinds of objects, relations to them, callers and objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Literal, TypeAlias


class Right(IntEnum):
    """The right of a caller to an object; each includes those before it."""

    NONE = 0
    """Nothing: for this caller the object does not exist."""
    READ = 1
    """Read it, download from it, start from its checkpoints."""
    WRITE = 2
    """Change it: pause, activate, cancel and kill it, write into it."""
    OWN = 3
    """Share and delete it."""

    @property
    def wire(self) -> Literal["read", "write", "own"]:
        """The name in views for the holder of the right. A caller without one gets no view: READ is the least."""
        match self:
            case Right.OWN:
                return "own"
            case Right.WRITE:
                return "write"
            case _:
                return "read"


class Role(IntEnum):
    """The role of a member of a workspace; each includes those before it."""

    VIEWER = 1
    """Sees what lies in it."""
    EDITOR = 2
    """Changes it, and puts things into it."""
    ADMIN = 3
    """Decides who is a member, and deletes what lies in it."""

    @property
    def wire(self) -> Literal["viewer", "editor", "admin"]:
        """The name in requests, views and the database."""
        match self:
            case Role.VIEWER:
                return "viewer"
            case Role.EDITOR:
                return "editor"
            case Role.ADMIN:
                return "admin"

    @classmethod
    def of(cls, name: str) -> Role:
        """Return the role of a name."""
        return cls[name.upper()]


class ObjectKind(StrEnum):
    """The kinds of objects to which rights exist."""

    __hash__ = str.__hash__  # in C: streams ask for each reader and each object

    EXPERIMENT = "experiment"
    """With everything that belongs to it: trials, metrics, output, code, events, grants."""
    CHECKPOINT = "checkpoint"
    MODEL = "model"
    """A registered model with its versions, labels and grants."""
    ARTIFACT = "artifact"
    """A named folder with its versions and their aliases."""
    WORKSPACE = "workspace"
    """With its projects, members and defaults; what lies in it has rows of its own."""
    TRACKED_RUN = "run from elsewhere"
    """One that no cluster started, with its metrics, parameters, files and logged models; and what clients of MLflow
    log into a trial."""
    TASK = "user task"
    """All of it: its output and files, its server, its whole config, its place in the queue."""
    TASK_STATE = "state of a user task"
    """What members of its workspace see of it: name, kind, state, owner, pool and resources."""
    BUNDLE = "code bundle"
    JOB = "job in the queue"
    """Its name, owner and pending reason in lists; everybody sees position, size and age of each job."""
    ALLOCATION = "allocation"
    """Who uses which slots."""
    USER = "user"
    """A user's name, usage and limits, where others are listed beside them."""
    QUOTA = "quota"
    WEBHOOK = "webhook"
    """An address that is told what its owner has rules for; its calls are made with the owner's rights."""
    ALERT_RULE = "alert rule"
    SCHEDULE = "schedule"
    """What runs later with its owner's rights."""
    AGENT = "agent"
    CLUSTER = "cluster"
    SITE = "administration"
    """Audit log, tokens, health, uids and instances."""


class CallerRelation(StrEnum):
    """What a caller can be to an object."""

    __hash__ = str.__hash__  # in C: streams ask for each reader and each object

    ADMIN = "administrator"
    OWNER = "owner"
    RUN = "notebook run of its owner"
    """By the token that a notebook run has for its cells."""
    EDITOR = "shared, may change"
    READER = "shared, may read"
    WORKSPACE_ADMIN = "admin of its workspace"
    WORKSPACE_EDITOR = "editor of its workspace"
    WORKSPACE_VIEWER = "viewer of its workspace"
    ITSELF = "its own task"
    """The attempt that the object belongs to: the trial's own checkpoint, the task itself."""
    SIBLING = "task of its experiment"
    SOURCE = "task that starts from it"
    HOST = "agent that runs it"
    USES = "may read what uses it"
    USER = "any user"


@dataclass(frozen=True)
class Person:
    """A user of the Hub.

    Attributes:
        name: As the database holds it.
        groups: Groups of the Hub that they are in, likewise.
        admin: Whether their token makes them an administrator here.
        run: Whether it is the token of a notebook run of theirs, which may do less.
    """

    name: str
    groups: frozenset[str] = frozenset()
    admin: bool = False
    run: bool = False


@dataclass(frozen=True)
class AttemptIdentity:
    """A task, by the token of one attempt; `task_id` is of a user task, the others of a trial."""

    experiment_id: int | None = None
    trial_id: int | None = None
    task_id: str | None = None


@dataclass(frozen=True)
class AgentIdentity:
    """An agent, by its own key."""

    id: str


Who: TypeAlias = Person | AttemptIdentity | AgentIdentity


@dataclass(frozen=True)
class Thing:
    """An object, with the facts that rights to it depend on. A missing fact gives no right.

    Attributes:
        kind: What it is.
        owner: The user who owns it; "" or None: no one.
        users: Users with a grant; True: it permits changes.
        groups: Groups with a grant, likewise.
        members: Users with a role in the workspace that it is, or lies in.
        member_groups: Groups with one, likewise.
        experiment_id: The experiment that it is or belongs to.
        trial_id: The trial that made it.
        task_id: The user task that it is or belongs to.
        source_of: Experiments whose trials start from it.
        agents: Agents that run it.
        used_by: Objects that use it: a caller who may read one of them may also read this one.
    """

    kind: ObjectKind
    owner: str | None = None
    users: Mapping[str, bool] = field(default_factory=dict)
    groups: Mapping[str, bool] = field(default_factory=dict)
    members: Mapping[str, Role] = field(default_factory=dict)
    member_groups: Mapping[str, Role] = field(default_factory=dict)
    experiment_id: int | None = None
    trial_id: int | None = None
    task_id: str | None = None
    source_of: Collection[int] = ()
    agents: Collection[str] = ()
    used_by: Sequence[Thing] = ()
