"""The manifest of a checkpoint: what belongs to it, byte for byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from detlab.errors import CheckpointError
from detlab.schemas.wire import CheckpointFile, encode_floats

MANIFEST_NAME = "manifest.json"
METADATA_NAME = "metadata.json"
MOST_MANIFEST = 32 * 1024**2
"""Bytes of a manifest, and of other objects that are read as a whole: the master reads what tasks have written.

It takes no commit that is larger."""
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """What one rank has stored of a checkpoint: the ranks' parts are joined before the checkpoint is published.

    Attributes:
        files: Relative POSIX path to size in bytes, digest `sha256:<hex>` and permission bits.
        directories: Folders that hold no file.
    """

    files: dict[str, CheckpointFile] = field(default_factory=dict)
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """Files of a checkpoint by relative POSIX path.

    Attributes:
        uuid: The checkpoint.
        files: Path to size in bytes, digest `sha256:<hex>` and permission bits.
        directories: Folders that hold no file, so that they can be made again.
        metadata: What the trial said about the checkpoint.
    """

    uuid: str
    files: dict[str, CheckpointFile]
    directories: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes over all files."""
        return sum(entry.size for entry in self.files.values())

    @property
    def digest(self) -> str:
        """Digest of the manifest itself, as the master commits it: `sha256:<hex>`."""
        return "sha256:" + hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the one encoding of this manifest.

        Raises:
            CheckpointError: Nobody would read one as large.
        """
        document = {
            "format": _FORMAT,
            "uuid": self.uuid,
            "files": {path: entry.model_dump() for path, entry in sorted(self.files.items())},
            "directories": sorted(self.directories),
            "metadata": encode_floats(self.metadata),
        }
        data = json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False).encode()
        check_size(f"{MANIFEST_NAME} of checkpoint {self.uuid}", len(data))
        return data

    @classmethod
    def from_bytes(cls, data: bytes, *, uuid: str) -> Manifest:
        """Read a manifest.

        Raises:
            CheckpointError: It is not a manifest of this checkpoint, or names a path outside of it.
        """
        try:
            document = json.loads(data)
            if document["format"] != _FORMAT or document["uuid"] != uuid:
                raise ValueError("it belongs to another checkpoint or a newer version")
            files = {safe_path(path): CheckpointFile.model_validate(entry) for path, entry in document["files"].items()}
            directories = tuple(safe_path(path) for path in document.get("directories", []))
            metadata = dict(document.get("metadata") or {})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{MANIFEST_NAME} of checkpoint {uuid} cannot be used: {error}") from error
        return cls(uuid, files, directories, metadata)

    @classmethod
    def of(
        cls,
        uuid: str,
        files: Mapping[str, CheckpointFile],
        metadata: Mapping[str, Any],
        directories: tuple[str, ...] = (),
    ) -> Manifest:
        """Build a manifest from parts."""
        return cls(uuid, dict(files), directories, dict(metadata))


def check_size(what: str, size: int) -> None:
    """Check that something may be read as a whole.

    Args:
        what: Its name for the message.
        size: Its bytes.

    Raises:
        CheckpointError: It is too large for that.
    """
    if size > MOST_MANIFEST:
        raise CheckpointError(
            f"{what} has {size:,} bytes, and at most {MOST_MANIFEST:,} are read",
            hint="checkpoints have fewer files and shorter metadata: store what is large as a file",
        )


def safe_path(path: str) -> str:
    """Return a relative POSIX path in its plain form.

    Raises:
        ValueError: It is absolute, empty, or leads outside of its root.
    """
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\0" in path or str(pure) in {"", "."}:
        raise ValueError(f"not a relative path inside the checkpoint: {path!r}")
    return str(pure)


def plain_path(name: str) -> str:
    """Return a path as `safe_path` does.

    Raises:
        CheckpointError: It is absolute, empty, or leads outside of its root.
    """
    try:
        return safe_path(name)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
