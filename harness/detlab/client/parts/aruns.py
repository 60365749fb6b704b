"""The part of the asynchronous client that reads runs which no cluster started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from detlab.client.operations.runs import media as media_operations
from detlab.client.operations.runs import runs
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire import LogLine
from detlab.schemas.wire.media import MediaView
from detlab.schemas.wire.runs import RunPoints, RunView


class AsyncRunCalls:
    """Runs of scripts anywhere: `detlab.init` begins one."""

    session: AsyncSession

    async def list_runs(
        self,
        project: str = "",
        *,
        group: str = "",
        job_type: str = "",
        status: str = "",
        deleted: bool = False,
        limit: int | None = None,
    ) -> list[RunView]:
        """List the runs of a project, the newest first; without a project your own, wherever they are.

        Args:
            project: `NAME` of your own workspace, `WORKSPACE/NAME` or `OWNER/WORKSPACE/NAME`.
            group: Only those of this group.
            job_type: Only those of this type.
            status: Only `RUNNING`, `FINISHED`, `FAILED` or `KILLED` ones.
            deleted: Only those that are marked as deleted; else none of these.
            limit: Return at most this many; None: all.
        """
        call = runs.runs(project, group=group, job_type=job_type, status=status, deleted=deleted, limit=limit)
        return await self.session.run(call)

    async def get_run(self, run_id: str) -> RunView:
        """Fetch a run by its id, or by the word that your script has named it by."""
        return await self.session.run(runs.run(run_id))

    async def get_run_metric(self, run_id: str, name: str) -> RunPoints:
        """Fetch all values of a metric of a run, by step and time."""
        return await self.session.run(runs.run_points(run_id, name))

    async def get_run_output(self, run_id: str, *, tail: int | None = None, search: str | None = None) -> list[LogLine]:
        """Fetch what a run has printed: all of it, or its last lines.

        Args:
            run_id: The run.
            tail: Only this many of the last lines.
            search: Only lines with this text.
        """
        return await self.session.run(runs.run_output(run_id, tail=tail, search=search))

    async def list_run_media(
        self,
        run_id: str,
        *,
        key: str | None = None,
        kind: str | None = None,
        step: int | None = None,
        at: int | None = None,
        limit: int | None = None,
    ) -> list[MediaView]:
        """List the images, tables and other objects that a run logged, in the order of their steps.

        Args:
            run_id: The run.
            key: Of this key alone.
            kind: Of this kind alone: image, audio, video, text, html, table, histogram, confusion, curves, plotly.
            step: Of this step alone.
            at: Of each key, those of its newest step up to this one.
            limit: At most so many.
        """
        call = media_operations.list_run_media(run_id, key=key, kind=kind, step=step, at=at, limit=limit)
        return await self.session.run(call)

    async def read_run_media(self, view: MediaView) -> bytes:
        """Return the content of an object of `list_run_media`."""
        return await self.session.run(media_operations.media_bytes(view))

    async def download_run_media(self, folder: str | Path, views: Sequence[MediaView]) -> list[Path]:
        """Download objects into a folder and return their files; those that are there already are left.

        Args:
            folder: Made if it is missing. Names of files are made of key, step and id, with plain characters alone.
            views: What `list_run_media` returned.
        """
        return [await self.session.run(media_operations.download_media(one, Path(folder))) for one in views]

    async def delete_run(self, run_id: str, *, forever: bool = False) -> RunView:
        """Mark a run as deleted: lists leave it out, and `restore_run` has it back.

        Args:
            run_id: The run.
            forever: Remove it for good instead, with its metrics, output, media and files.
        """
        return await self.session.run(runs.delete_run(run_id, forever=forever))

    async def restore_run(self, run_id: str) -> RunView:
        """Take the mark of a deleted run off again."""
        return await self.session.run(runs.restore_run(run_id))
