"""A checkpoint as one tar, packed while it is sent: no copy of it lies anywhere, and memory holds one chunk.

A tar because its length is known before its first byte from the manifest alone: a browser shows how much is still to
come, and takes an archive that broke off for the failure that it is. Each file's bytes are given out only after their
digest was found to be the committed one, as `open_verified` does for a single file.
"""

from __future__ import annotations

import tarfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from detlab.errors import CheckpointError
from detlab_hub.services.checkpoints.files import open_found, verifying

_CHUNK = 1024 * 1024
_END = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True)
class Archive:
    """A checkpoint that is being sent; the receiver closes `chunks`.

    Attributes:
        name: For the file that it becomes.
        size: Bytes over all chunks.
        chunks: An empty one means that the next takes longer: files are checked before they are sent. Raises what
            `open_verified` raises when a file is not what was committed.
    """

    name: str
    size: int
    chunks: Generator[bytes]


@dataclass(frozen=True)
class Packing:
    """The files to pack.

    Attributes:
        storage: The `checkpoint_storage` block.
        uuid: The checkpoint; all files are in a folder of this name.
        files: By path: `size`, `digest` and perhaps `mode`, as committed.
        created: Seconds since the epoch, the time of all files.
        owner: uid to whom the files must belong; None: any.
    """

    storage: dict[str, Any]
    uuid: str
    files: Mapping[str, Mapping[str, Any]]
    created: float
    owner: int | None = None

    def archive(self) -> Archive:
        """Look for all files and begin with the first.

        Raises:
            StorageError: The checkpoint is not on a file system that this master can read.
            NotFound: A file is not there.
            CheckpointError: A file does not have the committed size. (Digests are checked file by file, later.)
        """
        size = len(_END)
        for path, entry in self.files.items():
            open_found(self.storage, self.uuid, path, int(entry["size"]), self.owner).close()
            size += len(self._header(path)) + int(entry["size"]) + _padding(int(entry["size"]))
        return Archive(f"checkpoint-{self.uuid}.tar", size, self._chunks())

    def _header(self, path: str) -> bytes:
        entry = self.files[path]
        info = tarfile.TarInfo(f"{self.uuid}/{path}")
        info.size = int(entry["size"])
        info.mode = 0o755 if int(entry.get("mode", 0)) & 0o100 else 0o644
        info.mtime = int(self.created)
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    def _chunks(self) -> Generator[bytes]:
        for path, entry in sorted(self.files.items()):
            left = int(entry["size"])
            with open_found(self.storage, self.uuid, path, left, self.owner) as file:
                for _ in verifying(file, self.uuid, path, str(entry["digest"]), left):
                    yield b""
                yield self._header(path)
                while left:
                    chunk = file.read(min(_CHUNK, left))
                    if not chunk:
                        raise CheckpointError(f"the file {path} of checkpoint {self.uuid} was cut while it was read")
                    left -= len(chunk)
                    yield chunk
            if padding := _padding(int(entry["size"])):
                yield bytes(padding)
        yield _END


def _padding(size: int) -> int:
    return -size % tarfile.BLOCKSIZE
