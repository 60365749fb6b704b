"""What is sent of a checkpoint: a file, or all as one tar, packed meanwhile: memory holds one chunk, no disk a copy.

A tar because its length is known before its first byte from the manifest alone: a browser shows how much is still to
come, and takes an archive that broke off for the failure that it is. Each file's bytes are given out only after their
digest was found to be the committed one.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from detlab.errors import CheckpointError
from detlab_hub.services.checkpoints.files import open_found, verifying
from detlab_hub.services.checkpoints.stores import OpenStore

_CHUNK = 1024 * 1024
_LOOKS = 20
"""Files that are looked for in one step."""
_END = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True)
class ArchiveContents:
    """What is being sent; the receiver closes `chunks`.

    Attributes:
        size: Bytes over all chunks.
        chunks: An empty one means that the next takes longer: files are checked before they are sent. Raises what
            `open_found` and `verifying` raise when a file is not what was committed.
        name: For the file that it becomes, if it has one of its own.
    """

    size: int
    chunks: Generator[bytes]
    name: str | None = None


def checked(
    opening: Callable[[], BinaryIO], uuid: str, path: str, digest: str, size: int, header: bytes = b""
) -> Generator[bytes]:
    """Open a file by `open_found`, check its bytes, and yield them after a header; see `ArchiveContents`."""
    with opening() as file:
        for _ in verifying(file, uuid, path, digest, size):
            yield b""
        yield header
        while size:
            chunk = file.read(min(_CHUNK, size))
            if not chunk:
                raise CheckpointError(f"the file {path} of checkpoint {uuid} was cut while it was read")
            size -= len(chunk)
            yield chunk


@dataclass(frozen=True)
class Packing:
    """The files to pack.

    Attributes:
        store: Where they are.
        uuid: The checkpoint; all files are in a folder of this name.
        files: By path: `size`, `digest` and perhaps `mode`, as committed.
        created: Seconds since the epoch, the time of all files.
        owner: uid to whom the files must belong; None: any.
    """

    store: OpenStore
    uuid: str
    files: Mapping[str, Mapping[str, Any]]
    created: float
    owner: int | None = None

    def looking(self) -> Generator[None]:
        """Look for all files, some at a step: others need the thread.

        Raises:
            StorageError: The store cannot be read.
            NotFound: A file is not there.
            CheckpointError: A file does not have the committed size. (Digests are checked file by file, later.)
        """
        for number, (path, entry) in enumerate(self.files.items(), 1):
            open_found(self.store, self.uuid, path, int(entry["size"]), self.owner).close()
            if number % _LOOKS == 0:
                yield

    def archive(self) -> ArchiveContents:
        """Return the archive; `looking` comes before it."""
        sizes = [(len(self._header(path)), int(entry["size"])) for path, entry in self.files.items()]
        size = len(_END) + sum(header + length + _padding(length) for header, length in sizes)
        return ArchiveContents(size, self._chunks(), f"checkpoint-{self.uuid}.tar")

    def _header(self, path: str) -> bytes:
        entry = self.files[path]
        info = tarfile.TarInfo(f"{self.uuid}/{path}")
        info.size = int(entry["size"])
        info.mode = 0o755 if int(entry.get("mode", 0)) & 0o100 else 0o644
        info.mtime = int(self.created)
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    def _chunks(self) -> Generator[bytes]:
        for path, entry in sorted(self.files.items()):
            size = int(entry["size"])
            opening = partial(open_found, self.store, self.uuid, path, size, self.owner)
            yield from checked(opening, self.uuid, path, str(entry["digest"]), size, self._header(path))
            if padding := _padding(size):
                yield bytes(padding)
        yield _END


def _padding(size: int) -> int:
    return -size % tarfile.BLOCKSIZE
