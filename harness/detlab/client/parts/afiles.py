"""The files of a checkpoint: downloaded, loaded, verified, copied."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from detlab.client.atasks import AsyncTask
from detlab.client.loading import cache_folder, load_folder, may_be_looked_at, plan
from detlab.client.operations.reading import bad_files, damaged, start_reading, unread
from detlab.client.parts.aedits import AsyncCheckpointEdits
from detlab.client.transport.calls import Progress
from detlab.client.transport.copying import copied, store_of
from detlab.client.transport.downloads import AnyMode, check_mode, chosen, complete, download, local_folder, selected
from detlab.client.transport.interrupts import Interrupted
from detlab.client.transport.verifying import BadFile, verify
from detlab.schemas.taskwire import READING_REPORT
from detlab.schemas.wire import CheckpointView


class AsyncCheckpointFiles(AsyncCheckpointEdits):
    """The part of an asynchronous checkpoint that reads its files."""

    async def download(
        self,
        path: str | Path | None = None,
        mode: AnyMode = "auto",
        *,
        progress: Progress | None = None,
        globs: Sequence[str] = (),
    ) -> Path:
        """Download its files to a folder (default `checkpoints/<uuid>`) and return that folder.

        Every file is verified by its digest, and the folder appears complete or not at all. After an interruption the
        next download to the same folder goes on with what was verified.

        Args:
            path: Folder to create. If it already holds the checkpoint, nothing is transferred; the unchanged result
                of an earlier download is replaced.
            mode: `direct` copies from the storage: a folder that is mounted here, or an object store, with this
                machine's own credentials; `master` downloads through the master; `task` lets a task of yours read a
                store that the master does not open, with the keys in the block of your experiment; `auto` is
                `direct` if that is possible, else `master`.
            progress: Called with (bytes done, bytes in all).
            globs: Take only files that match one of these patterns: `*` and `?` match within a folder, `**` matches
                folders, too.

        Raises:
            StorageError: Something else is at `path`, or the storage cannot be read from here.
            CheckpointError: A file is damaged, or none matches.
            ValueError: There is no such mode.
        """
        target = Path(path) if path is not None else self._default_target()
        return await self._fetch(target, mode, progress, globs)

    async def load(
        self,
        path: str | Path | None = None,
        *,
        map_location: Any = "cpu",
        allow_pickle: bool = False,
        globs: Sequence[str] = (),
        mode: AnyMode = "auto",
        progress: Progress | None = None,
        alone: bool = False,
    ) -> Any:
        """Load what it holds: tensors from safetensors, plain values from JSON, and no code.

        Only the files that are read are downloaded, verified, to a cache; those that are there already are not
        downloaded again. A pickle can run any code when it is opened, so that one is opened only with `allow_pickle`;
        what is one its bytes say, not its name.

        Args:
            path: Folder to download to instead of the cache.
            map_location: The device that tensors go to.
            allow_pickle: Open pickles, too: only if you trust whoever wrote them.
            globs: Load only files that match one of these patterns, as for `download`.
            mode: As for `download`.
            progress: As for `download`.
            alone: Return the content of the only pickle or JSON file itself, not a dict with it.

        Returns:
            Of a trial of `detlab.pytorch` its state (`models_state_dict`, …); of other safetensors files each tensor
            by its name; else the content of each JSON file, or of each allowed pickle, by its path.

        Raises:
            PickleNotAllowed: What it holds is a pickle; the error says what it would import.
            CheckpointError: A file is damaged, or there is nothing that can be read.
            StorageError: The storage cannot be read.
        """
        what = f"checkpoint {self.uuid}"
        files = selected(self.view, globs).files
        looked_at = may_be_looked_at({name: file.size for name, file in files.items()})
        planned = plan(files, what, allow_pickle=allow_pickle or looked_at)
        target = cache_folder(self.uuid, planned.files) if path is None else Path(path)
        folder = await self._fetch(target, mode, progress, planned.files, cached=path is None)
        return load_folder(folder, map_location=map_location, allow_pickle=allow_pickle, what=what, alone=alone)

    async def verify(self, mode: AnyMode = "auto", *, progress: Progress | None = None) -> list[BadFile]:
        """Read every byte of its files and return those that are not what was committed; none: all is well.

        Args:
            mode: As for `download`.
            progress: As for `download`.

        Raises:
            CheckpointError: Its files were deleted.
            StorageError: The storage cannot be read at all.
        """
        if check_mode(mode) == "task":
            return (await self._read_by_task([]))[1]
        return await self._session.run(verify(self.view, mode, progress), in_thread=True)

    async def copy(
        self, to: str | Mapping[str, Any], mode: AnyMode = "auto", *, progress: Progress | None = None
    ) -> str:
        """Copy it, verified, into another storage under the same uuid; return the digest of the manifest there.

        The master does not learn of the copy. What is there already, and right, is not copied again.

        Args:
            to: A `checkpoint_storage` block, an address such as `s3://bucket/prefix`, or a folder. Credentials are
                those of the block, or this machine's.
            mode: Where its files come from, as for `download`.
            progress: As for `download`.

        Raises:
            StorageError: The other storage cannot be written, or this one not be read.
            CheckpointError: A file is damaged, or another checkpoint has this uuid there.
        """
        store = store_of(to)
        here = None if mode in {"master", "task"} else local_folder(self.view)
        if here is not None:
            return await asyncio.to_thread(copied, self.view, here, store)
        with tempfile.TemporaryDirectory(prefix="detlab-copy-", ignore_cleanup_errors=True) as name:
            folder = Path(name) / "files"
            await self._fetch(folder, mode, progress)
            return await asyncio.to_thread(copied, self.view, folder, store)

    async def _fetch(
        self,
        target: Path,
        mode: AnyMode,
        progress: Progress | None,
        globs: Sequence[str] = (),
        *,
        cached: bool = False,
    ) -> Path:
        """Download files; in the mode `task` those that a task has handed over."""
        task = ""
        view: CheckpointView = chosen(self.view, globs, cached=cached)
        if check_mode(mode) == "task" and not complete(view, target):
            task, bad = await self._read_by_task(sorted(view.files))
            if bad:
                raise damaged(self.view, bad)
        flow = download(self.view, target, mode, progress, globs, cached=cached, task=task)
        return await self._session.run(flow, in_thread=True)

    async def _read_by_task(self, paths: Sequence[str]) -> tuple[str, list[BadFile]]:
        """Have a task of the caller's read files; return its id, and which are bad. One given up on is ended."""
        task = AsyncTask(self._session, await self._session.run(start_reading(self.uuid, paths)))
        try:
            await task.wait()
        except BaseException as error:
            await task.kill()
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(f"task {task.id}, which read checkpoint {self.uuid}, was ended") from None
            raise
        found = [item for item in await task.outputs() if item.name == READING_REPORT]
        if not found:
            raise unread(self.uuid, task.view, await task.logs(tail=5))
        return task.id, bad_files(await task.read_output(found[0]))
