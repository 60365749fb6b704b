"""Who may write and delete in a checkpoint storage: each prefix has a record of the cluster that owns what is in it.

A copy of a cluster, restored from a backup or made with `cp -r`, knows the same checkpoints as the original. The
record (`.owner/<cluster id>` below the prefix) names the installation of that cluster which may change them; two
clusters in one prefix have a record each. It is made by the first write, compared by everything that writes or deletes,
and replaced only by an installation that was told to take over (`det up --take-over`), by its higher epoch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from detlab.errors import StorageError
from detlab.schemas.storage_types import FOLDER, StorageHolder

__all__ = ["FOLDER", "MOST_RECORD", "Guard", "Records", "StorageHolder", "StorageOwned"]

MOST_RECORD = 4096
"""Bytes of a record that are read: users can write what they want into theirs, and the master reads it."""
_FORMAT = 1
_HOLDS = 15.0
"""Seconds for which a record that names us is not read again."""


class StorageOwned(StorageError):
    """Another installation of this cluster owns what is in the storage: it is read-only for this one."""

    default_code = "storage.owned"


class Records(Protocol):
    """Where a store keeps the records."""

    def read(self, name: str) -> bytes | None:
        """Return a record, or its first `MOST_RECORD` bytes; None: there is none."""

    def write(self, name: str, data: bytes, *, create: bool) -> bool:
        """Write a record; with `create` only if there is none. Return whether it was written."""


@dataclass
class Guard:
    """Lets the installation that owns a storage change it, and no other.

    Args:
        where: The storage, for messages.
        holder: Who changes it; None: nobody's cluster, as off a cluster, who owns nothing and is not asked.
        clock: Seconds that never go back.
    """

    where: str
    holder: StorageHolder | None = None
    clock: Callable[[], float] = time.monotonic
    _until: float = field(default=0.0, init=False)

    def check(self, records: Records, *, make: bool = True) -> None:
        """Check that the storage is ours to change, and note that it is where nothing says so yet.

        Args:
            records: Of the storage.
            make: Whether a record may be written: not by the master in a user's folder.

        Raises:
            StorageOwned: Another installation of our cluster owns it.
            StorageError: The record cannot be read.
        """
        holder = self.holder
        if holder is None or self.clock() < self._until:
            return
        for _ in range(3):  # others may make it at the same time
            known = _read(records.read(holder.record), self.where)
            if known is None:
                if not make or records.write(holder.record, _encoded(holder), create=True):
                    break
            elif known.instance == holder.instance:
                break
            elif known.epoch < holder.epoch:
                if make:
                    records.write(holder.record, _encoded(holder), create=False)
                break
            else:
                raise _owned(self.where, holder)
        self._until = self.clock() + _HOLDS


def _encoded(holder: StorageHolder) -> bytes:
    document = {"format": _FORMAT, "cluster": holder.cluster, "instance": holder.instance, "epoch": holder.epoch}
    return json.dumps(document, sort_keys=True).encode()


def _read(data: bytes | None, where: str) -> StorageHolder | None:
    """Return what a record says; one that cannot be read, or is a newer version's, is another's."""
    if data is None:
        return None
    try:
        document: Any = json.loads(data)
        if document["format"] != _FORMAT:
            raise ValueError(f"its format is {document['format']}")
        return StorageHolder(str(document["cluster"]), str(document["instance"]), int(document["epoch"]))
    except (ArithmeticError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise StorageOwned(
            f"the record in {where}/{FOLDER}… of who owns the checkpoints there cannot be used: {error}",
            hint="it is left as it is: upgrade detlab, or remove the record if this cluster alone stores there",
        ) from error


def _owned(where: str, holder: StorageHolder) -> StorageOwned:
    return StorageOwned(
        f"the checkpoints in {where} belong to another installation of cluster {holder.cluster}: here they are"
        " read-only, and nothing is stored or removed",
        hint="this cluster is a copy, or a copy of it has taken over; once the other one is stopped for good:"
        f" det up --take-over. If there is no other one, somebody with the same keys has written {holder.record}: see"
        " 'A forged record' in the page Back up and restore",
    )
