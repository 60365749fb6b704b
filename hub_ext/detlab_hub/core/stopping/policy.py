"""The interface of stopping policies: for each report, decide whether the trial should end, and on what evidence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Report:
    """A report of the searcher's metric.

    Attributes:
        request_id: The trial.
        loss: The metric, negated where larger is better: smaller is better. May be NaN or infinite.
        metric: As it was reported, for the evidence.
        time: The value of the searcher's `time_metric`, None where the report has none.
    """

    request_id: str
    loss: float
    metric: float
    time: float | None


class StopPolicy(ABC):
    """A stopping policy: deterministic, and given all reports in order, so that a replay gives the same answers.

    Attributes:
        name: The value of `stopping[].name`.
    """

    name: ClassVar[str]

    @abstractmethod
    def reported(self, report: Report) -> str | None:
        """Take a report; return the evidence if the trial should stop now, None if it should continue.

        Evidence is a sentence with the numbers, such as "best in 5 reports 0.912, needed 0.915".
        """

    @abstractmethod
    def state(self) -> Any:
        """Return the whole state as JSON values, for fingerprints."""
