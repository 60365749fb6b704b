"""A small search in which much happens, by asynchronous halving: what its trials do, and what it came to.

Four trials, one at a time, of at most three steps. The first trial's first attempt dies and begins again at its
checkpoint; the third trial is paused after its second step, by whoever drives it, and goes on later. One trial at a
time makes every decision follow from the seed alone, whatever happens to the master.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.checkpoint_ids import checkpoint_id
from detlab.schemas.wire import Launch
from detlab_hub.core.searchers import decision_from_json, event_from_json, replay
from detlab_hub.store.engine import parse_url, reader_engine
from detlab_hub.store.tables import (
    AllocationRow,
    CheckpointRow,
    EventRow,
    ExperimentRow,
    MetricName,
    MetricPoint,
    MetricSeries,
    SearcherJournal,
    TrialRow,
)

LENGTH = 3
TRIALS = 4
PAUSED = (2, 1, 2)
"""After this report, of trial, attempt and step, the search is to be paused and activated again."""
CONFIG: dict[str, Any] = {
    "name": "small",
    "entrypoint": "true",
    "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
    "searcher": {
        "name": "async_halving",
        "metric": "loss",
        "time_metric": "batches",
        "max_time": LENGTH,
        "num_rungs": 2,
        "divisor": 2,
        "max_trials": TRIALS,
        "max_concurrent_trials": 1,
    },
    "reproducibility": {"experiment_seed": 11},
    "resources": {"slots_per_trial": 1},
}


def script(launch: Launch) -> Iterator[tuple[Any, ...]]:
    """What a trial does, one operation after the other: report every step, save every odd one, poll."""
    info = launch.info
    level = random.Random(info.trial_seed).random()
    start = yield ("resume",)
    for step in range(start + 1, LENGTH + 1):
        yield ("metrics", "validation", step, {"loss": level + 1.0 / step, "batches": step})
        if (info.trial_index, launch.run, step) == (0, 1, 2):
            yield ("exit", -9)
        if step % 2 == 1:
            yield ("save", step)
        if (yield ("poll",)):
            yield ("save", step)
            yield ("exit", 0)
    yield ("exit", 0)


def uuid_of(number: int, trial_id: int) -> str:
    """The name of the search's checkpoint of this number, of this trial."""
    return checkpoint_id(number << 80, trial_id)


def over(s: Session) -> bool:
    """Whether the one experiment of this database has been completed."""
    return [row.state for row in s.scalars(select(ExperimentRow))] == ["COMPLETED"]


def outcome_in(url: str) -> dict[str, Any]:
    """`outcome` of a database, read beside the master."""
    with reading(url) as session:
        return outcome(session)


@contextmanager
def reading(url: str) -> Iterator[Session]:
    """One look at a database."""
    engine = reader_engine(parse_url(url), 1)
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


def outcome(s: Session) -> dict[str, Any]:
    """What the search came to: everything that must not depend on what happened to the master."""
    (experiment,) = s.scalars(select(ExperimentRow)).all()
    # Trials by their place in the search: PostgreSQL does not give out a number again that a crash has taken.
    place = {row.id: row.idx for row in s.execute(select(TrialRow.id, TrialRow.idx))}

    def placed(query: Any) -> list[tuple[Any, ...]]:
        return [(place[trial], *rest) for trial, *rest in s.execute(query)]

    def numbered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Checkpoints by their number in the search, for the same reason: their ids have the trial's number in them."""
        own = {idx: trial for trial, idx in place.items()}
        names = {trial: {uuid_of(number, own[trial]): number for number in range(1, 1000)} for trial in own}
        return [(*row[:4], names[row[0]][row[4]], *row[5:]) for row in rows]

    return {
        "decisions": _decisions(s, experiment),
        "experiment": (experiment.state, experiment.best_value, experiment.progress),
        "trials": _rows(s, _TRIALS),
        "metrics": placed(_METRICS),
        "told": [(trial, data["steps_completed"], data["metrics"]) for trial, data in placed(_TOLD)],
        "checkpoints": numbered(placed(_CHECKPOINTS)),
        "allocations": placed(_ALLOCATIONS),
    }


def _decisions(s: Session, experiment: ExperimentRow) -> list[Any]:
    """What the searcher decided; the journal alone must give the same decisions again (I8)."""
    entries = s.scalars(select(SearcherJournal).order_by(SearcherJournal.seq)).all()
    stored = [[decision_from_json(item) for item in entry.decisions] for entry in entries]
    events = [event_from_json(entry.event) for entry in entries]
    config = experiment.config
    search, decided = replay(config["searcher"], config["hyperparameters"], experiment.seed, events)
    assert decided == stored
    return [search.fingerprint(), *(decisions for decisions in stored if decisions)]


def _rows(s: Session, query: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in s.execute(query)]


_TRIALS = select(
    TrialRow.idx,
    TrialRow.request_id,
    TrialRow.hparams,
    TrialRow.seed,
    TrialRow.state,
    TrialRow.end_reason,
    TrialRow.steps_completed,
    TrialRow.restarts,
    TrialRow.run,
    TrialRow.best_validation,
).order_by(TrialRow.idx)

_METRICS = (
    select(
        MetricSeries.trial_id,
        MetricSeries.group_name,
        MetricName.name,
        MetricPoint.step,
        MetricPoint.run,
        MetricPoint.value,
    )
    .join(MetricSeries, MetricPoint.series_id == MetricSeries.id)
    .join(MetricName, MetricSeries.name_id == MetricName.id)
    .order_by(MetricSeries.trial_id, MetricSeries.group_name, MetricName.name, MetricPoint.step)
)

_TOLD = select(EventRow.trial_id, EventRow.data).where(EventRow.kind == "metrics").order_by(EventRow.id)

_CHECKPOINTS = select(
    CheckpointRow.trial_id,
    CheckpointRow.run,
    CheckpointRow.steps_completed,
    CheckpointRow.state,
    CheckpointRow.uuid,
    CheckpointRow.manifest_digest,
).order_by(CheckpointRow.uuid)

_ALLOCATIONS = select(AllocationRow.trial_id, AllocationRow.run, AllocationRow.state).order_by(
    AllocationRow.trial_id, AllocationRow.run
)
