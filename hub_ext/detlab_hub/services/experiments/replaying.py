"""The state of a search at one of its events: decisions from its journal, slots and reports from rows with times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from detlab.errors import Conflict, NotFound
from detlab.schemas.wire import BestView, BudgetView, ParentView, ReplayedSearch, ReplayedTrial, StandingView
from detlab_hub.core.searchers import (
    Objectives,
    ReplayMismatch,
    SearcherConfigError,
    SearcherInputError,
    decision_from_json,
    event_from_json,
    make_searcher,
    rules_of,
)
from detlab_hub.core.searchers.history import History, TrialHistory
from detlab_hub.services.base.searches import REFUSED, UNDECIDED
from detlab_hub.services.views import budget_views
from detlab_hub.services.views.experiment_views import parent_views
from detlab_hub.store.queries.experiments import journal_length, journal_page
from detlab_hub.store.queries.metrics import feasible
from detlab_hub.store.queries.trials import on_slots
from detlab_hub.store.tables import ExperimentRow, TrialRow

MOST_EVENTS = 100_000
"""Events that are replayed for a reader; a longer journal is replayed only by the master itself."""


@dataclass(frozen=True)
class _Moment:
    """The moment of a replay.

    Attributes:
        at: Number of the last event replayed.
        events: Events in the journal.
        time: Seconds since the epoch: of the event, or now if it is the newest one.
        last: The event; None before the first.
    """

    at: int
    events: int
    time: float
    last: Row[Any] | None

    @property
    def past(self) -> bool:
        """Whether there are later events."""
        return self.at < self.events


def replayed(s: Session, row: ExperimentRow, at: int | None, now: float) -> ReplayedSearch:
    """Replay a search up to an event, by default the newest.

    Raises:
        Conflict: The journal is too long, or this version of detlab decides differently.
        NotFound: There is no such event.
    """
    events = journal_length(s, row.id)
    last = events if at is None else at
    if not 0 <= last <= events:
        raise NotFound(f"the search of experiment {row.id} has no event {last}: it has {events}")
    if last > MOST_EVENTS:
        raise Conflict(f"the journal of experiment {row.id} has {events:,} events; {MOST_EVENTS:,} can be replayed")
    entries = [one for one in journal_page(s, row.id, 0, last) if one.seq <= last]
    history = _followed(row, [one for one in entries if one.decisions not in (UNDECIDED, REFUSED)])
    newest = entries[-1] if entries else None
    time = now if last == events else (newest and newest.at) or row.created_at
    return _view(s, row, history, _Moment(last, events, time, newest))


def _followed(row: ExperimentRow, entries: Sequence[Row[Any]]) -> History:
    space, stopping = row.config.get("hyperparameters") or {}, row.config.get("stopping") or ()
    try:
        events = [event_from_json(one.event) for one in entries]
        rules = rules_of(events)
        history = History(make_searcher(row.config["searcher"], space, row.seed, stopping=stopping, rules=rules))
        decided = ([decision_from_json(said) for said in one.decisions] for one in entries)
        history.follow(zip(events, decided, strict=True))
    except (ReplayMismatch, SearcherConfigError, SearcherInputError) as error:
        raise Conflict(f"this version of detlab cannot replay the search of experiment {row.id}: {error}") from error
    return history


def _view(s: Session, row: ExperimentRow, history: History, moment: _Moment) -> ReplayedSearch:
    search = history.search
    rows = {trial.request_id: trial for trial in s.scalars(select(TrialRow).filter_by(experiment_id=row.id))}
    parents = {one.trial_id: one for one in parent_views(s, list(rows.values()))}
    held = on_slots(s, row.id, moment.time)
    return ReplayedSearch(
        at=moment.at,
        events=moment.events,
        time=None if moment.last is None else moment.last.at,
        last=None if moment.last is None else moment.last.event,
        progress=search.progress(),
        trials_total=search.trials_total,
        over=search.shutdown is not None,
        best=_best(s, row, {trial.id: trial.idx for trial in rows.values()}, moment),
        budgets=_budgets(s, row, moment),
        standing=[StandingView(where=one.where, counts=dict(one.counts)) for one in search.method.standing()],
        trials=[_trial(one, row, rows.get(one.trial.request_id), held, parents) for one in history.trials.values()],
    )


def _trial(
    one: TrialHistory,
    experiment: ExperimentRow,
    row: TrialRow | None,
    held: set[int],
    parents: Mapping[int, ParentView],
) -> ReplayedTrial:
    best = min if experiment.smaller_is_better else max
    waiting = one.phase == "running" and (row is None or row.id not in held)
    return ReplayedTrial(
        id=None if row is None else row.id,
        index=one.trial.index,
        request_id=one.trial.request_id,
        hparams=one.trial.hparams,
        point_due=one.trial.later,
        state="waiting" if waiting else one.phase,
        why=_why(one, row),
        parent=None if row is None else parents.get(row.id),
        best=best((value for value in one.metrics if not math.isnan(value)), default=None),
        reports=len(one.metrics),
    )


def _why(one: TrialHistory, row: TrialRow | None) -> str:
    """Return why a trial stopped; for a failed one with its failure."""
    message = ((row and row.failure) or {}).get("message")
    return f"{one.why}: {message}" if one.failed and message else one.why


def _best(s: Session, row: ExperimentRow, indices: dict[int, int], moment: _Moment) -> BestView | None:
    """Return the best report until then; also of reports that the search has no event for."""
    found: tuple[int, int, float] | None
    if moment.past:
        bounds = Objectives.from_config(row.config.get("searcher") or {}).bounds
        limits = {bound.name: (bound.low, bound.high) for bound in bounds}
        goal = feasible.Goal("validation", row.metric, row.smaller_is_better, limits)
        found = feasible.best_until(s, row.id, goal, moment.time)
    elif row.best_trial_id is None or row.best_step is None or row.best_value is None:
        found = None
    else:
        found = row.best_trial_id, row.best_step, row.best_value
    if found is None:
        return None
    trial_id, step, value = found
    return BestView(trial_id=trial_id, trial_index=indices.get(trial_id, 0), steps_completed=step, value=value)


def _budgets(s: Session, row: ExperimentRow, moment: _Moment) -> list[BudgetView]:
    """Return what was used of each budget; only the sum of pauses is known, so a past moment may have no wall-clock."""
    found = budget_views.views(s, row, moment.time)
    unsure = moment.past and row.paused_seconds > 0
    return [one for one in found if one.name != "wall_clock" or not unsure]
