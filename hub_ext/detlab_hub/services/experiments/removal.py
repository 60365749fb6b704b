"""Deletion of an experiment, in steps that can be repeated after a crash: it stays DELETING until it is removed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import StorageError
from detlab.schemas.wire import ExperimentState
from detlab_hub.services.checkpoints import files
from detlab_hub.services.checkpoints.stores import check_own_keys
from detlab_hub.services.ingest.storage_credentials import with_keys
from detlab_hub.services.kernel.shell import Shell
from detlab_hub.services.kernel.turn import Turn
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.streams.reads import SHARED
from detlab_hub.store.queries import experiments, rights
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.queries.storage import collection
from detlab_hub.store.queries.storage.collection import DELETED
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, RemovalRow

_log = logging.getLogger(__name__)
POINTS_PER_STEP = 50_000
_KEYS_FOR = 300.0
"""Seconds for which short-lived credentials of a storage are used; they hold for 15 minutes at least."""


async def remove_experiment(shell: Shell, experiment_id: int) -> None:
    """Remove the files, then the rows, of an experiment that is DELETING."""

    owner, checkpoints = await shell.read(lambda s: _saved(s, experiment_id))
    if checkpoints:
        await _remove_files(shell, experiment_id, owner, checkpoints)
    while not await shell.write(lambda turn: _remove_some(turn, experiment_id)):
        _log.info("experiment %d: rows are being deleted", experiment_id)
    _log.info("experiment %d: deleted", experiment_id)


class _Files(NamedTuple):
    """A checkpoint whose files may exist."""

    uuid: str
    storage: dict[str, Any]
    names: list[str]
    size: int


def _saved(s: Session, experiment_id: int) -> tuple[str, list[_Files]]:
    """Load the owner of an experiment, and its checkpoints; those whose removal is done have no size."""
    experiment = s.get(ExperimentRow, experiment_id)
    query = select(CheckpointRow, RemovalRow).outerjoin(RemovalRow, RemovalRow.uuid == CheckpointRow.uuid)
    found = [
        _Files(row.uuid, row.storage, sorted(row.files), _still_there(row, left))
        for row, left in s.execute(query.where(CheckpointRow.experiment_id == experiment_id))
    ]
    return "" if experiment is None else experiment.owner, found


def _still_there(row: CheckpointRow, removal: RemovalRow | None) -> int:
    """Return the bytes of a checkpoint that are not yet booked as freed."""
    waiting = 0 if removal is None else removal.bytes
    return waiting if row.state == DELETED else row.size + waiting


async def _remove_files(shell: Shell, experiment_id: int, owner: str, checkpoints: list[_Files]) -> None:
    try:
        uid = await shell.read(lambda s: uids.file_owner(s, shell.settings.uids, owner))
    except StorageError as error:
        _log.warning("%d checkpoints stay: %s", len(checkpoints), error.message)
        return
    gone = []
    opened: tuple[float, dict[str, Any], dict[str, Any]] = 0.0, {}, {}
    for one in checkpoints:
        if one.storage != opened[1] or shell.clock() > opened[0]:
            opened = shell.clock() + _KEYS_FOR, one.storage, await with_keys(shell, owner, one.storage)
        storage = opened[2]
        run = shell.workers.removals.run
        try:
            check_own_keys(storage, shell.settings.default_checkpoint_storage)
        except StorageError as error:
            _log.warning("files of checkpoint %s stay: %s", one.uuid, error.message)
            continue
        failure = await run(owner, files.remove, storage, one.uuid, one.names, None, uid)
        if not failure and one.size:
            gone.append(one.uuid)
    for part in chunks(gone):
        await shell.write(partial(_book, experiment_id=experiment_id, owner=owner, gone=part))


def _book(turn: Turn, experiment_id: int, owner: str, gone: Sequence[str]) -> None:
    """Book what went, once: another request, a task of collection or a repetition after a crash may have done so."""
    query = select(CheckpointRow, RemovalRow).outerjoin(RemovalRow, RemovalRow.uuid == CheckpointRow.uuid)
    for row, left in turn.session.execute(query.where(CheckpointRow.uuid.in_(gone))).all():
        if size := _still_there(row, left):
            collection.book_freed(turn.session, experiment_id, owner, size, turn.now)
        row.state = DELETED
        if left is not None:
            turn.session.delete(left)


def _remove_some(turn: Turn, experiment_id: int) -> bool:
    row = turn.session.get(ExperimentRow, experiment_id)
    owner = "" if row is None else row.owner
    shared = [(one.kind, one.name, one.write) for one in rights.grants_of(turn.session, experiment_id)]
    if not experiments.delete_rows(turn.session, experiment_id, POINTS_PER_STEP):
        return False
    turn.searches.forget(experiment_id)
    data = {"id": experiment_id, "state": ExperimentState.DELETED.value, "owner": owner, SHARED: shared}
    turn.event("experiment", experiment_id, None, data)
    return True
