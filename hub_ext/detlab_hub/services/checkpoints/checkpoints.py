"""Checkpoints as their owners see them."""

from __future__ import annotations

from functools import partial

from sqlalchemy.orm import Session

from detlab.errors import NotFound
from detlab.schemas.wire import CheckpointView, SeriesView
from detlab_hub.services.base.access import checkpoint_for, checkpoint_named
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.checkpoints import files
from detlab_hub.services.checkpoints.archives import ArchiveContents, Packing, checked
from detlab_hub.services.checkpoints.removals import DELETED
from detlab_hub.services.checkpoints.stores import OpenStore, of_artifacts, readable
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.views import experiment_views
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import CheckpointRow, ExperimentRow


class Checkpoints(Service):
    """Use cases of checkpoints. All raise NotFound for one that the caller may not know of."""

    async def get(self, caller: Caller, uuid: str) -> CheckpointView:
        """Return one checkpoint with its files."""

        def get(s: Session) -> CheckpointView:
            return experiment_views.checkpoint_view(s, checkpoint_named(s, caller, uuid))

        return await self._context.read(get)

    async def metrics(self, caller: Caller, uuid: str, group: str | None = None) -> list[SeriesView]:
        """Return what its trial reported at its step, exactly: curves of one point each."""

        def get(s: Session) -> list[SeriesView]:
            row = checkpoint_for(s, caller, uuid)
            limit = experiment_views.NAMES_SHOWN
            return curves.at_step(s, row.trial_id, row.steps_completed, group, limit)

        return await self._context.read(get)

    async def open_file(self, caller: Caller, uuid: str, digest: str) -> ArchiveContents:
        """Open one file, named by its digest.

        Raises:
            NotFound: There is no such checkpoint for the caller, or it has no such file.
            StorageError: The checkpoint is not where this master can read it.
            CheckpointError: It does not have the committed size. (Its digest is checked later.)
        """

        row, store, uid = await self._found(caller, uuid)
        return await opened_file(self._context, caller.name, row, store, uid, digest)

    async def open_archive(self, caller: Caller, uuid: str) -> ArchiveContents:
        """Open all files as one tar.

        Raises:
            NotFound: There is no such checkpoint for the caller, or a file is not there.
            StorageError: The checkpoint is not where this master can read it.
            CheckpointError: A file does not have the committed size.
        """
        row, store, uid = await self._found(caller, uuid)
        if row.state == DELETED:
            raise NotFound(f"checkpoint {uuid[:80]} has no files any more")
        packing = Packing(store, uuid, row.files, row.created_at, uid)
        run, looking = self._context.workers.downloads.run, packing.looking()
        while await run(caller.name, partial(next, looking, looking)) is not looking:
            pass
        return await run(caller.name, packing.archive)

    async def _found(self, caller: Caller, uuid: str) -> tuple[CheckpointRow, OpenStore, int | None]:
        """Return a checkpoint, its store, and the uid that its files must have; None: any."""

        return await self._context.read(lambda s: located(s, self._context, checkpoint_for(s, caller, uuid)))


def located(s: Session, context: ServiceContext, row: CheckpointRow) -> tuple[CheckpointRow, OpenStore, int | None]:
    """Return a checkpoint, its store, and the uid that its files must have; None: any.

    Raises:
        StorageError: The store is not the master's to open.
    """
    settings = context.settings
    if row.run_id is not None:
        return row, of_artifacts(settings.artifacts_dir), None
    owner = s.get_one(ExperimentRow, row.experiment_id).owner
    return row, readable(row.storage, settings.cluster_stores), uids.file_owner(s, settings.uids, owner)


async def opened_file(
    context: ServiceContext, user: str, row: CheckpointRow, store: OpenStore, uid: int | None, digest: str
) -> ArchiveContents:
    """Open one file of a checkpoint that `located` has found, named by its digest; see `Checkpoints.open_file`.

    Args:
        context: Of the master.
        user: In whose turn the work runs.
        row: The checkpoint.
        store: Where it is.
        uid: To whom its files must belong; None: any.
        digest: Of the file.
    """
    path = next((path for path, entry in row.files.items() if entry["digest"] == digest), None)
    if path is None or row.state == DELETED:
        raise NotFound(f"checkpoint {row.uuid} has no file {digest[:80]}")
    size = int(row.files[path]["size"])
    opening = partial(files.open_found, store, row.uuid, path, size, uid)
    await context.workers.downloads.run(user, lambda: opening().close())
    return ArchiveContents(size, checked(opening, row.uuid, path, digest, size))


async def opened_manifest(
    context: ServiceContext, user: str, row: CheckpointRow, store: OpenStore, uid: int | None
) -> ArchiveContents:
    """Open the manifest of a checkpoint that `located` has found; arguments and errors as `opened_file`."""
    reading = partial(files.committed_manifest, store, row.uuid, row.manifest_digest, uid)
    data = await context.workers.downloads.run(user, reading)
    return ArchiveContents(len(data), (part for part in [data]))
