"""Hyperparameter search as a pure function of configuration, seed and events.

`make_searcher` makes a `Searcher`; `Searcher.step` takes one event and answers with decisions; `replay`
brings a search back from its journal. Nothing here does I/O, reads a clock or has randomness of its own.
"""

from detlab_hub.core.searchers.configuration import SEARCHERS
from detlab_hub.core.searchers.errors import SearcherConfigError, SearcherInputError
from detlab_hub.core.searchers.events import (
    CreateTrial,
    Decision,
    Event,
    ExitReason,
    ProgressReported,
    Shutdown,
    Started,
    StopTrial,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
    decision_from_json,
    decision_to_json,
    event_from_json,
    event_to_json,
)
from detlab_hub.core.searchers.searcher import Searcher, make_searcher, replay

__all__ = [
    "SEARCHERS",
    "CreateTrial",
    "Decision",
    "Event",
    "ExitReason",
    "ProgressReported",
    "Searcher",
    "SearcherConfigError",
    "SearcherInputError",
    "Shutdown",
    "Started",
    "StopTrial",
    "TrialCreated",
    "TrialExited",
    "TrialExitedEarly",
    "ValidationReported",
    "decision_from_json",
    "decision_to_json",
    "event_from_json",
    "event_to_json",
    "make_searcher",
    "replay",
]
