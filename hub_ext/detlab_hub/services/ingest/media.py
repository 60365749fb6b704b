"""What trials and runs log beyond numbers: taken, listed, and sent to who may read them.

The master decodes nothing: it looks at the first bytes of a file, whether it is what its sender says, and how large an
image would be. Bytes are kept once within an experiment, or a run, and never shared with another: nobody learns from a
digest what others have.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
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
class MediaTarget:
    """Where an object is to be logged.

    Attributes:
        holder: The trial or the run.
        place: The experiment or the run whose folder has its bytes.
        name: In words.
        owner: Whose quotas it counts towards, with `groups`.
    """

    holder: int | str
    place: int | str
    name: str
    owner: str
    groups: Sequence[str]


@dataclass(frozen=True)
class FoundMedia:
    """What an upload is."""

    size: int
    digest: str
    header: MediaHeader


class MediaShelf(Service):
    """Use cases of media, of whatever logs them: see `TrialMedia`, and `RunMedia` of the runs from elsewhere.

    What has logged them is a trial, by its number, or a run, by its id.
    """

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        # Of one experiment or run: storing a file and removing an unused one must not interleave.
        self._moving: WeakValueDictionary[int | str, asyncio.Lock] = WeakValueDictionary()
        # Of each owner: the bytes that quotas leave, and until when that is believed.
        self._room: dict[str, tuple[float, float]] = {}

    def readable(self, s: Session, caller: Caller, holder: int | str) -> int | str:
        """Return what has logged them, if the caller may read it.

        Raises:
            NotFound: There is none for the caller.
        """
        raise NotImplementedError

    async def take(
        self,
        user: str,
        facts: MediaFacts,
        upload: Path,
        into: Callable[[Session], MediaTarget],
        note: Callable[[UnitOfWork, FoundMedia], tuple[MediaView, list[str]]],
    ) -> MediaView:
        """Check an upload and keep it; one of the same key, step and place is replaced. It is moved away or removed.

        Args:
            user: Who sends it.
            facts: What it is said to be.
            upload: The bytes.
            into: Finds out whose it is, and checks that it may be logged there.
            note: Writes its row; returns its view, and the digests that no row names any more.

        Raises:
            MediaFull: As much is logged there as may be.
            MediaRefused: It is not what is said, or cannot be shown.
            StorageFull: A quota of its owner is used up.
        """
        try:
            _check_kind(facts)
            found = await self._context.workers.uploads.run(user, _look, upload, facts)
            target = await self._context.read(lambda s: self._checked(s, into(s), found.size))
            await self._check_quotas(target.owner, target.groups, found.size)
            return await self._keep(user, target.place, found, upload, note)
        finally:
            await asyncio.to_thread(upload.unlink, missing_ok=True)

    def _checked(self, s: Session, target: MediaTarget, size: int) -> MediaTarget:
        space, settings = media.space_of(s, target.holder), self._context.settings
        if space.count >= settings.media_objects:
            raise MediaFull(
                f"{target.name} has logged {space.count:,} media objects, the most that one may",
                hint="log fewer: each hundredth step, say; an operator raises DetHub.media_objects",
            )
        if space.bytes + size > settings.media_bytes:
            raise MediaFull(
                f"{target.name} has logged {space.bytes:,} bytes of media; one may log {settings.media_bytes:,}",
                hint="log smaller or fewer ones; an operator raises DetHub.media_mb",
            )
        return target

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
        self,
        user: str,
        place: int | str,
        found: FoundMedia,
        upload: Path,
        note: Callable[[UnitOfWork, FoundMedia], tuple[MediaView, list[str]]],
    ) -> MediaView:
        settings = self._context.settings
        move = partial(self._context.workers.moves.run, user)
        async with self._moving.setdefault(place, asyncio.Lock()):
            await move(keep_file, upload, media_path(settings, place, found.digest))
            try:
                view, unused = await self._context.write(lambda unit: note(unit, found))
            except DetlabError:  # it may not be logged any more: its bytes stay only if others name them
                unused = await self._context.read(lambda s: media.unused_of(s, place, [found.digest]))
                await move(remove_media, settings, place, unused)
                raise
            if unused:
                await move(remove_media, settings, place, unused)
        return view

    async def page(self, caller: Caller, holder: int | str, wanted: media.MediaWanted, limit: int) -> MediaPage:
        """Return a page of the media of one.

        Raises:
            NotFound: There is no such trial or run for the caller.
        """

        def get(s: Session) -> MediaPage:
            known = self.readable(s, caller, holder)
            ids = media.ids_of(s, known, wanted, limit + 1)
            items, last = pages.of_rows(s, MediaRow, ids, limit, lambda rows: list(map(view_of, rows)))
            return MediaPage(items=items, next=None if last is None else f"{last.step}.{last.id}")

        return await self._context.look(caller.name, get)

    async def keys(self, caller: Caller, holder: int | str) -> MediaKeyList:
        """Return the keys of the media of one.

        Raises:
            NotFound: There is no such trial or run for the caller.
        """

        def get(s: Session) -> MediaKeyList:
            known = self.readable(s, caller, holder)
            return MediaKeyList(items=[MediaKeyView(**asdict(one)) for one in media.keys_of(s, known)])

        return await self._context.look(caller.name, get)

    async def steps(self, caller: Caller, holder: int | str, key: str | None, after: int) -> MediaStepList:
        """Return steps at which one has logged media.

        Raises:
            NotFound: There is no such trial or run for the caller.
        """

        def get(s: Session) -> MediaStepList:
            known = self.readable(s, caller, holder)
            found = media.steps_of(s, known, key, after, MOST_STEPS + 1)
            more = len(found) > MOST_STEPS
            return MediaStepList(items=found[:MOST_STEPS], next=found[MOST_STEPS - 1] if more else None)

        return await self._context.look(caller.name, get)

    async def get(self, caller: Caller, holder: int | str, media_id: int) -> MediaView:
        """Return one object.

        Raises:
            NotFound: There is no such trial or run for the caller, or it has no such object.
        """
        return view_of(await self._context.read(lambda s: self._one(s, caller, holder, media_id)))

    async def open(self, caller: Caller, holder: int | str, media_id: int) -> tuple[BinaryIO, int]:
        """Open the file of an object; return it with its size in bytes.

        Raises:
            NotFound: There is no such trial or run for the caller, or it has no such object.
        """

        def find(s: Session) -> tuple[Path, int]:
            row = self._one(s, caller, holder, media_id)
            return media_path(self._context.settings, _place_of(row), row.digest), row.size

        path, size = await self._context.read(find)
        try:
            return await self._context.workers.downloads.run(caller.name, path.open, "rb"), size
        except FileNotFoundError as error:  # replaced just now
            raise _none(holder, media_id) from error

    def _one(self, s: Session, caller: Caller, holder: int | str, media_id: int) -> MediaRow:
        known = self.readable(s, caller, holder)
        row = s.get(MediaRow, media_id)
        if row is None or known not in {row.trial_id, row.run_id}:
            raise _none(holder, media_id)
        return row


class TrialMedia(MediaShelf):
    """Use cases of media of trials."""

    def readable(self, s: Session, caller: Caller, holder: int | str) -> int | str:
        """See `MediaShelf.readable`."""
        return trial_for(s, caller, int(holder)).id

    async def put(self, task: TaskCaller, facts: MediaFacts, upload: Path) -> MediaView:
        """Keep an object; one of the same key, step and place is replaced. The upload is moved away or removed.

        Raises:
            Conflict: The task is not a trial.
            MediaFull: The trial has logged as much as it may.
            MediaRefused: It is not what the task says, or cannot be shown.
            StaleAttempt: The attempt is over.
            StorageFull: A quota of its owner is used up.
        """
        note = partial(_note_of_trial, task, facts)
        return await self.take(user_of(task), facts, upload, partial(_into_trial, task), note)


def _into_trial(task: TaskCaller, s: Session) -> MediaTarget:
    _, trial = current_attempt(s, task)
    experiment = s.get_one(ExperimentRow, trial.experiment_id)
    return MediaTarget(trial.id, experiment.id, f"trial {trial.id}", experiment.owner, experiment.owner_groups)


def _place_of(row: MediaRow) -> int | str:
    place = row.run_id if row.experiment_id is None else row.experiment_id
    assert place is not None
    return place


def _none(holder: int | str, media_id: int) -> DetlabError:
    if isinstance(holder, str):
        return no_such(f"run {holder[:80]} has no media object {media_id}", exists=False)
    return no_such(
        f"trial {holder} has no media object {media_id}", exists=False, hint=f"det trial media list {holder}"
    )


def view_of(row: MediaRow) -> MediaView:
    """Return what is told of an object."""
    return MediaView(
        id=row.id,
        trial_id=row.trial_id or 0,
        run_id=row.run_id or "",
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


def _look(upload: Path, facts: MediaFacts) -> FoundMedia:
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
    return FoundMedia(size, digest.hexdigest(), header)


def _note_of_trial(
    task: TaskCaller, facts: MediaFacts, unit: UnitOfWork, found: FoundMedia
) -> tuple[MediaView, list[str]]:
    _, trial = current_attempt(unit.session, task)
    row = MediaRow(experiment_id=trial.experiment_id, trial_id=trial.id, attempt=task.run)
    return noted(unit, row, trial.id, facts, found)


def noted(
    unit: UnitOfWork, row: MediaRow, holder: int | str, facts: MediaFacts, found: FoundMedia
) -> tuple[MediaView, list[str]]:
    """Write the row of an object; return its view, and the digests that no row names any more.

    Args:
        unit: The transaction.
        row: With what says whose it is.
        holder: The trial or the run.
        facts: What it is.
        found: What was found in its bytes.
    """
    s = unit.session
    replaced = media.replaced_by(s, holder, facts.key, facts.step, facts.place, row.attempt)
    for old in replaced:
        s.delete(old)
    s.flush()  # before the new one: two cannot have the same place
    row.step, row.key, row.place, row.kind = facts.step, facts.key, facts.place, facts.kind
    row.media_type, row.caption = facts.media_type, facts.caption
    row.digest, row.size = found.digest, found.size
    row.created_at = unit.now if facts.logged_at is None else min(facts.logged_at, unit.now)
    row.width, row.height = found.header.width, found.header.height
    s.add(row)
    s.flush()
    return view_of(row), media.unused_of(s, _place_of(row), [old.digest for old in replaced])
