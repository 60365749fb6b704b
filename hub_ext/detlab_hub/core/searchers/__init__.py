"""Hyperparameter search as a pure function of configuration, seed and events.

`make_searcher` makes a `Searcher`; `Searcher.step` takes one event and answers with decisions; `replay`
restores a search from its journal. Nothing here does I/O, reads a clock or draws from a random source.
"""

from detlab_hub.core.searchers.errors import (
    ReplayMismatch,
    SearcherConfigError,
    SearcherInputError,
    SearcherNotInstalled,
)
from detlab_hub.core.searchers.events import (
    CheckpointCommitted,
    CreateTrial,
    Decision,
    Event,
    ExitReason,
    ProgressReported,
    Shutdown,
    Started,
    StopTrial,
    Suggest,
    Suggested,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
    decision_from_json,
    decision_to_json,
    event_from_json,
    event_to_json,
)
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.method import Question, SearchMethod, TrialFactory
from detlab_hub.core.searchers.registry import method_class, needs_metric, searcher_names
from detlab_hub.core.searchers.searcher import Searcher, make_searcher, replay

__all__ = [
    "CheckpointCommitted",
    "CreateTrial",
    "Decision",
    "Event",
    "ExitReason",
    "Fields",
    "ProgressReported",
    "Question",
    "ReplayMismatch",
    "SearchMethod",
    "Searcher",
    "SearcherConfigError",
    "SearcherInputError",
    "SearcherNotInstalled",
    "Shutdown",
    "Started",
    "StopTrial",
    "Suggest",
    "Suggested",
    "TrialCreated",
    "TrialExited",
    "TrialExitedEarly",
    "TrialFactory",
    "ValidationReported",
    "decision_from_json",
    "decision_to_json",
    "event_from_json",
    "event_to_json",
    "make_searcher",
    "method_class",
    "needs_metric",
    "replay",
    "searcher_names",
]
