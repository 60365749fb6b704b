"""Operations on media: what a trial or a run has logged beyond numbers."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow
from detlab.media.base import suffix_of
from detlab.schemas.wire.media import MediaKeyView, MediaView

_MOST_NAME = 80


def list_media(
    trial_id: int,
    *,
    key: str | None = None,
    kind: str | None = None,
    step: int | None = None,
    at: int | None = None,
    limit: int | None = None,
) -> Flow[list[MediaView]]:
    """List objects that a trial has logged, in the order of their steps.

    Args:
        trial_id: The trial.
        key: Of this key alone.
        kind: Of this kind alone: image, table, …
        step: Of this step alone.
        at: Of each key, those of its newest step up to this one.
        limit: At most so many.
    """
    params = {"key": key, "kind": kind, "step": step, "at": at}
    return pages(f"trials/{int(trial_id)}/media", MediaView, "after", limit, params)


def list_run_media(
    run_id: str,
    *,
    key: str | None = None,
    kind: str | None = None,
    step: int | None = None,
    at: int | None = None,
    limit: int | None = None,
) -> Flow[list[MediaView]]:
    """List objects that a run has logged which no cluster started, in the order of their steps.

    Args:
        run_id: The run; see `list_media`.
        key: Of this key alone.
        kind: Of this kind alone: image, table, …
        step: Of this step alone.
        at: Of each key, those of its newest step up to this one.
        limit: At most so many.
    """
    params = {"key": key, "kind": kind, "step": step, "at": at}
    return pages(f"runs/{quote(run_id, safe='')}/media", MediaView, "after", limit, params)


def media_keys(trial_id: int) -> Flow[list[MediaKeyView]]:
    """List the keys under which a trial has logged objects."""
    return pages(f"trials/{int(trial_id)}/media/keys", MediaKeyView, "skip", None)


def media_bytes(view: MediaView) -> Flow[bytes]:
    """Fetch the content of an object."""
    return one(Call("GET", _path(view), parse=lambda reply: reply.body))


def download_media(view: MediaView, folder: Path) -> Flow[Path]:
    """Download the file of an object into a folder, unless it is there already; return its path."""
    target = folder / file_name(view)
    if target.is_file() and target.stat().st_size == view.size:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")
    try:
        yield Call("GET", _path(view), sink=lambda: partial.open("wb"))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def file_name(view: MediaView) -> str:
    """Return a plain file name for an object, whatever its key is: the key is what a training has said."""
    key = re.sub(r"[^\w.-]+", "_", view.key)[:_MOST_NAME].strip("._ ") or view.kind
    return f"{key}-step{view.step:06d}-{view.place:02d}-{view.id}{suffix_of(view.kind, view.media_type)}"


def _path(view: MediaView) -> str:
    of = f"runs/{quote(view.run_id, safe='')}" if view.run_id else f"trials/{view.trial_id}"
    return f"{of}/media/{view.id}/file"
