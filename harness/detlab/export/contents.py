"""The files of a version as they lie in a folder: measured once, for all exports."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from detlab.errors import CheckpointError, DetlabError
from detlab.schemas.wire import CheckpointFile
from detlab.schemas.wire.registry import VersionView
from detlab.storage import MANIFEST_NAME, METADATA_NAME
from detlab.storage.files import describe, walk
from detlab.storage.formats import Format, format_of

_OURS = frozenset({MANIFEST_NAME, METADATA_NAME})
"""What a storage keeps beside the files of a checkpoint."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """The files of a version.

    Attributes:
        folder: Where they are.
        files: By relative POSIX path.
        formats: By the same path.
    """

    folder: Path
    files: Mapping[str, CheckpointFile]
    formats: Mapping[str, Format]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())


def contents_of(folder: Path) -> Contents:
    """Measure the files in a folder: size, SHA-256 digest, and format by their bytes.

    Raises:
        CheckpointError: The folder is missing, empty, or has a link or a special file in it.
        OSError: A file cannot be read.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder", hint="Download the version first: det model download")
    names = [name for name in walk(folder).files if name not in _OURS]
    if not names:
        raise CheckpointError(f"{folder} holds no files: there is nothing to export")
    return Contents(
        folder=folder,
        files={name: describe(folder / name) for name in names},
        formats={name: format_of(folder / name) for name in names},
    )


def title(version: VersionView) -> str:
    """Return what a version is called: `digits version 3`."""
    return f"{version.model} version {version.version}"


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder beside `target` that becomes `target` when the block ends well, and is removed otherwise.

    Raises:
        DetlabError: Something is there already, or the folder above cannot be written.
    """
    if os.path.lexists(target):
        raise DetlabError(f"{target} exists already", hint="Name a folder that does not exist yet, or remove this one.")
    stage = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}.unfinished"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        stage.mkdir()
    except OSError as error:
        raise DetlabError(f"{target} cannot be made: {error.strerror or error}") from error
    try:
        yield stage
        stage.rename(target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
