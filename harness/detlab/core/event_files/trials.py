"""Into a trial: what event files say goes the way of what a training reports."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from detlab.core.event_files.importing import EventImport
from detlab.core.metrics.media import MediaSpool
from detlab.core.metrics.spool import Spool
from detlab.media import EncodedMedia
from detlab.schemas.wire.logged_names import place_of


class TrialTarget:
    """Leaves metrics and media in the spool of the task, from which the launcher sends them.

    Args:
        spool: The task's `spool` folder.
        searched: The metric that the search goes by: one of validation, whatever it is called.
    """

    def __init__(self, spool: Path, searched: str) -> None:
        self._spool = Spool(spool)
        self._media = MediaSpool(spool / "media")
        self._searched = searched

    def metrics(self, step: int, values: dict[str, float], at: float) -> None:
        """Append a report for each group that the names belong to."""
        groups: dict[str, dict[str, float]] = {}
        for key, value in values.items():
            group, name = place_of(key, self._searched)
            groups.setdefault(group, {})[name] = value
        for group, metrics in groups.items():
            fields = {"group": group, "steps_completed": step, "metrics": metrics, "time": at}
            self._spool.append("metrics", fields)

    def media(self, key: str, step: int, place: int, encoded: EncodedMedia) -> None:
        """Leave one object for the launcher."""
        self._media.add(key, step, place, encoded)


def import_into_trial(
    root: Path,
    config: Mapping[str, Any],
    say: Callable[[str], None],
    *,
    since: float,
    processes: Callable[[], Iterable[int]],
) -> EventImport:
    """Return the import of what a trial's processes write, not started yet.

    Args:
        root: The directory of the task.
        config: Of its experiment.
        say: Writes a line into the task's output.
        since: When the attempt began, in seconds since the epoch.
        processes: Returns those of the task.
    """
    searched = str((config.get("searcher") or {}).get("metric") or "")
    own = root / "tensorboard"
    folders = [root / "work", root / "tmp", own / "rank0"]
    return EventImport(TrialTarget(root / "spool", searched), folders, say, since=since, processes=processes, own=own)


def import_of_process(target: Any, folder: Path, say: Callable[[str], None], *, own: Path | None = None) -> EventImport:
    """Return the import of what this process writes from now on, not started yet.

    Args:
        target: Takes what is found.
        folder: Where else to look.
        say: Tells the user a line.
        own: The folder of a trainer's own event files.
    """
    return EventImport(target, [folder], say, since=time.time(), processes=lambda: [os.getpid()], own=own)
