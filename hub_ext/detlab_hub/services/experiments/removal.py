"""Deletion of an experiment, in steps that can be repeated after a crash: it stays DELETING until it is removed."""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import StorageError
from detlab.schemas.wire import ExperimentState
from detlab_hub.services.checkpoints import files
from detlab_hub.services.kernel.shell import Shell
from detlab_hub.services.kernel.turn import Turn
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.streams.reads import SHARED
from detlab_hub.store.queries import experiments, rights
from detlab_hub.store.tables import CheckpointRow, ExperimentRow

_log = logging.getLogger(__name__)
POINTS_PER_STEP = 50_000


async def remove_experiment(shell: Shell, experiment_id: int) -> None:
    """Remove the files, then the rows, of an experiment that is DELETING."""

    def saved(s: Session) -> tuple[str, list[tuple[dict[str, Any], str]]]:
        experiment = s.get(ExperimentRow, experiment_id)
        rows = s.scalars(select(CheckpointRow).where(CheckpointRow.experiment_id == experiment_id))
        return "" if experiment is None else experiment.owner, [(row.storage, row.uuid) for row in rows]

    owner, checkpoints = await shell.read(saved)
    if checkpoints:
        await _remove_files(shell, owner, checkpoints)
    while not await shell.write(lambda turn: _remove_some(turn, experiment_id)):
        _log.info("experiment %d: rows are being deleted", experiment_id)
    _log.info("experiment %d: deleted", experiment_id)


async def _remove_files(shell: Shell, owner: str, checkpoints: list[tuple[dict[str, Any], str]]) -> None:
    try:
        uid = await shell.read(lambda s: uids.file_owner(s, shell.settings.uids, owner))
    except StorageError as error:
        _log.warning("%d checkpoints stay: %s", len(checkpoints), error.message)
        return
    for storage, uuid in checkpoints:
        await shell.workers.removals.run(owner, files.remove_checkpoint, storage, uuid, uid)


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
