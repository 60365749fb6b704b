"""Code bundles: content-addressed files, each stored once, whichever user uploaded it.

A user can query the bundles that they uploaded, and those of experiments and tasks that they may read. All others are
hidden: a user who guesses the content of another's code could otherwise confirm it by its digest.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from functools import partial
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import BundleError, BundleTooLarge, NotFound
from detlab.files import sync_directory
from detlab_hub.services.admission import upload_limits
from detlab_hub.services.kernel.callers import AgentCaller, Caller, TaskCaller
from detlab_hub.services.kernel.settings import Settings
from detlab_hub.services.kernel.shell import Shell
from detlab_hub.services.kernel.turn import Turn
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.store.queries import bundles, parts
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TaskRow

_log = logging.getLogger(__name__)
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_CHUNK = 1024 * 1024


class Bundles:
    """Take and give bundles."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def put(self, caller: Caller, digest: str, upload: Path) -> bool:
        """Keep an uploaded bundle; returns whether it is the caller's first. The upload is moved away or removed.

        Args:
            caller: Who sends it.
            digest: `sha256:<hex>` of its bytes, as the sender says.
            upload: The uploaded file, on the same file system as the bundles directory.

        Raises:
            BundleTooLarge: It is over the cap.
            BundleError: Its bytes have another digest.
            TooFast: The caller has uploaded too much today.
        """
        target = bundle_file(self._shell.settings, digest)
        run = partial(self._shell.workers.uploads.run, caller.name)
        try:
            size = (await run(upload.stat)).st_size
            await upload_limits.count(self._shell, caller.name, caller.groups, size)
        except BaseException:
            await asyncio.to_thread(upload.unlink, missing_ok=True)
            raise
        size = await run(_accept, upload, target, digest, self._shell.settings.bundle_limit)

        def note(turn: Turn) -> bool:
            return bundles.note_upload(turn.session, digest, size, caller.name, turn.now)

        return await self._shell.write(note)

    async def path_for(self, caller: TaskCaller | AgentCaller | Caller, digest: str) -> Path:
        """Where a bundle lies, for those who may read it: tasks and agents get the ones they run.

        Raises:
            NotFound: There is no such bundle for the caller.
        """
        if not await self._shell.read(lambda s: _may_read(s, caller, digest)):
            raise NotFound(f"there is no bundle {digest[:80]}")
        return bundle_file(self._shell.settings, digest)


def bundle_file(settings: Settings, digest: str) -> Path:
    """The path of a bundle.

    Raises:
        BundleError: The digest is not of the form `sha256:<64 hex digits>`.
    """
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise BundleError(f"{digest[:80]!r} is not of the form sha256:<64 hex digits>")
    name = found.group(1)
    return settings.bundles_dir / name[:2] / f"{name}.tar.gz"


def may_use(s: Session, caller: Caller, digest: str) -> bool:
    """Whether a person may know of a bundle, and run it; False as well if there is none."""
    if caller.admin:
        return bundles.is_stored(s, digest)
    return bundles.is_known_to(s, digest, caller.name, caller.groups)


def _accept(upload: Path, target: Path, digest: str, limit: int) -> int:
    size = upload.stat().st_size
    if size > limit:
        upload.unlink()
        raise BundleTooLarge(f"the bundle has {size} bytes; at most {limit}")
    found = hashlib.sha256()
    with upload.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
        os.fsync(file.fileno())
    if f"sha256:{found.hexdigest()}" != digest:
        upload.unlink()
        raise BundleError(f"the uploaded bytes have digest sha256:{found.hexdigest()}, not {digest}")
    target.parent.mkdir(parents=True, exist_ok=True)
    upload.replace(target)
    sync_directory(target.parent)
    return size


def _may_read(s: Session, caller: TaskCaller | AgentCaller | Caller, digest: str) -> bool:
    match caller:
        case TaskCaller(task_id=str(task_id)):
            task = s.get(TaskRow, task_id)
            return task is not None and task.bundle == digest
        case TaskCaller():
            experiment = s.get(ExperimentRow, caller.experiment_id)
            return experiment is not None and experiment.bundle == digest
        case AgentCaller():
            return _runs_it(s, caller, digest)
        case Caller():
            return may_use(s, caller, digest)


def _runs_it(s: Session, caller: AgentCaller, digest: str) -> bool:
    placed = (parts.on_agent_or_its_nodes(caller.agent_id), AllocationRow.state.in_(PLACED))
    of_trial = select(AllocationRow.id).join(ExperimentRow, ExperimentRow.id == AllocationRow.experiment_id)
    of_task = select(AllocationRow.id).join(TaskRow, TaskRow.id == AllocationRow.task_id)
    found = s.scalar(of_trial.where(*placed, ExperimentRow.bundle == digest).limit(1))
    return found is not None or s.scalar(of_task.where(*placed, TaskRow.bundle == digest).limit(1)) is not None
