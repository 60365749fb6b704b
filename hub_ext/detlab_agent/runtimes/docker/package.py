"""The copy of detlab that containers get: it stays as it was while the agent's own is upgraded under their tasks."""

from __future__ import annotations

import hashlib
import shutil
import threading
from pathlib import Path

import detlab

_lock = threading.Lock()


def container_package(directory: Path) -> Path:
    """Return a read-only copy of the running detlab package below `directory`, made if there is none.

    Raises:
        OSError: The disk is full or failing.
    """
    source = Path(detlab.__file__).resolve().parent
    with _lock:  # tasks are started in threads, several at once
        found = directory / f"{detlab.__version__}-{_digest(source)}"
        if not found.is_dir():
            _copy(source, found)
    return found


def _copy(source: Path, target: Path) -> None:
    partial = target.with_name(".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a life that ended meanwhile
    target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    # With what is compiled already: inside it is read-only. Files that a compiler is just writing are left out.
    shutil.copytree(source, partial, ignore=shutil.ignore_patterns("*.pyc.*"))
    for path in (partial, *partial.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    partial.rename(target)


def _digest(source: Path) -> str:
    """Return what changes when a module does."""
    checksum = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        info = path.stat()
        checksum.update(f"{path.relative_to(source)} {info.st_size} {info.st_mtime_ns}\n".encode())
    return checksum.hexdigest()[:16]
