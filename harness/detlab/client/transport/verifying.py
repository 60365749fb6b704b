"""Reading every byte of a checkpoint, to see whether it is what was committed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import quote

from detlab.client.transport.calls import Call, Flow, Progress
from detlab.client.transport.downloads import AnyMode, source_of
from detlab.errors import ApiError, CheckpointError, CheckpointMissing, NotFound, StorageError
from detlab.schemas.wire import CheckpointFile, CheckpointView

_BLOCK = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file of a checkpoint that is not what was committed.

    Attributes:
        path: Relative.
        problem: `missing`, `altered` or `unreadable`.
        detail: What was found, for people.
    """

    path: str
    problem: str
    detail: str


class _Digest:
    """Takes bytes and keeps none."""

    def __init__(self, told: Callable[[int], None]) -> None:
        self._hash, self._told = hashlib.sha256(), told
        self.size = 0

    def write(self, data: bytes, /) -> int:
        self._hash.update(data)
        self.size += len(data)
        self._told(len(data))
        return len(data)

    def judge(self, path: str, file: CheckpointFile) -> BadFile | None:
        digest = f"sha256:{self._hash.hexdigest()}"
        if digest == file.digest:
            return None
        if self.size != file.size:
            return BadFile(path, "altered", f"{self.size} bytes, {file.size} were stored")
        return BadFile(path, "altered", f"its digest is {digest}, stored was {file.digest}")


def verify(view: CheckpointView, mode: AnyMode = "auto", progress: Progress | None = None) -> Flow[list[BadFile]]:
    """Read all files of a checkpoint and return those that are not what was committed; nothing is written.

    Args:
        view: The checkpoint.
        mode: As for `download`.
        progress: Called with (bytes done, bytes in all).

    Raises:
        CheckpointError: Its files were deleted.
        StorageError: The storage cannot be read at all.
    """
    if view.state == "DELETED":
        raise CheckpointError(f"the files of checkpoint {view.uuid} were deleted")
    folder, store = source_of(view, mode)
    total, done = sum(file.size for file in view.files.values()), 0
    bad: list[BadFile] = []

    def told(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    for path, file in sorted(view.files.items()):
        digest = _Digest(told)
        if folder is not None:
            found = _read(partial(_opened, folder / path), digest, path, file)
        elif store is not None:
            found = _read(partial(store.open_file, view.uuid, path), digest, path, file)
        else:
            found = yield from _through_master(view, path, file, told)
        if found is not None:
            bad.append(found)
    return bad


def _through_master(
    view: CheckpointView, path: str, file: CheckpointFile, told: Callable[[int], None]
) -> Flow[BadFile | None]:
    digests: list[_Digest] = []

    @contextmanager
    def sink() -> Iterator[_Digest]:
        digests.append(_Digest(told))
        yield digests[-1]

    address = f"checkpoints/{quote(view.uuid, safe='')}/files/{quote(file.digest, safe=':')}"
    try:
        yield Call("GET", address, sink=sink)
    except (NotFound, CheckpointMissing) as error:
        return BadFile(path, "missing", error.message)
    except (ApiError, StorageError) as error:
        return BadFile(path, "unreadable", error.message)
    return digests[-1].judge(path, file)


def _opened(path: Path) -> IO[bytes]:
    return path.open("rb")


def _read(open_it: Callable[[], IO[bytes]], digest: _Digest, path: str, file: CheckpointFile) -> BadFile | None:
    try:
        with open_it() as stream:
            while chunk := stream.read(_BLOCK):
                digest.write(chunk)
    except FileNotFoundError:
        return BadFile(path, "missing", "there is no such file")
    except CheckpointError as error:
        return BadFile(path, "missing", error.message)
    except (OSError, StorageError) as error:
        return BadFile(path, "unreadable", str(error))
    return digest.judge(path, file)
