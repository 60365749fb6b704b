"""What users do to a search while it runs, and what its journal says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from detlab.schemas.wire.base import Wire

MOST_POINTS = 1000
MOST_TRIALS_MORE = 10_000
"""As many as a search may have at a time: they may all be made in one transaction."""
SearchAct = Literal["extend", "add", "retry", "bounds", "concurrency", "stop", "promote"]


class SteerSearch(Wire):
    """POST experiments/{id}/search: one act; each act has the fields that it names, and leaves the others alone."""

    act: SearchAct
    trials: int = Field(0, ge=0, le=MOST_TRIALS_MORE)
    """Of `extend`: further trials."""
    units: int = Field(0, ge=0, le=10**12)
    """Of `extend`: further units of the time metric for the longest trials."""
    points: list[dict[str, Any]] = Field(default=[], max_length=MOST_POINTS)
    """Of `add`: hyperparameters of the next trials."""
    hyperparameters: dict[str, Any] | None = None
    """Of `bounds`: the whole block as it is from now on."""
    limit: int | None = Field(None, ge=0, le=MOST_TRIALS_MORE)
    """Of `concurrency`: trials at a time, 0 for no limit."""
    trial_ids: list[int] = Field(default=[], max_length=MOST_POINTS)
    """Of `retry`: failed trials, all of them if empty; of `stop` and `promote`: one trial."""
    idempotency_key: Annotated[str, Field(max_length=300)] | None = None
    """The same act with the same key is carried out once."""


class JournalEntry(Wire):
    """An event of a search and what the search decided."""

    seq: int
    at: float | None = None
    """Seconds since the epoch; None if an earlier version wrote it."""
    event: dict[str, Any]
    decisions: list[dict[str, Any]]


class ReplayedTrial(Wire):
    """A trial as the search knew it at an event."""

    id: int | None = None
    index: int
    request_id: str
    hparams: dict[str, Any]
    state: Literal["running", "paused", "stopping", "ended"]
    why: str = ""
    """Why it was stopped or how it ended, for people."""
    best: float | None = None
    """Its best value of the searcher metric until then."""
    reports: int = 0
    """Reports that the journal has."""


class ReplayedSearch(Wire):
    """A search at one of its events, computed anew from its journal."""

    at: int
    """The event: it is the last one that was replayed."""
    events: int
    """Events that the journal has."""
    time: float | None = None
    last: dict[str, Any] | None = None
    """The event itself."""
    progress: float
    trials_total: int
    """Trials that the search makes at most."""
    trials: list[ReplayedTrial]
    over: bool
