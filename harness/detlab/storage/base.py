"""The interface of a checkpoint store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, runtime_checkable

from detlab.storage.manifest import Manifest, ManifestPart

if TYPE_CHECKING:
    from detlab.schemas.expconf.blocks.storage import StorageBlock

Selector = Callable[[str], bool]
"""Whether to take a file, by its relative POSIX path."""


class ManifestNotWritten(OSError):
    """`metadata.json` or the manifest could not be written, but no file is lost: `publish` can be called again.

    It is the cause of a `StorageError` that `publish` raises.
    """


@runtime_checkable
class StorageManager(Protocol):
    """Keeps checkpoints by uuid: the one interface between detlab and where checkpoints are stored.

    Writing is in steps so that several ranks, on several machines, can share it: each rank puts its files into the
    stage of the uuid and gets its part of the manifest; one of them publishes with all parts joined. Nothing of a
    checkpoint can be read before `publish` has returned, whatever dies in between, and other users of the store do not
    even see its uuid until then.

    What else one could want is the business of those who call, so that each store stays small and all behave alike:
    which checkpoints are kept and when they are removed, what the master has committed, who may read, what is in
    the files (tensors, shards), retries and waiting for room, caches, progress.

    All methods raise `StorageError` when the store cannot be read or written, `CheckpointError` when what is in it
    is incomplete, altered or unknown. They may be called from several threads, for different checkpoints.
    """

    def stage(self, uuid: str) -> Path:
        """Return a directory to write the files of `uuid` into; the same one for all ranks of a node."""
        ...

    def upload(self, source: Path, uuid: str, *, selector: Selector | None = None) -> ManifestPart:
        """Copy the files of a local directory into the stage, durably, and describe the copies.

        Links are refused, not followed; so are special files and names that the master would not commit.
        """
        ...

    def seal(self, uuid: str, *, node: int = 0) -> ManifestPart:
        """Make durable what was written into the directory of `stage`, and describe it.

        One rank of each node calls it when all ranks have written. A store whose stage is one directory for all
        nodes describes it for node 0 and returns an empty part for the others.

        Args:
            uuid: The checkpoint.
            node: Index of the node in this trial.
        """
        ...

    def publish(self, uuid: str, metadata: Mapping[str, Any], part: ManifestPart | None = None) -> Manifest:
        """Write `metadata.json`, then the manifest, and make the checkpoint readable, all of it or nothing.

        Args:
            uuid: The checkpoint.
            metadata: Must be JSON.
            part: What all ranks have stored, joined; what `seal` finds if None.

        Raises:
            CheckpointError: Nothing is staged, or what is staged is not what `part` says.
            StorageError: What is staged may be damaged and must be written again, unless the cause is
                `ManifestNotWritten`.
        """
        ...

    def discard(self, uuid: str) -> None:
        """Remove the stage of a checkpoint that will not be published; harmless if there is none."""
        ...

    def manifest(self, uuid: str) -> Manifest:
        """Read the manifest of a published checkpoint.

        Raises:
            CheckpointMissing: There is no complete checkpoint of this uuid.
        """
        ...

    def restore_path(
        self, uuid: str, manifest: Manifest, *, selector: Selector | None = None
    ) -> AbstractContextManager[Path]:
        """Return a context manager for a directory with the verified files, to be read while the block lasts.

        Raises:
            CheckpointError: A selected file is missing or differs from the manifest; it is named.
        """
        ...

    def download(self, uuid: str, target: Path, manifest: Manifest, *, selector: Selector | None = None) -> list[str]:
        """Copy verified files into `target` (made if missing) and return their relative POSIX paths.

        Raises:
            CheckpointError: A selected file is missing or differs from the manifest; it is named.
        """
        ...

    def open_file(self, uuid: str, name: str, *, owner: int | None = None) -> BinaryIO:
        """Open one file of a published checkpoint for reading at any position; its bytes are not verified.

        Args:
            uuid: The checkpoint.
            name: Relative POSIX path.
            owner: uid that the file must belong to, where files have owners: the master, which may read what its
                user may not, gives that user's.

        Raises:
            CheckpointMissing: There is no such file, or it is not the owner's.
            CheckpointError: The name leads out of the checkpoint.
        """
        ...

    def file_sizes(self, uuid: str, names: Iterable[str]) -> dict[str, int]:
        """Return the bytes of those of the named files that can be seen from here, without reading them."""
        ...

    def uuids(self) -> list[str]:
        """Return the published checkpoints that this process may read, sorted."""
        ...

    def delete(self, uuid: str, *, owner: int | None = None) -> None:
        """Remove a checkpoint, its manifest first; harmless if it is gone.

        Args:
            uuid: The checkpoint.
            owner: uid that all of it must belong to, where files have owners; see `open_file`.

        Raises:
            StorageError: Something cannot be removed, or is not the owner's, or the store is not there.
        """
        ...

    def delete_files(self, uuid: str, names: Iterable[str], *, owner: int | None = None) -> None:
        """Remove some files of a checkpoint; harmless if they are gone. Its manifest stays as it was published.

        Args:
            uuid: The checkpoint.
            names: Relative POSIX paths.
            owner: uid that the folders must belong to, where files have owners; see `open_file`.

        Raises:
            CheckpointError: A name leads out of the checkpoint.
            StorageError: Something cannot be removed, or is not the owner's, or the store is not there.
        """
        ...

    def put_file(self, source: Path, name: str) -> None:
        """Store one file that belongs to no checkpoint under a relative POSIX path, replacing what was there.

        The first folder of the path is this user's own: if another user's is in its place, one of another name is used.
        """
        ...

    def check(self) -> None:
        """Find out, in seconds, whether checkpoints can be stored here: write, read and remove something small.

        It is asked once before the first step, so that a wrong bucket or credential costs no training. A store of
        one's own may leave it out.

        Raises:
            StorageAway: The store does not answer now; it is waited for.
            StorageError: Checkpoints cannot be stored with this config; the message has the store's own words.
        """

    def mark(self, uuid: str, owner: str, run: int) -> None:
        """Note durably enough for a killed process that a run of `owner` (from 1) writes `uuid`, until `unmark`.

        Marks, `sweep` and `check` are what a store of one's own may leave out: then nothing is cleared up.
        """

    def unmark(self, uuid: str, owner: str, run: int) -> None:
        """Remove a mark; harmless if there is none."""

    def marked(self, owner: str) -> list[tuple[int, str]]:
        """Return the marks of `owner` that our user made, as run and uuid, oldest run first."""
        return []

    def sweep(self, older_than: float) -> list[str]:
        """Remove stages that nothing was written to for `older_than` seconds; return their uuids.

        A stage that cannot be looked at or removed is left alone.
        """
        return []


@runtime_checkable
class StorageType(Protocol):
    """What an entry point of the group `detlab.storages` names: most often the class of the store itself.

    The master asks it for the keys of a config before any store is made, so that the module with it must import
    nothing that is slow or may be missing; a client library is imported when the first store is made.
    """

    def config_model(self) -> type[StorageBlock]:
        """Return the pydantic model of the `checkpoint_storage` block, with its `type`."""
        ...

    def from_config(self, config: Mapping[str, Any]) -> StorageManager:
        """Return the store that a block describes, without connecting to it yet.

        Args:
            config: The block as stored with an experiment, perhaps years ago: unknown keys are ignored.

        Raises:
            StorageError: The block lacks a key that this store needs.
        """
        ...
