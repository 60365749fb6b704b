"""Where the files of runs and of the models that they log lie: a folder each, in the master's own directory."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.settings import Settings


def root_folder(settings: Settings, root: str) -> Path:
    """Return the folder of the files of a run, a model or a checkpoint; its name is a UUID."""
    text = root.removeprefix("m-").replace("-", "")
    parts = text[:8], text[8:12], text[12:16], text[16:20], text[20:]
    return settings.artifacts_dir / "-".join(parts)


def file_path(settings: Settings, root: str, path: str) -> Path:
    """Return where a file's bytes are."""
    return root_folder(settings, root).joinpath(*PurePosixPath(path).parts)


def make_private(folder: Path) -> None:
    """Make a folder for the master alone, and those above it that are missing: `parents=True` leaves these open."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)


async def remove_snapshots(context: ServiceContext, uuids: Sequence[str]) -> None:
    """Remove the files of checkpoints of runs that the database does not know any more."""
    if uuids:
        await context.workers.removals.run("", remove_roots, context.settings, uuids)


def remove_roots(settings: Settings, roots: Sequence[str]) -> None:
    """Remove all files of some runs and models, which the database does not know any more."""
    for root in roots:
        shutil.rmtree(root_folder(settings, root), ignore_errors=True)
