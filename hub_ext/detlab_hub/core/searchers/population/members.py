"""The members of a population, and where each stands in its round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from detlab_hub.core.searchers.model_based.axes import Coordinate
from detlab_hub.core.searchers.objectives import Score

Place = Literal["training", "leaving", "waiting", "without_checkpoint", "gone"]
"""Trains its round; has reported its end and saves; is off its slots; is so, but has not saved; has ended."""


@dataclass(frozen=True)
class Origin:
    """What a clone comes from.

    Attributes:
        request_id: The parent.
        checkpoint: The parent's, from which the clone starts.
        hparams: The parent's.
    """

    request_id: str
    checkpoint: str
    hparams: dict[str, Any]


@dataclass
class PopulationMember:
    """A trial of the population.

    Attributes:
        request_id: The trial.
        hparams: Its point.
        round: The round that it trains, from 0.
        origin: What it was cloned from; None for a trial of the first round.
        offset: Units before its own count: 0 if it counts from where its parent was; None until its first report.
        place: Where it stands.
        score: Of this round.
        checkpoint: The newest one of this round.
        own: The newest one of all.
    """

    request_id: str
    hparams: dict[str, Any]
    round: int
    origin: Origin | None = None
    offset: int | None = 0
    place: Place = "training"
    score: Score | None = None
    checkpoint: str | None = None
    own: str | None = None

    def begin(self, number: int) -> None:
        """Train another round, or the same one again."""
        self.round = number
        self.place = "training"
        self.score = self.checkpoint = None

    def units(self, time: float, start: int) -> int:
        """Return what a report says of its training, counted from the parent's beginning.

        Training code may restore its counter from a parent's checkpoint, or count from zero: the first report tells.

        Args:
            time: The report's time metric.
            start: Units at which its round begins.
        """
        if self.offset is None:
            self.offset = 0 if time > start else start
        return int(time) + self.offset

    def saved(self, uuid: str) -> None:
        """Note a checkpoint."""
        self.own = self.checkpoint = uuid

    @property
    def pinned(self) -> set[str]:
        """The checkpoints that it, or a clone of it, may start from."""
        pins = {uuid for uuid in (self.own, self.checkpoint) if uuid is not None}
        if self.origin is not None and self.own is None:
            pins.add(self.origin.checkpoint)
        return pins

    def state(self) -> list[Any]:
        """Return it as JSON values."""
        origin = self.origin and [self.origin.request_id, self.origin.checkpoint]
        score = self.score and [self.score.violation, *self.score.losses]
        return [self.round, origin, self.offset, self.place, score, self.checkpoint, self.own]


class Gain(NamedTuple):
    """What a trial gained in a round.

    Attributes:
        at: Its coordinates.
        round: The round, from 0.
        gain: By how much its loss fell; in the first round, the loss negated.
    """

    at: tuple[Coordinate | None, ...]
    round: int
    gain: float
