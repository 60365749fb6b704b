"""TensorBoard event files of an experiment: they go with it, or when its owner says so.

They lie beside the checkpoints, in a folder of each trial, and no row names them: the folders of all trials that were
ever started are looked for. They go when no checkpoint is left to remove, since a storage that is not there is told
apart from one that holds nothing by the checkpoints that it must hold.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.schemas.wire import ExperimentState
from detlab.schemas.wire.storage import CollectFolders
from detlab.storage.own_folders import tensorboard_folder
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries.storage import collection
from detlab_hub.store.tables import ExperimentRow

AGAIN = 3600.0
"""Seconds until a removal that failed, or of which nothing was heard, is tried again."""
_MOST_FREED = 2**40
"""Bytes that are believed to have been freed of one experiment: a user's task says so, and sums must not overflow."""


def folders(s: Session, settings: Settings, row: ExperimentRow) -> list[str]:
    """Return the names under which the event files of an experiment may be stored."""
    return [tensorboard_folder(settings.cluster_id, row.id, trial) for trial in collection.ran(s, row.id)]


def request(unit: UnitOfWork, row: ExperimentRow) -> None:
    """Note that the event files of an experiment are to be removed now, if it can have any."""
    if (row.config.get("checkpoint_storage") or {}).get("type") and collection.ran(unit.session, row.id):
        row.event_files_due, row.event_files_failure = unit.now, ""


def hand_out(unit: UnitOfWork, row: ExperimentRow) -> CollectFolders | None:
    """Return what a task is to remove now; None: nothing, or checkpoints come first.

    If it is not heard of again, another task is told an hour later.
    """
    if not is_ready(unit, row):
        return None
    row.event_files_due = unit.now + AGAIN
    names = folders(unit.session, unit.settings, row)
    return CollectFolders(names=names, storage=row.config.get("checkpoint_storage") or {})


def is_ready(unit: UnitOfWork, row: ExperimentRow) -> bool:
    """Whether the event files are to be removed now."""
    if row.event_files_due is None or row.event_files_due > unit.now:
        return False
    return row.state != ExperimentState.DELETING or row.id not in collection.left_of(unit.session, [row.id])


def end(unit: UnitOfWork, row: ExperimentRow, failure: str, freed: int) -> None:
    """Book what was removed, or when it is tried again; the same again changes nothing."""
    if row.event_files_due is None:
        return
    unit.changed_experiment(row.id)
    row.event_files_failure = failure
    if failure:
        row.event_files_due = unit.now + AGAIN
        return
    row.event_files_due = None
    if freed:
        collection.book_freed(unit.session, row.id, row.owner, min(freed, _MOST_FREED), unit.now, checkpoints=0)
