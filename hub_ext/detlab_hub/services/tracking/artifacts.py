"""Files of runs and of the models that they log, in the master's own directory: uploaded, listed, sent, removed.

They lie by run, whoever else has the same bytes, and count towards the storage quotas of the run's owner. Nothing that
a user names is opened: only paths that are in the database, below a folder to which the master alone writes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from sqlalchemy.orm import Session

from detlab.errors import CheckpointError, NotFound
from detlab.files import sync_directory
from detlab_hub.core.rights import Action
from detlab_hub.services.admission import storage_quotas, upload_limits
from detlab_hub.services.base.access import no_such, owns
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.threads import user_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.archives import ArchiveContents
from detlab_hub.services.checkpoints.artifact_files import file_path, make_private
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.checkpoints.manifests import check_path
from detlab_hub.services.tracking.access import TrackedRun, Tracker, run_for, task_may_not
from detlab_hub.services.tracking.experiments import BadRequest
from detlab_hub.services.tracking.models import READY, model_for
from detlab_hub.services.tracking.runs import writable
from detlab_hub.store.queries.tracking import runs
from detlab_hub.store.tables import ExperimentRow, TrackedFileRow

_log = logging.getLogger(__name__)
MOST_FILES = 20_000
"""Of one run with its models."""
MOST_LISTED = 10_000
PART_CHARS, MOST_PARTS = 200, 30
"""Characters of a name in a path, and names."""
_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class FileFacts:
    """A file or a folder of a run."""

    path: str
    size: int | None
    """None: it is a folder."""


class RootKind(StrEnum):
    """What files are below."""

    RUN = "run"
    MODEL = "logged model"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class ArtifactPlace:
    """Where a path of a client leads to.

    Attributes:
        root: A run, a logged model, or a checkpoint.
        kind: Which of them.
        path: Below it; empty: itself.
    """

    root: str
    kind: RootKind
    path: str

    @property
    def is_model(self) -> bool:
        """Whether it is below a logged model."""
        return self.kind is RootKind.MODEL


class RunArtifacts(Service):
    """Use cases of the files of runs."""

    def __init__(self, context: ServiceContext, checkpoints: Checkpoints) -> None:
        super().__init__(context)
        self._checkpoints = checkpoints
        # Storing a file and removing a folder must not interleave.
        self._moving = asyncio.Lock()

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Checkpoints])

    async def put(self, caller: Tracker, place: ArtifactPlace, upload: Path) -> None:
        """Keep an uploaded file; one of the same path is replaced. The upload is moved away or removed.

        Raises:
            BadRequest: The path cannot be one, or a file is where it needs a folder.
            Forbidden: The caller may not log into the run.
            NotFound: There is no such run or model for the caller.
            StorageFull: A quota of its owner is used up.
            TooFast: Its owner has uploaded too much today.
        """
        settings, workers = self._context.settings, self._context.workers
        run = partial(workers.uploads.run, user_of(caller))
        try:
            _check_path(place.path)
            size = (await run(upload.stat)).st_size
            owner, groups = await self._context.read(lambda s: _owner(s, caller, place))
            await storage_quotas.check_room(self._context, owner, groups, size)
            await upload_limits.count(self._context, owner, groups, size)
            digest = await run(_digest_of, upload)
            async with self._moving:
                await self._context.write(lambda unit: _note(unit, caller, place, size, digest))
                target = file_path(settings, place.root, place.path)
                await workers.moves.run(user_of(caller), _move, upload, target)
        finally:
            await asyncio.to_thread(upload.unlink, missing_ok=True)

    async def list(self, caller: Tracker, place: ArtifactPlace) -> Sequence[FileFacts]:
        """Return the files and folders in a folder; none if there is no such folder.

        Raises:
            NotFound: There is no such run or model for the caller.
        """

        if place.kind is RootKind.CHECKPOINT:
            files = (await self._checkpoints.get(_person(caller), place.root)).files
            return _in_folder(place.path, [(path, files[path].size) for path in sorted(files)])

        def look(s: Session) -> Sequence[FileFacts]:
            _found(s, caller, place)
            rows = runs.files_under(s, place.root, place.path, MOST_LISTED)
            return _in_folder(place.path, [(row.path, row.size) for row in rows])

        return await self._context.read(look)

    async def open_committed(self, caller: Tracker, place: ArtifactPlace) -> ArchiveContents:
        """Open a file of a checkpoint.

        Raises:
            Forbidden: The caller is a trial, which has the task API for that.
            NotFound: There is no such checkpoint or file for the caller.
        """
        person = _person(caller)
        entry = (await self._checkpoints.get(person, place.root)).files.get(place.path)
        if entry is None:
            raise _no_file(place)
        return await self._checkpoints.open_file(person, place.root, entry.digest)

    async def open(self, caller: Tracker, place: ArtifactPlace) -> tuple[BinaryIO, int]:
        """Open a file; return it with its size in bytes.

        Raises:
            NotFound: There is no such run, model or file for the caller.
        """

        def find(s: Session) -> int:
            _found(s, caller, place)
            row = runs.file_at(s, place.root, place.path)
            if row is None:
                raise _no_file(place)
            return row.size

        size = await self._context.read(find)
        path = file_path(self._context.settings, place.root, place.path)
        try:
            return await self._context.workers.downloads.run(user_of(caller), path.open, "rb"), size
        except FileNotFoundError as error:  # removed just now
            raise _no_file(place) from error

    async def delete(self, caller: Tracker, place: ArtifactPlace) -> None:
        """Remove a file or a folder; nothing happens if it is not there.

        Raises:
            BadRequest: It is that of a model that is complete, which versions may be of.
            Forbidden: The caller may not log into the run.
            NotFound: There is no such run or model for the caller.
        """

        def remove(unit: UnitOfWork) -> list[str]:
            _found(unit.session, caller, place, Action.RUN_LOG)
            if place.is_model and model_for(unit.session, caller, place.root)[0].status == READY:
                raise BadRequest(f"model {place.root} is complete: its files stay as they are")
            rows = runs.files_under(unit.session, place.root, place.path, MOST_FILES)
            if place.path and (one := runs.file_at(unit.session, place.root, place.path)) is not None:
                rows = [*rows, one]
            for row in rows:
                unit.session.delete(row)
            return [row.path for row in rows]

        async with self._moving:
            gone = await self._context.write(remove)
            for path in gone:
                file = file_path(self._context.settings, place.root, path)
                await self._context.workers.moves.run(user_of(caller), _remove, file)


def _person(caller: Tracker) -> Caller:
    if not isinstance(caller, Caller):
        raise task_may_not("read checkpoints by this protocol")
    return caller


def _in_folder(folder: str, files: Sequence[tuple[str, int]]) -> list[FileFacts]:
    """Return the files and folders that are in a folder, of the paths and sizes of files."""
    found: dict[str, FileFacts] = {}
    before = f"{folder}/" if folder else ""
    for path, size in files:
        if path.startswith(before):
            first, slash, _ = path.removeprefix(before).partition("/")
            found.setdefault(f"{before}{first}", FileFacts(f"{before}{first}", None if slash else size))
    return list(found.values())


def _found(s: Session, caller: Tracker, place: ArtifactPlace, action: Action | None = None) -> TrackedRun:
    if place.kind is RootKind.CHECKPOINT:
        raise BadRequest("the files of a checkpoint stay as they are")
    if not place.is_model:
        return run_for(s, caller, place.root, action)
    row, _ = model_for(s, caller, place.root, action)
    return run_for(s, caller, row.run_id, action)


def _owner(s: Session, caller: Tracker, place: ArtifactPlace) -> tuple[str, Sequence[str]]:
    """Return whose quotas a file counts towards, with their groups."""
    found = _found(s, caller, place, Action.RUN_LOG)
    if isinstance(caller, Caller) and found.experiment is None:
        return found.owner, sorted(caller.groups) if owns(caller, found.owner) else []
    experiment = found.experiment
    assert isinstance(experiment, ExperimentRow)
    return experiment.owner, experiment.owner_groups


def _note(unit: UnitOfWork, caller: Tracker, place: ArtifactPlace, size: int, digest: str) -> None:
    s = unit.session
    found = _found(s, caller, place, Action.RUN_LOG)
    row = found.row if found.row is not None else writable(unit, caller, found.id)
    if place.is_model and model_for(s, caller, place.root)[0].status == READY:
        raise BadRequest(f"model {place.root} is complete: its files stay as they are")
    above = [str(one) for one in PurePosixPath(place.path).parents if str(one) != "."]
    if blocked := runs.files_at_any(s, place.root, above):
        raise BadRequest(f"{blocked[0][:80]!r} is a file, below which there can be none")
    known = runs.file_at(s, place.root, place.path)
    if known is None and runs.files_under(s, place.root, place.path, 1):
        raise BadRequest(f"{place.path[:80]!r} is a folder")
    if known is None and runs.count_files(s, row.id) >= MOST_FILES:
        raise BadRequest(f"run {row.id} has {MOST_FILES:,} files already", hint="Put many small ones into an archive.")
    if known is None:
        known = TrackedFileRow(root=place.root, path=place.path, run_id=row.id)
        s.add(known)
    known.size, known.digest, known.updated_at = size, digest, unit.now


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    try:
        check_path(path)
    except CheckpointError as error:
        raise BadRequest(f"{path[:80]!r} cannot be the path of a file: it is relative, without `..`") from error
    if len(parts) > MOST_PARTS or any(len(part.encode()) > PART_CHARS for part in parts) or not path.isprintable():
        raise BadRequest(
            f"{path[:80]!r} cannot be the path of a file: at most {MOST_PARTS} names"
            f" of {PART_CHARS} bytes, all printable"
        )


def _no_file(place: ArtifactPlace) -> NotFound:
    return no_such(f"{place.kind} {place.root} has no file {place.path[:200]!r}", exists=False)


def _digest_of(upload: Path) -> str:
    found = hashlib.sha256()
    with upload.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
        os.fsync(file.fileno())
    return f"sha256:{found.hexdigest()}"


def _move(upload: Path, target: Path) -> None:
    make_private(target.parent)
    upload.replace(target)
    sync_directory(target.parent)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
    except OSError as error:
        _log.debug("%s stays: %s", path, error.strerror)
