"""Deletion of an experiment: its files first, with the proof that they are gone, then its rows.

It stays DELETING until both are done, and each step can be repeated after a crash. The master removes what it can
reach; the rest, and what it could not remove, a task of the owner does, as for collection, again and again.
Administrators may give up on files of which the storage is gone.
"""

from __future__ import annotations

import logging

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab.schemas.wire import ExperimentState
from detlab.schemas.wire.storage import DeletionView
from detlab_hub.core.lifecycle.table import check_move
from detlab_hub.core.rights import Action, ObjectKind
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers, experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints import event_files
from detlab_hub.services.checkpoints.artifact_files import remove_roots
from detlab_hub.services.checkpoints.collecting import check_none_pinned
from detlab_hub.services.checkpoints.media_files import remove_all_media
from detlab_hub.services.experiments.stored_files import Files, remove_event_files, remove_files
from detlab_hub.services.streams.reads import SHARED, place_of
from detlab_hub.services.views.deletions import deletion_views
from detlab_hub.store.queries import experiments, rights
from detlab_hub.store.queries.registry import models as registered
from detlab_hub.store.queries.storage import collection
from detlab_hub.store.queries.tracking import media, runs
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, RemovalRow

_log = logging.getLogger(__name__)
POINTS_PER_STEP = 50_000
_DELETING = (ExperimentState.DELETING.value,)


async def delete_experiment(context: ServiceContext, caller: Caller, experiment_id: int) -> DeletionView | None:
    """Delete an experiment that has ended; see `Experiments.delete`."""
    context.settings.check_not_a_copy()
    await context.write(lambda unit: _mark(unit, caller, experiment_id))
    return await remove_experiment(context, experiment_id)


async def forget_files(context: ServiceContext, caller: Caller, experiment_id: int) -> None:
    """Delete the rows of an experiment although files of it are still stored; see `Experiments.forget_files`."""
    await context.write(lambda unit: _forget(unit, caller, experiment_id))
    await _remove_logged(context, experiment_id)
    await _remove_rows(context, experiment_id)


def _mark(unit: UnitOfWork, caller: Caller, experiment_id: int) -> None:
    row = experiment_for(unit.session, caller, experiment_id, Action.EXPERIMENT_DELETE)
    state = ExperimentState(row.state)
    if not state.terminal and state is not ExperimentState.DELETING:
        raise Conflict(
            f"experiment {experiment_id} is {state}; only one that has ended can be deleted",
            hint=f"det experiment kill {experiment_id}",
        )
    check_move(state, ExperimentState.DELETING)
    if pinned := registered.pinned_of_experiment(unit.session, experiment_id):
        what = "1 checkpoint" if pinned == 1 else f"{pinned} checkpoints"
        are = "is a version of a model" if pinned == 1 else "are versions of models"
        raise Conflict(
            f"{what} of experiment {experiment_id} {are} in the registry",
            hint=f"det model search --where 'experiment = {experiment_id}' lists those that you may see",
        )
    if state is not ExperimentState.DELETING:
        check_none_pinned(unit, row)
        audit.note(unit, caller, "experiment.delete", f"experiment {experiment_id}", row.name)
    row.state = ExperimentState.DELETING.value
    _request(unit, row)


def _request(unit: UnitOfWork, row: ExperimentRow) -> None:
    """Have all files of an experiment be removed now, also those in the trash."""
    s = unit.session
    s.flush()
    collection.mark_deleted(s, collection.kept(s, row.id), unit.now, unit.now)
    collection.hasten(s, row.id, unit.now)
    event_files.request(unit, row)
    row.gc_at = None
    unit.changed_experiment(row.id)


def _forget(unit: UnitOfWork, caller: Caller, experiment_id: int) -> None:
    s = unit.session
    row = experiment_for(s, caller, experiment_id, Action.EXPERIMENT_DELETE)
    check_administers(caller, ObjectKind.SITE, "delete an experiment whose files are still stored")
    if row.state != ExperimentState.DELETING:
        raise Conflict(
            f"experiment {experiment_id} is {row.state}: its files are forgotten only when they could not be removed",
            hint=f"first: det experiment delete {experiment_id}",
        )
    left = deletion_views(s, [experiment_id]).get(experiment_id)
    detail = "nothing was left" if left is None else f"left in the storage: {left.said}"
    audit.note(unit, caller, "experiment.forget_files", f"experiment {experiment_id}", detail)
    _log.warning("experiment %d: %s gives up on its files; %s", experiment_id, caller.name, detail)
    saved = select(CheckpointRow.uuid).where(CheckpointRow.experiment_id == experiment_id)
    s.execute(delete(RemovalRow).where(RemovalRow.uuid.in_(saved)))
    row.event_files_due = None


async def remove_experiment(context: ServiceContext, experiment_id: int) -> DeletionView | None:
    """Remove the files that the master sees of an experiment that is DELETING, then its rows if no file is left.

    Returns:
        What is left for a task to remove; None: all is gone.
    """
    owner, found = await context.write(lambda unit: _begin(unit, experiment_id))
    if found:
        await remove_files(context, owner, found)
    await _remove_logged(context, experiment_id)
    await remove_event_files(context, experiment_id)
    left = (await context.read(lambda s: deletion_views(s, [experiment_id]))).get(experiment_id)
    if left is None:
        await _remove_rows(context, experiment_id)
    return left


def _begin(unit: UnitOfWork, experiment_id: int) -> tuple[str, list[Files]]:
    """Load the owner of an experiment, and its checkpoints that are to be removed."""
    s = unit.session
    row = s.get(ExperimentRow, experiment_id)
    if row is None:
        return "", []
    if collection.kept(s, experiment_id):  # an earlier version has marked the experiment alone
        _request(unit, row)
    query = select(CheckpointRow).join(RemovalRow, RemovalRow.uuid == CheckpointRow.uuid)
    rows = s.scalars(query.where(CheckpointRow.experiment_id == experiment_id).order_by(CheckpointRow.uuid))
    return row.owner, [Files(one.uuid, one.storage, sorted(one.files)) for one in rows]


async def _remove_logged(context: ServiceContext, experiment_id: int) -> None:
    """Remove the files that were logged into an experiment: they lie in the master's own directory."""
    roots = await context.read(lambda s: runs.roots_of_experiment(s, experiment_id))
    if roots:
        await context.workers.removals.run("", remove_roots, context.settings, roots)
        await context.write(lambda unit: runs.forget_files_of_experiment(unit.session, experiment_id))
    if await context.read(lambda s: media.has_some(s, experiment_id)):
        await context.workers.removals.run("", remove_all_media, context.settings, experiment_id)
        while not await context.write(lambda unit: media.forget_some(unit.session, experiment_id, POINTS_PER_STEP)):
            _log.info("experiment %d: rows of media are being deleted", experiment_id)


# --- rows


def due(s: Session) -> list[int]:
    """Return the experiments whose rows are to be removed: no file of them is left."""
    return collection.deleted_files(s, _DELETING)


def act(unit: UnitOfWork, experiment_id: int) -> None:
    """Remove some rows of an experiment that is DELETING and has no files left."""
    row = unit.session.get(ExperimentRow, experiment_id)
    if row is not None and row.state == ExperimentState.DELETING and experiment_id in due(unit.session):
        _remove_some(unit, experiment_id)


async def _remove_rows(context: ServiceContext, experiment_id: int) -> None:
    while not await context.write(lambda unit: _remove_some(unit, experiment_id)):
        _log.info("experiment %d: rows are being deleted", experiment_id)


def _remove_some(unit: UnitOfWork, experiment_id: int) -> bool:
    row = unit.session.get(ExperimentRow, experiment_id)
    if row is None:  # the loop was faster
        return True
    owner = row.owner
    shared = [(one.kind, one.name, one.write) for one in rights.grants_of(unit.session, experiment_id)]
    shared += place_of(row.workspace_id)
    if not experiments.delete_rows(unit.session, experiment_id, POINTS_PER_STEP):
        return False
    unit.searches.forget(experiment_id)
    data = {"id": experiment_id, "state": ExperimentState.DELETED.value, "owner": owner, SHARED: shared}
    unit.event("experiment", experiment_id, None, data)
    _log.info("experiment %d: deleted", experiment_id)
    return True
