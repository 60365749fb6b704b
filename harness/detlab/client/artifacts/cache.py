"""Files of artifacts that this user has downloaded to this machine, by their digests: the next task here copies them.

A file is named by its artifact and its digest, in a folder that this user alone may enter. The master is asked first,
each time, whether they may read the version; here they then find nothing but what that version names.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

from detlab.client.transport.downloads import HashingWriter
from detlab.errors import StorageError
from detlab.storage.own_folders import OwnFolders

FOLDER_VARIABLE, SIZE_VARIABLE = "DET_ARTIFACT_CACHE", "DET_ARTIFACT_CACHE_GB"
KEEP_GB = 20.0
_CHUNK = 1024 * 1024


class ArtifactCache:
    """The files of one artifact in the cache.

    Args:
        cluster: The address of the cluster.
        artifact_id: The artifact.
        environ: For the folder and its size.
    """

    def __init__(self, cluster: str, artifact_id: int, environ: Mapping[str, str] = os.environ) -> None:
        self._root = cache_root(environ)
        self._keep = _bytes_to_keep(environ)
        place = hashlib.sha256(cluster.encode()).hexdigest()[:16]
        self._folder = None if self._root is None else self._root / place / str(int(artifact_id))

    def copy(self, digest: str, writer: HashingWriter) -> bool:
        """Copy a file into a writer, if it is here; what was damaged meanwhile goes, and counts as absent."""
        path = self._path(digest)
        if path is None:
            return False
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    writer.write(chunk)
        except OSError:
            return False
        if writer.digest != digest:
            with suppress(OSError):
                path.unlink()
            return False
        with suppress(OSError):
            os.utime(path)
        return True

    def keep(self, digest: str, source: Path) -> None:
        """Keep a copy of a verified file; without room, or with a size of 0, nothing happens."""
        path = self._path(digest)
        if path is None or path.exists():
            return
        new = path.with_name(f".{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with source.open("rb") as file, new.open("xb") as target:
                while chunk := file.read(_CHUNK):
                    target.write(chunk)
            new.chmod(0o400)
            new.replace(path)
        except OSError:
            with suppress(OSError):
                new.unlink()

    def trim(self) -> None:
        """Remove what was not used for longest, until the rest is no more than is kept."""
        if self._root is None:
            return
        found = []
        with suppress(OSError):
            for path in self._root.rglob("*"):
                with suppress(OSError):
                    status = path.lstat()
                    if path.is_file() and not path.is_symlink():
                        found.append((status.st_mtime, status.st_size, path))
        used = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if used <= self._keep:
                return
            with suppress(OSError):
                path.unlink()
            used -= size

    def _path(self, digest: str) -> Path | None:
        digits = digest.removeprefix("sha256:")
        if self._folder is None or len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
            return None
        return self._folder / digits[:2] / digits


def cache_root(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of the cache, made if it is missing; None: there is none to be had, or it is turned off."""
    if _bytes_to_keep(environ) <= 0:
        return None
    named = environ.get(FOLDER_VARIABLE)
    try:
        if named:
            root = Path(named)
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            return OwnFolders(root).make(f"artifacts-{os.geteuid()}")
        if _has_own_home(environ):
            root = user_cache_path("detlab") / "artifacts"
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            return root
        return OwnFolders(Path(tempfile.gettempdir())).make(f"detlab-artifacts-{os.geteuid()}")
    except (OSError, StorageError):
        return None


def _has_own_home(environ: Mapping[str, str]) -> bool:
    """Whether the home folder outlives this process: that of a task may be the task's own."""
    home, task = environ.get("HOME", ""), environ.get("DET_TASK_DIR", "")
    if not home or not Path(home).is_dir() or not os.access(home, os.W_OK):
        return False
    return not task or not Path(home).resolve().is_relative_to(Path(task).resolve())


def _bytes_to_keep(environ: Mapping[str, str]) -> float:
    try:
        return float(environ.get(SIZE_VARIABLE, KEEP_GB)) * 1e9
    except ValueError:
        return KEEP_GB * 1e9
