"""A search at one of its events: what each trial was doing then, and why those that were stopped were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from detlab_hub.core.searchers.errors import ReplayMismatch
from detlab_hub.core.searchers.events import (
    BudgetSpent,
    CreateTrial,
    Decision,
    Event,
    PauseTrial,
    Reopened,
    ResumeTrial,
    SetPoint,
    StopTrial,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
)
from detlab_hub.core.searchers.searcher import Searcher

TrialPhase = Literal["running", "paused", "stopping", "ended"]
_EARLY = {
    "errored": "failed",
    "user_canceled": "canceled by a user",
    "invalid_hp": "its hyperparameters were invalid",
    "init_invalid_hp": "its hyperparameters were invalid",
}


@dataclass
class TrialHistory:
    """A trial as its search knew it.

    Attributes:
        trial: As the search created it.
        phase: Its phase; a trial that waits for slots counts as running.
        why: Why it was stopped, or how it ended.
        metrics: The values of the searcher metric that were journaled.
        failed: Whether it failed.
    """

    trial: CreateTrial
    phase: TrialPhase = "running"
    why: str = ""
    metrics: list[float] = field(default_factory=list)
    failed: bool = False


class History:
    """Follows a search through its events.

    Args:
        search: A search that has not started.
    """

    def __init__(self, search: Searcher) -> None:
        self.search = search
        self.trials: dict[str, TrialHistory] = {}

    def follow(self, entries: Iterable[tuple[Event, Sequence[Decision]]]) -> None:
        """Give the search its next events, and compare its decisions with the recorded ones.

        Raises:
            ReplayMismatch: It decides differently from the record.
            SearcherInputError: The search cannot use an event.
        """
        for place, (event, recorded) in enumerate(entries, start=1):
            self._happened(event)
            decided = self.search.step(event)
            if decided != list(recorded):
                raise ReplayMismatch(place, event, recorded, decided)
            for decision in decided:
                self._decided(event, decision)

    def _happened(self, event: Event) -> None:
        match event:
            case Reopened(request_ids):
                for request_id in request_ids:
                    one = self.trials[request_id]
                    one.phase, one.why, one.failed = "paused", "", False
            case ValidationReported(request_id, metric):
                self.trials[request_id].metrics.append(metric)
            case TrialExitedEarly(request_id, reason):
                one = self.trials[request_id]
                one.failed = one.failed or (reason == "errored" and not one.why)
                one.why = one.why or _EARLY[reason]
            case TrialExited(request_id):
                one = self.trials[request_id]
                one.phase, one.why = "ended", one.why or "ended by itself"

    def _decided(self, event: Event, decision: Decision) -> None:
        match decision:
            case CreateTrial(request_id):
                self.trials[request_id] = TrialHistory(decision)
            case SetPoint(request_id, hparams):
                one = self.trials[request_id]
                one.trial = replace(one.trial, hparams=hparams, later=False)
            case PauseTrial(request_id):
                self.trials[request_id].phase = "paused"
                self.trials[request_id].why = self.search.explain(request_id)
            case ResumeTrial(request_id):
                self.trials[request_id].phase, self.trials[request_id].why = "running", ""
            case StopTrial(request_id, finished, evidence):
                one = self.trials[request_id]
                one.phase = one.phase if one.phase == "ended" else "stopping"
                one.why = "has trained to the end" if finished else evidence or self._method_stopped(event, request_id)

    def _method_stopped(self, event: Event, request_id: str) -> str:
        if isinstance(event, BudgetSpent):
            return event.reason
        return self.search.explain(request_id) or f"stopped by {self.search.method.name}"
