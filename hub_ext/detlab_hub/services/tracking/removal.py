"""Removal of runs from elsewhere for good: of those that are marked as deleted, with all that they have logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab.schemas.wire.runs import RunView
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.artifact_files import remove_roots
from detlab_hub.services.checkpoints.media_files import remove_all_media
from detlab_hub.services.tracking.run_views import found_run, run_view
from detlab_hub.store.queries.registry import models as registered
from detlab_hub.store.queries.tracking import removal
from detlab_hub.store.tables import TrackedRunRow

_log = logging.getLogger(__name__)
ROWS_PER_STEP = 50_000


class RunRemovals(Service):
    """Use cases of removing runs."""

    async def remove(self, caller: Caller, named: str) -> RunView:
        """Remove a run that is marked as deleted; return what it was.

        Raises:
            Conflict: It is not marked, or of a trial, or a version of a model is of its files.
            Forbidden: It is not the caller's to delete.
            NotFound: There is none for the caller.
        """
        self._context.settings.check_not_a_copy()

        def look(s: Session) -> RunView:
            return run_view(s, caller, _removable(s, caller, named).id)

        def remove_some(unit: UnitOfWork) -> Sequence[str] | None:
            row = _removable(unit.session, caller, shown.id)
            if not removal.remove_bulk(unit.session, row.id, ROWS_PER_STEP):
                return None
            audit.note(unit, caller, "run.remove", f"run {row.id}", row.name)
            unit.outbox.wake_logs.add(row.id)
            return removal.remove_run(unit.session, row)

        shown = await self._context.read(look)
        while (roots := await self._context.write(remove_some)) is None:
            _log.info("run %s: rows are being removed", shown.id)
            await asyncio.sleep(0)
        removals = self._context.workers.removals
        await removals.run(caller.name, remove_roots, self._context.settings, roots)
        await removals.run(caller.name, remove_all_media, self._context.settings, shown.id)
        return shown


def _removable(s: Session, caller: Caller, named: str) -> TrackedRunRow:
    found = found_run(s, caller, named)
    if found.row is None or found.row.experiment_id is not None:
        raise Conflict(f"run {found.id} is of a trial: it goes with its experiment", hint="det experiment delete")
    found_run(s, caller, found.id, Action.RUN_DELETE)
    if found.row.deleted_at is None:
        raise Conflict(
            f"run {found.id} is not deleted: only one that is marked so is removed for good",
            hint=f"first: det run delete {found.id}",
        )
    if registered.pinned_of_run(s, found.id):
        raise Conflict(
            f"a version of a model is made of files of run {found.id}",
            hint="delete the version first: det model search lists those that you may see",
        )
    return found.row
