"""Searches that have decided on more trials than one transaction makes: the rest follows, part by part.

What a search has decided is in its journal. Which of them have trials left to be made is noted beside it, in the same
transaction, so that a master that was restarted goes on.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire import ExperimentState
from detlab_hub.store.tables import ExperimentRow, Meta

PART = 200
"""Trials that one transaction makes: the writer has no time for others meanwhile, 0.1 s for so many."""
PARTS = 10
"""Parts of each search between two looks at what is due."""
_PREFIX = "trials to make: "


def note(s: Session, experiment_id: int) -> None:
    """Note that a search has trials left to be made."""
    if s.get(Meta, _key(experiment_id)) is None:
        s.add(Meta(key=_key(experiment_id), value=""))
        s.flush()


def forget(s: Session, experiment_id: int) -> None:
    """Note that it has none, or that none is wanted any more."""
    left = s.get(Meta, _key(experiment_id))
    if left is not None:
        s.delete(left)


def due(s: Session) -> list[int]:
    """Return the active experiments with trials left to be made."""
    keys = s.scalars(select(Meta.key).where(Meta.key.startswith(_PREFIX)))
    noted = [int(key.removeprefix(_PREFIX)) for key in keys]
    if not noted:
        return []
    active = ExperimentRow.state == ExperimentState.ACTIVE.value
    return list(s.scalars(select(ExperimentRow.id).where(ExperimentRow.id.in_(noted), active)))


def _key(experiment_id: int) -> str:
    return f"{_PREFIX}{experiment_id}"
