"""What trials log beyond numbers: taken from their tasks, listed and sent to who may read their experiment.

The master decodes nothing: it looks at the first bytes of a file, whether it is what its task says, and how large an
image would be. Bytes are kept once within an experiment, and never shared with another: nobody learns from a digest
what others have.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO
from weakref import WeakValueDictionary

from sqlalchemy.orm import Session

from detlab.errors import Conflict, DetlabError
from detlab.media import kinds
from detlab.media.headers import MediaHeader, read_header
from detlab.schemas.wire.media import MediaFacts, MediaKeyList, MediaKeyView, MediaPage, MediaStepList, MediaView
from detlab_hub.services.admission import storage_quotas
from detlab_hub.services.base.access import no_such, trial_for
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.fencing import current_attempt
from detlab_hub.services.base.threads import user_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.media_files import keep_file, media_path, remove_media
from detlab_hub.services.views import pages
from detlab_hub.store.queries.tracking import media
from detlab_hub.store.tables import ExperimentRow, MediaRow

_CHUNK = 1024 * 1024
_TEXTS = frozenset({kinds.PLAIN, kinds.MARKUP, kinds.JSON})
"""Formats without a header: whatever they hold is shown as text, or read by the page with care."""
QUOTA_SECONDS = 10.0
"""For so long the room that quotas leave is counted down, and not summed up anew."""
MOST_STEPS = 5_000
"""Steps of one part of their list."""


class MediaRefused(DetlabError):
    """An object is not what its task says, or cannot be shown."""

    default_code = "media.refused"


class MediaFull(Conflict):
    """A trial has logged as much as it may."""

    default_code = "media.full"


@dataclass(frozen=True)
class _Found:
    """What an upload is."""

    size: int
    digest: str
    header: MediaHeader


class TrialMedia(Service):
    """Use cases of media."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        # Of one experiment: storing a file and removing an unused one must not interleave.
        self._moving: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        # Of each owner: the bytes that quotas leave, and until when that is believed.
        self._room: dict[str, tuple[float, float]] = {}

    async def put(self, task: TaskCaller, facts: MediaFacts, upload: Path) -> MediaView:
        """Keep an object; one of the same key, step and place is replaced. The upload is moved away or removed.

        Raises:
            Conflict: The task is not a trial.
            MediaFull: The trial has logged as much as it may.
            MediaRefused: It is not what the task says, or cannot be shown.
            StaleAttempt: The attempt is over.
            StorageFull: A quota of its owner is used up.
        """
        workers = self._context.workers
        try:
            _check_kind(facts)
            found = await workers.uploads.run(user_of(task), _look, upload, facts)
            owner, groups, experiment = await self._context.read(lambda s: self._check_room(s, task, found.size))
            await self._check_quotas(owner, groups, found.size)
            return await self._keep(task, facts, found, upload, experiment)
        finally:
            await asyncio.to_thread(upload.unlink, missing_ok=True)

    def _check_room(self, s: Session, task: TaskCaller, size: int) -> tuple[str, Sequence[str], int]:
        """Return whose quotas it counts towards, and its experiment."""
        _, trial = current_attempt(s, task)
        experiment = s.get_one(ExperimentRow, trial.experiment_id)
        space, settings = media.space_of(s, trial.id), self._context.settings
        if space.count >= settings.media_objects:
            raise MediaFull(
                f"trial {trial.id} has logged {space.count:,} media objects, the most that one may",
                hint="log fewer: each hundredth step, say; an operator raises DetHub.media_objects",
            )
        if space.bytes + size > settings.media_bytes:
            raise MediaFull(
                f"trial {trial.id} has logged {space.bytes:,} bytes of media; one may log {settings.media_bytes:,}",
                hint="log smaller or fewer ones; an operator raises DetHub.media_mb",
            )
        return experiment.owner, experiment.owner_groups, experiment.id

    async def _check_quotas(self, owner: str, groups: Sequence[str], size: int) -> None:
        """Check the quotas of bytes, whose sums would take too long to be made for each of a thousand images.

        Raises:
            StorageFull: One of them would be passed.
        """
        now = self._context.clock()
        room, until = self._room.get(owner, (0.0, 0.0))
        if now >= until or size > room:
            room = await self._context.read(lambda s: storage_quotas.room_left(s, owner, groups))
            until = now + QUOTA_SECONDS
        if size > room:
            self._room.pop(owner, None)
            await storage_quotas.check_room(self._context, owner, groups, size)
        self._room[owner] = room - size, until

    async def _keep(
        self, task: TaskCaller, facts: MediaFacts, found: _Found, upload: Path, experiment: int
    ) -> MediaView:
        settings = self._context.settings
        move = partial(self._context.workers.moves.run, user_of(task))
        async with self._moving.setdefault(experiment, asyncio.Lock()):
            await move(keep_file, upload, media_path(settings, experiment, found.digest))
            try:
                view, unused = await self._context.write(lambda unit: _note(unit, task, facts, found))
            except DetlabError:  # the attempt has ended meanwhile: its bytes stay only if others name them
                unused = await self._context.read(lambda s: media.unused_of(s, experiment, [found.digest]))
                await move(remove_media, settings, experiment, unused)
                raise
            if unused:
                await move(remove_media, settings, experiment, unused)
        return view

    async def page(self, caller: Caller, trial_id: int, wanted: media.MediaWanted, limit: int) -> MediaPage:
        """Return a page of a trial's media.

        Raises:
            NotFound: There is no such trial for the caller.
        """

        def get(s: Session) -> MediaPage:
            trial_for(s, caller, trial_id)
            ids = media.ids_of(s, trial_id, wanted, limit + 1)
            items, last = pages.of_rows(s, MediaRow, ids, limit, lambda rows: list(map(_view, rows)))
            return MediaPage(items=items, next=None if last is None else f"{last.step}.{last.id}")

        return await self._context.look(caller.name, get)

    async def keys(self, caller: Caller, trial_id: int) -> MediaKeyList:
        """Return the keys of a trial's media.

        Raises:
            NotFound: There is no such trial for the caller.
        """

        def get(s: Session) -> MediaKeyList:
            trial_for(s, caller, trial_id)
            return MediaKeyList(items=[MediaKeyView(**asdict(one)) for one in media.keys_of(s, trial_id)])

        return await self._context.look(caller.name, get)

    async def steps(self, caller: Caller, trial_id: int, key: str | None, after: int) -> MediaStepList:
        """Return steps at which a trial has logged media.

        Raises:
            NotFound: There is no such trial for the caller.
        """

        def get(s: Session) -> MediaStepList:
            trial_for(s, caller, trial_id)
            found = media.steps_of(s, trial_id, key, after, MOST_STEPS + 1)
            more = len(found) > MOST_STEPS
            return MediaStepList(items=found[:MOST_STEPS], next=found[MOST_STEPS - 1] if more else None)

        return await self._context.look(caller.name, get)

    async def get(self, caller: Caller, trial_id: int, media_id: int) -> MediaView:
        """Return one object.

        Raises:
            NotFound: There is no such trial for the caller, or it has no such object.
        """
        return _view(await self._context.read(lambda s: _of_trial(s, caller, trial_id, media_id)))

    async def open(self, caller: Caller, trial_id: int, media_id: int) -> tuple[BinaryIO, int]:
        """Open the file of an object; return it with its size in bytes.

        Raises:
            NotFound: There is no such trial for the caller, or it has no such object.
        """

        def find(s: Session) -> tuple[Path, int]:
            row = _of_trial(s, caller, trial_id, media_id)
            return media_path(self._context.settings, row.experiment_id, row.digest), row.size

        path, size = await self._context.read(find)
        try:
            return await self._context.workers.downloads.run(caller.name, path.open, "rb"), size
        except FileNotFoundError as error:  # replaced just now
            raise _none(trial_id, media_id) from error


def _of_trial(s: Session, caller: Caller, trial_id: int, media_id: int) -> MediaRow:
    trial_for(s, caller, trial_id)
    row = s.get(MediaRow, media_id)
    if row is None or row.trial_id != trial_id:
        raise _none(trial_id, media_id)
    return row


def _none(trial_id: int, media_id: int) -> DetlabError:
    return no_such(
        f"trial {trial_id} has no media object {media_id}", exists=False, hint=f"det trial media list {trial_id}"
    )


def _view(row: MediaRow) -> MediaView:
    return MediaView(
        id=row.id,
        trial_id=row.trial_id,
        step=row.step,
        key=row.key,
        place=row.place,
        kind=row.kind,
        media_type=row.media_type,
        caption=row.caption,
        size=row.size,
        width=row.width,
        height=row.height,
        time=row.created_at,
    )


def _check_kind(facts: MediaFacts) -> None:
    if facts.media_type not in kinds.FORMATS[facts.kind]:
        known = ", ".join(kinds.FORMATS[facts.kind])
        raise MediaRefused(f"{facts.media_type[:80]!r} is no {facts.kind}: that is one of {known}")


def _look(upload: Path, facts: MediaFacts) -> _Found:
    """Look at an upload: what its header says, how large it is, and its digest.

    Raises:
        MediaRefused: It is not what the task says, or too large.
    """
    digest = hashlib.sha256()
    with upload.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        most = kinds.MOST_SVG_BYTES if facts.media_type == kinds.SVG else kinds.MOST_BYTES[facts.kind]
        if not size or size > most:
            raise MediaRefused(f"{facts.key[:80]!r} has {size:,} bytes; {facts.kind} has 1 to {most:,}")
        header = MediaHeader(facts.media_type) if facts.media_type in _TEXTS else read_header(file)
        if header is None or header.media_type != facts.media_type:
            what = "nothing that is known" if header is None else header.media_type
            raise MediaRefused(f"{facts.key[:80]!r} is by its first bytes {what}, not {facts.media_type}")
        if why := header.too_large:
            raise MediaRefused(f"{facts.key[:80]!r} is not kept: {why}")
        file.seek(0)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
        os.fsync(file.fileno())
    return _Found(size, digest.hexdigest(), header)


def _note(unit: UnitOfWork, task: TaskCaller, facts: MediaFacts, found: _Found) -> tuple[MediaView, list[str]]:
    """Write the row; return its view, and the digests that no row names any more."""
    s = unit.session
    _, trial = current_attempt(s, task)
    replaced = media.replaced_by(s, trial.id, facts.key, facts.step, facts.place, task.run)
    for old in replaced:
        s.delete(old)
    s.flush()  # before the new one: two cannot have the same place
    row = MediaRow(
        experiment_id=trial.experiment_id,
        trial_id=trial.id,
        attempt=task.run,
        step=facts.step,
        key=facts.key,
        place=facts.place,
        kind=facts.kind,
        media_type=facts.media_type,
        caption=facts.caption,
        digest=found.digest,
        size=found.size,
        width=found.header.width,
        height=found.header.height,
        created_at=unit.now,
    )
    s.add(row)
    s.flush()
    return _view(row), media.unused_of(s, trial.experiment_id, [old.digest for old in replaced])
