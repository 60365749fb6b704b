"""Make a task's directory, and unpack an untrusted code bundle into it as root.

Only regular files and directories, only below the target, only so many and so large. Everything else is an error,
not skipped: a bundle that our client made has none of it. (Python's own `tarfile` filters were escaped more than
once, CVE-2024-12718; here no link is ever made, so that there is nothing to escape through.)
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detlab.files import write_atomic
from detlab.launch.archives import ArchiveLimits, UnsafeBundle, is_executable, members, open_bundle, safe_path
from detlab.launch.taskdir import TaskDir, write_json

__all__ = ["ArchiveLimits", "TaskDirectory", "UnsafeBundle", "lay_out", "safe_path", "unpack"]

_COPY = 1 << 20


@dataclass(frozen=True)
class TaskDirectory:
    """What a task's directory holds beside its code.

    Attributes:
        launch: The Launch message as JSON, without its secrets.
        token: The task token.
        files: Further files of the directory itself, by name.
    """

    launch: Mapping[str, Any]
    token: str = field(repr=False)
    files: Mapping[str, str] = field(default_factory=dict)


def lay_out(task: TaskDir, contents: TaskDirectory, archive: Path | None) -> None:
    """Make a task's directory, in which its launcher can start.

    Args:
        task: The directory, which does not exist yet.
        contents: Its contents.
        archive: The code; None for a task without code.

    Raises:
        UnsafeBundle: See `unpack`.
        OSError: The disk is full or failing.
    """
    task.root.mkdir(mode=0o700)
    for directory in (task.work, task.home, task.tmp, task.spool):
        directory.mkdir(mode=0o700)
    if archive is not None:
        unpack(archive, task.work)
    write_json(task.info, contents.launch["info"])
    write_atomic(task.token, contents.token.encode())
    for name, text in contents.files.items():
        write_atomic(task.root / name, text.encode())
    write_json(task.launch, contents.launch)
    task.launcher_log.touch(mode=0o600)


def unpack(archive: Path, target: Path, limits: ArchiveLimits | None = None) -> int:
    """Unpack a tar.gz into the empty directory `target`; return how many files were written.

    Args:
        archive: The bundle.
        target: An existing directory that no other user can write to.
        limits: Caps.

    Raises:
        UnsafeBundle: The bundle is damaged or unsafe; the caller has to remove what was unpacked so far.
        OSError: The disk is full or failing.
    """
    files, limits = 0, limits or ArchiveLimits()
    try:
        with open_bundle(archive, limits) as tar:
            for member, relative in members(tar, limits):
                path = target / relative
                if member.isdir():
                    path.mkdir(mode=0o755, parents=True, exist_ok=True)
                    continue
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                _write_file(tar, member, path)
                files += 1
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise UnsafeBundle(f"{error.filename!r} is both a file and something else") from error
    return files


def _write_file(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise UnsafeBundle(f"{member.name!r} has no content")
    mode = 0o755 if is_executable(member) else 0o644
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, mode)
    except (FileExistsError, IsADirectoryError) as error:
        raise UnsafeBundle(f"{member.name!r} is in the bundle twice") from error
    with os.fdopen(descriptor, "wb") as file:
        left = member.size
        while left > 0:
            piece = source.read(min(left, _COPY))
            if not piece:
                raise UnsafeBundle(f"{member.name!r} ends early")
            file.write(piece)
            left -= len(piece)
