"""The tasks that compare a user's storages with what the master knows, with that user's rights and keys.

Without slots such a command runs `detlab.run.check_storage`. It asks of each checkpoint that it finds what the master
knows, and removes only what is told to be `never`: begun by a trial of its owner's, by an attempt that is over, and not
committed; or deleted and still there. A trial's next attempt asks the same of what earlier ones have left.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import Forbidden, NotFound, Problem
from detlab.schemas import taskconf
from detlab.schemas.checkpoint_ids import made_for
from detlab.schemas.expconf.blocks.storage import COMMON
from detlab.schemas.taskwire import (
    CheckStorage,
    CreateTask,
    CreateTaskReply,
    ExpectedPage,
    ExpectedQuery,
    StorageCheckView,
    StoredItem,
    StoredPage,
    StoredVerdicts,
    TaskKind,
)
from detlab.schemas.wire import TrialState
from detlab_hub.services.base.access import experiment_for, owns
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.fencing import current_holder
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.removals import DELETED
from detlab_hub.services.ingest.storage_credentials import with_keys
from detlab_hub.services.usertasks.collection_tasks import task_config
from detlab_hub.services.usertasks.usertasks import create_row
from detlab_hub.services.views import task_views
from detlab_hub.store.idempotency import known_task
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, RemovalRow, TaskNote, TaskRow, TrialRow

PROGRAM = ["python3", "-m", "detlab.run.check_storage"]
NEWEST = 500
"""Experiments of a user whose storages are compared."""
PER_PAGE = 1000
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z_-]")
"""As in the names of marks: see `detlab.core.checkpoint.abandoned`."""


class CheckingTasks(Service):
    """Start such tasks, and tell them what the master knows."""

    async def start(self, caller: Caller, request: CreateTask) -> CreateTaskReply:
        """Queue the task that compares storages of the caller's own.

        Raises:
            ConfigError: The request has a config or code of its own.
            Conflict: This cluster is a copy.
            Forbidden: The experiment is another user's.
            NotFound: There is no such experiment for the caller, or they have none.
            TooFast: The caller submits too often.
        """
        wanted = request.checks
        assert wanted is not None
        self._context.settings.check_not_a_copy("no storage is compared, which a task does")
        own = request.config, request.config_yaml, request.bundle, request.reads
        if request.kind is not TaskKind.COMMAND or any(one is not None for one in own):
            raise taskconf.refused([Problem("checks", "the master writes the command that compares storages itself")])
        if await self._context.read(lambda s: known_task(s, caller.name, request.idempotency_key)) is None:
            self._context.limiter.submission(caller.name, caller.groups)
        reasons = self._context.pending_reasons

        def make(unit: UnitOfWork) -> CreateTaskReply:
            experiment = _experiment(unit.session, caller, wanted)
            config = task_config(experiment, PROGRAM, "compares checkpoint storages with what the master knows")
            reply = CreateTaskReply(created=False, config=masked_config(config))
            if request.dry_run:
                return reply
            known = known_task(unit.session, caller.name, request.idempotency_key)
            notes: dict[TaskNote, Any] = {TaskNote.CHECKS: wanted.model_dump()}
            task = known or create_row(unit, caller, request, config, key=request.idempotency_key or None, notes=notes)
            view = task_views.task_view(unit.session, task, reasons, full=True)
            return reply.model_copy(update={"task": view, "created": known is None})

        return await self._context.write(make)

    async def get(self, task: TaskCaller) -> StorageCheckView:
        """Return what the task compares, with the keys that the operator hands out for it.

        Raises:
            NotFound: The task compares no storage.
            StaleAttempt: The attempt is over.
        """

        def find(s: Session) -> tuple[str, StorageCheckView]:
            holder, wanted = _holder(s, task)
            return holder.owner, StorageCheckView(storages=_storages(s, holder, wanted), repair=wanted.repair)

        owner, view = await self._context.read(find)
        storages = [await with_keys(self._context, owner, block) for block in view.storages]
        return view.model_copy(update={"storages": storages})

    async def expected(self, task: TaskCaller, query: ExpectedQuery) -> ExpectedPage:
        """Return checkpoints of the task's owner that are to be in one of these storages.

        Raises:
            NotFound: The task compares no storage, or not so many.
            StaleAttempt: The attempt is over.
        """

        def find(s: Session) -> ExpectedPage:
            holder, wanted = _holder(s, task)
            place = _place(_numbered(s, holder, wanted, query.place))
            rows = (
                select(CheckpointRow.uuid, CheckpointRow.storage, CheckpointRow.size)
                .join(ExperimentRow, ExperimentRow.id == CheckpointRow.experiment_id)
                .where(ExperimentRow.owner == holder.owner, CheckpointRow.state != DELETED)
                .where(CheckpointRow.uuid > query.after)
                .order_by(CheckpointRow.uuid)
            )
            found = dict[str, int]()
            for uuid, storage, size in s.execute(rows.execution_options(yield_per=500)):
                if len(found) == PER_PAGE:
                    return ExpectedPage(items=list(found), sizes=list(found.values()), more=True)
                if _place(storage) == place:
                    found[uuid] = size
            return ExpectedPage(items=list(found), sizes=list(found.values()))

        return await self._context.read(find)

    async def verdicts(self, task: TaskCaller, page: StoredPage) -> StoredVerdicts:
        """Return what the master knows of checkpoints that lie in a storage; a trial asks of its own alone.

        Raises:
            NotFound: The task is neither a trial nor one that compares storages.
            StaleAttempt: The attempt is over.
        """
        cluster = _NOT_IN_NAMES.sub("_", self._context.settings.cluster_id)

        def find(s: Session) -> StoredVerdicts:
            _, holder = current_holder(s, task)
            only: int | None = None
            where: str | None = None
            if isinstance(holder, TaskRow):
                wanted, owner = _wanted(holder), holder.owner
                where = None if page.place is None else _place(_numbered(s, holder, wanted, page.place))
            else:
                owner, only = s.get_one(ExperimentRow, holder.experiment_id).owner, holder.id
            known = {one.uuid: _verdict(s, one, owner, cluster, only, where) for one in page.items}
            return StoredVerdicts(verdicts=known)

        return await self._context.read(find)


def _verdict(s: Session, one: StoredItem, owner: str, cluster: str, only: int | None, where: str | None) -> str:
    row = s.get(CheckpointRow, one.uuid)
    if row is not None:
        if where is not None and _place(row.storage) != where:
            return "another"  # a copy: what became of the original says nothing of it
        if s.get_one(ExperimentRow, row.experiment_id).owner != owner or only not in (None, row.trial_id):
            return "another"
        if row.state != DELETED:
            return "kept"
        return "trash" if s.get(RemovalRow, one.uuid) is not None else "never"
    for mark in one.marks:
        name, _, number = mark.owner.rpartition("-")
        if name != cluster or not number.isdecimal() or len(number) > 18 or not made_for(one.uuid, int(number)):
            continue
        trial = s.get(TrialRow, int(number))
        if trial is None or only not in (None, trial.id):
            continue
        if s.get_one(ExperimentRow, trial.experiment_id).owner != owner:
            return "another"
        return "busy" if mark.run >= trial.run and not TrialState(trial.state).terminal else "never"
    return "unknown"


def _wanted(holder: TaskRow) -> CheckStorage:
    noted = holder.source.get(TaskNote.CHECKS)
    if not noted:
        raise NotFound("this task compares no storages", hint="det storage check")
    return CheckStorage.model_validate(noted)


def _holder(s: Session, task: TaskCaller) -> tuple[TaskRow, CheckStorage]:
    _, holder = current_holder(s, task)
    if not isinstance(holder, TaskRow):
        raise NotFound("this task compares no storages", hint="det storage check")
    return holder, _wanted(holder)


def _experiment(s: Session, caller: Caller, wanted: CheckStorage) -> ExperimentRow:
    """Load the experiment as whose trials the task runs."""
    if wanted.experiment_id is not None:
        row = experiment_for(s, caller, wanted.experiment_id)
        if not owns(caller, row.owner):
            raise Forbidden(
                f"experiment {row.id} is {row.owner}'s, whose keys a task that looks into its storage would have",
                hint="its owner checks it: det storage check",
            )
        return row
    newest = _newest(s, caller.name)
    if newest is None:
        raise NotFound("you have no experiment, and so no storage to check")
    return newest


def _newest(s: Session, owner: str) -> ExperimentRow | None:
    query = select(ExperimentRow).where(ExperimentRow.owner == owner).order_by(ExperimentRow.id.desc()).limit(1)
    return s.scalars(query).first()


def _storages(s: Session, task: TaskRow, wanted: CheckStorage) -> list[dict[str, Any]]:
    """Return the blocks of the experiments that a task's owner had when it began, each place once, the newest first.

    The task names them by their places in this list, which later experiments must not move.
    """
    query = select(ExperimentRow.config).where(ExperimentRow.owner == task.owner)
    query = query.where(ExperimentRow.created_at <= task.created_at)
    if wanted.experiment_id is not None:
        query = query.where(ExperimentRow.id == wanted.experiment_id)
    found: dict[str, dict[str, Any]] = {}
    for config in s.scalars(query.order_by(ExperimentRow.id.desc()).limit(NEWEST).execution_options(yield_per=20)):
        block = config.get("checkpoint_storage")
        if block:
            found.setdefault(_place(block), block)
    return list(found.values())


def _numbered(s: Session, task: TaskRow, wanted: CheckStorage, place: int) -> dict[str, Any]:
    """Return the storage that a task names by its place in the list that it was given."""
    storages = _storages(s, task, wanted)
    if place >= len(storages):
        raise NotFound("this task compares no such storage")
    return storages[place]


def _place(block: dict[str, Any]) -> str:
    """Return a block without what does not say where it is."""
    left_out = {*COMMON, "access_key", "secret_key", "session_token", "credential", "ca_file"}
    return json.dumps({key: value for key, value in sorted(block.items()) if value and key not in left_out})
