"""Whether a checkpoint that a task wants to commit is one: names, sizes and digests, before anything is stored."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

from detlab.errors import CheckpointError
from detlab.schemas.wire import CommitCheckpoint
from detlab.storage.files import PATH_CHARS

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
METADATA_BYTES = 1024 * 1024
MAX_SIZE = 2**53
_MAX_STEP = 2**53


def is_uuid(text: str) -> bool:
    """Whether a name is a UUID in lower case: the only names that checkpoints have."""
    return _UUID.fullmatch(text) is not None


def check_commit(commit: CommitCheckpoint, file_limit: int) -> int:
    """Check what a task wants to commit; return the bytes of all files together.

    Raises:
        CheckpointError: Something is wrong; the message names the first mistake.
    """
    if not is_uuid(commit.uuid):
        raise CheckpointError(f"{commit.uuid[:80]!r} is not a UUID in lower case")
    if not _DIGEST.fullmatch(commit.manifest_digest):
        raise CheckpointError("manifest_digest is not of the form sha256:<64 hex digits>")
    if not 0 <= commit.steps_completed <= _MAX_STEP:
        raise CheckpointError(f"steps_completed {commit.steps_completed} is not between 0 and 2**53")
    if len(commit.files) > file_limit:
        raise CheckpointError(f"{len(commit.files)} files in one checkpoint; at most {file_limit}")
    size = sum(_check_file(path, entry.size, entry.digest) for path, entry in commit.files.items())
    if size > MAX_SIZE:
        raise CheckpointError(f"a checkpoint of {size} bytes; at most 2**53")
    check_metadata(commit.metadata)
    return size


def check_metadata(metadata: dict[str, object]) -> None:
    """Check that metadata is small.

    Raises:
        CheckpointError: If it is over 1 MiB as JSON.
    """
    size = len(json.dumps(metadata, separators=(",", ":")))
    if size > METADATA_BYTES:
        raise CheckpointError(f"metadata of {size} bytes as JSON; at most {METADATA_BYTES}")


def _check_file(path: str, size: int, digest: str) -> int:
    check_path(path)
    if not 0 <= size <= MAX_SIZE:
        raise CheckpointError(f"the file {path[:80]!r} cannot have {size} bytes")
    if not _DIGEST.fullmatch(digest):
        raise CheckpointError(f"the digest of {path[:80]!r} is not of the form sha256:<64 hex digits>")
    return size


def check_path(path: str) -> None:
    """Check that a path stays inside its checkpoint: relative, POSIX, in its plainest form.

    Raises:
        CheckpointError: If it does not.
    """
    plain = PurePosixPath(path)
    sane = (
        0 < len(path) <= PATH_CHARS
        and "\x00" not in path
        and "\\" not in path
        and not plain.is_absolute()
        and ".." not in plain.parts
        and str(plain) == path.rstrip("/")
        and str(plain) != "."
    )
    if not sane:
        raise CheckpointError(f"{path[:80]!r} is not a relative path inside the checkpoint")
