"""Wire models of how long output is kept, and of what is gone."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from detlab.schemas.wire import PersonRequest, Wire


class KeepLogs(PersonRequest):
    """For how long the output of experiments is kept."""

    days: Annotated[int, Field(ge=-1, le=32767)] | None
    """After the end of a trial; -1: forever; 0: until the next cleaning; null: the master's default."""
    experiments: list[Annotated[int, Field(ge=1, lt=2**63)]] = Field(default=[], max_length=500)
    """Of these …"""
    all: bool = False
    """… or of all that the caller owns."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.all == bool(self.experiments):
            raise ValueError("name experiments, or set all")
        return self


class KeepLogsReply(Wire):
    """What became of it."""

    changed: list[int]
    """Experiments for which it is new."""


class RemovedLogs(Wire):
    """What retention has removed of an output."""

    removed: int = 0
    """Lines."""
    removed_at: float | None = None
    """When, the last time; seconds since the epoch."""
