"""Code bundles: content-addressed files, each stored once, whichever user uploaded it.

A user can query the bundles that they uploaded, and those of experiments and tasks that they may read. All others are
hidden: a user who guesses the content of another's code could otherwise confirm it by its digest.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import BundleError, BundleTooLarge, NotFound
from detlab.files import sync_directory
from detlab.launch.archives import ArchiveLimits, UnsafeBundle, digest_like
from detlab.schemas.bundles import BUNDLE_DIGEST, FORM, file_name
from detlab_hub.core.rights import ObjectKind, Right, Thing, right_of
from detlab_hub.services.admission import upload_limits
from detlab_hub.services.base.access import administers, person, thing_of, things, who_is
from detlab_hub.services.base.callers import AgentCaller, Caller, TaskCaller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.store.queries import bundles, parts
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TaskRow

_log = logging.getLogger(__name__)
LIMITS = ArchiveLimits(size=512 << 20)
"""The limits of a bundle, whose files are digested while a user waits; the client sends less than a fifth of it."""


class Bundles(Service):
    """Take and give bundles."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        # Storing a bundle and removing the same one must not interleave.
        self.moving = asyncio.Lock()

    async def put(self, caller: Caller, digest: str, upload: Path) -> bool:
        """Keep an uploaded bundle. The upload is moved away or removed.

        Args:
            caller: Who sends it.
            digest: `tree:<hex>` of its files, or `sha256:<hex>` of its bytes (from older clients), as the sender says.
            upload: The uploaded file, on the same file system as the bundles directory.

        Returns:
            Whether this is the caller's first upload of the bundle.

        Raises:
            BundleTooLarge: It is over the cap.
            BundleError: It has another digest, or its files cannot be read.
            TooFast: The caller has uploaded too much today.
        """
        target = bundle_file(self._context.settings, digest)
        run = partial(self._context.workers.uploads.run, caller.name)
        try:
            size = (await run(upload.stat)).st_size
            await upload_limits.count(self._context, caller.name, caller.groups, size)
        except BaseException:
            await asyncio.to_thread(upload.unlink, missing_ok=True)
            raise
        size = await run(_check, upload, digest, self._context.settings.bundle_limit)

        def note(unit: UnitOfWork) -> bool:
            return bundles.note_upload(unit.session, digest, size, caller.name, unit.now)

        async with self.moving:
            await self._context.workers.moves.run(caller.name, _store, upload, target)
            return await self._context.write(note)

    async def path_for(self, caller: TaskCaller | AgentCaller | Caller, digest: str) -> Path:
        """Return the path of a bundle for callers who may read it: tasks and agents get the ones they run.

        Raises:
            NotFound: There is no such bundle for the caller.
        """
        if not await self._context.read(lambda s: may_use(s, caller, digest)):
            raise NotFound(f"there is no bundle {digest[:80]}")
        return bundle_file(self._context.settings, digest)


def bundle_file(settings: Settings, digest: str) -> Path:
    """Return the path of a bundle.

    Raises:
        BundleError: The digest has no known form.
    """
    found, name = BUNDLE_DIGEST.fullmatch(digest), file_name(digest)
    if found is None or name is None:
        raise BundleError(f"{digest[:80]!r} is not of the form {FORM}")
    return settings.bundles_dir / found["hex"][:2] / name


def may_use(s: Session, caller: TaskCaller | AgentCaller | Caller, digest: str) -> bool:
    """Whether a caller may know of a bundle, download it and, if a user, run it; also False if it does not exist."""
    thing = _thing(s, caller, digest)
    return thing is not None and right_of(who_is(caller), thing) >= Right.READ


def _check(upload: Path, digest: str, limit: int) -> int:
    """Return the bytes of a bundle that is what its sender says; any other is removed."""
    size = upload.stat().st_size
    if size > limit:
        upload.unlink()
        raise BundleTooLarge(f"the bundle has {size} bytes; at most {limit}")
    try:
        found = digest_like(digest, upload, LIMITS)
    except UnsafeBundle as error:
        upload.unlink()
        raise BundleError(f"the uploaded bundle cannot be used: {error}") from error
    if found != digest:
        upload.unlink()
        raise BundleError(f"the uploaded bundle has digest {found}, not {digest}")
    with upload.open("rb") as file:
        os.fsync(file.fileno())
    return size


def _store(upload: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    upload.replace(target)
    sync_directory(target.parent)


def _thing(s: Session, caller: TaskCaller | AgentCaller | Caller, digest: str) -> Thing | None:
    """Return what a bundle is to the caller, None if it is nothing to them.

    Only what concerns the caller is looked up: not even the time that it takes depends on what others have sent.
    """
    match caller:
        case TaskCaller(task_id=str(task_id)):
            row: TaskRow | ExperimentRow | None = s.get(TaskRow, task_id)
        case TaskCaller():
            row = s.get(ExperimentRow, caller.experiment_id)
        case AgentCaller():
            return _bundle(_run_on(s, caller, digest))
        case Caller():
            return _of_person(s, caller, digest)
    return _bundle(thing_of(row)) if row is not None and row.bundle == digest else None


def _of_person(s: Session, caller: Caller, digest: str) -> Thing | None:
    who = person(caller)
    if administers(caller, ObjectKind.SITE):
        return Thing(ObjectKind.BUNDLE) if bundles.is_stored(s, digest) else None
    if bundles.is_sent_by(s, digest, who):
        return Thing(ObjectKind.BUNDLE, who.name)
    experiment = bundles.experiment_with(s, digest, who)
    if experiment is not None:
        return _bundle(*things(s, caller, [experiment]).values())
    task = bundles.task_with(s, digest, who)
    return None if task is None else _bundle(thing_of(task))


def _run_on(s: Session, agent: AgentCaller, digest: str) -> Thing:
    """Return something that runs the bundle on this agent; if nothing does, a thing without any agent."""
    placed = (parts.on_agent_or_its_nodes(agent.agent_id), AllocationRow.state.in_(PLACED))
    of_trial = select(AllocationRow.id).join(ExperimentRow, ExperimentRow.id == AllocationRow.experiment_id)
    of_task = select(AllocationRow.id).join(TaskRow, TaskRow.id == AllocationRow.task_id)
    for kind, query in (
        (ObjectKind.EXPERIMENT, of_trial.where(*placed, ExperimentRow.bundle == digest)),
        (ObjectKind.TASK, of_task.where(*placed, TaskRow.bundle == digest)),
    ):
        if s.scalar(query.limit(1)) is not None:
            return Thing(kind, agents=(agent.agent_id,))
    return Thing(ObjectKind.EXPERIMENT)


def _bundle(*used_by: Thing) -> Thing:
    return Thing(ObjectKind.BUNDLE, used_by=used_by)
