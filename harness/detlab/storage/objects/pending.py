"""Which checkpoints are being written to an object store: small objects that say so, by owner and run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from detlab.errors import StorageError
from detlab.storage.objects.client import Objects
from detlab.storage.unfinished import is_uuid

_FOLDER = ".pending"
_NOBODY = "_"
"""Where notes are of writers that made no mark, as off a cluster; no owner has this name."""
PROBE = f"{_FOLDER}/{_NOBODY}/check"
"""What is written to find out whether that is allowed."""
_OWNER = re.compile(r"[0-9A-Za-z_-]{2,200}")
_NOTE = re.compile(r"([0-9]{1,18})-(.+)")


class PendingObjects:
    """Objects `.pending/<owner>/<run>-<uuid>`, without content.

    A store lists objects by their keys alone, in thousands: what is not finished is found by these in one request.

    Args:
        objects: The client.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._marked: set[str] = set()
        self._begun: set[str] = set()

    def mark(self, uuid: str, owner: str, run: int) -> None:
        """Note that a run of `owner` writes `uuid`."""
        self._objects.put(_key(uuid, owner, run), b"")
        self._marked.add(uuid)

    def unmark(self, uuid: str, owner: str, run: int) -> None:
        """Remove a mark; harmless if there is none."""
        self._objects.delete([_key(uuid, owner, run)])
        self._marked.discard(uuid)

    def marked(self, owner: str) -> list[tuple[int, str]]:
        """Return the marks of `owner`, as run and uuid, oldest run first."""
        found = (_read(info.key) for info in self._objects.list(f"{_FOLDER}/{_checked(owner)}/"))
        return sorted((run, uuid) for _, run, uuid in filter(None, found))

    def begin(self, uuid: str) -> None:
        """Note that this process writes `uuid`, unless a mark of ours says so."""
        if uuid not in self._marked | self._begun:
            self._objects.put(f"{_FOLDER}/{_NOBODY}/0-{uuid}", b"")
            self._begun.add(uuid)

    def end(self, uuid: str) -> None:
        """Remove what `begin` of any rank has noted."""
        self._begun.discard(uuid)
        self._objects.delete([f"{_FOLDER}/{_NOBODY}/0-{uuid}"])

    def notes(self) -> Iterator[tuple[str, str, int]]:
        """Give uuid, owner and run of what has a mark."""
        for info in self._objects.list(f"{_FOLDER}/"):
            note = _read(info.key)
            if note is not None and note[0] != _NOBODY:
                yield note[2], note[0], note[1]

    @staticmethod
    def is_nobodys(key: str) -> bool:
        """Whether a note is of writers that made no mark."""
        return key.startswith(f"{_FOLDER}/{_NOBODY}/")

    def all(self) -> Iterator[tuple[str, str, float]]:
        """Give uuid, key and age, in seconds since the epoch, of everything that is being written."""
        for info in self._objects.list(f"{_FOLDER}/"):
            note = _read(info.key)
            if note is not None:
                yield note[2], info.key, info.modified


def _key(uuid: str, owner: str, run: int) -> str:
    if run < 1:
        raise StorageError(f"the runs of {owner} are counted from 1, not {run}")
    return f"{_FOLDER}/{_checked(owner)}/{run:d}-{uuid}"


def _checked(owner: str) -> str:
    if not _OWNER.fullmatch(owner):
        raise StorageError(f"not the name of an owner of checkpoints: {owner!r}")
    return owner


def _read(key: str) -> tuple[str, int, str] | None:
    folder, _, rest = key.partition("/")
    owner, _, note = rest.partition("/")
    found = _NOTE.fullmatch(note)
    if folder != _FOLDER or found is None or not is_uuid(found[2]):
        return None
    return owner, int(found[1]), found[2]
