"""What is left of experiments whose files are being removed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire.storage import DeletionView
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.queries.storage import collection
from detlab_hub.store.tables import ExperimentRow


def deletion_views(s: Session, experiment_ids: Sequence[int]) -> dict[int, DeletionView]:
    """Return what is left to remove of some experiments; those of which nothing is left are not in it."""
    left = collection.left_of(s, experiment_ids)
    found = {}
    columns = (
        ExperimentRow.id,
        ExperimentRow.gc_task,
        ExperimentRow.event_files_due,
        ExperimentRow.event_files_failure,
    )
    for part in chunks(list(experiment_ids)):
        for key, task, events_due, events_failed in s.execute(select(*columns).where(ExperimentRow.id.in_(part))):
            saved = left.get(key)
            if saved is None and events_due is None:
                continue
            failure = (saved.failure if saved is not None else "") or events_failed
            due = saved.due_at if saved is not None else events_due
            found[key] = DeletionView(
                checkpoints=0 if saved is None else saved.checkpoints,
                bytes=0 if saved is None else saved.bytes,
                event_files=events_due is not None,
                failure=failure,
                retry_at=due if failure else None,
                task=task,
            )
    return found
