"""Turns that share a commit: a search stands where the journal says, whichever of them was undone."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE, asha, config
from sqlalchemy import select

from detlab.schemas.wire import CreateExperiment
from detlab_hub.core.searchers import ValidationReported, event_from_json, replay
from detlab_hub.services import Services, Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.lifecycle.transitions import tell_search
from detlab_hub.store import Store, StoreBusy, groups
from detlab_hub.store.tables import ExperimentRow, SearcherJournal, TrialRow

Change = Callable[[UnitOfWork], Any]


class Refusal(Exception):
    """A turn raises it."""


@pytest.fixture
async def services(db_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Services]:
    """Services on a store with its own writer thread."""
    monkeypatch.setattr(groups, "PATIENCE", 20.0)
    settings = Settings(
        state_dir=tmp_path,
        bundles_dir=tmp_path / "bundles",
        default_checkpoint_storage={"type": "directory", "container_path": str(tmp_path / "checkpoints")},
    )
    store = Store.open(db_url, holder="test")
    yield Services(store, settings=settings, clock=lambda: 1e6, draw=random.Random(7))
    store.close()


async def together(services: Services, actions: list[Change]) -> list[Any]:
    """Have turns wait for the writer at the same time."""
    started, go_on = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        started.set()
        assert go_on.wait(20)

    holding = asyncio.create_task(services.context.store.write(hold))
    await asyncio.to_thread(started.wait, 20)
    tasks = [asyncio.create_task(services.context.write(action)) for action in actions]
    while len(services.context.store._writer._waiting) < len(actions):  # type: ignore[attr-defined]
        await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await holding
    return results


def reported(experiment_id: int, idx: int, value: float) -> Change:
    """A turn in which a trial reports at the first rung."""

    def action(unit: UnitOfWork) -> int:
        row = unit.experiment(experiment_id)
        trial = unit.session.scalar(select(TrialRow).where(TrialRow.experiment_id == row.id, TrialRow.idx == idx))
        tell_search(unit, row, ValidationReported(trial.request_id, value, 1.0))
        return idx

    return action


def refused(action: Change) -> Change:
    """The same, and then it raises."""

    def raising(unit: UnitOfWork) -> None:
        action(unit)
        unit.session.flush()
        raise Refusal

    return raising


def ending(action: Change) -> Change:
    """The same, and then the database ends the transaction."""

    def raising(unit: UnitOfWork) -> None:
        action(unit)
        unit.session.connection().exec_driver_sql("ROLLBACK")
        raise Refusal

    return raising


async def states(services: Services, experiment_id: int) -> tuple[Any, Any, int]:
    """The search in memory, the one that the journal gives, and how many trials there are."""

    def look(unit: UnitOfWork) -> tuple[Any, Any, int]:
        row = unit.session.get_one(ExperimentRow, experiment_id)
        query = select(SearcherJournal.event).where(SearcherJournal.experiment_id == experiment_id)
        events = [event_from_json(one) for one in unit.session.scalars(query.order_by(SearcherJournal.seq))]
        again, _ = replay(row.config["searcher"], row.config["hyperparameters"], row.seed, events)
        trials = unit.session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment_id)).all()
        return unit.searches.get(unit.session, row).fingerprint(), again.fingerprint(), len(trials)

    return await services.context.write(look)


async def test_a_turn_that_is_undone_among_others_leaves_the_search_as_the_journal_has_it(services: Services) -> None:
    wanted = CreateExperiment(config=config(asha(12, concurrent=6)))
    made = (await services[Experiments].create(ALICE, wanted)).experiment
    assert made is not None
    _, _, before = await states(services, made.id)
    actions = [
        reported(made.id, 0, 1.0),
        refused(reported(made.id, 1, 2.0)),  # would be stopped, and another made
        reported(made.id, 2, 3.0),  # is stopped
        reported(made.id, 3, 0.5),
    ]
    results = await together(services, actions)
    assert [type(one) for one in results] == [int, Refusal, int, int]
    now, journaled, trials = await states(services, made.id)
    assert now == journaled
    assert trials == before + 1


async def test_turns_whose_transaction_ends_leave_the_search_as_the_journal_has_it(services: Services) -> None:
    wanted = CreateExperiment(config=config(asha(12, concurrent=6)))
    made = (await services[Experiments].create(ALICE, wanted)).experiment
    assert made is not None
    before = await states(services, made.id)
    results = await together(
        services, [reported(made.id, 0, 1.0), reported(made.id, 1, 2.0), ending(reported(made.id, 2, 3.0))]
    )
    assert [type(one) for one in results] == [StoreBusy] * 3
    assert await states(services, made.id) == before
    await together(services, [reported(made.id, 3, 1.0), reported(made.id, 2, 2.0)])
    now, journaled, trials = await states(services, made.id)
    assert now == journaled
    assert trials == before[2] + 1
