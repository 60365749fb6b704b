"""Operations on what is stored."""

from __future__ import annotations

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model
from detlab.schemas.wire.storage import StorageBy, StorageUsage


def usage(by: StorageBy = "user", limit: int | None = None) -> Flow[StorageUsage]:
    """Fetch who stores how many bytes, those with most first."""
    return one(Call("GET", "storage/usage", params={"by": by, "limit": limit}, parse=model(StorageUsage)))
