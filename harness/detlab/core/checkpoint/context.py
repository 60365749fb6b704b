"""`core_context.checkpoint`: store and restore checkpoints, from one rank or from all."""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import time
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from detlab.core.checkpoint.abandoned import Leftovers, TrialLeftovers, ask
from detlab.core.checkpoint.environment import installed
from detlab.core.checkpoint.plain_metadata import plain_metadata
from detlab.core.checkpoint.relayed import RelayedCheckpoints
from detlab.core.checkpoint.shards import join_parts, merge_metadata, shared_files
from detlab.core.distributed.context import DistributedContext
from detlab.core.full_disk import await_room, is_away, is_full, passes
from detlab.core.metrics.spool import Spool
from detlab.core.metrics.values import check_steps
from detlab.core.session import COMMIT_LIMIT, TaskSession
from detlab.errors import (
    CheckpointError,
    CheckpointMissing,
    CheckpointUnreadable,
    DetlabError,
    Forbidden,
    NotFound,
    StorageError,
)
from detlab.info import ClusterInfo
from detlab.schemas.checkpoint_ids import new_checkpoint_id
from detlab.schemas.wire import CheckpointView, CommitCheckpoint, encode_floats
from detlab.storage import Manifest, ManifestNotWritten, ManifestPart, StorageManager
from detlab.storage import files as storage_files

logger = logging.getLogger("detlab.core")

USES = "uses_checkpoints"
"""Key of the metadata: the checkpoints that a trial has reported as used."""
T = TypeVar("T")
Selector = Callable[[str], bool]


class DownloadMode(enum.Enum):
    """Which ranks fetch a checkpoint.

    `LocalWorkersShareDownload`: all ranks call in step, and one per node fetches. `NoSharedDownload`: each rank that
    calls fetches for itself.
    """

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class CheckpointContext:
    """Checkpoints of this trial.

    A checkpoint exists once its files and then its manifest are stored, the master has every report before it, and
    then has committed the manifest's digest; whatever dies in between leaves nothing that could be restored.
    Committing is repeated through an outage of the master for up to a day; a full disk and a store that is away are
    waited for as long.
    """

    _waits_for_room = False
    _trial_id: int | None = None
    """None off a cluster, where no other attempt could commit what is stored."""
    _given: str | None = None
    """The checkpoint that this attempt is to resume from; None off a cluster."""
    _relayed: RelayedCheckpoints | None = None
    """Fetches what this task cannot open; None off a cluster."""
    _used: tuple[str, ...] = ()
    """Checkpoints that the trial has reported as used."""

    def __init__(
        self,
        distributed: DistributedContext,
        storage: StorageManager,
        session: TaskSession,
        spool: Spool | None = None,
        info: ClusterInfo | None = None,
    ) -> None:
        self._dist = distributed
        self._storage = storage
        self._session = session
        self._relayed = RelayedCheckpoints(session)
        self._spool = spool
        self._leftovers = Leftovers(storage)
        self._given = None if info is None else info.latest_checkpoint
        self._earlier = () if info is None else info.earlier_checkpoints
        if info is not None:
            self._trial_id = info.trial.trial_id
            self._leftovers = TrialLeftovers(
                storage, info.cluster_id, self._trial_id, info.run, lambda items: ask(session, items)
            )

    def note_use(self, uuid: str) -> None:
        """Note in the metadata of all checkpoints that are stored from now on that `uuid` was used to make them."""
        if uuid not in self._used:
            self._used = (*self._used, uuid)

    def _with_uses(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return {USES: list(self._used), **metadata} if self._used else metadata

    def upload(
        self,
        ckpt_dir: str | os.PathLike[str] | None,
        metadata: dict[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
    ) -> str:
        """Store the content of a directory as a checkpoint.

        Args:
            ckpt_dir: The directory; with `shard`, None for a rank that has nothing to store.
            metadata: Must contain `steps_completed`; with `shard`, the ranks' dicts are merged.
            shard: All ranks call in step and their files are merged; otherwise only the chief calls.
            selector: Tells, given a relative POSIX path, whether to include that file, or that empty folder if the
                path ends in `/`; None: all of them.

        Returns:
            The uuid of the checkpoint.

        Raises:
            ShardConflict: Two ranks gave different files of one name, or different values for one metadata key.
            CheckpointError: The directory contains links or special files that `selector` does not leave out, or cannot
                be read. Links are not followed, since they may lead to any file that this task can read.
            StorageError: The storage cannot be written.
            ValueError: `metadata` has no `steps_completed`.
            RuntimeError: A rank other than the chief called without `shard`.
        """
        source = None if ckpt_dir is None else Path(ckpt_dir)
        if shard:
            return self._upload_sharded(source, metadata, selector)
        self._require_chief("upload")
        if source is None:
            raise RuntimeError("upload(ckpt_dir=None) is for ranks without files, with shard=True")
        checked = _check_metadata(metadata)
        uuid = self._begin()
        with self._given_up_on_error(uuid):
            part = self._upload(source, uuid, selector)
            self._commit(uuid, self._with_uses(checked), part)
        return uuid

    @contextlib.contextmanager
    def store_path(self, metadata: dict[str, Any] | None = None, *, shard: bool = False) -> Iterator[tuple[Path, str]]:
        """Give a directory to write a checkpoint into; it is stored when the block ends without an exception.

        With `shard`, all ranks enter in step. Ranks of one node share one directory, so they must not write the same
        file: the last write wins.

        Yields:
            The directory and the uuid.

        Raises as `upload` does.
        """
        if shard:
            with self._store_path_sharded(metadata) as given:
                yield given
            return
        self._require_chief("store_path")
        checked = _check_metadata(metadata)
        uuid = self._begin()
        with self._given_up_on_error(uuid):
            yield self._storage.stage(uuid), uuid
            part = self._until_back(lambda: self._storage.seal(uuid), "the upload of the checkpoint")
            self._commit(uuid, self._with_uses(checked), part)

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | os.PathLike[str],
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> None:
        """Copy a checkpoint into a directory, verifying every file.

        Args:
            storage_id: The uuid.
            ckpt_dir: Created if it is missing; ranks of one node that share the download give the same one.
            download_mode: Which ranks fetch.
            selector: Tells, given a relative POSIX path, whether to fetch that file, or that empty folder if the path
                ends in `/`; None: all of them. Ranks that share the download get what any of them selects.

        Raises:
            CheckpointMissing: A file is missing; the message names it.
            CheckpointError: It was never committed, or a file was altered; the message names it.
        """
        target = Path(ckpt_dir)
        with self._missing_told(storage_id):
            if DownloadMode(download_mode) is DownloadMode.NoSharedDownload:
                self._download(storage_id, target, self._manifest(storage_id), selector)
                return
            manifest = self._shared(lambda: self._manifest(storage_id))
            chosen = self._union(manifest, selector)
            self._shared(lambda: self._download(storage_id, target, manifest, chosen))

    @contextlib.contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> Iterator[Path]:
        """Yield a directory with the verified files of a checkpoint, to be read while the block lasts.

        Arguments and errors are those of `download`.
        """
        with contextlib.ExitStack() as stack:
            if DownloadMode(download_mode) is DownloadMode.NoSharedDownload:
                with self._missing_told(storage_id):
                    manifest = self._manifest(storage_id)
                    path = self._restore(stack, storage_id, manifest, selector)
                yield path
                return
            with self._missing_told(storage_id):
                manifest = self._shared(lambda: self._manifest(storage_id))
                chosen = self._union(manifest, selector)
                path = self._shared(lambda: self._restore(stack, storage_id, manifest, chosen))
            try:
                yield path
            finally:
                self._dist.gather_local(None)  # the local chief keeps the files until all have read them

    def _download(self, uuid: str, target: Path, manifest: Manifest, selector: Selector | None) -> None:
        if self._relayed is not None and uuid in self._relayed:
            self._relayed.download(uuid, target, manifest, selector)
            return
        fetch = self._storage.download
        self._until_back(lambda: fetch(uuid, target, manifest, selector=selector), f"the download of checkpoint {uuid}")

    def _restore(self, stack: contextlib.ExitStack, uuid: str, manifest: Manifest, selector: Selector | None) -> Path:
        relayed = self._relayed
        if relayed is not None and uuid in relayed:
            return stack.enter_context(relayed.restored(uuid, manifest, selector))

        def attempt() -> Path:
            return stack.enter_context(self._storage.restore_path(uuid, manifest, selector=selector))

        return self._until_back(attempt, f"the download of checkpoint {uuid}")

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Return the metadata of a committed checkpoint.

        Raises:
            CheckpointError: There is no such checkpoint for this trial.
        """
        return self._view(storage_id).metadata

    def delete(self, storage_id: str) -> None:
        """Delete a checkpoint of this trial: first the master's record of it, then its files.

        Raises:
            Conflict: Something else needs it, as a bookmark or a version of a model: all that does is listed.
            Forbidden: The checkpoint belongs to another trial.
        """
        try:
            self._session.call("DELETE", f"task/checkpoints/{storage_id}")
        except NotFound:
            self._refuse_anothers(storage_id)
            return
        self._storage.delete(storage_id)

    def _refuse_anothers(self, uuid: str) -> None:
        with contextlib.suppress(CheckpointError):
            self._storage.manifest(uuid)
            raise Forbidden(
                f"checkpoint {uuid} is not of this trial: its files are left alone",
                hint="det checkpoint list EXPERIMENT",
            )

    def _view(self, uuid: str) -> CheckpointView:
        try:
            view = CheckpointView.model_validate(self._session.get(f"task/checkpoints/{uuid}"))
        except NotFound as error:
            raise CheckpointError(f"checkpoint {uuid} was never committed, or is not for this trial") from error
        if view.state != "COMPLETED":
            raise CheckpointError(f"checkpoint {uuid} is {view.state}")
        return view

    def _manifest(self, uuid: str) -> Manifest:
        """Return the stored manifest, if it is the one that the master committed."""
        view = self._view(uuid)
        try:
            manifest = self._until_back(lambda: self._storage.manifest(uuid), f"the manifest of checkpoint {uuid}")
        except CheckpointUnreadable as error:
            if self._relayed is None:
                raise
            return self._relayed.manifest(uuid, view.manifest_digest, error)
        if manifest.digest != view.manifest_digest:
            raise CheckpointError(f"manifest.json of checkpoint {uuid} is not the one that was committed")
        return manifest

    @contextlib.contextmanager
    def _missing_told(self, uuid: str) -> Iterator[None]:
        """Tell the master, once, if the files of the checkpoint that this attempt was given are gone.

        The master then gives the next attempt a checkpoint that exists, or starts no other attempt if none does.
        """
        try:
            yield
        except CheckpointMissing:
            if uuid == self._given and self._spool is not None:
                self._given = None
                gone, instead = self._look_for_earlier()
                with contextlib.suppress(DetlabError):
                    self._spool.append("checkpoint_gone", {"gone": [uuid, *gone], "instead": instead})
            raise

    def _look_for_earlier(self) -> tuple[list[str], str | None]:
        """Return the newest earlier checkpoint that is there, and those before it whose files are gone."""
        gone: list[str] = []
        for uuid in self._earlier:
            try:
                self._storage.manifest(uuid)
            except CheckpointMissing:
                gone.append(uuid)
            except DetlabError:
                continue  # it is there and cannot be read: nothing is said of it
            else:
                return gone, uuid
        return gone, None

    @property
    def _held_up(self) -> bool:
        """Whether a checkpoint waits for the master's return or for room on a disk, and for nothing else."""
        return self._waits_for_room or self._session.held_up

    def _wait_for_room(self, seconds: float) -> None:
        self._waits_for_room = True
        try:
            time.sleep(seconds)
        finally:
            self._waits_for_room = False

    def _upload(self, source: Path, uuid: str, selector: Selector | None) -> ManifestPart:
        """Copy files into the stage of one rank alone, as soon as there is room for all of them."""

        def attempt() -> ManifestPart:
            try:
                return self._storage.upload(source, uuid, selector=selector)
            except StorageError as error:
                if is_full(error):
                    self._storage.discard(uuid)  # others may need what room there is
                raise

        return await_room(attempt, f"the checkpoint of {source}", sleep=self._wait_for_room, may_repeat=passes)

    def _until_back(self, attempt: Callable[[], T], what: str) -> T:
        """Do what the storage is needed for, as soon as it answers; a full disk is not waited for here."""
        return await_room(attempt, what, sleep=self._wait_for_room, may_repeat=is_away)

    def _commit(self, uuid: str, metadata: dict[str, Any], part: ManifestPart) -> None:
        """Publish the staged files, then have the master commit them, after the reports before them.

        Only metadata and manifest wait for room here. If an fsync of the other files fails, the kernel may have
        dropped their data, so that the caller has to write them again.

        If the master's answer never comes the files stay: it may have committed them.
        """
        what = f"the checkpoint at step {metadata['steps_completed']}"
        manifest = await_room(
            lambda: self._storage.publish(uuid, metadata, part),
            what,
            sleep=self._wait_for_room,
            may_repeat=lambda error: (
                is_away(error) or (isinstance(error.__cause__, ManifestNotWritten) and is_full(error))
            ),
        )
        self._await_reports(metadata["steps_completed"])
        commit = CommitCheckpoint(
            uuid=uuid,
            steps_completed=metadata["steps_completed"],
            metadata=encode_floats(metadata),
            files=manifest.files,
            manifest_digest=manifest.digest,
            environment=installed(),
        )
        self._session.call("POST", "task/checkpoints", body=commit.model_dump(), limit=COMMIT_LIMIT)
        self._leftovers.settle(uuid)
        logger.info("stored checkpoint %s at step %d", uuid, commit.steps_completed)

    def _await_reports(self, step: int) -> None:
        """Wait until the master has the reports before a checkpoint.

        The next attempt continues after them and never repeats them, and the spool that holds them may be lost with
        its machine.
        """
        if (spool := self._spool) is None:
            return
        spool.sync()
        last = spool.last()

        def done() -> bool:
            mark = spool.delivered()
            return mark is None or mark >= last

        what = f"the master has the reports before the checkpoint at step {step}"
        self._session.wait_until(done, what, limit=COMMIT_LIMIT)

    def _upload_sharded(self, source: Path | None, metadata: dict[str, Any] | None, selector: Selector | None) -> str:
        folder = self._together(lambda: _identity(source, self._dist.cross_rank))
        if not any(folder):
            raise RuntimeError("upload(ckpt_dir=None, shard=True) from all ranks: at least one needs a directory")
        # Ranks that give one directory store it once: the first of them does.
        mine = source if source and folder.index(folder[self._dist.rank]) == self._dist.rank else None
        others = self._given_by_others(mine, selector)
        merged = _check_metadata(merge_metadata(self._together(lambda: metadata and plain_metadata(metadata))))
        uuid = self._begin_together()

        def chosen(name: str) -> bool:
            return name not in others and (selector is None or selector(name))

        wanted = chosen if others else selector
        with self._given_up_on_error(uuid):
            parts = self._together(lambda: self._upload_shards(mine, uuid, wanted))
            self._commit_together(uuid, merged, parts)
        return uuid

    def _upload_shards(self, mine: Path | None, uuid: str, selector: Selector | None) -> ManifestPart | None:
        """Upload this rank's own files; the other ranks upload theirs at the same time."""
        if mine is None:
            return None
        upload = self._storage.upload
        return self._until_back(lambda: upload(mine, uuid, selector=selector), f"the upload of rank {self._dist.rank}")

    def _given_by_others(self, mine: Path | None, selector: Selector | None) -> set[str]:
        """Return the files that a lower rank stores for this one, too.

        They are compared before anything is copied, so that a conflict costs no upload.
        """
        shared = shared_files(self._together(lambda: _names(mine, selector)))
        if not shared:
            return set()
        rank = self._dist.rank
        join_parts(self._together(lambda: _part(mine, [name for name, ranks in shared.items() if rank in ranks])))
        return {name for name, ranks in shared.items() if rank in ranks[1:]}

    def _commit_together(self, uuid: str, metadata: dict[str, Any], parts: Sequence[ManifestPart | None]) -> None:
        """Have the chief publish and commit what the parts of all ranks say."""
        joined = join_parts(parts)
        self._together(lambda: self._commit(uuid, self._with_uses(metadata), joined) if self._dist.rank == 0 else None)

    @contextlib.contextmanager
    def _store_path_sharded(self, metadata: dict[str, Any] | None) -> Iterator[tuple[Path, str]]:
        merged = _check_metadata(merge_metadata(self._together(lambda: metadata and plain_metadata(metadata))))
        uuid = self._begin_together()
        with self._given_up_on_error(uuid):
            self._together(lambda: self._storage.stage(uuid) if self._dist.local_rank == 0 else None)
            failed: BaseException | None = None
            try:
                yield self._storage.stage(uuid), uuid
            except BaseException as error:
                failed = error
                raise
            finally:
                # Also after an exception: the other ranks wait here, and must not store a part.
                self._report_failures(failed)
            node = self._dist.cross_rank
            what = f"the upload of node {node}"
            parts = self._together(
                lambda: (
                    self._until_back(lambda: self._storage.seal(uuid, node=node), what)
                    if self._dist.local_rank == 0
                    else None
                )
            )
            self._commit_together(uuid, merged, parts)

    def _report_failures(self, mine: BaseException | None) -> None:
        failures = self._dist.allgather(None if mine is None else repr(mine))
        if mine is None:
            _raise_failures(failures)

    def _begin(self) -> str:
        uuid = str(uuids.uuid4()) if self._trial_id is None else new_checkpoint_id(self._trial_id)
        self._leftovers.begin(uuid)
        return uuid

    def _begin_together(self) -> str:
        uuid = self._together(lambda: self._begin() if self._dist.rank == 0 else None)[0]
        assert uuid is not None
        return uuid

    def _together(self, step: Callable[[], T]) -> list[T]:
        """Run a step on every rank and return all results, by rank; a failure is raised on all ranks."""
        outcome, error = _attempt(step)
        outcomes = self._dist.allgather((outcome, None if error is None else _portable(error)))
        if error is not None:
            raise error
        _raise_failures([failure for _, failure in outcomes])
        return [result for result, _ in outcomes]

    def _shared(self, step: Callable[[], T]) -> T:
        """Run a step on the local chief and return its result, or raise its error, on all ranks of the node."""
        if self._dist.local_rank == 0:
            outcome, error = _attempt(step)
            self._dist.broadcast_local((outcome, None if error is None else _portable(error)))
            if error is not None:
                raise error
            return outcome  # type: ignore[return-value]  # a step that has not failed has an outcome
        result: T
        result, failure = self._dist.broadcast_local(None)
        if failure is not None:
            raise failure
        return result

    def _union(self, manifest: Manifest, selector: Selector | None) -> Selector | None:
        """Return a selector for what any rank of this node wants."""
        everything = (*manifest.files, *(f"{name}/" for name in manifest.directories))
        wanted = None if selector is None else [name for name in everything if selector(name)]
        wishes = self._dist.allgather_local(wanted)
        if any(wish is None for wish in wishes):
            return None
        names = {name for wish in wishes for name in wish}
        return names.__contains__

    @contextlib.contextmanager
    def _given_up_on_error(self, uuid: str) -> Iterator[None]:
        """Take a checkpoint back after an error; the chief alone, who may be publishing it while another rank fails."""
        try:
            yield
        except BaseException:
            if self._dist.rank == 0:
                with contextlib.suppress(DetlabError):
                    self._leftovers.give_up(uuid)
            raise

    def _require_chief(self, what: str) -> None:
        if self._dist.rank != 0:
            raise RuntimeError(
                f"{what}(shard=False) is for the chief (rank 0), not rank {self._dist.rank}: "
                "guard the call, or have all ranks call it with shard=True"
            )


class DummyCheckpointContext(CheckpointContext):
    """Off-cluster: a checkpoint is committed by its manifest alone."""

    _held_up = False

    def __init__(self, distributed: DistributedContext, storage: StorageManager) -> None:
        self._dist = distributed
        self._storage = storage
        self._leftovers = Leftovers(storage)

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Return the metadata of a stored checkpoint.

        Raises:
            CheckpointError: There is no such checkpoint.
        """
        return self._storage.manifest(storage_id).metadata

    def delete(self, storage_id: str) -> None:
        """Remove a checkpoint."""
        self._storage.delete(storage_id)

    def _manifest(self, uuid: str) -> Manifest:
        return self._until_back(lambda: self._storage.manifest(uuid), f"the manifest of checkpoint {uuid}")

    def _commit(self, uuid: str, metadata: dict[str, Any], part: ManifestPart) -> None:
        self._until_back(lambda: self._storage.publish(uuid, metadata, part), "the checkpoint")
        logger.info("stored checkpoint %s at step %d", uuid, metadata["steps_completed"])


def _check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if not metadata or "steps_completed" not in metadata:
        raise ValueError("the metadata of a checkpoint must have 'steps_completed'")
    return {**plain_metadata(metadata), "steps_completed": check_steps(metadata["steps_completed"])}


def _identity(source: Path | None, node: int) -> tuple[int, int, int] | None:
    if source is None:
        return None
    status = source.stat()
    return node, status.st_dev, status.st_ino


def _names(source: Path | None, selector: Selector | None) -> list[str]:
    if source is None:
        return []
    return [name for name in storage_files.walk(source, selector).files if selector is None or selector(name)]


def _part(source: Path | None, names: Sequence[str]) -> ManifestPart | None:
    return None if source is None else ManifestPart({name: storage_files.describe(source / name) for name in names})


def _attempt(step: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return step(), None
    except Exception as error:  # handed to the other ranks, then raised again
        return None, error


def _portable(error: Exception) -> DetlabError:
    """Return an error that can be sent to another rank."""
    return error if isinstance(error, DetlabError) else CheckpointError(f"{type(error).__name__}: {error}")


def _raise_failures(failures: list[Any]) -> None:
    for rank, failure in enumerate(failures):
        if failure is not None:
            raise CheckpointError(f"rank {rank} failed, so that no checkpoint was stored: {failure}")
