"""Removal of user tasks that ended long ago: their lines, then their rows, then their files.

The order is safe against crashes: as long as the row exists, the removal resumes; files that no row names are found by
a scan of the folder, after a start and once a day. Every step is a short transaction, and a sweep has a bounded number
of them, so that other writes are not delayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import TrialState
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.named_files import remove_unfinished
from detlab_hub.services.usertasks.outputs import Outputs
from detlab_hub.store.queries.logs import lines as logs
from detlab_hub.store.tables import AllocationRow, OutputRow, PartRow, TaskRow

_log = logging.getLogger(__name__)
STEPS_PER_SWEEP = 200
LINES_PER_STEP = 5_000
TASKS_PER_READ = 100
ORPHANS_PERIOD = 86400.0
"""Seconds between two scans for files that no row names."""
UPLOAD_SECONDS = 86400.0
"""Seconds that no upload takes."""
_STORED = re.compile(r"[0-9a-f]{64}")
ENDED = tuple(state.value for state in TrialState if state.terminal)


class Retention(Service):
    """Removes ended user tasks after `Settings.tasks_keep` seconds; 0 keeps them for ever."""

    def __init__(self, context: ServiceContext, outputs: Outputs) -> None:
        super().__init__(context)
        self._outputs = outputs
        self._looked_at: float | None = None

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Outputs])

    async def sweep(self) -> int:
        """Remove what is due, oldest first, within bounds; return how many tasks are gone."""
        now = self._context.clock()
        gone = 0
        keep = self._context.settings.tasks_keep
        if keep > 0:
            gone = await self._remove_due(now - keep)
        if self._looked_at is None or now - self._looked_at >= ORPHANS_PERIOD:
            await self.remove_orphans()
            await remove_unfinished(self._context)
            self._looked_at = now
        return gone

    async def _remove_due(self, before: float) -> int:
        due = await self._context.read(lambda s: _due(s, before))
        gone, steps = 0, 0
        for task_id in due:
            while steps < STEPS_PER_SWEEP:
                steps += 1
                digests = await self._context.write(partial(_remove_some, task_id=task_id))
                await asyncio.sleep(0)
                if digests is not None:
                    gone += 1
                    await self._outputs.remove_unnamed(digests)
                    break
        if gone:
            _log.info("%d user tasks that ended long ago were removed", gone)
        return gone

    async def remove_orphans(self) -> int:
        """Remove stored files that no task names (a crash came between the rows and them); return how many."""
        folders = await asyncio.to_thread(_folders, self._context.settings.outputs_dir)
        settings, removed = self._context.settings, 0
        for root in (settings.outputs_dir, settings.artifacts_dir, settings.media_dir):
            removed += await asyncio.to_thread(_remove_broken_uploads, root, self._context.clock() - UPLOAD_SECONDS)
        for folder in folders:
            digests = await asyncio.to_thread(_digests_in, folder)
            removed += await self._outputs.remove_unnamed(digests)
        if removed:
            _log.info("%d output files that no task names were removed", removed)
        return removed


def _due(s: Session, before: float) -> list[str]:
    query = (
        select(TaskRow.id)
        .where(TaskRow.state.in_(ENDED), TaskRow.created_at < before, TaskRow.ended_at < before)
        .order_by(TaskRow.created_at)
        .limit(TASKS_PER_READ)
    )
    return list(s.scalars(query))


def _remove_some(unit: UnitOfWork, task_id: str) -> Sequence[str] | None:
    """Remove some lines of a task, or with the last of them the task; then return the digests that it named."""
    s = unit.session
    if logs.remove(s, task_id, LINES_PER_STEP) >= LINES_PER_STEP:
        return None
    digests = list(s.scalars(select(OutputRow.digest).where(OutputRow.task_id == task_id)))
    mine = select(AllocationRow.id).where(AllocationRow.task_id == task_id)
    s.execute(delete(PartRow).where(PartRow.allocation_id.in_(mine)))
    for table in (OutputRow, AllocationRow):
        s.execute(delete(table).where(table.task_id == task_id))
    s.execute(delete(TaskRow).where(TaskRow.id == task_id))
    return digests


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


def _digests_in(folder: Path) -> list[str]:
    return [f"sha256:{path.name}" for path in folder.iterdir() if _STORED.fullmatch(path.name)]


def _remove_broken_uploads(root: Path, before: float) -> int:
    """Remove what remains of uploads that a master that died was receiving."""
    removed = 0
    for path in root.glob(".upload-*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()
                removed += 1
    return removed
