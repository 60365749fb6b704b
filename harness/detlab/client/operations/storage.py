"""Operations on what is stored."""

from __future__ import annotations

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model
from detlab.schemas.wire.storage import EmptyTrash, StorageBy, StorageUsage, TrashView


def usage(by: StorageBy = "user", limit: int | None = None) -> Flow[StorageUsage]:
    """Fetch who stores how many bytes, those with most first."""
    return one(Call("GET", "storage/usage", params={"by": by, "limit": limit}, parse=model(StorageUsage)))


def trash(experiment_id: int | None = None) -> Flow[TrashView]:
    """Fetch what is in the trash of one experiment, or of all that the caller owns."""
    params = {} if experiment_id is None else {"experiment_id": experiment_id}
    return one(Call("GET", "storage/trash", params=params, parse=model(TrashView)))


def empty_trash(wanted: EmptyTrash) -> Flow[TrashView]:
    """Remove what is in the trash for good; names what was looked at, so this can safely be repeated."""
    return one(Call("POST", "storage/trash", json=wanted, parse=model(TrashView)))
