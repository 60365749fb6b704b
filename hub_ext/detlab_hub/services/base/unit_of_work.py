"""One transaction of the master, and its effects after the commit.

A `UnitOfWork` carries the session, the time and the journaled searches through the functions that change rows. All
effects outside the database (messages to agents, wake-ups) are collected in its `Outbox` and carried out by the
shell after the commit; a transaction that fails leaves no trace outside.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from sqlalchemy.orm import Session

from detlab.errors import NotFound
from detlab.schemas.wire import AllocationState, Launch, MasterMessage, TaskExited
from detlab_hub.core.lifecycle.allocation import EndKind
from detlab_hub.core.searchers import Event as SearchEvent
from detlab_hub.core.searchers import PointsAhead, Question
from detlab_hub.services.base.limits.metric_names import MetricNames
from detlab_hub.services.base.searches import Searches
from detlab_hub.services.base.settings import Settings
from detlab_hub.store.queries import events
from detlab_hub.store.tables import AgentRow, AllocationRow, ExperimentRow, TaskRow, TrialRow

Kind: TypeAlias = Literal["experiment", "trial", "task"]
"""What has a state that events tell of."""


@dataclass(frozen=True)
class LaunchSeat:
    """Where a launch goes, and its place among the nodes of the task.

    Attributes:
        agent: The agent.
        slots: Those that the task gets of it.
        rank: In the order of nodes.
        addresses: Of all nodes, in that order.
        counts: Devices of all nodes, on which there is a rank each.
    """

    agent: AgentRow | None
    slots: list[str]
    rank: int
    addresses: list[str]
    counts: list[int]


@dataclass(frozen=True)
class GpusAtZero:
    """GPUs of a running allocation that do nothing.

    Attributes:
        held: What people are told: how many slots, at 0 % for how long.
        since: Since when, in seconds since the epoch.
        pool: Where.
        release_at: When they are released; None: they are not.
        told: Whether the owner is told.
        alone: Whether others of its experiment are in use.
    """

    held: str
    since: float
    pool: str
    release_at: float | None = None
    told: bool = False
    alone: bool = False

    def left(self, now: float) -> str:
        """Return the time until they are released, for people."""
        return minutes((self.release_at or now) - now)


def minutes(seconds: float) -> str:
    """Return a time in minutes, for people."""
    return f"{max(1, round(seconds / 60))} min"


class Holder(Protocol):
    """The holder of an allocation, a trial or a user task: whatever differs between the two is a method here."""

    def ready(self, unit: UnitOfWork, row: AllocationRow) -> bool:
        """Whether an allocation that was given resources can be launched; if not, its launch is sent later."""

    def waits(self, unit: UnitOfWork, row: AllocationRow) -> bool:
        """Whether no launch of the allocation was sent so far, for the reason that it was not ready."""

    def launch(self, unit: UnitOfWork, row: AllocationRow, seat: LaunchSeat) -> Launch | None:
        """Make the message for one of its nodes; None for a server whose environment this master does not have."""

    def payer(self, unit: UnitOfWork, row: AllocationRow) -> tuple[str, str]:
        """Return (owner, kind) to whom its slot time counts."""

    def allocation_changed(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """React to any change of the allocation's row."""

    def allocation_moved(self, unit: UnitOfWork, row: AllocationRow, state: AllocationState) -> None:
        """React to the allocation's change to another state."""

    def attempt_ended(self, unit: UnitOfWork, row: AllocationRow, kind: EndKind) -> None:
        """React to the end of the attempt that the allocation was for."""

    def stage_reported(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """React to the agent's report of how far the launch is."""

    def secured(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """React to the agent's report that the service speaks TLS where it is reached."""

    def time_is_up(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """React when it has run for its `resources.max_time`."""

    def slots_gone(self, unit: UnitOfWork, row: AllocationRow, message: str) -> None:
        """React when its node came back without some of its slots: it is killed next."""

    def gpus_idle(self, unit: UnitOfWork, row: AllocationRow, gpus: GpusAtZero) -> str:
        """Note that its GPUs do nothing; return what the owner is told, "" for nothing."""

    def gpus_in_use(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Take back what was noted: its GPUs are in use, or nothing is known of them."""

    def release_gpus(self, unit: UnitOfWork, row: AllocationRow, gpus: GpusAtZero) -> str:
        """Release GPUs that do nothing: what can save does so; return what the owner is told, "" if it ends anyway."""

    def drain_began(self, unit: UnitOfWork, row: AllocationRow, agent: AgentRow) -> None:
        """React to the start of its node's drain."""

    def ask_to_leave(self, unit: UnitOfWork, row: AllocationRow, until: float | None) -> None:
        """Ask it to save and leave its node, by then at the latest; what cannot save stays until the drain is over."""

    def time_limit_comes(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """React when its batch system is about to end it: it saves, leaves, and runs again by a new job."""

    def drain_is_over(self, unit: UnitOfWork, row: AllocationRow, agent_id: str) -> None:
        """React when the deadline of its node's drain has passed: it must leave."""

    def cluster_drains(self, unit: UnitOfWork, row: AllocationRow, timeout: float) -> None:
        """React to the drain of the whole cluster: it must leave within `timeout` seconds."""


@dataclass(frozen=True)
class StateMachines:
    """The state machines, as the base of the services reaches them: they lie above it.

    Attributes:
        trials: Holds the allocations of trials.
        tasks: Holds the allocations of user tasks.
        finish: Run at the end of each unit of work, in its transaction.
    """

    trials: Holder
    tasks: Holder
    finish: Callable[[UnitOfWork], None]


@dataclass
class Outbox:
    """The effects after the commit. All can be derived from rows, so a crash loses nothing."""

    messages: list[tuple[str, MasterMessage]] = field(default_factory=list)
    """(agent id, message), in order."""
    ended_allocations: list[str] = field(default_factory=list)
    """Allocations whose tokens are no longer valid."""
    blocked: list[tuple[int | str, str]] = field(default_factory=list)
    """(trial or user task, agent where it is not to run again)"""
    wake_allocations: set[str] = field(default_factory=set)
    """Allocations whose long polls should read again."""
    wake_logs: set[int | str] = field(default_factory=set)
    """Trials and user tasks with new log lines, or an end."""
    wake_streams: bool = False
    kick_scheduler: bool = False
    limit_hits: list[tuple[str, str]] = field(default_factory=list)
    """(user, limit) that was reached and refused nothing as a whole."""
    questions: list[tuple[int, str, Question]] = field(default_factory=list)
    """(experiment, its `searcher.name`, what its search asks), to be answered outside of any transaction."""
    ahead: list[tuple[str, PointsAhead]] = field(default_factory=list)
    """(owner of the search, points that it needs next), to be drawn outside of any transaction."""
    saved_allocations: set[str] = field(default_factory=set)
    """Allocations that have committed a checkpoint: a preemption delayed until then may be sent now."""
    wake_searches: set[int] = field(default_factory=set)
    """Experiments in which trials were created or changed their state: who asks for one by hand should look again."""


@dataclass
class UnitOfWork:
    """One transaction in progress."""

    session: Session
    now: float
    settings: Settings
    searches: Searches
    lifecycle: StateMachines
    outbox: Outbox = field(default_factory=Outbox)
    search_queue: deque[tuple[ExperimentRow, SearchEvent]] = field(default_factory=deque)
    made: Counter[int] = field(default_factory=Counter)
    """Trials that were made in this unit of work, by experiment."""
    exits: dict[str, TaskExited] = field(default_factory=dict)
    """Agents' reports of exits in this unit of work, by allocation."""
    closed: set[int] = field(default_factory=set)
    """Experiments of which a trial ended in this unit of work: checked once, at the end of the unit of work."""
    spawn_secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    """Environments of the Hub's servers by task, from memory: they hold tokens and are never stored."""
    metric_names: MetricNames = field(default_factory=MetricNames)
    """The metric names that trials have reported."""
    asks_point: Callable[[str], bool] = field(default=lambda agent_id: False)
    """Whether the trials of an agent ask for their hyperparameters when they run; see `Backend.asks_point`."""
    _told: dict[tuple[str, int | str], dict[str, Any]] = field(default_factory=dict)
    """The data of the one event about each subject of this unit of work."""
    _events: list[dict[str, Any]] = field(default_factory=list)
    """Written at the end, with one statement: single ones cost more than what they tell of."""

    def experiment(self, experiment_id: int) -> ExperimentRow:
        """Load the row of an experiment.

        Raises:
            NotFound: If it does not exist.
        """
        row = self.session.get(ExperimentRow, experiment_id)
        if row is None:
            raise NotFound(f"there is no experiment {experiment_id}")
        return row

    def trial(self, trial_id: int) -> TrialRow:
        """Load the row of a trial.

        Raises:
            NotFound: If it does not exist.
        """
        row = self.session.get(TrialRow, trial_id)
        if row is None:
            raise NotFound(f"there is no trial {trial_id}")
        return row

    def task(self, task_id: str) -> TaskRow:
        """Load the row of a user task.

        Raises:
            NotFound: If it does not exist.
        """
        row = self.session.get(TaskRow, task_id)
        if row is None:
            raise NotFound(f"there is no task {task_id[:80]}")
        return row

    def allocation(self, allocation_id: str) -> AllocationRow | None:
        """Load the row of an allocation, None if it does not exist."""
        return self.session.get(AllocationRow, allocation_id)

    def holder(self, row: AllocationRow) -> Holder:
        """Return the holder of an allocation: a trial or a user task."""
        return self.lifecycle.tasks if row.trial_id is None else self.lifecycle.trials

    def changed_experiment(self, experiment_id: int) -> None:
        """Say once that an experiment changed; readers of the stream get its view then."""
        if ("experiment", experiment_id) not in self._told:
            data = self._told["experiment", experiment_id] = dict[str, Any]()
            self._event("experiment", experiment_id, None, data)

    def changed_trial(self, trial: TrialRow) -> None:
        """Say once that a trial changed."""
        if ("trial", trial.id) not in self._told:
            data = self._told["trial", trial.id] = dict[str, Any]()
            self._event("trial", trial.experiment_id, trial.id, data)

    def changed_task(self, task: TaskRow) -> None:
        """Say once that a user task changed."""
        if ("task", task.id) not in self._told:
            data = self._told["task", task.id] = dict[str, Any]()
            self._events.append(events.new("task", self.now, None, None, data, task_id=task.id))
            self.outbox.wake_streams = True

    def changed_cluster(self) -> None:
        """Say once that the queue, an agent or what its slots do changed; readers ask for them again."""
        if ("cluster", 0) not in self._told:
            self._told["cluster", 0] = {}
            self._event("cluster", None, None, {})

    def state_changed(
        self, kind: Literal["experiment", "trial", "task"], key: int | str, before: str, now: str
    ) -> None:
        """Write into the event about a subject, which `changed_*` has made, how its state changed in this unit of work.

        Args:
            kind: What it is.
            key: Its id.
            before: Its state before; kept from the first change of the unit of work.
            now: Its state now.
        """
        moved = self._told[kind, key].setdefault(events.MOVED, {"from": before})
        moved["to"] = now

    def event(self, kind: str, experiment_id: int | None, trial_id: int | None, data: dict[str, Any]) -> None:
        """Append an event that carries its own data (metrics, checkpoint, model)."""
        self._event(kind, experiment_id, trial_id, data)

    def _event(self, kind: str, experiment_id: int | None, trial_id: int | None, data: dict[str, Any]) -> None:
        self._events.append(events.new(kind, self.now, experiment_id, trial_id, data))
        self.outbox.wake_streams = True

    def write_events(self) -> None:
        """Append the events of this unit of work to the log; `finish_turn` does.

        They are in their order, but those of experiments come last: many readers leave when an experiment has ended,
        and would miss the ends of its trials.
        """
        rows, self._events = sorted(self._events, key=lambda row: row["kind"] == "experiment"), []
        events.append_all(self.session, rows)
