"""Changes of committed checkpoints: metadata, deletion and its undoing, and the removal of some files.

A deleted checkpoint is in the trash for `Settings.trash_window`: it is marked, its files stay, and it can be restored.
What is to be removed is a row, written in the transaction that marks the checkpoint, with the time at which it is due;
the files are removed after a commit. A removal that a crash or a storage that is away has interrupted is finished
later: `finish` repeats it. The master removes what was deleted by hand from file systems that it sees; the rest is
removed by a task of the owner (`usertasks.collection_tasks`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import Conflict, StorageError, Unavailable
from detlab.schemas.patterns import compile_pattern
from detlab.schemas.wire import CheckpointView, EditCheckpoint, ExperimentState
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import checkpoint_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.threads import TooSlow
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints import files
from detlab_hub.services.checkpoints.manifests import check_metadata
from detlab_hub.services.checkpoints.pins import Pins, pins_of
from detlab_hub.services.checkpoints.stores import OpenStore, StoreOperation, opened_by_master
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.views import experiment_views
from detlab_hub.store.queries import checkpoints
from detlab_hub.store.queries.storage import collection
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, RemovalRow, TrialRow

_log = logging.getLogger(__name__)
COMPLETED, PARTIALLY_DELETED, DELETED = "COMPLETED", "PARTIALLY_DELETED", "DELETED"
AGAIN_AFTER = 3600.0
"""Seconds until a removal that failed is tried again."""
_HINTS = {
    "resume": "Wait until it has ended or saved a later one, or kill it.",
    "rung": "Wait until its search has ended, or kill it.",
    "search": "Wait until the search has ended, or kill it.",
    "version": "det model search --where 'checkpoint = {uuid}' lists those that you may see.",
    "bookmark": "det checkpoint unbookmark {uuid}",
}
"""What to do about each kind of pin; for the others what to do about a trial that resumes from it."""
_WILD = re.compile(r"(\*\*/|\*\*|\*|\?)")
_MEANS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Removals(Service):
    """Use cases that change checkpoints."""

    async def edit(self, caller: Caller, uuid: str, wanted: EditCheckpoint) -> CheckpointView:
        """Set keys of the metadata, then remove keys; the same again changes nothing.

        Raises:
            CheckpointError: The metadata would be over 1 MiB.
            Forbidden: The caller may read it, not change it.
            NotFound: There is no such checkpoint for the caller.
        """

        def edit(unit: UnitOfWork) -> CheckpointView:
            row = checkpoint_for(unit.session, caller, uuid, Action.CHECKPOINT_EDIT)
            gone = set(wanted.remove_metadata)
            kept = {key: value for key, value in {**row.metadata_, **wanted.metadata}.items() if key not in gone}
            if kept == row.metadata_:
                return experiment_views.checkpoint_view(unit.session, row)
            check_metadata(kept)
            row.metadata_ = kept
            audit.note(unit, caller, "checkpoint.edit", f"checkpoint {uuid}", f"experiment {row.experiment_id}")
            return announce(unit, row)

        return await self._context.write(edit)

    async def delete(self, caller: Caller, uuid: str, *, now: bool = False) -> CheckpointView:
        """Put a checkpoint into the trash; to delete it again changes nothing.

        Args:
            caller: Who deletes it.
            uuid: The checkpoint.
            now: Whether its files go at once, also if it is in the trash already.

        Raises:
            Conflict: Something pins it; all that does is listed.
            Forbidden: The experiment is another user's.
            NotFound: There is no such checkpoint for the caller.
        """
        self._context.settings.check_not_a_copy()
        _, storage = await self._context.read(lambda s: _removable(s, caller, uuid, Action.CHECKPOINT_DELETE))
        seen = await self._is_seen(caller, storage, uuid)
        view = await self._context.write(lambda unit: _delete(unit, caller, uuid, now=now, by_task=not seen))
        await self._remove_all([uuid])
        return view

    async def undelete(self, caller: Caller, uuid: str) -> CheckpointView:
        """Take a checkpoint out of the trash; one that is not deleted is left unchanged.

        Raises:
            Conflict: Its files are gone, or are being removed.
            Forbidden: The experiment is another user's.
            NotFound: There is no such checkpoint for the caller.
        """
        found, storage = await self._context.read(lambda s: _restorable(s, caller, uuid))
        sizes = {path: int(entry["size"]) for path, entry in found.items()}
        # After the restore of a backup, say: what was removed since is in the trash again.
        if await self._are_gone(caller, storage, uuid, sizes):
            raise Conflict(f"checkpoint {uuid} cannot be restored: its files are gone from its storage")
        return await self._context.write(lambda unit: _undelete(unit, caller, uuid))

    async def remove_files(self, caller: Caller, uuid: str, globs: Sequence[str]) -> CheckpointView:
        """Remove the files that match a pattern, at once; if none does, nothing changes.

        Raises:
            Conflict: Something pins it; all that does is listed.
            Forbidden: The experiment is another user's.
            NotFound: There is no such checkpoint for the caller.
        """
        self._context.settings.check_not_a_copy()
        found, storage = await self._context.read(lambda s: _removable(s, caller, uuid, Action.CHECKPOINT_REMOVE_FILES))
        gone = await self._context.workers.looks.run(caller.name, matching, found, globs)
        seen = await self._is_seen(caller, storage, uuid)
        view = await self._context.write(lambda unit: _remove_some(unit, caller, uuid, gone, by_task=not seen))
        await self._remove_all([uuid])
        return view

    async def finish(self) -> None:
        """Carry out the removals that are due and are the master's; one that failed is due again an hour later.

        Users in turn, each one's at a time: one whose file system is slow or away delays nobody else's.
        """
        if self._context.settings.is_copy:
            return
        now = self._context.clock()
        due = await self._context.read(lambda s: checkpoints.removals_due(s, now))
        await asyncio.gather(*(self._remove_all(uuids) for uuids in due.values()))

    async def _remove_all(self, uuids: Sequence[str]) -> None:
        """Remove checkpoints of one user until their storage does not answer."""
        for uuid in uuids:
            try:
                if not await self._remove(uuid):
                    return
            except Unavailable as error:
                _log.warning("files of checkpoint %s stay for now: %s", uuid, error.message)
                return

    async def _remove(self, uuid: str) -> bool:
        """Remove what is due of a checkpoint; return whether its storage has answered in time."""
        found = await self._context.write(lambda unit: _begin(unit, uuid))
        if found is None:
            return True
        failure, slow = found.failure, False
        store = self._store(StoreOperation.DELETE, found.storage)
        if not failure and store is not None:
            run = self._context.workers.removals.run
            try:
                failure = await run(found.owner, files.remove, store, uuid, found.names, found.paths, found.uid)
            except TooSlow as error:
                failure, slow = error.message, True
        elif not failure:
            failure = "the master does not open its storage"
        await self._context.write(lambda unit: end_removal(unit, uuid, found.paths, failure))
        return not slow

    def _store(self, operation: StoreOperation, block: Mapping[str, Any]) -> OpenStore | None:
        settings = self._context.settings
        return opened_by_master(operation, block, settings.cluster_stores, settings.holder)

    async def _is_seen(self, caller: Caller, block: Mapping[str, Any], uuid: str) -> bool:
        """Whether the master removes a checkpoint itself: it is on a file system that it sees."""
        store = self._store(StoreOperation.DELETE, block)
        return store is not None and await self._context.workers.looks.run(
            caller.name, files.is_reachable, store.block, uuid
        )

    async def _are_gone(self, caller: Caller, block: Mapping[str, Any], uuid: str, sizes: Mapping[str, int]) -> bool:
        """Whether the files of a checkpoint are missing for sure; a store that is not the master's is not judged."""
        store = self._store(StoreOperation.UNDELETE, block)
        try:
            return store is not None and await self._context.workers.looks.run(
                caller.name, files.are_gone, store, uuid, sizes
            )
        except TooSlow:
            return False


@dataclass(frozen=True)
class _Begun:
    """What the master is about to remove, as whom."""

    storage: dict[str, Any]
    names: list[str]
    paths: list[str] | None
    owner: str
    uid: int | None
    failure: str = ""


def _begin(unit: UnitOfWork, uuid: str) -> _Begun | None:
    """Note that the removal of a checkpoint begins, from which on it cannot be undone; None: it is not to begin."""
    removal, row = unit.session.get(RemovalRow, uuid), unit.session.get(CheckpointRow, uuid)
    if removal is None or row is None or removal.by_task or removal.due_at > unit.now:
        return None
    removal.begun_at = removal.begun_at or unit.now
    owner = unit.session.get_one(ExperimentRow, row.experiment_id).owner
    names = sorted({*row.files, *(removal.paths or ())})
    try:  # the uid of its files may not be known
        uid, failure = uids.file_owner(unit.session, unit.settings.uids, owner), ""
    except StorageError as error:
        uid, failure = None, error.message
        _log.warning("files of checkpoint %s stay: %s", uuid, failure)
    return _Begun(row.storage, names, removal.paths, owner, uid, failure)


def end_removal(unit: UnitOfWork, uuid: str, paths: Sequence[str] | None, failure: str) -> bool:
    """Book what was removed, or when it is tried again; return whether this removal was still to be done."""
    removal, row = unit.session.get(RemovalRow, uuid), unit.session.get(CheckpointRow, uuid)
    if removal is None or row is None or removal.begun_at is None:
        return False
    if failure:
        removal.failure, removal.due_at = failure, unit.now + AGAIN_AFTER
        return True
    if removal.paths != paths:  # it has become another one meanwhile
        return True
    owner = unit.session.get_one(ExperimentRow, row.experiment_id).owner
    collection.book_freed(unit.session, row.experiment_id, owner, removal.bytes, unit.now)
    unit.session.delete(removal)
    unit.session.flush()
    announce(unit, row)
    return True


def announce(unit: UnitOfWork, row: CheckpointRow) -> CheckpointView:
    """Append the event that a checkpoint was made or has changed; return its view."""
    view = experiment_views.checkpoint_view(unit.session, row)
    data = view.model_dump(mode="json", exclude={"files", "storage"})
    unit.event("checkpoint", row.experiment_id, row.trial_id, data)
    return view


def matching(names: Mapping[str, Any], globs: Sequence[str]) -> list[str]:
    """Return the paths that match one of the patterns, by RE2: in time that grows with both, and no faster."""
    found: set[str] = set()
    for glob in globs:
        parts = (_MEANS.get(part, re.escape(part)) for part in _WILD.split(glob))
        pattern = compile_pattern(rf"\A(?s:{''.join(parts)})\z")
        found.update(name for name in names if name not in found and pattern.search(name) is not None)
    return sorted(found)


def _removable(s: Session, caller: Caller, uuid: str, action: Action) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check that the caller may remove files of a checkpoint; return its files, and its storage block."""
    row = checkpoint_for(s, caller, uuid, action)
    if row.state != DELETED:
        _check_pins(row, pins_of(s, [row], None))
    return row.files, row.storage


def _restorable(s: Session, caller: Caller, uuid: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the files and the storage block of a checkpoint in the trash; no files if it is in none, or cannot be."""
    row = checkpoint_for(s, caller, uuid, Action.CHECKPOINT_UNDELETE)
    removal = s.get(RemovalRow, uuid)
    waits = row.state == DELETED and removal is not None and removal.begun_at is None
    return (row.files if waits else {}), row.storage


def check_unneeded(unit: UnitOfWork, row: CheckpointRow, *, resumed_by: int | None = None) -> None:
    """Check that nothing pins a checkpoint.

    Args:
        unit: The writer's transaction.
        row: The checkpoint.
        resumed_by: The trial that asks itself, for which it is no reason that it would resume from it.

    Raises:
        Conflict: Something does; all that does is listed.
    """
    unit.session.flush()
    pins = pins_of(unit.session, [row], unit.searches)
    if row.trial_id == resumed_by:
        pins = {uuid: left for uuid, found in pins.items() if (left := [one for one in found if one.kind != "resume"])}
    _check_pins(row, pins)


def begin_removal(unit: UnitOfWork, row: CheckpointRow) -> None:
    """Note that the files of a checkpoint in the trash go now, by somebody else: a task sees to it that they did."""
    removal = unit.session.get(RemovalRow, row.uuid)
    if removal is not None and removal.begun_at is None:
        removal.begun_at, removal.due_at, removal.by_task = unit.now, min(removal.due_at, unit.now), True
        announce(unit, row)


def _check_pins(row: CheckpointRow, pins: Pins) -> None:
    found = pins.get(row.uuid)
    if found:
        needs = "; ".join(pin.reason for pin in found)
        hints = dict.fromkeys(_HINTS.get(pin.kind, _HINTS["resume"]).format(uuid=row.uuid) for pin in found)
        raise Conflict(f"checkpoint {row.uuid} is in use: {needs}", hint=" ".join(hints))


def _delete(unit: UnitOfWork, caller: Caller, uuid: str, *, now: bool, by_task: bool) -> CheckpointView:
    row = checkpoint_for(unit.session, caller, uuid, Action.CHECKPOINT_DELETE)
    if row.state == DELETED:
        removal = unit.session.get(RemovalRow, uuid)
        if removal is not None and now and removal.begun_at is None:
            removal.due_at, removal.by_task = unit.now, by_task
            audit.note(unit, caller, "checkpoint.purge", f"checkpoint {uuid}", f"experiment {row.experiment_id}")
            return announce(unit, row)
        return experiment_views.checkpoint_view(unit.session, row)
    check_unneeded(unit, row)
    _request(unit, row, None, row.size, unit.now + (0.0 if now else unit.settings.trash_window), by_task=by_task)
    row.state = DELETED
    audit.note(unit, caller, "checkpoint.delete", f"checkpoint {uuid}", f"experiment {row.experiment_id}")
    return _unmade(unit, row)


def _undelete(unit: UnitOfWork, caller: Caller, uuid: str) -> CheckpointView:
    row = checkpoint_for(unit.session, caller, uuid, Action.CHECKPOINT_UNDELETE)
    if row.state != DELETED:
        return experiment_views.checkpoint_view(unit.session, row)
    experiment = unit.session.get_one(ExperimentRow, row.experiment_id)
    if experiment.state == ExperimentState.DELETING:
        raise Conflict(f"experiment {experiment.id} is being deleted, and checkpoint {uuid} with it")
    removal = unit.session.get(RemovalRow, uuid)
    if removal is None or removal.begun_at is not None:
        what = "are gone" if removal is None else "are being removed"
        raise Conflict(f"checkpoint {uuid} cannot be restored: its files {what}", hint="det checkpoint list EXPERIMENT")
    row.state = removal.was or COMPLETED
    unit.session.delete(removal)
    audit.note(unit, caller, "checkpoint.undelete", f"checkpoint {uuid}", f"experiment {row.experiment_id}")
    return _unmade(unit, row)


def _remove_some(unit: UnitOfWork, caller: Caller, uuid: str, gone: Sequence[str], *, by_task: bool) -> CheckpointView:
    row = checkpoint_for(unit.session, caller, uuid, Action.CHECKPOINT_REMOVE_FILES)
    going = [path for path in gone if path in row.files]
    if not going or row.state == DELETED:
        return experiment_views.checkpoint_view(unit.session, row)
    check_unneeded(unit, row)
    freed = sum(int(row.files[path]["size"]) for path in going)
    row.files = {path: entry for path, entry in row.files.items() if path not in set(going)}
    row.size = sum(int(entry["size"]) for entry in row.files.values())
    row.state = PARTIALLY_DELETED if row.files else DELETED
    _request(unit, row, going if row.files else None, freed, unit.now, by_task=by_task)
    detail = f"experiment {row.experiment_id}, {len(going)} files"
    audit.note(unit, caller, "checkpoint.remove_files", f"checkpoint {uuid}", detail)
    return _unmade(unit, row)


def _request(
    unit: UnitOfWork, row: CheckpointRow, paths: list[str] | None, freed: int, due_at: float, *, by_task: bool
) -> None:
    """Write down what is to be removed, when, and by whom, beside what an earlier request has left."""
    known = unit.session.get(RemovalRow, row.uuid)
    if known is None:
        known = RemovalRow(uuid=row.uuid, paths=paths, requested_at=unit.now, bytes=0)
        unit.session.add(known)
    elif paths is None or known.paths is None:
        known.paths = None
    else:
        known.paths = sorted({*known.paths, *paths})
    known.was, known.due_at, known.by_task, known.begun_at = row.state, due_at, by_task, None
    known.bytes += freed
    if due_at <= unit.now:
        known.begun_at = unit.now


def _unmade(unit: UnitOfWork, row: CheckpointRow) -> CheckpointView:
    unit.session.flush()
    trial = unit.session.get_one(TrialRow, row.trial_id)
    newest = checkpoints.latest(unit.session, trial.id)
    trial.latest_checkpoint = None if newest is None else newest.uuid
    unit.changed_trial(trial)
    unit.changed_experiment(row.experiment_id)
    return announce(unit, row)
