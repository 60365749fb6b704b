"""Removal of checkpoints and event files with the proof that their bytes are gone: listed, removed, listed again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, runtime_checkable

from detlab.errors import CheckpointError, CheckpointMissing, StorageError
from detlab.storage.base import StorageManager

_NAMED = 3


@runtime_checkable
class Looks(Protocol):
    """A store that can look for what is left of a checkpoint without its manifest, which is removed first."""

    def remains(self, uuid: str, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes of what is there under a uuid, published or not."""


@runtime_checkable
class KeepsFolders(Protocol):
    """A store that can find and remove what `put_file` has stored, by the first folder of its paths."""

    def folders(self, names: Collection[str], *, owner: int | None = None) -> dict[str, int]:
        """Return the bytes of those of the named folders that are there and are ours, or the owner's.

        Raises:
            StorageError: The store cannot be looked at.
        """

    def remove_folders(self, names: Collection[str], *, owner: int | None = None) -> None:
        """Remove folders that `folders` has found; harmless if they are gone.

        Raises:
            StorageError: Something cannot be removed, or is not the owner's.
        """


def clear_checkpoint(
    store: StorageManager, uuid: str, names: Collection[str], paths: Sequence[str] | None = None, *,
    owner: int | None = None,
) -> int:  # fmt: skip
    """Remove a checkpoint, or some of its files, and look whether anything of it is left; harmless if it is gone.

    Args:
        store: Where it is.
        uuid: The checkpoint.
        names: Relative POSIX paths of its files as they were committed, by which they are looked for.
        paths: The files that go; None: all of it.
        owner: uid that it must belong to, where files have owners; see `StorageManager.delete`.

    Returns:
        Bytes that were there before and are gone now.

    Raises:
        CheckpointError: A path leads out of the checkpoint.
        StorageError: Something cannot be removed, or is still there.
    """
    going = sorted(names if paths is None else paths)
    before = _sizes(store, uuid, going)
    if paths is None:
        store.delete(uuid, owner=owner)
    else:
        store.delete_files(uuid, paths, owner=owner)
    found = _sizes(store, uuid, going)
    left = sorted(found if paths is None else found.keys() & set(going))
    if not left and paths is None and _is_published(store, uuid):
        left = ["its manifest"]
    if left:
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        raise StorageError(
            f"files of checkpoint {uuid} are still there after their removal: {', '.join(left[:_NAMED])}{more}",
            hint="A store with versions or a retention lock keeps what is deleted; so may one whose listings lag.",
        )
    return sum(size for name, size in before.items() if name in set(going))


def clear_folders(store: StorageManager, names: Collection[str], *, owner: int | None = None) -> int:
    """Remove folders that `put_file` has filled, such as those of event files, and look whether any is left.

    A store of somebody's own that cannot look for such folders is left as it is.

    Args:
        store: Where they are.
        names: Of the folders, as the first parts of the paths that were stored; those that are not there are gone.
        owner: uid that they must belong to, where files have owners; None: this process's own.

    Returns:
        Bytes that were there before and are gone now.

    Raises:
        StorageError: Something cannot be removed, or is still there.
    """
    if not isinstance(store, KeepsFolders):
        return 0
    before = store.folders(names, owner=owner)
    if before:
        store.remove_folders(before, owner=owner)
        if left := sorted(store.folders(names, owner=owner)):
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            raise StorageError(
                f"folders are still there after their removal: {', '.join(left[:_NAMED])}{more}",
                hint="A store with versions or a retention lock keeps what is deleted; so may one whose listings lag.",
            )
    return sum(before.values())


def _sizes(store: StorageManager, uuid: str, names: Sequence[str]) -> dict[str, int]:
    return store.remains(uuid, names) if isinstance(store, Looks) else store.file_sizes(uuid, names)


def _is_published(store: StorageManager, uuid: str) -> bool:
    try:
        store.manifest(uuid)
    except CheckpointMissing:
        return False
    except CheckpointError:  # no manifest that can be read, but one that is there
        return True
    return True
