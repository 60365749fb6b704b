"""Changes of committed checkpoints: metadata, and the removal of all files or of some.

What is to be removed is a row, written in the transaction that marks the checkpoint; the files are removed after its
commit. A removal that a crash or a storage that is away has interrupted is finished later: `finish` repeats it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import Conflict, StorageError
from detlab.schemas.patterns import compile_pattern
from detlab.schemas.wire import CheckpointView, EditCheckpoint, ExperimentState
from detlab_hub.core.rights import Right
from detlab_hub.services.checkpoints import files
from detlab_hub.services.checkpoints.manifests import check_metadata
from detlab_hub.services.kernel import audit
from detlab_hub.services.kernel.access import checkpoint_for
from detlab_hub.services.kernel.callers import Caller
from detlab_hub.services.kernel.shell import Shell
from detlab_hub.services.kernel.turn import Turn
from detlab_hub.services.kernel.warm_start import is_source
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.lifecycle.rows import TERMINAL_TRIALS
from detlab_hub.services.views import experiment_views
from detlab_hub.store.queries import checkpoints
from detlab_hub.store.queries.registry import models
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, RemovalRow, TrialRow

_log = logging.getLogger(__name__)
COMPLETED, PARTIALLY_DELETED, DELETED = "COMPLETED", "PARTIALLY_DELETED", "DELETED"
AGAIN_AFTER = 3600.0
"""Seconds until a removal that failed is tried again."""
_ENDED = [state.value for state in ExperimentState if state.terminal or state is ExperimentState.DELETING]
_WILD = re.compile(r"(\*\*/|\*\*|\*|\?)")
_MEANS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Removals:
    """Use cases that change checkpoints."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._again: dict[str, float] = {}

    async def edit(self, caller: Caller, uuid: str, wanted: EditCheckpoint) -> CheckpointView:
        """Set keys of the metadata, then remove keys; the same again changes nothing.

        Raises:
            CheckpointError: The metadata would be over 1 MiB.
            Forbidden: The caller may read it, not change it.
            NotFound: There is no such checkpoint for the caller.
        """

        def edit(turn: Turn) -> CheckpointView:
            row = checkpoint_for(turn.session, caller, uuid, Right.WRITE)
            gone = set(wanted.remove_metadata)
            kept = {key: value for key, value in {**row.metadata_, **wanted.metadata}.items() if key not in gone}
            if kept == row.metadata_:
                return experiment_views.checkpoint_view(turn.session, row)
            check_metadata(kept)
            row.metadata_ = kept
            audit.note(turn, caller, "checkpoint.edit", f"checkpoint {uuid}", f"experiment {row.experiment_id}")
            return announce(turn, row)

        return await self._shell.write(edit)

    async def delete(self, caller: Caller, uuid: str) -> CheckpointView:
        """Mark a checkpoint as deleted and remove its files; to delete it again changes nothing.

        Raises:
            Conflict: A trial that has not ended needs it.
            Forbidden: The experiment is another user's.
            NotFound: There is no such checkpoint for the caller.
            StorageError: This master cannot reach its storage.
        """
        await self._shell.read(lambda s: _removable(s, caller, uuid))
        view = await self._shell.write(lambda turn: _delete(turn, caller, uuid))
        await self._remove(uuid)
        return view

    async def remove_files(self, caller: Caller, uuid: str, globs: Sequence[str]) -> CheckpointView:
        """Remove the files that match a pattern; if none does, nothing changes.

        Raises:
            Conflict: A trial that has not ended needs it.
            Forbidden: The experiment is another user's.
            NotFound: There is no such checkpoint for the caller.
            StorageError: This master cannot reach its storage.
        """
        found = await self._shell.read(lambda s: _removable(s, caller, uuid))
        gone = await self._shell.workers.removals.run(caller.name, matching, found, globs)
        view = await self._shell.write(lambda turn: _remove_some(turn, caller, uuid, gone))
        await self._remove(uuid)
        return view

    async def finish(self) -> None:
        """Repeat the removals that are not done, one that failed at most once an hour."""
        now = self._shell.clock()
        left = await self._shell.read(lambda s: [row.uuid for _, row in checkpoints.removals(s)])
        self._again = {uuid: until for uuid, until in self._again.items() if uuid in set(left)}
        for uuid in left:
            if self._again.get(uuid, now) <= now:
                await self._remove(uuid)

    async def _remove(self, uuid: str) -> None:
        def load(s: Session) -> tuple[dict[str, Any], list[str] | None, str, int | None] | None:
            removal, row = s.get(RemovalRow, uuid), s.get(CheckpointRow, uuid)
            if removal is None or row is None:
                return None
            owner = s.get_one(ExperimentRow, row.experiment_id).owner
            return row.storage, removal.paths, owner, uids.file_owner(s, self._shell.settings.uids, owner)

        try:
            found = await self._shell.read(load)
        except StorageError as error:  # the uid of its files is not known
            _log.warning("files of checkpoint %s stay: %s", uuid, error.message)
            self._again[uuid] = self._shell.clock() + AGAIN_AFTER
            return
        if found is None:
            return
        storage, paths, owner, uid = found
        run = self._shell.workers.removals.run
        if paths is None:
            gone = await run(owner, files.remove_checkpoint, storage, uuid, uid)
        else:
            gone = await run(owner, files.remove_files, storage, uuid, paths, uid)
        if gone:
            await self._shell.write(lambda turn: _done(turn, uuid, paths))
        else:
            self._again[uuid] = self._shell.clock() + AGAIN_AFTER


def announce(turn: Turn, row: CheckpointRow) -> CheckpointView:
    """Append the event that a checkpoint was made or has changed; return its view."""
    view = experiment_views.checkpoint_view(turn.session, row)
    data = view.model_dump(mode="json", exclude={"files", "storage"})
    turn.event("checkpoint", row.experiment_id, row.trial_id, data)
    return view


def matching(names: Mapping[str, Any], globs: Sequence[str]) -> list[str]:
    """Return the paths that match one of the patterns, by RE2: in time that grows with both, and no faster."""
    found: set[str] = set()
    for glob in globs:
        parts = (_MEANS.get(part, re.escape(part)) for part in _WILD.split(glob))
        pattern = compile_pattern(rf"\A(?s:{''.join(parts)})\z")
        found.update(name for name in names if name not in found and pattern.search(name) is not None)
    return sorted(found)


def _removable(s: Session, caller: Caller, uuid: str) -> dict[str, Any]:
    """Check that the caller may remove files of a checkpoint; return its files."""
    row = checkpoint_for(s, caller, uuid, Right.OWN)
    if row.state != DELETED:
        _check_unused(s, row)
        files.check_reachable(row.storage)
    return row.files


def _check_unused(s: Session, row: CheckpointRow) -> None:
    """Check that no trial may still start from a checkpoint.

    Raises:
        Conflict: One may.
    """
    _check_unregistered(s, row)
    trial = s.get_one(TrialRow, row.trial_id)
    needs = None
    if trial.state not in TERMINAL_TRIALS and trial.latest_checkpoint == row.uuid:
        needs = f"trial {trial.id}, which has not ended, resumes from it"
    elif (child := checkpoints.started_from(s, row.uuid, TERMINAL_TRIALS)) is not None:
        needs = f"trial {child.id}, which has not ended, starts from it"
    else:
        named = (one for one in checkpoints.naming(s, row.uuid, _ENDED) if is_source(one.config, row))
        if (user := next(named, None)) is not None:
            needs = f"experiment {user.id}, which has not ended, starts from it"
    if needs:
        raise _in_use(row, needs)


def _check_unneeded(turn: Turn, row: CheckpointRow) -> None:
    """Check that no trial may still start from a checkpoint, and that the search has no use for it either.

    Raises:
        Conflict: One may, or it has.
    """
    _check_unused(turn.session, row)
    experiment = turn.session.get_one(ExperimentRow, row.experiment_id)
    if experiment.state not in _ENDED and turn.searches.needs_checkpoint(turn.session, experiment, row.uuid):
        raise _in_use(row, f"the search of experiment {experiment.id} may start further trials from it")


def _check_unregistered(s: Session, row: CheckpointRow) -> None:
    """Check that a checkpoint is no version of a model.

    Raises:
        Conflict: It is.
    """
    if row.uuid in models.pinned(s, [row.uuid]):
        raise Conflict(
            f"checkpoint {row.uuid} is in use: it is a version of a model in the registry",
            hint=f"det model search --where 'checkpoint = {row.uuid}' lists those that you may see",
        )


def _in_use(row: CheckpointRow, needs: str) -> Conflict:
    hint = "Wait until it has ended or saved a later one, or kill it."
    return Conflict(f"checkpoint {row.uuid} is in use: {needs}", hint=hint)


def _delete(turn: Turn, caller: Caller, uuid: str) -> CheckpointView:
    row = checkpoint_for(turn.session, caller, uuid, Right.OWN)
    if row.state == DELETED:
        return experiment_views.checkpoint_view(turn.session, row)
    _check_unneeded(turn, row)
    row.state = DELETED
    _request(turn, row, None)
    audit.note(turn, caller, "checkpoint.delete", f"checkpoint {uuid}", f"experiment {row.experiment_id}")
    return _unmade(turn, row)


def _remove_some(turn: Turn, caller: Caller, uuid: str, gone: Sequence[str]) -> CheckpointView:
    row = checkpoint_for(turn.session, caller, uuid, Right.OWN)
    going = [path for path in gone if path in row.files]
    if not going or row.state == DELETED:
        return experiment_views.checkpoint_view(turn.session, row)
    _check_unneeded(turn, row)
    row.files = {path: entry for path, entry in row.files.items() if path not in set(going)}
    row.size = sum(int(entry["size"]) for entry in row.files.values())
    row.state = PARTIALLY_DELETED if row.files else DELETED
    _request(turn, row, going if row.files else None)
    detail = f"experiment {row.experiment_id}, {len(going)} files"
    audit.note(turn, caller, "checkpoint.remove_files", f"checkpoint {uuid}", detail)
    return _unmade(turn, row)


def _request(turn: Turn, row: CheckpointRow, paths: list[str] | None) -> None:
    """Write down what is to be removed, beside what an earlier request has left."""
    known = turn.session.get(RemovalRow, row.uuid)
    if known is None:
        turn.session.add(RemovalRow(uuid=row.uuid, paths=paths, requested_at=turn.now))
    elif paths is None or known.paths is None:
        known.paths = None
    else:
        known.paths = sorted({*known.paths, *paths})


def _unmade(turn: Turn, row: CheckpointRow) -> CheckpointView:
    turn.session.flush()
    trial = turn.session.get_one(TrialRow, row.trial_id)
    newest = checkpoints.latest(turn.session, trial.id)
    trial.latest_checkpoint = None if newest is None else newest.uuid
    turn.changed_trial(trial)
    turn.changed_experiment(row.experiment_id)
    return announce(turn, row)


def _done(turn: Turn, uuid: str, paths: list[str] | None) -> None:
    """Forget a removal, unless it has become another one meanwhile."""
    row = turn.session.get(RemovalRow, uuid)
    if row is not None and row.paths == paths:
        turn.session.delete(row)
