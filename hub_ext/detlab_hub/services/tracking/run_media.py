"""What runs from elsewhere log beyond numbers: kept and shown as that of trials is, within the run."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab.schemas.wire.media import MediaFacts, MediaView
from detlab_hub.core.rights import Action
from detlab_hub.services.base.access import owns
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.threads import user_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.ingest.media import FoundMedia, MediaShelf, MediaTarget, noted
from detlab_hub.services.tracking.experiments import BadRequest
from detlab_hub.services.tracking.run_views import found_run
from detlab_hub.store.tables import MediaRow, TrackedRunRow


class RunMedia(MediaShelf):
    """Use cases of media of runs; those of one that is a trial are its trial's."""

    def readable(self, s: Session, caller: Caller, holder: int | str) -> int | str:
        """See `MediaShelf.readable`; the run by its id, or by the key of one of the caller's own."""
        found = found_run(s, caller, str(holder))
        return found.id if found.trial is None else found.trial.id

    async def put(self, caller: Caller, named: str, facts: MediaFacts, upload: Path) -> MediaView:
        """Keep an object; one of the same key, step and place is replaced. The upload is moved away or removed.

        Raises:
            BadRequest: The run is a trial, or of one, whose own code logs into it.
            Conflict: The run is deleted.
            Forbidden: The caller may not log into the run.
            MediaFull: The run has logged as much as it may.
            MediaRefused: It is not what is said, or cannot be shown.
            NotFound: There is no such run for the caller.
            StorageFull: A quota of its owner is used up.
        """

        def into(s: Session) -> MediaTarget:
            row = _logged_into(s, caller, named)
            groups = sorted(caller.groups) if owns(caller, row.owner) else row.owner_groups
            return MediaTarget(row.id, row.id, f"run {row.id}", row.owner, groups)

        def note(unit: UnitOfWork, found: FoundMedia) -> tuple[MediaView, list[str]]:
            row = _logged_into(unit.session, caller, named)
            row.updated_at = unit.now
            unit.outbox.wake_logs.add(row.id)
            return noted(unit, MediaRow(run_id=row.id, attempt=0), row.id, facts, found)

        return await self.take(user_of(caller), facts, upload, into, note)


def _logged_into(s: Session, caller: Caller, named: str) -> TrackedRunRow:
    row = found_run(s, caller, named, Action.RUN_REPORT).row
    if row is None or row.is_trial or row.experiment_id is not None:
        raise BadRequest(f"run {named[:80]} is of a trial, whose own code logs media: report_media")
    if row.deleted_at is not None:
        raise Conflict(f"run {row.id} is deleted", hint="Begin another one: without its id, or with another")
    return row
