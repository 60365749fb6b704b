"""Uniting what several ranks put into one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from detlab.errors import CheckpointError
from detlab.schemas.wire import CheckpointFile
from detlab.storage import ManifestPart


class ShardConflict(CheckpointError, RuntimeError):
    """Ranks disagree about a file or a metadata value of one checkpoint.

    Attributes:
        conflicts: File path, or metadata key path joined by `/`, to the ranks that gave it.
    """

    default_code = "checkpoint.conflict"

    def __init__(self, what: str, conflicts: Mapping[str, list[int]]) -> None:
        lines = [f"  {name}: ranks {', '.join(map(str, ranks))}" for name, ranks in sorted(conflicts.items())]
        super().__init__("\n".join([f"refusing to store a checkpoint with conflicting {what}:", *lines]))
        self.conflicts = dict(conflicts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.message, self.conflicts)


def _rebuild(message: str, conflicts: dict[str, list[int]]) -> ShardConflict:
    error = ShardConflict("entries", conflicts)
    error.message = message
    error.args = (message,)
    return error


def shared_files(names: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """Return the files that several ranks give, with those ranks; they must be equal.

    Args:
        names: Relative POSIX paths of the files of each rank, by rank.

    Raises:
        ShardConflict: One rank's file is another's folder; lists each such path with its ranks.
    """
    givers: dict[str, list[int]] = {}
    folders: dict[str, set[int]] = {}
    for rank, paths in enumerate(names):
        for path in paths:
            givers.setdefault(path, []).append(rank)
            for parent in PurePosixPath(path).parents:
                folders.setdefault(str(parent), set()).add(rank)
    mixed = {path: sorted({*givers[path], *folders[path]}) for path in givers.keys() & folders.keys()}
    if mixed:
        raise ShardConflict("files", mixed)
    return {path: ranks for path, ranks in givers.items() if len(ranks) > 1}


def join_parts(parts: Sequence[ManifestPart | None]) -> ManifestPart:
    """Join the ranks' parts of a manifest; a file that several ranks give must have the same digest in all of them.

    Args:
        parts: One per rank; None counts as empty.

    Raises:
        ShardConflict: Two ranks gave different files of one path; lists each such path with its ranks.
    """
    files: dict[str, CheckpointFile] = {}
    givers: dict[str, list[int]] = {}
    conflicts: dict[str, list[int]] = {}
    directories: set[str] = set()
    for rank, part in enumerate(parts):
        for path, entry in (part.files if part else {}).items():
            givers.setdefault(path, []).append(rank)
            if files.setdefault(path, entry).digest != entry.digest:
                conflicts[path] = givers[path]
        directories.update(part.directories if part else ())
    if conflicts:
        raise ShardConflict("files", conflicts)
    filled = {str(folder) for path in files for folder in PurePosixPath(path).parents}
    return ManifestPart(files, tuple(sorted(directories - filled)))


def merge_metadata(parts: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Unite the metadata of all ranks: dicts merge, equal values are one.

    Args:
        parts: One per rank; None counts as empty.

    Raises:
        ShardConflict: Two ranks gave different values under one key; lists each key with its ranks.
    """
    merged: dict[str, Any] = {}
    merger = _Merger()
    for rank, part in enumerate(parts):
        merger.add(merged, part or {}, rank)
    if merger.conflicts:
        raise ShardConflict("metadata", merger.conflicts)
    return merged


class _Merger:
    """Merges dicts and remembers who gave which key path."""

    def __init__(self) -> None:
        self._givers: dict[str, list[int]] = {}
        self.conflicts: dict[str, list[int]] = {}

    def add(self, merged: dict[str, Any], part: Mapping[str, Any], rank: int, prefix: str = "") -> None:
        for key, value in part.items():
            path = f"{prefix}{key}"
            before = list(self._givers.setdefault(path, []))
            self._givers[path].append(rank)
            nested = isinstance(value, Mapping)
            if key not in merged:
                merged[key] = {} if nested else value
            elif nested != isinstance(merged[key], dict) or (not nested and merged[key] != value):
                self.conflicts.setdefault(path, before).append(rank)
                continue
            if nested:
                self.add(merged[key], value, rank, f"{path}/")
