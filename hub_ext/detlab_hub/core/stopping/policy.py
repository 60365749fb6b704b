"""The interface of stopping policies: for each report, decide whether the trial should end, and on what evidence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from detlab.schemas.expconf.blocks.stopping import StoppingBlock


@dataclass(frozen=True, slots=True)
class Report:
    """A report of the searcher's metric.

    Attributes:
        request_id: The trial.
        loss: The metric, negated where larger is better: smaller is better. May be NaN or infinite.
        metric: As it was reported, for the evidence.
        time: The value of the searcher's `time_metric`, None where the report has none.
        sign: 1 if smaller is better, else -1: `metric` is `sign * loss`.
        elapsed: Seconds that the trial has run until the report; None if unknown.
        values: The other metrics of the search in the same report, by name: further objectives and constraints.
    """

    request_id: str
    loss: float
    metric: float
    time: float | None
    sign: float = 1.0
    elapsed: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)


class StopPolicy(ABC):
    """A stopping policy: deterministic, and given all reports in order, so that a replay gives the same answers.

    Attributes:
        name: The value of `stopping[].name`.
        Config: Schema of its entry in `stopping`, by which it is checked and documented.
        wants_elapsed: Whether it has to know how long a trial has run.
        wants_time: Whether it compares trials by the time metric, if the search has one.
        dry_run: Whether it only records what it would have stopped.
    """

    name: ClassVar[str]
    Config: ClassVar[type[StoppingBlock]]
    wants_elapsed: ClassVar[bool] = False
    wants_time: ClassVar[bool] = False
    dry_run: bool = False

    @classmethod
    @abstractmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Make the policy that an entry of `stopping` describes; it has been checked."""

    @abstractmethod
    def reported(self, report: Report) -> str | None:
        """Take a report; return the evidence if the trial should stop now, None if it should continue.

        Evidence is a sentence with the numbers, such as "best in 5 reports 0.912, needed 0.915".
        """

    @abstractmethod
    def state(self) -> Any:
        """Return the whole state as JSON values, for fingerprints."""


def shown(value: float) -> str:
    """Return a number for people."""
    return f"{value:.6g}"
