"""Removal of code bundles that nothing runs any more, `Settings.bundles_keep` seconds after that was found.

Rows go first, in a transaction that looks once more whether something names them, then the files; a file without a row,
which a crash has left, is found by a scan of the folder. A submission looks for its bundle in its own transaction, so
that it sees the row or is refused; an upload of the same bundle waits, and stores it anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from detlab_hub.core.collection import code_goes
from detlab_hub.services.admission.bundles import Bundles, bundle_file
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import bundles
from detlab_hub.store.queries.statements import chunks

_log = logging.getLogger(__name__)
PERIOD = 86400.0
"""Seconds between two sweeps."""
PER_STEP = 50
"""Bundles that are removed in one transaction; uploads wait meanwhile."""
UPLOAD_SECONDS = 86400.0
"""Seconds that no upload takes."""


class BundleRetention(Service):
    """Removes bundles; see the module.

    Args:
        context: The master's.
        stored: Who takes uploads, and has the lock against them.
    """

    def __init__(self, context: ServiceContext, stored: Bundles) -> None:
        super().__init__(context)
        self._stored = stored
        self._looked_at: float | None = None

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Bundles])

    async def sweep(self) -> int:
        """Look once a day for what nothing names, and remove what is due; return how many went."""
        now = self._context.clock()
        if self._looked_at is not None and now - self._looked_at < PERIOD:
            return 0
        self._looked_at = now
        fresh, again = await self._context.read(bundles.unused)

        def note(unit: UnitOfWork) -> None:
            bundles.note_unused(unit.session, fresh, unit.now)
            bundles.note_unused(unit.session, again, None)

        if fresh or again:
            await self._context.write(note)
        keep = self._context.settings.bundles_keep
        since = await self._context.read(bundles.unused_since)
        due = sorted(digest for digest, at in since.items() if code_goes(at, now, keep))
        gone = 0
        for part in chunks(due, PER_STEP):
            gone += await self.remove(part)
        gone += await self._remove_orphans()
        if gone:
            _log.info("%d code bundles that nothing runs any more were removed", gone)
        return gone

    async def remove(self, digests: Sequence[str]) -> int:
        """Remove those of some bundles that are due and that nothing names; return how many."""
        async with self._stored.moving:
            going = await self._context.write(partial(_forget, digests=digests))
            files = [bundle_file(self._context.settings, digest) for digest in going]
            await self._context.workers.sweeps.run("", _unlink, files)
        return len(going)

    async def _remove_orphans(self) -> int:
        """Remove files that no row names and that no upload is about to store; return how many."""
        settings = self._context.settings
        before = self._context.clock() - UPLOAD_SECONDS
        old = await asyncio.to_thread(_older, settings.bundles_dir, before)
        if not old:
            return 0
        async with self._stored.moving:
            known = {bundle_file(settings, digest) for digest in await self._context.read(bundles.known)}
            orphans = [path for path in old if path not in known]
            await self._context.workers.sweeps.run("", _unlink, orphans)
        return len(orphans)


def _forget(unit: UnitOfWork, digests: Sequence[str]) -> list[str]:
    keep = unit.settings.bundles_keep
    since = bundles.unused_since(unit.session, digests)  # an upload meanwhile has cleared it
    due = [digest for digest in digests if code_goes(since.get(digest), unit.now, keep)]
    named = bundles.named(unit.session, due)
    going = [digest for digest in due if digest not in named]
    bundles.note_unused(unit.session, sorted(named), None)
    bundles.forget(unit.session, going)
    return going


def _older(root: Path, before: float) -> list[Path]:
    """Return the stored files that were last changed before a time."""
    found = []
    for path in root.glob("[0-9a-f][0-9a-f]/*"):
        try:
            if path.lstat().st_mtime < before:
                found.append(path)
        except FileNotFoundError:
            continue
    return found


def _unlink(paths: Collection[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("code that nothing runs any more stays: %s: %s", path, error.strerror)
