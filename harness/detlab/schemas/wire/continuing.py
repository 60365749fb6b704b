"""Experiments that have ended and go on: the same trials, from their checkpoints, for longer."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from detlab.schemas.wire.base import PersonRequest

MOST_CONTINUED = 10_000
"""Trials that one request may name."""


class ContinueExperiment(PersonRequest):
    """POST experiments/{experiment_id}/continue."""

    config: dict[str, Any] = {}
    """Keys to change, as in a config: `searcher.max_length` or `searcher.max_time`, which let trials that have trained
    to their end train on, and `max_restarts`."""
    trial_ids: list[Annotated[int, Field(ge=1, lt=2**63)]] = Field(default=[], max_length=MOST_CONTINUED)
    """Which trials; none: those that failed, were canceled or ran out of time, and with a greater length also those
    that have trained to their end."""
    from_earlier: bool = False
    """Whether a trial whose newest checkpoint is gone goes on from an earlier one, and repeats what came after it."""
    idempotency_key: Annotated[str, Field(max_length=300)] | None = None
    """The same request with the same key is carried out once."""
