"""What `ObjectStorage` asks of a client library: a few verbs on whole objects, and errors in the store's own words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from detlab.errors import StorageAway, StorageDenied, StorageError

Data = bytes | bytearray | memoryview


class ObjectMissing(StorageError):
    """There is no object of this key; the bucket is there."""


class ObjectExists(StorageError):
    """An object of this key is there, and was to be created."""


class StoreAway(StorageAway):
    """The store did not answer, or not now (5xx, throttling, connections that break): asking again may help."""


class StoreRefused(StorageDenied):
    """The store does not know these credentials, or does not let them do this."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says of an object.

    Attributes:
        key: Below the root of the client.
        size: Bytes.
        modified: When it was written, in seconds since the epoch, by the store's clock.
    """

    key: str
    size: int
    modified: float


@runtime_checkable
class Objects(Protocol):
    """Objects below one root: a bucket, or a prefix in one. Keys are relative to it and have no `.` or `..` parts.

    An object appears whole or not at all, also where it is sent in parts. Methods may be called from several threads.
    They try a request again for some seconds (`StoreAway` after that), and otherwise raise, with the words of the store
    and without credentials: `ObjectMissing`, `StoreRefused`, or `StorageError`, as for a bucket that does not exist.

    What is not here is the same for every library and therefore in `ObjectStorage`: digests, resuming, several requests
    at once, waiting for a store that is away for minutes.
    """

    @property
    def where(self) -> str:
        """Return the address of the root for messages, without credentials: `s3://bucket/prefix`."""
        ...

    @property
    def conditional(self) -> bool:
        """Whether the store itself refuses to create what exists; else there is a moment between look and write."""
        ...

    def put(self, key: str, data: Data, *, create: bool = False) -> None:
        """Store an object in one request.

        Raises:
            ObjectExists: With `create`, there is one of this key.
        """
        ...

    def put_parts(self, key: str, parts: Iterator[Data]) -> None:
        """Store an object from parts that are taken as they are sent, replacing what was there.

        A few of them are in memory and on their way at once.

        Args:
            key: The object.
            parts: All but the last have one size, of at least 5 MiB. What the iterator raises is passed on, and the
                parts that were sent are removed as far as the store lets us.
        """
        ...

    def get(self, key: str) -> bytes:
        """Return a small object.

        Raises:
            ObjectMissing: There is none.
            CheckpointError: It is too large to be read as a whole.
        """
        ...

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """Return the bytes from `start` up to `end`, fewer where the object ends before; `start` is inside of it.

        Raises:
            ObjectMissing: There is none.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Describe an object.

        Raises:
            ObjectMissing: There is none.
        """
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """List the objects whose key starts with `prefix`, a folder's with its `/` (or nothing: all), in any order."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, in as few requests as the store can; those that are gone are no error."""
        ...

    def check(self) -> None:
        """Find out by one cheap request whether the store is there and knows us.

        Raises:
            StorageError: It is not, or does not.
        """
        ...
