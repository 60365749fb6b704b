"""An elastic pool at one moment, its history, and the decision of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from detlab_hub.core.scheduling import Agent, Snapshot

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Between what an operator lets a pool grow and shrink; times in seconds. The numbers are Determined's.

    Attributes:
        min_instances: Instances that are kept even if no task needs them.
        max_instances: Most instances.
        max_idle_agent_period: An instance that runs nothing for longer is ended.
        max_agent_starting_period: An agent that has not connected this long after the launch is given up.
        max_disconnected_period: An instance whose agent is away for longer is ended.
        launch_rate: Most launches, tried or done, …
        launch_window: … in any such period.
        retry_after: Pause before a failed launch is tried again; it doubles after each further failure …
        retry_at_most: … but no longer than this.
    """

    min_instances: int = 0
    max_instances: int = 5
    max_idle_agent_period: float = 20 * MINUTE
    max_agent_starting_period: float = 20 * MINUTE
    max_disconnected_period: float = 10 * MINUTE
    launch_rate: int = 20
    launch_window: float = MINUTE
    retry_after: float = 10.0
    retry_at_most: float = 10 * MINUTE

    def __post_init__(self) -> None:
        if not 0 <= self.min_instances <= self.max_instances:
            raise ValueError(
                f"min_instances must be between 0 and max_instances {self.max_instances}: it is {self.min_instances}"
            )
        if self.launch_rate < 1:
            raise ValueError(f"launch_rate must be at least 1: it is {self.launch_rate}")
        for name in (
            "max_idle_agent_period",
            "max_agent_starting_period",
            "max_disconnected_period",
            "launch_window",
            "retry_after",
            "retry_at_most",
        ):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 seconds or more: it is {getattr(self, name)}")


class InstanceState(StrEnum):
    """The provider's report of an instance."""

    PENDING = "pending"
    """Requested: it does not run yet (as a pending spot request)."""
    RUNNING = "running"
    STOPPED = "stopped"
    """It has stopped and can be removed (a preempted one may stay like this)."""
    ENDING = "ending"
    """It is ending: nothing needs to be done."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Something that the provider launched for the pool.

    Attributes:
        id: The provider's name for it.
        agent_id: The name under which its agent connects.
        state: See `InstanceState`.
        launched_at: When, in seconds.
        spot: It is cheaper, and the provider may take it back.
        why: Why it has stopped, or never came, if the provider says; for people.
        trouble: The kind of that error, as in `Trouble`; "" for none.
        hint: What to do about it.
    """

    id: str
    agent_id: str
    state: InstanceState = InstanceState.RUNNING
    launched_at: float = 0.0
    spot: bool = False
    why: str = ""
    trouble: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """An elastic pool at one moment.

    Attributes:
        pool: Its agents (also those that are no instances), its jobs, what runs and what waits. An agent is among
            them while it is connected, and as a suspect while its contact is lost.
        template: What the agent of a new instance will be like; its id does not matter.
        instances: The instances that the provider lists.
        now: In seconds.
        held: Agents that run something, beside those that the pool's tasks name.
        unlisted: Agents of instances that the provider does not list yet: it cannot end them now, so they end later and
            count until then.
    """

    pool: Snapshot
    template: Agent
    instances: tuple[Instance, ...]
    now: float
    held: frozenset[str] = frozenset()
    unlisted: frozenset[str] = frozenset()


class InstanceHistory(NamedTuple):
    """The history of one instance.

    Attributes:
        connected_once: Its agent has connected before.
        idle_since: Since when it runs nothing; None while it runs something, or its agent is away.
        away_since: Since when its agent is away, or overdue; None while it is connected or may still be starting.
        starting_since: Since when its agent is waited for; None once it has connected.
    """

    connected_once: bool = False
    idle_since: float | None = None
    away_since: float | None = None
    starting_since: float | None = None


@dataclass(frozen=True, slots=True)
class PoolHistory:
    """The history between two evaluations. An empty one is always safe: nothing ends too early.

    Attributes:
        instances: By the provider's name.
        launches: Times of the recent launches.
        failures: Launches that failed one after the other.
        duds: Instances that ended, or were given up, one after the other before their agents ever came.
        failed_at: When the last one of either failed.
    """

    instances: Mapping[str, InstanceHistory] = field(default_factory=dict, hash=False)
    launches: tuple[float, ...] = ()
    failures: int = 0
    duds: int = 0
    failed_at: float = 0.0


class InstanceEndReason(StrEnum):
    """Why an instance is ended: the closed set, in the order of the checks."""

    STOPPED = "stopped"
    DISCONNECTED = "disconnected"
    NEVER_CONNECTED = "never_connected"
    IDLE = "idle"
    OVER_MAX = "over_max"


class HoldReason(StrEnum):
    """Why fewer instances are launched than are wanted: the closed set."""

    MAX_INSTANCES = "max_instances"
    BACK_OFF = "back_off"
    """The last launch failed; it is too early to try again."""
    RATE = "rate"
    """The launch rate is reached: the next launch has to wait."""


class Awaited(NamedTuple):
    """Instances that a pending task would start on, and whose agents are not connected.

    Attributes:
        starting: Agents of those that were launched.
        new: How many more it needs.
    """

    starting: tuple[str, ...] = ()
    new: int = 0


class InstanceEnding(NamedTuple):
    """An instance that is to be ended, and why."""

    id: str
    reason: InstanceEndReason
    detail: str


@dataclass(frozen=True, slots=True)
class ProvisioningDecision:
    """The actions of an evaluation.

    Attributes:
        launch: Number of instances to launch.
        endings: Instances to be ended; none of them runs anything.
        wanted: Number of new instances that the pending tasks, or `min_instances`, require.
        held_back: Why fewer than that are launched, with words for people; None if all are.
        infeasible: Pending tasks for which no number of instances is enough.
        history: To be passed to the next evaluation.
        awaited: By pending task, the instances that it would start on and whose agents are not connected yet.
        unfit: Of the infeasible tasks, those that are too large for the instances, or not for such agents.
    """

    launch: int
    endings: tuple[InstanceEnding, ...]
    wanted: int
    held_back: tuple[HoldReason, str] | None
    infeasible: tuple[str, ...]
    history: PoolHistory
    awaited: Mapping[str, Awaited] = field(default_factory=dict, hash=False)
    unfit: frozenset[str] = frozenset()
