"""Wire models of media: what a trial, or a run that no cluster started, has logged beyond numbers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from detlab.schemas.wire.base import Wire

MediaKind = Literal[
    "image", "audio", "video", "text", "html", "table", "histogram", "confusion", "curves", "plotly", "points"
]


class MediaFacts(Wire):
    """What a task says of an object whose bytes are the body of its request."""

    key: str = Field(min_length=1, max_length=200)
    """The name under which it is shown, with others of its kind at other steps."""
    step: int = Field(ge=0, le=2**53)
    place: int = Field(0, ge=0, lt=100)
    """Among those of its key at its step. The first one replaces all that were there."""
    kind: MediaKind
    media_type: str = Field(max_length=100)
    """One of its kind's: `image/png`, `application/json` …"""
    caption: str = Field("", max_length=500)
    logged_at: float | None = Field(None, ge=0, allow_inf_nan=False)
    """When, by the clock of who logged it, in seconds since 1970; later than the master's clock counts as now."""


class MediaView(Wire):
    """An object that a trial has logged, or a run."""

    id: int
    trial_id: int = 0
    """0: it is a run's."""
    run_id: str = ""
    """Empty: it is a trial's."""
    step: int
    key: str
    place: int = 0
    kind: str
    """image, audio, video, text, html, table, histogram, confusion, curves, plotly or points."""
    media_type: str
    caption: str = ""
    size: int = 0
    """Bytes of its file."""
    width: int = 0
    """Pixels of an image; 0: it has none, or says none."""
    height: int = 0
    time: float = 0.0


class MediaPage(Wire):
    """A page of objects, in the order of their steps."""

    items: list[MediaView]
    next: str | None = None
    """`after` of the next page, or null on the last one."""


class MediaKeyView(Wire):
    """A key of a trial's media."""

    key: str
    kind: str
    count: int
    bytes: int
    first_step: int
    last_step: int


class MediaKeyList(Wire):
    """The keys of a trial's media."""

    items: list[MediaKeyView]
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class MediaStepList(Wire):
    """Steps at which a trial has logged media, in order."""

    items: list[int]
    next: int | None = None
    """`after` of the next part, or null on the last one."""
