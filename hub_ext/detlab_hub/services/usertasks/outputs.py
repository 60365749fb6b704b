"""Output files of user tasks (an executed notebook, the variables of a cell): bytes by digest, names by task.

The bytes outlive the node they came from. Replaced bytes that no other name refers to are removed. The bytes that a
user task may hold at a time are limited by a quota that an operator sets.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import unicodedata
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detlab.errors import BundleTooLarge, Conflict, DetlabError, NotFound
from detlab.files import sync_directory
from detlab.schemas.taskwire import OutputList, OutputView
from detlab_hub.services.admission import upload_limits
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.fencing import current_holder
from detlab_hub.services.base.settings import MIB, Settings
from detlab_hub.services.base.threads import user_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.usertasks.usertasks import owned_task
from detlab_hub.store.tables import OutputRow, TaskRow

_log = logging.getLogger(__name__)
MOST_FILES = 500
"""Files of one task."""
MOST_NAME = 200
"""Bytes of a file's name."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_CHUNK = 1024 * 1024
DIGESTS_PER_STEP = 200
"""Of a removal: uploads wait meanwhile."""


class OutputsTooLarge(BundleTooLarge):
    """A task hands over more than its quota."""

    default_code = "outputs.too_large"


class OutputName(DetlabError):
    """A name that no file can have."""

    default_code = "outputs.name"


class Outputs(Service):
    """Take and give the files of user tasks."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        # Storing a digest and removing an unreferenced one must not interleave.
        self._moving = asyncio.Lock()

    async def put(self, task: TaskCaller, name: str, upload: Path) -> OutputView:
        """Keep an uploaded file; one of the same name is replaced. The upload is moved away or removed.

        Args:
            task: Who hands it over.
            name: The file's name.
            upload: The uploaded file, on the same file system as the outputs directory.

        Raises:
            OutputName: The name is not a valid file name.
            OutputsTooLarge: The task's quota is used up.
            Conflict: The task is a trial, whose files are checkpoints.
            StaleAttempt: The attempt is over.
            TooFast: Its owner has uploaded too much today.
        """
        settings = self._context.settings
        try:
            check_name(name)
            run = partial(self._context.workers.uploads.run, user_of(task))
            move = partial(self._context.workers.moves.run, user_of(task))
            size = (await run(upload.stat)).st_size
            owner, groups = await self._context.read(lambda s: _check_quota(s, _holder(s, task), name, size, settings))
            await upload_limits.count(self._context, owner, groups, size)
            digest = await run(_digest_of, upload)
            async with self._moving:
                await move(_move, upload, output_file(settings, digest))
                view, orphan = await self._context.write(lambda unit: _note(unit, task, name, size, digest))
                if orphan is not None:
                    await move(_remove, output_file(settings, orphan))
        finally:
            await asyncio.to_thread(upload.unlink, missing_ok=True)
        return view

    async def list(self, caller: Caller, task_id: str) -> OutputList:
        """Return the output files of a task so far, by name.

        Raises:
            NotFound: There is no such task for the caller.
        """

        def found(s: Session) -> OutputList:
            task = owned_task(s, caller, task_id)
            rows = s.scalars(select(OutputRow).where(OutputRow.task_id == task.id).order_by(OutputRow.name))
            return OutputList(items=[_view(row) for row in rows])

        return await self._context.read(found)

    async def open(self, caller: Caller, task_id: str, digest: str) -> tuple[BinaryIO, int]:
        """Open one file of a task for reading; return it with its size in bytes.

        Raises:
            NotFound: There is no such task for the caller, or it has no such file.
        """

        def find(s: Session) -> int:
            task = owned_task(s, caller, task_id)
            size = s.scalar(
                select(OutputRow.size).where(OutputRow.task_id == task.id, OutputRow.digest == digest).limit(1)
            )
            if size is None:
                raise _none(task_id, digest)
            return size

        size = await self._context.read(find)
        try:
            path = output_file(self._context.settings, digest)
            return await self._context.workers.downloads.run(caller.name, path.open, "rb"), size
        except FileNotFoundError as error:  # replaced just now
            raise _none(task_id, digest) from error

    async def remove_unnamed(self, digests: Sequence[str]) -> int:
        """Remove the bytes of those digests that no task names (any more); return how many."""
        removed = 0
        for start in range(0, len(digests), DIGESTS_PER_STEP):
            part = digests[start : start + DIGESTS_PER_STEP]
            async with self._moving:
                named = await self._context.read(partial(_named, digests=part))
                for digest in sorted(set(part) - named):
                    file = output_file(self._context.settings, digest)
                    removed += await self._context.workers.sweeps.run("", _remove, file)
        return removed


def output_file(settings: Settings, digest: str) -> Path:
    """Return the path of a file's bytes.

    Raises:
        NotFound: The digest is not valid.
    """
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise NotFound(f"{digest[:80]!r} is not of the form sha256:<64 hex digits>")
    name = found.group(1)
    return settings.outputs_dir / name[:2] / name


def check_name(name: str) -> None:
    """Check that a name is a plain file name on any system.

    Raises:
        OutputName: It is not.
    """
    hidden = any(unicodedata.category(letter)[0] == "C" for letter in name)
    too_long = len(name.encode(errors="replace")) > MOST_NAME
    if not name or hidden or too_long or name[0] in ". " or name[-1] in " ." or set(name) & set('/\\:*?"<>|'):
        raise OutputName(
            f"{name[:80]!r} cannot be the name of an output",
            hint=f'a plain file name of at most {MOST_NAME} bytes, without / \\ : * ? " < > |; no dot at its start',
        )


def _holder(s: Session, task: TaskCaller) -> TaskRow:
    _, holder = current_holder(s, task)
    if not isinstance(holder, TaskRow):
        raise Conflict("a trial uploads no outputs", hint="save a checkpoint: core.checkpoint.store_path()")
    return holder


def _check_quota(s: Session, holder: TaskRow, name: str, size: int, settings: Settings) -> tuple[str, Sequence[str]]:
    """Check that a file does not exceed a task's quota; return the task's owner, with their groups."""
    others = (OutputRow.task_id == holder.id, OutputRow.name != name)
    count, used = s.execute(select(func.count(), func.coalesce(func.sum(OutputRow.size), 0)).where(*others)).one()
    if used + size > settings.outputs_limit:
        raise OutputsTooLarge(
            f"{name} has {size / MIB:,.1f} MB and {holder.id} has uploaded {used / MIB:,.1f} MB before;"
            f" a task may hold {settings.outputs_limit / MIB:,.0f} MB",
            hint="upload less, or write large results to storage that your notebook reads, too;"
            " an operator raises DetHub.outputs_limit_mb",
        )
    if count >= MOST_FILES:
        raise OutputsTooLarge(
            f"{holder.id} has uploaded {count} files; a task may hold {MOST_FILES}", hint="put them into one archive"
        )
    return holder.owner, holder.owner_groups


def _note(unit: UnitOfWork, task: TaskCaller, name: str, size: int, digest: str) -> tuple[OutputView, str | None]:
    """Record the file; return it, and the digest that is not referenced any more."""
    holder = _holder(unit.session, task)
    _check_quota(unit.session, holder, name, size, unit.settings)
    row = unit.session.get(OutputRow, (holder.id, name))
    before = None
    if row is None:
        row = OutputRow(task_id=holder.id, name=name, digest=digest)
        unit.session.add(row)
    else:
        before = row.digest
    row.digest, row.size, row.updated_at = digest, size, unit.now
    unit.session.flush()
    used = before == digest or unit.session.scalar(select(OutputRow.name).where(OutputRow.digest == before).limit(1))
    return _view(row), None if used else before


def _none(task_id: str, digest: str) -> NotFound:
    return NotFound(f"task {task_id} has no output {digest[:80]}", hint=f"det task outputs {task_id}")


def _view(row: OutputRow) -> OutputView:
    return OutputView(name=row.name, size=row.size, digest=row.digest, updated_at=row.updated_at)


def _digest_of(upload: Path) -> str:
    found = hashlib.sha256()
    with upload.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
        os.fsync(file.fileno())
    return f"sha256:{found.hexdigest()}"


def _move(upload: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    upload.replace(target)
    sync_directory(target.parent)


def _named(s: Session, digests: Sequence[str]) -> set[str]:
    return set(s.scalars(select(OutputRow.digest).where(OutputRow.digest.in_(digests)).distinct()))


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        _log.warning("an output without a record stays: %s: %s", path, error.strerror)
        return False
    return True
