"""The job queue: jobs that hold slots or wait for some, changing a job's position, and why it is pending.

A job is an experiment or a user task. Its pending reason, what would let it start and its estimated start come from the
scheduler itself, on a snapshot of now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sqlalchemy import ColumnElement, update
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound, Problem
from detlab.schemas.jobwire import TRIAL_PREFIX, JobList, JobUpdate, JobView, JobWhy
from detlab.schemas.wire import AllocationState, ExperimentState
from detlab_hub.backends.base import Node
from detlab_hub.core.rights import Action, ObjectKind
from detlab_hub.core.scheduling import Snapshot
from detlab_hub.core.scheduling.reordering import Overtaking, move
from detlab_hub.services.admission import feasibility
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import experiment_for, knows, no_such, owns, trial_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.rules import rules_of
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.limits.checks import check_priority
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.placement import snapshots
from detlab_hub.services.placement.active_rows import experiment_name
from detlab_hub.services.queue import why_waiting
from detlab_hub.services.queue.job_views import QueueEntry, entries, entry_of, lines, views
from detlab_hub.services.queue.queue import by_priority
from detlab_hub.services.queue.start_estimates import Forecasts
from detlab_hub.services.usertasks.usertasks import StateOnly, owned_task
from detlab_hub.services.views import idle_gpus
from detlab_hub.store.queries import jobs
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TaskRow

_OVER = frozenset(state.value for state in ExperimentState if state.terminal or state is ExperimentState.DELETING)


class _Around(NamedTuple):
    """The connected agents, which agent refused whom, the pools that a batch system places, and the time."""

    nodes: Sequence[Node]
    refusals: snapshots.Refusals
    queues: Mapping[str, str]
    now: float


class Jobs(Service):
    """Use cases of the job queue. All raise NotFound for a job that the caller may not know of."""

    def __init__(self, context: ServiceContext, awaited: why_waiting.Awaited = why_waiting.nothing_awaited) -> None:
        super().__init__(context)
        self._awaited = awaited
        self._forecasts = Forecasts()

    async def list(self, caller: Caller, *, pool: str | None = None, mine: bool = False) -> JobList:
        """List the jobs that hold slots or wait for some, by pool, in each pool's order.

        Args:
            caller: Who asks. Of others' jobs (I9) only place, size and age are shown.
            pool: Only jobs of this pool; None: of all.
            mine: Only the caller's own.

        Raises:
            ConfigError: There is no such pool.
        """
        self._check_pool(pool)
        around = self._around()

        def read(s: Session) -> JobList:
            starts: dict[str, float | None] = {}
            if not self._context.halted:
                observed = _observed(s)
                for name, snapshot in self._snapshots(s, around).items():
                    if pool in (None, name) and name not in around.queues:
                        starts.update(self._forecasts.starts(name, snapshot, around.now, observed))
            standing = lines(self._context.settings, entries(jobs.live(s)).values())
            kept = {name: line for name, line in standing.items() if pool in (None, name)}
            found = views(kept, caller, self._context.pending_reasons, starts, around.now, _elsewhere(s, kept))
            return JobList(items=[view for entry, view in found if not mine or owns(caller, entry.owner)])

        return await self._context.look(caller.name, read)

    async def why(self, caller: Caller, job_id: str) -> JobWhy:
        """Return why a job's tasks are pending, and what would let them start; of `trial-12` only that trial."""

        around = self._around()

        def read(s: Session) -> JobWhy:
            row, trial_id = _asked(s, caller, job_id)
            live = entries(jobs.live(s))
            entry = live.get(str(row.id)) or entry_of(row)
            view = self._view(s, caller, entry, live, around)
            own = [one for one in entry.live if trial_id in (None, one.trial_id)]
            wanted, handed = [one for one in own if one.pending], [one for one in own if not one.pending]
            items = why_waiting.elsewhere(
                entry, handed, jobs.waiting_elsewhere(s, [one.allocation_id for one in handed])
            )
            waiting = len(wanted) + len(items)
            if wanted:
                snapshots, halted = self._snapshots(s, around), self._context.halted
                awaited = why_waiting.nothing_awaited if halted else self._awaited
                items += why_waiting.explained(
                    snapshots,
                    entry,
                    wanted,
                    around.now,
                    partial(self._forecasts.starts, observed=_observed(s)),
                    halted=halted,
                    awaited=awaited,
                    queue=around.queues.get(entry.pool),
                )
            idle = [one.view for one in self._idle(s, caller, row, around.now) if trial_id in (None, one.trial_id)]
            return JobWhy(job=view, items=items[: why_waiting.EXPLAINED], waiting=waiting, idle=idle)

        return await self._context.look(caller.name, read)

    def _idle(
        self, s: Session, caller: Caller, row: ExperimentRow | TaskRow, now: float
    ) -> Sequence[idle_gpus.IdleGpus]:
        """Return what of a job holds GPUs that do nothing, if the caller may know it."""
        if not knows(caller, ObjectKind.USER, row.owner):
            return []
        return idle_gpus.idle_now(s, now, self._context.settings, self._context.gpus, row.id)

    def _check_pool(self, pool: str | None) -> None:
        """Check that a pool, if one is named, is there.

        Raises:
            ConfigError: It is not.
        """
        pools = self._context.settings.pools.by_name
        if pool is not None and pool not in pools:
            hint = f"there are: {', '.join(sorted(pools))}"
            raise ConfigError([Problem("pool", f"there is no resource pool {pool[:80]!r}", hint)])

    async def update(self, caller: Caller, job_id: str, change: JobUpdate) -> JobView:
        """Change a job; its owner and administrators may. A value that is set already is left unchanged.

        Raises:
            ConfigError: There is no such pool, or no agent of it could run the job's image, or a config policy does not
                allow it.
            Conflict: It has ended, or is in another queue than the job that it is to be moved next to.
            Forbidden: It is another user's, or would overtake another user's, or the caller may not give this priority.
            ResourcesError: No agent of the pool could ever run it.
        """
        context = self._context
        self._check_pool(change.pool)
        if change.pool is not None:
            await self._check_room(caller, job_id, change.pool)

        def run(unit: UnitOfWork) -> None:
            row = _owned(unit.session, caller, job_id)
            _check_lives(row)
            wanted = (change.priority or row.priority, change.pool or row.resource_pool)
            if wanted != (row.priority, row.resource_pool):
                pool = context.settings.pools.by_name.get(wanted[1])
                default = row.priority if pool is None else pool.priority
                check_priority(context.settings.limits, caller, wanted[0], default)
            _check_policies(unit, row, change)
            done = _set(unit, row, change)
            done |= self._move(unit, caller, row, change)
            if done:
                audit.note(unit, caller, "job.update", _words(row), ", ".join(done.values()))
                unit.changed_cluster()
                unit.outbox.kick_scheduler = True
                if isinstance(row, ExperimentRow):
                    unit.changed_experiment(row.id)
                else:
                    unit.changed_task(row)

        def read(s: Session) -> JobView:
            row = _owned(s, caller, job_id)
            live = entries(jobs.live(s))
            return self._view(s, caller, live.get(str(row.id)) or entry_of(row), live, around)

        await context.write(run)
        around = self._around()
        return await context.read(read)  # not in the transaction: it runs the scheduler to say when the job may start

    # --- how

    def _around(self) -> _Around:
        """State outside the database, copied for a reader thread: only the event loop may read the original."""
        context = self._context
        now = context.clock()
        return _Around(context.backend.nodes(now), dict(context.refusals), dict(context.backend.queues), now)

    def _snapshots(self, s: Session, around: _Around) -> Mapping[str, Snapshot]:
        return snapshots.snapshots(s, around.nodes, around.refusals, around.now, self._context.settings)

    def _view(
        self, s: Session, caller: Caller, entry: QueueEntry, live: Mapping[str, QueueEntry], around: _Around
    ) -> JobView:
        """Make the view of one job, with its place among all."""
        standing = lines(self._context.settings, {**live, entry.job.id: entry}.values())
        starts: dict[str, float | None] = {}
        placed_here = not self._context.halted and entry.pool not in around.queues
        if entry.waiting and placed_here and entry.pool in (snapshots := self._snapshots(s, around)):
            starts.update(self._forecasts.starts(entry.pool, snapshots[entry.pool], around.now, _observed(s)))
        found = views(standing, caller, self._context.pending_reasons, starts, around.now, _elsewhere(s, standing))
        view = next(view for one, view in found if one is entry)
        # A caller who may read a shared experiment sees its name here, too.
        return view.model_copy(update={"id": entry.job.id, "name": entry.name, "owner": entry.owner})

    async def _check_room(self, caller: Caller, job_id: str, pool: str) -> None:
        """Refuse a pool in which the job could never start: what its submission there would refuse.

        Raises:
            ConfigError: No agent there that could run it has a kind of slots that it names an image for.
            ResourcesError: No agent there could ever run it, with the reason.
        """

        def read(s: Session) -> feasibility.Requirements | None:
            row = _owned(s, caller, job_id)
            _check_lives(row)
            return None if row.resource_pool == pool else _requirements(row, pool, self._context.settings)

        required = await self._context.read(read)
        if required is not None:
            await feasibility.check(self._context, required)

    def _move(
        self, unit: UnitOfWork, caller: Caller, row: ExperimentRow | TaskRow, change: JobUpdate
    ) -> dict[str, str]:
        """Move the job next to another one; return what was done."""
        beside = change.ahead_of if change.ahead_of is not None else change.behind_of
        if beside is None:
            return {}
        s, ahead = unit.session, change.ahead_of is not None
        other, trial_id = _asked(s, caller, beside)
        if trial_id is not None or other is row:
            raise Conflict(f"{_words(row)} cannot be moved beside {beside}", hint="name another job: det job list")
        s.flush()
        live = entries(jobs.live(s))
        me = live.setdefault(str(row.id), entry_of(row))
        ranked = by_priority(self._context.settings, me.pool)
        line = [
            entry
            for entry in live.values()
            if entry.pool == me.pool and (not ranked or entry.job.priority == me.job.priority)
        ]
        if str(other.id) not in {entry.job.id for entry in line}:
            raise Conflict(_not_in_line(row, other, ranked=ranked), hint="det job list")
        mine = {entry.job.id for entry in line if knows(caller, ObjectKind.JOB, entry.owner)}
        try:
            positions = move([entry.job for entry in line], me.job.id, str(other.id), ahead=ahead, mine=mine)
        except Overtaking:
            raise Forbidden(
                f"{_words(row)} would go ahead of another user's job: only administrators may do that",
                hint="Your own jobs can change places among themselves.",
            ) from None
        for number, position in positions.items():
            _row_of(s, number).position = position
        return {"place": f"{'ahead of' if ahead else 'behind'} {_words(other)}"} if positions else {}


def _observed(s: Session) -> dict[str, float]:
    """Return how many seconds the completed trials of each experiment that waits or runs took, by job."""
    return {experiment_name(number): seconds for number, seconds in jobs.observed(s).items()}


def _elsewhere(s: Session, standing: Mapping[str, Sequence[QueueEntry]]) -> dict[str, str]:
    """Return what those allocations of some jobs wait for that wait in a cluster's own queue."""
    placed = [
        one.allocation_id for line in standing.values() for entry in line for one in entry.live if not one.pending
    ]
    return jobs.waiting_elsewhere(s, placed)


def _asked(s: Session, caller: Caller, job_id: str) -> tuple[ExperimentRow | TaskRow, int | None]:
    """Load the row of a job that the caller may read, and the trial's id if the job is named by a trial.

    Raises:
        NotFound: There is no such job for the caller.
    """
    trial = job_id.removeprefix(TRIAL_PREFIX)
    if trial != job_id and _is_number(trial):
        row = trial_for(s, caller, int(trial))
        return experiment_for(s, caller, row.experiment_id), row.id
    if _is_number(job_id):
        return experiment_for(s, caller, int(job_id)), None
    return _task(s, caller, job_id), None


def _owned(s: Session, caller: Caller, job_id: str) -> ExperimentRow | TaskRow:
    """Load the row of a job that the caller may change.

    Raises:
        NotFound: There is no such job for the caller.
        Forbidden: They may read it, and no more.
    """
    if _is_number(job_id):
        return experiment_for(s, caller, int(job_id), Action.JOB_UPDATE)
    return _task(s, caller, job_id, Action.JOB_UPDATE)


def _task(s: Session, caller: Caller, job_id: str, action: Action | None = None) -> TaskRow:
    try:
        return owned_task(s, caller, job_id, action)
    except NotFound as error:
        raise type(error)(f"there is no job {job_id[:80]!r}", hint="det job list") from None
    except StateOnly:  # members of its workspace see its state in lists of tasks, not its place in the queue
        raise no_such(f"there is no job {job_id[:80]!r}", exists=True, hint="det job list") from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _row_of(s: Session, number: str) -> ExperimentRow | TaskRow:
    return s.get_one(ExperimentRow, int(number)) if _is_number(number) else s.get_one(TaskRow, number)


def _words(row: ExperimentRow | TaskRow) -> str:
    return f"experiment {row.id}" if isinstance(row, ExperimentRow) else f"task {row.id}"


def _check_lives(row: ExperimentRow | TaskRow) -> None:
    if row.state in _OVER:
        raise Conflict(f"{_words(row)} has ended")


def _requirements(row: ExperimentRow | TaskRow, pool: str, settings: Settings) -> feasibility.Requirements:
    """Return the requirements of an existing job in another pool."""
    config = {**row.config, "runtime": row.config.get("runtime") or settings.default_runtime}
    what, mounts = f"task {row.id}", settings.governed_mounts
    if isinstance(row, ExperimentRow):
        what = f"a trial of experiment {row.id}"
        required = feasibility.of_trial(row.owner, row.owner_groups, config, what, row.workspace_id, mounts=mounts)
    else:
        required = feasibility.of_task(row.owner, row.owner_groups, config, what, row.workspace_id, mounts=mounts)
    resources = {**required.resources, "resource_pool": pool, "max_slots": row.max_slots}
    return replace(required, resources=resources, what=f"{required.what} in the pool {pool}", fixed=True)


def _check_policies(unit: UnitOfWork, row: ExperimentRow | TaskRow, change: JobUpdate) -> None:
    """Check that config policies allow a change; what stays as it is may be beyond one that was set later.

    Raises:
        ConfigError: They do not.
    """
    wanted = {"priority": change.priority, "weight": change.weight, "resource_pool": change.pool}
    before = {"priority": row.priority, "weight": row.weight, "resource_pool": row.resource_pool}
    changes = {f"resources.{key}": value for key, value in wanted.items() if value not in (None, before[key])}
    if changes:
        rules_of(unit.session, row).check_change(row.config, changes)


def _not_in_line(row: ExperimentRow | TaskRow, other: ExperimentRow | TaskRow, *, ranked: bool) -> str:
    mine, theirs = f"the pool {row.resource_pool}", f"the pool {other.resource_pool}"
    if ranked:
        mine, theirs = f"{mine} with priority {row.priority}", f"{theirs} with priority {other.priority}"
    if mine == theirs:
        return f"{_words(other)} holds no slots and waits for none"
    return f"{_words(row)} is in {mine}, {_words(other)} in {theirs}: jobs move within one"


def _set(unit: UnitOfWork, row: ExperimentRow | TaskRow, change: JobUpdate) -> dict[str, str]:
    """Set the values that are given and differ; return what was done.

    A new priority or pool puts the job where a submission now would.
    """
    done: dict[str, str] = {}
    if change.priority is not None and change.priority != row.priority:
        done["priority"] = f"priority {row.priority} to {change.priority}"
        row.priority, row.position = change.priority, None
        of_job: ColumnElement[bool] = (
            AllocationRow.experiment_id == row.id if isinstance(row, ExperimentRow) else AllocationRow.task_id == row.id
        )
        waits = AllocationRow.state == AllocationState.PENDING
        unit.session.execute(update(AllocationRow).where(of_job, waits).values(priority=change.priority))
    if change.weight is not None and change.weight != row.weight:
        done["weight"] = f"weight {row.weight:g} to {change.weight:g}"
        row.weight = change.weight
    if change.pool is not None and change.pool != row.resource_pool:
        done["pool"] = f"pool {row.resource_pool} to {change.pool}"
        row.resource_pool, row.position = change.pool, None
    return done
