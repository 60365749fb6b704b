"""`ObjectStorage`: a `StorageManager` over any client of an object store."""

from __future__ import annotations

from detlab.storage.objects.client import Objects


class ObjectStorage:
    """Checkpoints as objects `<uuid>/<path>`, with `<uuid>/manifest.json` last.

    Args:
        objects: The client; its root is that of the checkpoints.
        patience: Seconds for which writes and downloads go on while the store does not answer.
    """

    def __init__(self, objects: Objects, *, patience: float = 3600.0) -> None:
        self._objects = objects
        self._patience = patience
