"""Files of artifacts: taken by their digest for a version to come, and sent by their path in a version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from sqlalchemy.orm import Session

from detlab.errors import DetlabError
from detlab.schemas.wire.artifacts.artifacts import ArtifactFile
from detlab_hub.core.rights import Action
from detlab_hub.services.admission import storage_quotas, upload_limits
from detlab_hub.services.artifacts.access import artifact_for, version_for
from detlab_hub.services.artifacts.versions import ArtifactRefused
from detlab_hub.services.base.access import no_such, owns
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.fencing import current_attempt
from detlab_hub.services.base.threads import user_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.media_files import keep_file
from detlab_hub.services.checkpoints.named_files import digest_of, path_of, remove_digests
from detlab_hub.services.tracking.access import Tracker, speaker_of
from detlab_hub.store.queries.registry import artifacts
from detlab_hub.store.tables import ArtifactEntryRow, ArtifactFileRow


class ArtifactFiles(Service):
    """Use cases of the files of artifacts."""

    async def put(self, caller: Tracker, name: str, digest: str, upload: Path) -> None:
        """Keep the bytes of a digest for a version to come. The upload is moved away or removed.

        What no version names a day later is removed.

        Raises:
            ArtifactRefused: They have another digest.
            Forbidden: The caller may not change the artifact.
            NotFound: There is no such artifact for the caller.
            StaleAttempt: The caller is a task whose attempt is over.
            StorageFull: A quota of the artifact's owner is used up.
            TooFast: They have uploaded too much today.
        """
        who, workers = speaker_of(caller), self._context.workers
        run = partial(workers.uploads.run, user_of(caller))
        try:
            size = (await run(upload.stat)).st_size
            artifact_id, owner, groups = await self._context.read(lambda s: _owner(s, caller, who, name))
            await storage_quotas.check_room(self._context, owner, groups, size)
            await upload_limits.count(self._context, owner, groups, size)
            found = await run(digest_of, upload)
            if found != digest:
                raise ArtifactRefused(
                    f"what came has the digest {found}, not {digest[:80]}",
                    hint="The file was changed while it was sent, or damaged on the way: log the artifact again",
                )
            await self._keep(caller, who, artifact_id, digest, size, upload)
        finally:
            await asyncio.to_thread(upload.unlink, missing_ok=True)

    async def _keep(self, caller: Tracker, who: Caller, artifact_id: int, digest: str, size: int, upload: Path) -> None:
        settings = self._context.settings
        move = partial(self._context.workers.moves.run, user_of(caller))

        def note(unit: UnitOfWork) -> None:
            _owner(unit.session, caller, who, str(artifact_id))
            unit.session.merge(ArtifactFileRow(artifact_id=artifact_id, digest=digest, size=size, created_at=unit.now))

        async with self._context.artifact_locks.of(artifact_id):
            await move(keep_file, upload, path_of(settings, artifact_id, digest))
            try:
                await self._context.write(note)
            except DetlabError:  # the artifact, or the attempt, has gone meanwhile
                known = await self._context.read(lambda s: artifacts.known_files(s, artifact_id, [digest]))
                if not known:
                    await move(remove_digests, settings, artifact_id, [digest])
                raise

    async def find(self, caller: Tracker, name: str, version: str, path: str) -> ArtifactFile:
        """Return a file of a version.

        Raises:
            ArtifactRefused: It is a reference, which the master does not follow.
            NotFound: There is no such artifact, version or file for the caller.
        """
        row = await self._context.read(lambda s: _entry(s, speaker_of(caller), name, version, path))
        return ArtifactFile(path=row.path, size=row.size, digest=row.digest, uri=row.uri)

    async def open(self, caller: Tracker, name: str, version: str, path: str) -> tuple[BinaryIO, int]:
        """Open a file of a version; return it with its size in bytes.

        Raises:
            ArtifactRefused: It is a reference, which the master does not follow.
            NotFound: There is no such artifact, version or file for the caller.
        """
        row = await self._context.read(lambda s: _entry(s, speaker_of(caller), name, version, path))
        file = path_of(self._context.settings, row.artifact_id, row.digest)
        try:
            return await self._context.workers.downloads.run(user_of(caller), file.open, "rb"), row.size
        except FileNotFoundError as error:  # deleted just now
            raise _no_file(path) from error


def _owner(s: Session, caller: Tracker, who: Caller, name: str) -> tuple[int, str, Sequence[str]]:
    """Return the id of an artifact, whose quotas its files count towards, and their groups."""
    if isinstance(caller, TaskCaller):
        current_attempt(s, caller)
    row = artifact_for(s, who, name, Action.ARTIFACT_LOG)
    mine = isinstance(caller, Caller) and owns(who, row.owner)
    return row.id, row.owner, sorted(who.groups) if mine else row.owner_groups


def _entry(s: Session, who: Caller, name: str, version: str, path: str) -> ArtifactEntryRow:
    row = s.get(ArtifactEntryRow, (version_for(s, artifact_for(s, who, name), version).id, path))
    if row is None:
        raise _no_file(path)
    if row.uri:
        raise ArtifactRefused(
            f"{path[:200]!r} is a reference to {row.uri[:200]}, which the cluster does not open",
            hint="Open it with credentials of your own: det artifact download --references",
        )
    return row


def _no_file(path: str) -> DetlabError:
    return no_such(f"this version has no file {path[:200]!r}", exists=False, hint="det artifact describe --files")
