"""Downloading a checkpoint: every file verified by its digest, the folder complete or absent.

Files are requested by digest, never by path. They are written to a hidden folder beside the target, which is renamed at
the end; a broken download leaves nothing under the target's name, and what of it was verified is kept in a hidden
folder for the next attempt. What was downloaded to a name of the user's choice is
noted in a hidden file beside it, so that the next download of a script may replace it while nobody has changed it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO, Literal, TypeAlias
from urllib.parse import quote

from detlab.client.transport.calls import Call, Flow, Progress
from detlab.client.transport.direct import fetch_direct, remote_store
from detlab.errors import CheckpointError, StorageError
from detlab.files import write_atomic
from detlab.schemas.wire import CheckpointFile, CheckpointView
from detlab.storage import StorageManager, from_config
from detlab.storage.posix import PosixStorage


class DownloadMode(StrEnum):
    """Where the files of a checkpoint come from."""

    DIRECT = "direct"
    MASTER = "master"
    TASK = "task"
    AUTO = "auto"


_WILD = re.compile(r"(\*\*/|\*\*|\*|\?)")
_MEANS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

AnyMode: TypeAlias = DownloadMode | Literal["auto", "direct", "master", "task"]


class HashingWriter:
    """Writes bytes to a file and keeps their SHA-256."""

    def __init__(self, file: BinaryIO, told: Callable[[int], None]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._told = told

    def write(self, data: bytes, /) -> int:
        """Write the next bytes."""
        self._hash.update(data)
        self._told(len(data))
        return self._file.write(data)

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of what was written."""
        return f"sha256:{self._hash.hexdigest()}"


def checked_path(path: str) -> PurePosixPath:
    """Return a manifest's path if it stays inside its folder.

    Raises:
        CheckpointError: It is absolute, climbs, or holds characters that no checkpoint has.
    """
    pure = PurePosixPath(path)
    parts = path.split("/")
    if not path or pure.is_absolute() or "\\" in path or "\0" in path or any(p in {"", ".", ".."} for p in parts):
        raise CheckpointError(f"the checkpoint names a file outside of itself: {path!r}")
    return pure


@dataclass
class Assembly:
    """A checkpoint's folder in the making; use as a context manager and call `commit` last.

    Attributes:
        view: The checkpoint.
        target: The folder's final path.
        progress: Called with (bytes done, bytes in all).
        replaces: Whether the target is an earlier download that may be replaced.
        what: What it is, for errors; empty: the checkpoint.
    """

    view: CheckpointView
    target: Path
    progress: Progress | None = None
    replaces: bool = False
    what: str = ""
    done: int = 0
    _written: dict[str, str] = field(default_factory=dict)
    _verified: bool = False

    def __post_init__(self) -> None:
        self.target = self.target.absolute()
        short = self.target.name.encode()[:150].decode(errors="ignore")  # a name has 255 bytes at most
        self.work = self.target.with_name(f".{short}.{uuid.uuid4().hex[:8]}.partial")
        self._kept = self.target.with_name(f".{short}.{self.view.uuid[:36]}.resume")
        self.total = sum(file.size for file in self.view.files.values())
        for path in self.view.files:
            checked_path(path)

    def __enter__(self) -> Assembly:
        self.work.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._kept.rename(self.work)  # nobody else can go on with it now
        except OSError:
            self.work.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._verified and error is not None and not isinstance(error, CheckpointError):
            with suppress(OSError):  # another attempt has left something there
                self.work.rename(self._kept)
        shutil.rmtree(self.work, ignore_errors=True)

    def has(self, path: str, file: CheckpointFile) -> bool:
        """Whether an interrupted attempt has left this file, whole."""
        place = self.work / path
        if place.is_symlink() or not place.is_file() or file_digest(place) != file.digest:
            return False
        self._written[path] = file.digest
        self._advance(file.size)
        return True

    def right(self, path: str, digest: str) -> bool:
        """Whether a file was written, and has this digest."""
        return self._written.get(path) == digest

    def fetch_all(self, store: StorageManager) -> None:
        """Have the store write and verify all files."""
        self._verified = True  # a store leaves whole files under their names, others under another
        fetch_direct(store, self.view, self.work, self.progress)
        self._written = {path: file.digest for path, file in self.view.files.items()}

    def wanted(self) -> Iterator[tuple[str, CheckpointFile]]:
        """Yield each (path, file), in the order of paths."""
        yield from sorted(self.view.files.items())

    @contextmanager
    def writing(self, path: str) -> Iterator[HashingWriter]:
        """Open the file of a path, empty: each attempt starts over."""
        place = self.work / checked_path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        before = self.done
        with place.open("wb") as file:
            writer = HashingWriter(file, self._advance)
            try:
                yield writer
            except BaseException:
                self.done = before
                raise
            file.flush()
            os.fsync(file.fileno())
        self._written[path] = writer.digest

    def _advance(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total)

    def verify(self, path: str, file: CheckpointFile) -> None:
        """Check a file that was written and give it its mode.

        Raises:
            CheckpointError: The bytes are not those of the manifest.
        """
        if self._written.get(path) != file.digest:
            other = f"Take another checkpoint of the trial: det trial describe {self.view.trial_id}"
            raise CheckpointError(
                f"{path!r} of {self.what or f'checkpoint {self.view.uuid}'} was altered or damaged: its digest is "
                f"{self._written.get(path)}, the manifest says {file.digest}",
                hint="" if self.what else other,
            )
        (self.work / path).chmod(0o755 if file.mode & 0o100 else 0o644)
        self._verified = True

    def commit(self) -> None:
        """Rename the complete folder to its final name.

        Raises:
            StorageError: Something else has taken that name in the meantime.
        """
        old = self.work.with_suffix(".old")
        try:
            if self.replaces:
                self.target.rename(old)
            elif self.target.is_dir() and not any(self.target.iterdir()):
                self.target.rmdir()
            self.work.rename(self.target)
        except OSError as error:
            if old.exists():
                old.rename(self.target)
            raise _taken(self.target) from error
        shutil.rmtree(old, ignore_errors=True)
        self._note()

    def _note(self) -> None:
        """Note what the folder holds, unless its name says so already."""
        if self.target.name == self.view.uuid:
            return
        found = {path: file.digest for path, file in self.view.files.items()}
        with suppress(OSError):  # then the next download there is refused
            write_atomic(_note_of(self.target), json.dumps({"uuid": self.view.uuid, "files": found}).encode())


def _taken(target: Path) -> StorageError:
    return StorageError(
        f"{target} exists and is neither this checkpoint nor an unchanged download of another",
        hint="Name another folder, or remove that one first",
    )


def complete(view: CheckpointView, target: Path) -> bool:
    """Tell whether a folder holds the checkpoint already, every file verified and nothing else."""
    return _holds(target, {path: file.digest for path, file in view.files.items()})


def _holds(target: Path, digests: Mapping[str, object]) -> bool:
    if target.is_symlink() or not target.is_dir():
        return False
    here = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_symlink() or not path.is_dir()}
    return here == set(digests) and all(file_digest(target / path) == found for path, found in digests.items())


def _note_of(target: Path) -> Path:
    return target.absolute().with_name(f".{target.name}.detlab")


def replaceable(target: Path) -> bool:
    """Tell whether a folder is what an earlier download left there, unchanged since."""
    try:
        noted = json.loads(_note_of(target).read_text(encoding="utf-8"))["files"]
        return isinstance(noted, dict) and _holds(target, noted)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def file_digest(path: Path) -> str:
    """Return `sha256:<hex>` of a file."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def local_folder(view: CheckpointView) -> Path | None:
    """Return the folder on this machine that the checkpoint's storage names, if it is there and readable."""
    try:
        store = from_config(view.storage)
    except StorageError:
        return None
    if not isinstance(store, PosixStorage):
        return None
    folder = store.root / view.uuid
    return folder if os.access(folder, os.R_OK | os.X_OK) and folder.is_dir() else None


def selected(view: CheckpointView, globs: Sequence[str]) -> CheckpointView:
    """Return the view with those files only that match a pattern; all if there is none.

    Args:
        view: The checkpoint.
        globs: `*` and `?` match within a folder, `**` matches folders, too; a pattern that ends in `/` is a folder.

    Raises:
        CheckpointError: No file matches.
    """
    if not globs:
        return view
    files = {path: file for path, file in view.files.items() if any(matches(path, glob) for glob in globs)}
    if not files:
        some = ", ".join(sorted(view.files)[:5])
        raise CheckpointError(
            f"checkpoint {view.uuid} has no file that matches {' or '.join(map(repr, globs))}",
            hint=f"It has {len(view.files)}: {some}{', …' if len(view.files) > 5 else ''}",
        )
    return view.model_copy(update={"files": files})


def matches(path: str, glob: str) -> bool:
    """Whether a relative path matches a pattern, as `det checkpoint rm` reads it; see `selected`."""
    whole = f"{glob}**" if glob.endswith("/") else glob
    pattern = "".join(_MEANS.get(part, re.escape(part)) for part in _WILD.split(whole))
    return re.fullmatch(pattern, path, re.DOTALL) is not None


def download(
    view: CheckpointView,
    target: Path,
    mode: AnyMode = "auto",
    progress: Progress | None = None,
    globs: Sequence[str] = (),
    *,
    cached: bool = False,
    task: str = "",
) -> Flow[Path]:
    """Download a checkpoint to a folder and return that folder.

    Args:
        view: The checkpoint.
        target: Folder to create. If it already holds the checkpoint, nothing is transferred; the unchanged result of
            an earlier download is replaced.
        mode: `direct` copies from the storage, which must be mounted here, or an object store that this machine has
            credentials for; `master` downloads through the master; `task` takes what a task has handed over; `auto`
            copies if it can.
        progress: Called with (bytes done, bytes in all).
        globs: Patterns of the files to take; all if there is none.
        cached: The target is a folder of a cache, of which anything may be replaced; `globs` are paths.
        task: The task that has handed the files over, for the mode `task`.

    Raises:
        ValueError: There is no such mode.
        StorageError: Something else is at `target`, or the storage cannot be read from here.
        CheckpointError: A file is damaged.
    """
    view = chosen(view, globs, cached=cached)
    source = check_mode(mode)
    if complete(view, target):
        return target
    taken = target.exists() and not (target.is_dir() and not any(target.iterdir()))
    if taken and not (cached or replaceable(target)):
        raise _taken(target)
    folder, store = source_of(view, source)
    with Assembly(view, target, progress, replaces=taken) as assembly:
        if store is not None:
            assembly.fetch_all(store)
        for path, file in assembly.wanted():
            if store is None and not assembly.has(path, file):
                if folder is not None:
                    _copy(folder / path, assembly, path)
                else:
                    yield _file_call(view, assembly, path, file, task)
            assembly.verify(path, file)
        assembly.commit()
    return target


def check_mode(mode: AnyMode) -> AnyMode:
    """Return a mode that there is.

    Raises:
        ValueError: There is no such mode.
    """
    if mode not in set(DownloadMode):
        raise ValueError(f"the mode is one of auto, direct, master and task, not {mode!r}")
    return mode


def chosen(view: CheckpointView, globs: Sequence[str], *, cached: bool) -> CheckpointView:
    """Return the view with the files that a download takes; of a cache's, `globs` are paths."""
    if cached:
        return view.model_copy(update={"files": {path: view.files[path] for path in globs}})
    return selected(view, globs)


def source_of(view: CheckpointView, mode: AnyMode) -> tuple[Path | None, StorageManager | None]:
    """Return the folder, or else the store, to take the files from; neither: through the master.

    Raises:
        StorageError: The mode is `direct`, and neither can be read from here.
    """
    if mode in {"master", "task"}:
        return None, None
    folder = local_folder(view)
    if folder is not None:
        return folder, None
    asked = mode == "direct"
    through = "Download it through the master: --mode master"
    try:
        store = remote_store(view, asked=asked)
    except CheckpointError:
        raise
    except StorageError as error:
        raise StorageError(
            f"the storage of checkpoint {view.uuid} is not readable on this machine: {error.message}", hint=through
        ) from error
    if asked and store is None:
        raise StorageError(f"the storage of checkpoint {view.uuid} is not readable on this machine", hint=through)
    return None, store


def _file_call(view: CheckpointView, assembly: Assembly, path: str, file: CheckpointFile, task: str) -> Call:
    of = f"tasks/{quote(task, safe='')}/outputs" if task else f"checkpoints/{quote(view.uuid, safe='')}/files"
    address = f"{of}/{quote(file.digest, safe=':')}"
    return Call("GET", address, sink=lambda: assembly.writing(path))


def _copy(source: Path, assembly: Assembly, path: str) -> None:
    try:
        with source.open("rb") as file, assembly.writing(path) as writer:
            while chunk := file.read(1024 * 1024):
                writer.write(chunk)
    except OSError as error:
        raise StorageError(f"{source} cannot be read: {error.strerror or error}") from error
