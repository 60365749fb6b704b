"""A new search draws its first points outside of the writer's transaction, and decides what it would decide inside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from services_scripted import ALICE, config, training
from test_points_drawn_late import journal

from detlab.errors import Unavailable
from detlab.schemas.space import Space
from detlab.schemas.wire import CreateExperiment
from detlab_hub.core.searchers import RULES, Started, make_searcher
from detlab_hub.services.admission.preparing import seed_of
from detlab_hub.services.base.searches import FirstStep
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.suggestions import Drawing

HALVES = {name: {"type": "double", "minval": 0.0, "maxval": 1.0} for name in ("a", "b", "c")}
RARE = {
    "name": "random", "metric": "loss", "max_trials": 12, "max_concurrent_trials": 0, "require": ["a + b + c < 0.5"],
}  # fmt: skip


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads in which points were drawn; the writer of these tests is the main one."""
    threads: list[str] = []
    plain: Callable[..., Any] = Space.sample

    def sample(self: Space, *words: Any) -> Any:
        threads.append(threading.current_thread().name)
        return plain(self, *words)

    monkeypatch.setattr(Space, "sample", sample)
    return threads


async def test_the_writer_draws_none_of_the_first_points(make_world, drawing):
    world = await make_world(training(3))
    made = await world.submit(config(RARE, hyperparameters=HALVES))
    assert len(await world.trials(made.id)) == 12
    assert len(drawing) >= 12
    assert threading.main_thread().name not in drawing


async def test_nor_of_those_that_come_later_if_they_are_rare(make_world, drawing):
    world = await make_world(training(3))
    await world.add_agent(slots=2)
    made = await world.submit(config({**RARE, "max_concurrent_trials": 3}, hyperparameters=HALVES))

    async def ended():
        await world.services[Drawing].take()
        return (await world.view(made.id)).state.terminal

    await world.until(ended)
    assert len(await world.trials(made.id)) == 12
    assert threading.main_thread().name not in drawing


async def test_I8_its_journal_replays_as_one_that_was_decided_inside(make_world):
    world = await make_world(training(3))
    await world.add_agent(slots=4)
    made = await world.submit(config(RARE, hyperparameters=HALVES))
    stored = await world.view(made.id)
    searcher = make_searcher(stored.config["searcher"], stored.config["hyperparameters"], seed_of(stored.config))
    inside = searcher.step(Started(RULES))
    assert [one.hparams for one in await world.trials(made.id)] == [one.hparams for one in inside]
    await world.reboot()
    assert (await world.finish(made.id)).state == "COMPLETED"
    kinds = [event["type"] for event, _ in await journal(world, made.id)]
    assert kinds[:13] == ["started", *["trial_created"] * 12]


async def test_a_submission_that_is_not_stored_leaves_no_search(make_world, monkeypatch):
    world = await make_world(training(3))
    wanted = CreateExperiment(config=config(RARE, hyperparameters=HALVES), idempotency_key="one")
    finish = world.services.context.lifecycle.finish

    def full(turn: Any) -> None:
        raise Unavailable("the disk is full")

    object.__setattr__(world.services.context.lifecycle, "finish", full)
    with pytest.raises(Unavailable):
        await world.services[Experiments].create(ALICE, wanted)
    object.__setattr__(world.services.context.lifecycle, "finish", finish)
    made = (await world.services[Experiments].create(ALICE, wanted)).experiment
    assert len(await world.trials(made.id)) == 12
    assert [event["type"] for event, _ in await journal(world, made.id)][:2] == ["started", "trial_created"]


def test_a_search_is_taken_once_and_by_its_own_config_only():
    block = {"searcher": {**RARE, "require": []}, "hyperparameters": HALVES}
    begun = FirstStep.of(block, 7)
    assert begun is not None
    assert begun.take({**block, "searcher": {**block["searcher"], "warm_start": [1]}}, 7) is None
    assert begun.take(block, 7) is None, "it may have moved on"
    again = FirstStep.of(block, 7)
    assert again is not None
    assert again.take({**block, "name": "other"}, 7) is not None
    assert FirstStep.of({"searcher": {"name": "none such"}}, 7) is None
