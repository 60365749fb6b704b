"""The tasks that read a checkpoint in a store which the master does not open, with the rights of its owner.

Without slots such a command runs `detlab.run.read_checkpoint`, which the master has written into its config: it asks
what it is to read, verifies it, and hands the files over as outputs. The block that it gets has its owner's keys; so
only the owner starts one.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden, NotFound, Problem
from detlab.schemas import taskconf
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, ReadCheckpoint, ReadingView, TaskKind
from detlab.schemas.wire import CheckpointFile
from detlab_hub.services.base.access import checkpoint_for, owns
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.fencing import current_holder
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.base.settings import MIB, Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.removals import DELETED
from detlab_hub.services.checkpoints.stores import ACCESS, StoreOperation, Who, kind_of
from detlab_hub.services.usertasks.collection_tasks import task_config
from detlab_hub.services.usertasks.outputs import MOST_FILES, OutputsTooLarge
from detlab_hub.services.usertasks.usertasks import create_row
from detlab_hub.services.views import task_views
from detlab_hub.store.idempotency import known_task
from detlab_hub.store.queries.storage.collection import read_by
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, TaskNote, TaskRow

PROGRAM = ["python3", "-m", "detlab.run.read_checkpoint"]
_REPORT = 1
"""Files that it hands over beside the checkpoint's."""


class ReadingTasks(Service):
    """Start such tasks, and tell them what to read."""

    async def start(self, caller: Caller, request: CreateTask) -> CreateTaskReply:
        """Queue the task that reads a checkpoint of the caller's own.

        Raises:
            ConfigError: The request has a config or code of its own, or names files that are not there.
            Conflict: The master opens the storage itself, or the files were deleted.
            Forbidden: The checkpoint is another user's.
            NotFound: There is no such checkpoint for the caller.
            OutputsTooLarge: Its files are more than a task may hand over.
            TooFast: The caller submits too often.
        """
        wanted = request.reads
        assert wanted is not None
        own = request.config, request.config_yaml, request.bundle
        if request.kind is not TaskKind.COMMAND or any(one is not None for one in own):
            raise taskconf.refused([Problem("reads", "the master writes the command that reads a checkpoint itself")])
        if await self._context.read(lambda s: known_task(s, caller.name, request.idempotency_key)) is None:
            self._context.limiter.submission(caller.name, caller.groups)
        reasons, settings = self._context.pending_reasons, self._context.settings

        def make(unit: UnitOfWork) -> CreateTaskReply:
            row, experiment = _own(unit.session, caller, wanted, settings)
            config = task_config(experiment, PROGRAM, f"reads checkpoint {row.uuid}")
            reply = CreateTaskReply(created=False, config=masked_config(config))
            if request.dry_run:
                return reply
            known = known_task(unit.session, caller.name, request.idempotency_key)
            notes = {TaskNote.READS: {"uuid": row.uuid, "paths": wanted.paths}}
            task = known or create_row(unit, caller, request, config, key=request.idempotency_key or None, notes=notes)
            view = task_views.task_view(unit.session, task, reasons, full=True)
            return reply.model_copy(update={"task": view, "created": known is None})

        return await self._context.write(make)

    async def get(self, task: TaskCaller) -> ReadingView:
        """Return what the task is to read.

        Raises:
            NotFound: The task reads no checkpoint.
            StaleAttempt: The attempt is over.
        """

        def find(s: Session) -> ReadingView:
            _, holder = current_holder(s, task)
            row = read_by(s, holder) if isinstance(holder, TaskRow) else None
            if row is None or not isinstance(holder, TaskRow) or row.state == DELETED:
                raise NotFound("this task reads no checkpoint", hint="det checkpoint download UUID --mode task")
            paths = holder.source[TaskNote.READS]["paths"]
            files = {path: CheckpointFile.model_validate(row.files[path]) for path in paths or row.files}
            return ReadingView(uuid=row.uuid, files=files, hands_over=bool(paths), storage=row.storage)

        return await self._context.read(find)


def _own(s: Session, caller: Caller, wanted: ReadCheckpoint, settings: Settings) -> tuple[CheckpointRow, ExperimentRow]:
    """Load a checkpoint that a task of the caller's may read, and its experiment."""
    row = checkpoint_for(s, caller, wanted.uuid)
    if row.run_id is not None:
        raise Conflict("the master keeps the files of this checkpoint itself", hint="use --mode master")
    experiment = s.get_one(ExperimentRow, row.experiment_id)
    if not owns(caller, experiment.owner):
        raise Forbidden(
            f"checkpoint {row.uuid} is {experiment.owner}'s, whose keys a task that reads it would have",
            hint="ask them for a copy: det checkpoint copy UUID --to WHERE --mode task; or read it with keys of your"
            " own: --mode direct",
        )
    if ACCESS[StoreOperation.READ][kind_of(row.storage, settings.cluster_stores)] is not Who.TASK:
        raise Conflict("the master opens the storage of this checkpoint itself", hint="use --mode master")
    if row.state == DELETED:
        raise Conflict(f"the files of checkpoint {row.uuid} were deleted", hint=f"det checkpoint undelete {row.uuid}")
    _check_paths(row, wanted, settings)
    return row, experiment


def _check_paths(row: CheckpointRow, wanted: ReadCheckpoint, settings: Settings) -> None:
    lacking = [path for path in wanted.paths if path not in row.files]
    if lacking:
        raise taskconf.refused([Problem("reads.paths", f"checkpoint {row.uuid} has no file {lacking[0][:80]!r}")])
    size = sum(int(row.files[path]["size"]) for path in set(wanted.paths))
    too_large = size > 0 and size + MIB > settings.outputs_limit
    if too_large or len(set(wanted.paths)) + _REPORT > MOST_FILES:
        raise OutputsTooLarge(
            f"checkpoint {row.uuid} has {len(set(wanted.paths))} files with {size / MIB:,.1f} MB; a task may hand over"
            f" {MOST_FILES - _REPORT} files with {settings.outputs_limit / MIB - 1:,.0f} MB",
            hint="take some: --glob PATTERN; or read it with your own keys: --mode direct; an operator raises"
            " DetHub.outputs_limit_mb",
        )
