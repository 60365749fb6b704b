"""Where the files of artifacts lie: a folder for each artifact in the master's own directory, a file for each digest.

What several versions of an artifact have is stored once. Nothing is shared with another artifact, and no digest finds
a file: it is opened by its row.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.settings import Settings
from detlab_hub.store.queries.registry import artifacts

_log = logging.getLogger(__name__)
_CHUNK = 1024 * 1024
UNFINISHED_SECONDS = 86400.0
"""After which files are removed that were uploaded for a version which was never made."""
_PER_STEP = 1000


def folder_of(settings: Settings, artifact_id: int) -> Path:
    """Return the folder of an artifact."""
    return settings.artifacts_dir / "named" / str(int(artifact_id))


def path_of(settings: Settings, artifact_id: int, digest: str) -> Path:
    """Return where the bytes of a digest are."""
    digits = digest.removeprefix("sha256:")
    return folder_of(settings, artifact_id) / digits[:2] / digits


def digest_of(upload: Path) -> str:
    """Return the digest of a file, which is on the disk then."""
    found = hashlib.sha256()
    with upload.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
        os.fsync(file.fileno())
    return f"sha256:{found.hexdigest()}"


def remove_digests(settings: Settings, artifact_id: int, digests: Sequence[str]) -> None:
    """Remove files that no row names."""
    for digest in digests:
        path = path_of(settings, artifact_id, digest)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("a file of an artifact without a record stays: %s: %s", path, error.strerror)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def remove_artifact(settings: Settings, artifact_id: int) -> None:
    """Remove all files of an artifact."""
    shutil.rmtree(folder_of(settings, artifact_id), ignore_errors=True)


async def remove_unfinished(context: ServiceContext) -> int:
    """Remove files that were uploaded a day ago for a version which was never made; return how many."""
    before = context.clock() - UNFINISHED_SECONDS
    found = await context.read(lambda s: artifacts.unfinished(s, before, _PER_STEP))
    by_artifact: dict[int, list[str]] = {}
    for artifact_id, digest in found:
        by_artifact.setdefault(artifact_id, []).append(digest)
    removed = 0
    for artifact_id, digests in by_artifact.items():
        removed += await _remove_unnamed(context, artifact_id, digests)
    return removed


async def _remove_unnamed(context: ServiceContext, artifact_id: int, digests: Sequence[str]) -> int:
    """Remove those of some files that no version names now: one may have been made of them meanwhile."""
    async with context.artifact_locks.of(artifact_id):
        gone = await context.write(lambda unit: artifacts.forget_unnamed(unit.session, artifact_id, digests))
        await context.workers.moves.run("", remove_digests, context.settings, artifact_id, gone)
    return len(gone)
