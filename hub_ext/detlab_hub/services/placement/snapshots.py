"""A snapshot of each pool, made from the rows and the connected agents.

A trial runs on one agent or on several, a user task on one. A task that was asked to stop holds its slots until it has
exited (I2).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState
from detlab_hub.backends.base import Node
from detlab_hub.core.scheduling import (
    AgentState,
    Job,
    PoolConfig,
    Quota,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
)
from detlab_hub.services.base.offers import agent_of, beside, constraints_of, usable
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.lifecycle.queue_fields import SEVERAL_NODES, SINGLE_NODE
from detlab_hub.services.placement.active_rows import (
    PLACED,
    PlacedRow,
    WaitingRow,
    closed_agents,
    experiment_name,
    holder_of,
    job_of,
    preempted_since,
)
from detlab_hub.services.placement.remembered import PreviousPassTasks
from detlab_hub.services.placement.user_usage import in_minimum_run, may_evict, used_now
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries import checkpoints, usage, workspaces
from detlab_hub.store.queries.usage import Faded
from detlab_hub.store.tables import AllocationRow, ExperimentRow, QuotaRow, TaskRow

AN_HOUR = 3600.0
Refusals = Mapping[tuple[int | str, str], float]
"""(trial or user task, agent that refused it) -> until when it is not asked again."""


_LIVE = or_(AllocationRow.state == AllocationState.PENDING, *(AllocationRow.state == state for state in PLACED))


def _jobs(row: type[ExperimentRow | TaskRow], named_by: Any) -> PreparedStatement:
    place = row.priority, row.weight, row.max_slots, row.created_at, row.position
    query = select(row.id, row.resource_pool, *place, row.owner_groups, row.workspace_id)
    return PreparedStatement(query.where(row.id.in_(select(named_by).where(_LIVE))))


_EXPERIMENTS = _jobs(ExperimentRow, AllocationRow.experiment_id)
_TASKS = _jobs(TaskRow, AllocationRow.task_id)
_QUOTAS = PreparedStatement(select(QuotaRow.kind, QuotaRow.name, QuotaRow.slots))


class JobFromRow(NamedTuple):
    """An experiment or a user task as a job of the queue, from its row."""

    pool: str
    job: Job
    groups: frozenset[str]
    workspace: int | None = None


@dataclass
class ClusterSnapshot:
    """Rows and agents at one moment, from which the snapshots of all pools are made."""

    settings: Settings
    now: float
    nodes: Sequence[Node]
    closed: Mapping[str, AgentState]
    """Agents on which administrators let nothing new start, and how the scheduler calls that."""
    pending: list[WaitingRow]
    placed: list[PlacedRow]
    holders: dict[str, JobFromRow]
    quotas: list[Any]
    """(user | group, name, slots)."""
    refused: Mapping[int | str, frozenset[str]]
    at_preemption_limit: frozenset[int]
    """Trials that were preempted as often in the last hour as they may be (I10)."""
    seats: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    """Slots by agent of each placed allocation, the chief's first."""
    known: PreviousPassTasks = field(default_factory=PreviousPassTasks)
    """Tasks of the pass before."""
    of_workspaces: list[Any] = field(default_factory=list)
    """Quotas of workspaces: (id, owner, name, slots)."""
    faded: Mapping[str, Sequence[Faded]] = field(default_factory=dict)
    """What users have used of each pool of which they have shares, and when trials that hold slots saved last."""
    saved: Mapping[int, float] = field(default_factory=dict)
    held: list[tuple[str, str, str, int]] = field(default_factory=list)
    """(pool, job, owner, slots) of everything that holds slots."""
    _holder_by: dict[int | str, JobFromRow] = field(default_factory=dict, init=False)
    """By an experiment's number or a user task's id: thousands of rows have a few of them, and name none."""

    def __post_init__(self) -> None:
        pools = {node.id: node.pool for node in self.nodes}
        for row in self.placed:
            holder = self.holder(row)
            pool = pools.get(row.agent_id or "", holder.pool)
            self.held.append((pool, holder.job.id, row.owner, len(row.slots)))

    def holder(self, row: WaitingRow | PlacedRow) -> JobFromRow:
        """Return the job of an allocation."""
        key = row.task_id or row.experiment_id or 0
        found = self._holder_by.get(key)
        if found is None:
            found = self._holder_by[key] = self.holders[job_of(row)]
        return found

    def queue(self) -> list[tuple[JobFromRow, list[WaitingRow]]]:
        """Return the pending allocations by job, jobs in the order of the whole queue; a pool may start others first.

        If several jobs have the same place in it, their requests are in one list, under one of them in the same pool.
        """
        lines: dict[tuple[Any, ...], tuple[JobFromRow, list[WaitingRow]]] = {}
        of: dict[int | str, list[WaitingRow]] = {}
        for row in self.pending:
            key = row.task_id or row.experiment_id or 0
            line = of.get(key)
            if line is None:
                holder = self.holder(row)
                line = of[key] = lines.setdefault(self._rank(holder), (holder, []))[1]
            line.append(row)
        for _, rows in lines.values():
            rows.sort(key=_within)
        return [lines[rank] for rank in sorted(lines)]

    def _rank(self, holder: JobFromRow) -> tuple[int, float, float, str]:
        pool, job = self.settings.pools.of(holder.pool), holder.job
        ranked = pool is None or pool.rules.scheduler is Scheduler.PRIORITY
        moved = job.submitted if job.position is None else job.position
        return job.priority if ranked else 0, moved, job.submitted, holder.pool

    def snapshot(self, pool: PoolConfig) -> Snapshot:
        """Of one pool."""
        nodes = [node for node in self.nodes if node.pool == pool.name]
        slots = {node.id: frozenset(node.slots) for node in nodes}
        tasks = [self._waits(row, pool) for row in self.pending if self.holder(row).pool == pool.name]
        runs = [row for row in self.placed if self._is_on(row, slots)]
        tasks += [self._holds(row, slots, pool) for row in runs]
        names = {task.job for task in tasks}
        if not all(node.gangs for node in nodes):
            dated = [agent_of(node, self.closed.get(node.id, AgentState.ENABLED)) for node in nodes if not node.gangs]
            tasks = [beside(dated, task) for task in tasks]
        return Snapshot(
            pool=pool.rules,
            agents=tuple(self.known.agent(node, self.closed.get(node.id, AgentState.ENABLED)) for node in nodes),
            jobs=self._jobs(pool.name, names),
            tasks=tuple(tasks),
            quotas=self._quotas(pool.name),
            private=True,
            zero_slot_tasks=self.settings.limits.zero_slot_tasks or None,
            unbound=frozenset(self.settings.limits.exempt_users),
            usage=used_now(pool, self.faded.get(pool.name, ()), runs, self.now) if pool.by_users else {},
        )

    def slots_of(self, row: PlacedRow) -> Mapping[str, frozenset[str]]:
        """Return the slots that an allocation has, by agent."""
        return self.seats[row.id]

    def _is_on(self, row: PlacedRow, agents: Mapping[str, object]) -> bool:
        return any(agent in agents for agent in self.seats[row.id])

    def _jobs(self, pool: str, names: Iterable[str]) -> dict[str, Job]:
        elsewhere = Counter[str]()
        for where, job, _, slots in self.held:
            if where != pool:
                elsewhere[job] += slots
        return {
            name: self.holders[name].job
            if not elsewhere[name]
            else _with_elsewhere(self.holders[name].job, elsewhere[name])
            for name in names
        }

    def _quotas(self, pool: str) -> tuple[Quota, ...]:
        elsewhere = Counter[tuple[str, str | int | None]]()
        for where, job, owner, count in self.held if self.quotas or self.of_workspaces else ():
            if where != pool:
                elsewhere["user", owner] += count
                elsewhere["workspace", self.holders[job].workspace] += count
                for group in self.holders[job].groups:
                    elsewhere["group", group] += count
        of_workspaces = [
            Quota(slots, elsewhere=elsewhere["workspace", key], workspace=key, named=f"{owner}/{name}")
            for key, owner, name, slots in self.of_workspaces
        ]
        of_people = [
            Quota(
                slots,
                user=name if kind == "user" else None,
                group=None if kind == "user" else name,
                elsewhere=elsewhere[kind, name],
            )
            for kind, name, slots in self.quotas
        ]
        return (*of_people, *of_workspaces)

    def _waits(self, row: WaitingRow, pool: PoolConfig) -> SchedulerTask:
        _, job, groups, workspace = self.holder(row)
        preemptible = row.trial_id is not None and row.trial_id not in self.at_preemption_limit
        refused = self.refused.get(holder_of(row), _NO_AGENTS) if self.refused else _NO_AGENTS
        aged = self.now - row.requested_at > pool.patience
        evicts = may_evict(pool, row, self.now)
        made_of = TaskState.PENDING, row, groups, workspace, preemptible, refused, aged, evicts
        known = self.known.get(row.id, made_of)
        if known is not None:
            return known
        task = SchedulerTask(
            id=row.id,
            job=job.id,
            slots=row.slots_needed,
            requested=float(row.idx or 0),  # trials in the order of their search, also when they come again
            came=row.requested_at,
            preemptible=preemptible,
            single_node=is_single_node(row.trial_id is None, row.constraints),
            blocked_nodes=refused,
            user=row.owner,
            groups=groups,
            workspace=workspace,
            constraints=constraints_of(row.constraints),
            max_time=row.max_time,
            runtime=row.runtime,
            aged=aged,
            millicpus=row.millicpus,
            memory=row.memory,
            evicts=evicts,
        )
        return self.known.keep(made_of, task)

    def _holds(self, row: PlacedRow, there: Mapping[str, frozenset[str]], pool: PoolConfig) -> SchedulerTask:
        _, job, groups, workspace = self.holder(row)
        began = row.started_at or self.now
        aged = began - row.requested_at > pool.patience > self.now - began
        leaving = row.preempt_at is not None or row.state == AllocationState.TERMINATING
        left = None if row.max_time is None else max(0.0, began + row.max_time - self.now)
        at = [there.get(agent) for agent in self.seats[row.id]]
        preemptible = row.trial_id is not None and row.trial_id not in self.at_preemption_limit
        protected = in_minimum_run(pool, began, self.now)
        saved = self.saved.get(row.trial_id or 0) if pool.by_users else None
        made_of = TaskState.RUNNING, row, groups, workspace, preemptible, at, left, aged, protected, saved
        known = self.known.get(row.id, made_of)
        if known is not None:
            return known
        # A slot that was disabled since cannot be assigned.
        on = {
            agent: len(there[agent].intersection(slots))
            for agent, slots in self.slots_of(row).items()
            if agent in there
        }
        task = SchedulerTask(
            id=row.id,
            job=job.id,
            slots=len(row.slots),
            state=TaskState.RUNNING,
            requested=float(row.idx or 0),
            on=on,
            preemptible=preemptible,
            single_node=row.nodes < 2,
            user=row.owner,
            groups=groups,
            workspace=workspace,
            max_time=left,
            leaving=leaving,
            millicpus=row.millicpus,
            memory=row.memory,
            aged=aged,
            began=row.started_at,
            protected=protected,
            saved=saved,
        )
        return self.known.keep(made_of, task)


_NO_AGENTS: frozenset[str] = frozenset()


def _within(row: WaitingRow) -> tuple[int, str]:
    """Return the sort key of requests within a job."""
    return row.idx or 0, row.id


def read_cluster(
    s: Session, nodes: Sequence[Node], refusals: Refusals, now: float, settings: Settings, known: PreviousPassTasks
) -> ClusterSnapshot | None:
    """Read what the snapshots are made of; None if nothing waits."""
    known.begin()
    pending = known.waiting(s)
    return _cluster_snapshot(s, pending, nodes, refusals, now, settings, known) if pending else None


def snapshots(
    s: Session, nodes: Sequence[Node], refusals: Refusals, now: float, settings: Settings
) -> dict[str, Snapshot]:
    """Return a snapshot of each pool, by its name. Tasks are named as their allocations.

    Args:
        s: A session.
        nodes: The connected nodes.
        refusals: Until when an agent is not asked again to run a trial or user task that it refused.
        now: The time, in seconds since the epoch.
        settings: The master's settings.
    """
    fresh = PreviousPassTasks()
    cluster = _cluster_snapshot(s, fresh.waiting(s), nodes, refusals, now, settings, fresh)
    return {name: cluster.snapshot(pool) for name, pool in settings.pools.by_name.items()}


def _cluster_snapshot(
    s: Session,
    pending: list[WaitingRow],
    nodes: Sequence[Node],
    refusals: Refusals,
    now: float,
    settings: Settings,
    known: PreviousPassTasks,
) -> ClusterSnapshot:
    refused: defaultdict[int | str, frozenset[str]] = defaultdict(frozenset)
    for (holder, agent_id), until in refusals.items():
        if until > now:
            refused[holder] |= {agent_id}
    holders = {experiment_name(row[0]): _holder(experiment_name(row[0]), *row[1:]) for row in _EXPERIMENTS.all(s, {})}
    holders.update((row[0], _holder(*row)) for row in _TASKS.all(s, {}))
    preempts = any(may_preempt(pool) for pool in settings.pools.by_name.values())
    counts = preempted_since(s, now - AN_HOUR) if preempts else []
    closed, off = closed_agents(s)
    shared = [name for name, pool in settings.pools.by_name.items() if pool.by_users]
    placed = known.placed(s)
    seats = known.seats(s)
    return ClusterSnapshot(
        settings=settings,
        now=now,
        nodes=usable(nodes, off, (seat for seated in seats.values() for seat in seated.items() if seat[1])),
        closed=closed,
        pending=pending,
        placed=placed,
        holders=holders,
        quotas=_QUOTAS.all(s, {}),
        of_workspaces=workspaces.quotas(s),
        refused=refused,
        at_preemption_limit=frozenset(trial_id for trial_id, count in counts if count >= settings.preemptions_per_hour),
        seats=seats,
        known=known,
        faded={name: usage.faded(s, name) for name in shared},
        saved=checkpoints.last_saved(s) if shared else {},
    )


def is_single_node(user_task: bool, constraints: Mapping[str, Any] | None) -> bool:
    """Whether all slots of a request must be on one agent: those of trials that ask for it, and of user tasks.

    Commands may ask for several agents.
    """
    asked = constraints or {}
    return not asked.get(SEVERAL_NODES) if user_task else bool(asked.get(SINGLE_NODE))


def may_preempt(pool: PoolConfig) -> bool:
    """Whether a pool ever takes slots from running tasks."""
    return pool.rules.scheduler is Scheduler.FAIR_SHARE or (
        pool.rules.scheduler is Scheduler.PRIORITY and pool.rules.preemption
    )


def _holder(
    name: str,
    pool: str,
    priority: int,
    weight: float,
    max_slots: int | None,
    created_at: float,
    position: float | None,
    groups: list[str],
    workspace: int | None,
) -> JobFromRow:
    job = Job(name, priority, _weight(weight), max_slots, created_at, position)
    return JobFromRow(pool, job, frozenset(groups), workspace)


def _weight(weight: float) -> float:
    """Return a weight that the scheduler can compute with: one job's must not stop the scheduling of all."""
    return min(max(weight, 1e-6), 1e6) if math.isfinite(weight) else 1.0


def _with_elsewhere(job: Job, slots: int) -> Job:
    return Job(job.id, job.priority, job.weight, job.max_slots, job.submitted, job.position, slots)
