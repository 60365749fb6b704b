"""Where media lie: a folder for each experiment and each run in the master's own directory, a file for each digest.

Equal bytes are stored once within one, and never found by anybody's digest: a file is opened by its row.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from detlab.files import sync_directory
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.checkpoints.artifact_files import make_private

_log = logging.getLogger(__name__)


def media_folder(settings: Settings, place: int | str) -> Path:
    """Return the folder of the media of an experiment, or of a run by its id."""
    if isinstance(place, str) and not re.fullmatch("[0-9a-f]{32}", place):
        raise ValueError(f"{place!r} is no id of a run")
    return settings.media_dir / (f"run-{place}" if isinstance(place, str) else str(int(place)))


def media_path(settings: Settings, place: int | str, digest: str) -> Path:
    """Return where the bytes of a digest are."""
    return media_folder(settings, place) / digest[:2] / digest


def keep_file(upload: Path, target: Path) -> None:
    """Move an upload to its place; equal bytes that are there already are replaced by themselves."""
    make_private(target.parent)
    upload.replace(target)
    sync_directory(target.parent)


def remove_media(settings: Settings, place: int | str, digests: Sequence[str]) -> None:
    """Remove files that no row names."""
    for digest in digests:
        path = media_path(settings, place, digest)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("a media file without a record stays: %s: %s", path, error.strerror)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def remove_all_media(settings: Settings, place: int | str) -> None:
    """Remove all media of an experiment, or of a run by its id."""
    shutil.rmtree(media_folder(settings, place), ignore_errors=True)
