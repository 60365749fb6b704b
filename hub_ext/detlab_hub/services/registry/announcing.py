"""Saying that a model has changed: on the event stream, to those who may read it (I9)."""

from __future__ import annotations

from typing import Any

from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.streams.reads import SHARED, place_of
from detlab_hub.store.queries import rights
from detlab_hub.store.tables import ModelRow


def announce(unit: UnitOfWork, model: ModelRow, did: str, **more: Any) -> None:
    """Append an event `model`.

    Args:
        unit: The unit of work of the change.
        model: The model.
        did: What: `created`, `edited`, `deleted`, `version`, `label`, `shared`.
        more: Further data for readers.
    """
    data = {"id": model.id, "name": model.name, "owner": model.owner, "did": did, **more}
    if did == "deleted":  # who may read that is known only now
        unit.session.flush()
        grants = rights.grants_of_models(unit.session, [model.id]).get(model.id, [])
        data[SHARED] = [(one.kind, one.name, one.write) for one in grants] + place_of(model.workspace_id)
    unit.event("model", None, None, data)
