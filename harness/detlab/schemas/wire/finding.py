"""Trials and experiments that were found by a filter, with chosen columns; completion of filters."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from detlab.schemas.wire.base import EndReason, TrialState, Wire
from detlab.schemas.wire.views import ExperimentView

FilteredTable: TypeAlias = Literal["trials", "experiments"]
CandidateKind: TypeAlias = Literal["column", "hyperparameter", "metric", "operator", "value", "word"]


class FoundColumn(Wire):
    """A column that was asked for."""

    name: str
    """As it was asked for."""
    kind: str
    """What its values are: number, text, labels, state, time, duration, …"""


class FoundTrial(Wire):
    """A trial in a table over all experiments."""

    id: int
    experiment_id: int
    index: int
    name: str = ""
    """Of its experiment, as are owner and labels."""
    owner: str = ""
    labels: list[str] = []
    state: TrialState
    end_reason: EndReason | None = None
    hparams: dict[str, Any] = {}
    steps_completed: int = 0
    restarts: int = 0
    progress: float = 0.0
    best_validation: float | None = None
    metric: str = ""
    """Name of the metric that its search goes by."""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    values: list[Any] = []
    """One for each column that was asked for, null where it has none."""
    shortened: list[str] = []
    """Fields of which the list has only a part, because they are long."""


class ExperimentPage(Wire):
    """One page of experiments, newest first or in the order that was asked for."""

    items: list[ExperimentView]
    columns: list[FoundColumn] = []
    """What `values` of each item are, if columns were asked for."""
    notes: list[str] = []
    """For people, on the first page: names that nothing has which the caller may see."""
    next: int | None = None
    """`before` of the next page, or null on the last one."""


class FoundTrials(Wire):
    """A page of trials."""

    items: list[FoundTrial]
    columns: list[FoundColumn] = []
    notes: list[str] = []
    """For people, on the first page: names that nothing has which the caller may see."""
    next: int | None = None
    """`after` of the next page, or null on the last one."""


class Candidate(Wire):
    """What may come next in a filter."""

    text: str
    """As it is written there."""
    kind: str
    """`column`, `hyperparameter`, `metric`, `operator`, `value` or `word`."""
    about: str = ""


class Completions(Wire):
    """What may come next in a filter at a cursor."""

    begin: int
    """Where the part begins that a candidate replaces, up to the cursor; from 0."""
    items: list[Candidate]
    problem: str = ""
    """What is wrong with the whole filter as it is, with a caret; empty: nothing."""
    column: int | None = None
    """Where, from 1."""
