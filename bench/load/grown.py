"""A search that has had ten thousand trials: made in seconds by the search itself, without running anything.

The master makes the experiment and stops. Then this gives its search the events of so many trials, as the master would
have (each reports at every rung until it is stopped, then exits), and writes what the master would have written: the
journal, the trials, their attempts, and one series with its points for each. What is pending then is what the master
made last, so that it goes on by itself when it starts again.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from detlab_hub.core.searchers import (
    CreateTrial,
    Event,
    StopTrial,
    TrialCreated,
    TrialExited,
    ValidationReported,
    decision_to_json,
    event_from_json,
    event_to_json,
    replay,
)
from detlab_hub.core.searchers.halving.rungs import rung_units
from detlab_hub.store import InlineExecutor, Store
from detlab_hub.store.tables import (
    AllocationRow,
    ExperimentMetric,
    ExperimentRow,
    MetricName,
    MetricPoint,
    MetricSeries,
    SearcherJournal,
    TrialRow,
)

NOW = 1.0e9
SPACE = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}}
SPACE |= {"layers": {"type": "int", "minval": 1, "maxval": 8}, "act": {"type": "categorical", "vals": ["relu", "gelu"]}}
METRIC = "loss"


def config_of(trials: int, concurrent: int, rungs: int = 4, divisor: int = 4, length: int = 64) -> dict[str, Any]:
    """Return an ASHA search of at most `trials` trials."""
    searcher = {"name": "async_halving", "metric": METRIC, "time_metric": "batches", "max_time": length}
    searcher |= {"num_rungs": rungs, "divisor": divisor, "max_trials": trials, "max_concurrent_trials": concurrent}
    return {"name": "grown", "searcher": searcher, "hyperparameters": SPACE, "resources": {"slots_per_trial": 1}}


@dataclass
class _Growth:
    """Rows to be written."""

    journal: list[dict[str, Any]] = field(default_factory=list)
    made: dict[str, CreateTrial] = field(default_factory=dict)
    reports: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)


def grow(url: str, experiment_id: int, trials: int) -> None:
    """Give a search so many ended trials. No master may run."""
    store = Store.open(url, holder="bench", writer=InlineExecutor())
    try:
        store.write_sync(lambda s: _grow(s, experiment_id, trials))
    finally:
        store.close()


def _grow(s: Session, experiment_id: int, trials: int) -> None:
    experiment = s.get_one(ExperimentRow, experiment_id)
    query = select(SearcherJournal).where(SearcherJournal.experiment_id == experiment_id).order_by(SearcherJournal.seq)
    before = list(s.scalars(query))
    config = experiment.config
    events = [event_from_json(row.event) for row in before]
    searcher, _ = replay(config["searcher"], config["hyperparameters"], experiment.seed, events)
    growth = _Growth()
    rows = s.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.idx)).all()
    running = deque(row.request_id for row in rows)
    known = {row.request_id for row in rows}

    def step(event: Event) -> list[Any]:
        revision = searcher.revision
        decisions = searcher.step(event)
        if searcher.revision != revision or decisions:
            entry = {"experiment_id": experiment_id, "seq": before[-1].seq + len(growth.journal) + 1}
            entry |= {"event": event_to_json(event), "decisions": [decision_to_json(one) for one in decisions]}
            growth.journal.append(entry)
        for decision in decisions:
            if isinstance(decision, CreateTrial):
                growth.made[decision.request_id] = decision
                running.append(decision.request_id)
                step(TrialCreated(decision.request_id))
        return decisions

    chance = random.Random(7)
    asked = config["searcher"]
    rungs = rung_units(asked["num_rungs"], asked["divisor"], asked["max_time"])
    while len(growth.ended) < trials:
        request_id = running.popleft()
        reports = growth.reports[request_id] = []
        level = chance.random()
        for batches in rungs:
            reports.append((batches, level + 1.0 / batches))
            decisions = step(ValidationReported(request_id, reports[-1][1], float(batches)))
            if any(isinstance(one, StopTrial) for one in decisions):
                break
        growth.ended.append(request_id)
        step(TrialExited(request_id))
    _write(s, experiment, growth, known)


def _write(s: Session, experiment: ExperimentRow, growth: _Growth, known: set[str]) -> None:
    ended = set(growth.ended)
    s.execute(insert(SearcherJournal), growth.journal)
    rows = []
    for request_id, made in growth.made.items():
        state = "COMPLETED" if request_id in ended else "ACTIVE"
        row = {"experiment_id": experiment.id, "idx": made.index, "request_id": request_id, "state": state, "run": 1}
        rows.append({**row, "hparams": made.hparams, "seed": made.trial_seed, "created_at": NOW, "metrics_run": 0})
    s.execute(insert(TrialRow), rows)
    query = select(TrialRow.id, TrialRow.request_id).where(TrialRow.experiment_id == experiment.id)
    ids = {request_id: key for key, request_id in s.execute(query)}
    first = {"trial_id": 0, "experiment_id": experiment.id, "owner": experiment.owner, "run": 1, "slots_needed": 1}
    first |= {"requested_at": NOW}
    fresh = [
        {
            **first,
            "id": f"{experiment.id}.{key}.1",
            "trial_id": ids[key],
            "requested_at": NOW,
            "state": _state(key, ended),
        }
        for key in growth.made
    ]
    s.execute(insert(AllocationRow), fresh)
    old = [ids[key] for key in ended & known]
    s.execute(update(AllocationRow).where(AllocationRow.trial_id.in_(old)).values(state="TERMINATED"))
    changes = [
        {
            "id": ids[key],
            "state": "COMPLETED",
            "end_reason": "stopped",
            "searcher_stopped": True,
            "searcher_metric_seen": True,
            "metrics_run": 1,
            "steps_completed": growth.reports[key][-1][0],
            "best_validation": min(value for _, value in growth.reports[key]),
            "latest_validation": growth.reports[key][-1][1],
        }
        for key in growth.ended
    ]
    s.execute(update(TrialRow), changes)
    _write_metrics(s, experiment, {ids[key]: growth.reports[key] for key in growth.ended})


def _state(request_id: str, ended: set[str]) -> str:
    return "TERMINATED" if request_id in ended else "PENDING"


def _write_metrics(s: Session, experiment: ExperimentRow, reports: dict[int, list[tuple[int, float]]]) -> None:
    name = MetricName(name=METRIC)
    s.add(name)
    s.flush()
    s.add(ExperimentMetric(experiment_id=experiment.id, group_name="validation", name_id=name.id))
    rows = []
    for trial_id, found in reports.items():
        values = [value for _, value in found]
        row = {"trial_id": trial_id, "group_name": "validation", "name_id": name.id, "count": len(found)}
        row |= {"finite_sum": sum(values), "min": min(values), "max": max(values), "last": values[-1]}
        rows.append({**row, "last_step": found[-1][0], "unrolled": len(found)})
    s.execute(insert(MetricSeries), rows)
    ids = dict(s.execute(select(MetricSeries.trial_id, MetricSeries.id).where(MetricSeries.name_id == name.id)).all())
    points = [
        {"series_id": ids[trial_id], "step": step, "run": 1, "value": value, "flag": 0, "time": NOW}
        for trial_id, found in reports.items()
        for step, value in found
    ]
    s.execute(insert(MetricPoint), points)
