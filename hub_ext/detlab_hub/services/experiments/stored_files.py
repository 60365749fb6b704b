"""Files of experiments that the master itself removes: on file systems that it sees, in stores to which it has keys.

Whatever it cannot remove, or cannot see to be gone, is left for a task of the owner.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from detlab.errors import Conflict, StorageError, Unavailable
from detlab.schemas.wire import ExperimentState
from detlab.schemas.wire.storage import DeletionView
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints import event_files, files
from detlab_hub.services.checkpoints.removals import end_removal
from detlab_hub.services.checkpoints.stores import OpenStore, StoreOperation, opened_by_master
from detlab_hub.services.ingest.storage_credentials import with_keys
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.views.deletions import deletion_views
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import ExperimentRow

_log = logging.getLogger(__name__)
PER_STEP = 200
"""Checkpoints whose removal is booked in one transaction."""
MOST_FOLDERS = 100
"""Folders of event files for which the master asks an object store, one by one."""
_KEYS_FOR = 300.0
"""Seconds for which short-lived credentials of a storage are used; they hold for 15 minutes at least."""


class EventFiles(Service):
    """The use case of removing them."""

    async def delete(self, caller: Caller, experiment_id: int) -> DeletionView | None:
        """Remove the event files of an experiment that has ended; the rest of it stays.

        Returns:
            What is left for a task to remove; None: they are gone.

        Raises:
            Conflict: It has not ended, or is being deleted.
            Forbidden: It is another user's.
            NotFound: There is no such experiment for the caller.
        """

        self._context.settings.check_not_a_copy()

        def mark(unit: UnitOfWork) -> None:
            row = experiment_for(unit.session, caller, experiment_id, Action.EXPERIMENT_DELETE_EVENT_FILES)
            if not ExperimentState(row.state).terminal:
                raise Conflict(
                    f"experiment {experiment_id} is {row.state}: its trials may still write event files",
                    hint=f"when it has ended: det experiment delete-tb-files {experiment_id}",
                )
            event_files.request(unit, row)
            audit.note(unit, caller, "experiment.delete_event_files", f"experiment {experiment_id}", row.name)

        await self._context.write(mark)
        await remove_event_files(self._context, experiment_id)
        return (await self._context.read(lambda s: deletion_views(s, [experiment_id]))).get(experiment_id)


class Files(NamedTuple):
    """A checkpoint whose files are to be removed."""

    uuid: str
    storage: dict[str, Any]
    names: list[str]


async def remove_files(context: ServiceContext, owner: str, checkpoints: Sequence[Files]) -> None:
    """Remove checkpoints of an owner as far as the master can, and book what is gone; a task does the others."""
    try:
        uid = await context.read(lambda s: uids.file_owner(s, context.settings.uids, owner))
    except StorageError as error:
        _log.warning("%d checkpoints stay for a task: %s", len(checkpoints), error.message)
        return
    stores = _Stores(context, owner)
    for part in chunks(list(checkpoints), PER_STEP):
        gone = []
        for one in part:
            if await stores.removes(one, uid):
                gone.append(one.uuid)
        await context.write(partial(_book, gone=gone))


def _book(unit: UnitOfWork, gone: Sequence[str]) -> None:
    for uuid in gone:
        end_removal(unit, uuid, None, "")


class _Stores:
    """The storage blocks of an owner as the master opens them, until one of them fails."""

    def __init__(self, context: ServiceContext, owner: str) -> None:
        self._context, self._owner = context, owner
        self._known: tuple[float, dict[str, Any], OpenStore | None] = 0.0, {}, None
        self._failed: list[dict[str, Any]] = []

    async def removes(self, one: Files, uid: int | None) -> bool:
        """Remove a checkpoint; False: a task must. A store that is away, or does not let the master, is left to it."""
        run = self._context.workers.removals.run
        if one.storage in self._failed:
            return False
        try:
            store = await self._opened(one)
            if store is None:
                return False
            failure = await run(self._owner, files.remove, store, one.uuid, one.names, None, uid)
        except Unavailable as error:
            _log.warning("files of checkpoint %s stay for a task: %s", one.uuid, error.message)
            self._failed.append(one.storage)
            return False
        if failure and store.of_objects:
            self._failed.append(one.storage)
        return not failure

    async def _opened(self, one: Files) -> OpenStore | None:
        """Return the store with its keys; None: it is not the master's to open, or not there."""
        settings = self._context.settings
        operation = StoreOperation.REMOVE_EXPERIMENT
        store = opened_by_master(operation, one.storage, settings.cluster_stores, settings.holder)
        if store is None or not store.of_objects:
            run = self._context.workers.removals.run
            seen = store is not None and await run(self._owner, files.is_reachable, store.block, one.uuid)
            return store if seen else None
        until, block, known = self._known
        if one.storage != block or self._context.clock() > until:
            known = OpenStore(await with_keys(self._context, self._owner, store.block), store.holder)
            self._known = self._context.clock() + _KEYS_FOR, one.storage, known
        return known


async def remove_event_files(context: ServiceContext, experiment_id: int) -> None:
    """Remove event files that are due as far as the master can; a task does the rest."""

    def due(unit: UnitOfWork) -> tuple[str, dict[str, Any], list[str], int | None] | None:
        row = unit.session.get(ExperimentRow, experiment_id)
        if row is None or not event_files.is_ready(unit, row):
            return None
        try:
            uid = uids.file_owner(unit.session, unit.settings.uids, row.owner)
        except StorageError as error:
            _log.warning("event files of experiment %d stay for a task: %s", experiment_id, error.message)
            return None
        names = event_files.folders(unit.session, unit.settings, row)
        return row.owner, row.config.get("checkpoint_storage") or {}, names, uid

    found = await context.write(due)
    if found is None:
        return
    owner, storage, names, uid = found
    operators, holder = context.settings.cluster_stores, context.settings.holder
    store = opened_by_master(StoreOperation.EVENT_FILES, storage, operators, holder)
    if store is None or (store.of_objects and len(names) > MOST_FOLDERS):
        return
    if store.of_objects:
        store = OpenStore(await with_keys(context, owner, store.block), store.holder)
    try:
        freed = await context.workers.removals.run(owner, files.remove_folders, store, names, uid)
    except Unavailable as error:
        _log.warning("event files of experiment %d stay for a task: %s", experiment_id, error.message)
        return

    def book(unit: UnitOfWork) -> None:
        row = unit.session.get(ExperimentRow, experiment_id)
        if row is not None and freed is not None:
            event_files.end(unit, row, "", freed)

    await context.write(book)
