"""Figures by the master: the data of one read, drawn by a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from services_scripted import ALICE, BOB, config, training
from sqlalchemy import update

from detlab.errors import ConfigError, NotFound, Unavailable
from detlab.viz import kinds
from detlab_hub.services.experiments.answer_process import LineProcess
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.figures import Figures
from detlab_hub.store.tables import CheckpointRow, TrialRow

SEARCH = {"name": "random", "metric": "loss", "max_trials": 12, "max_concurrent_trials": 4}
SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "layers": {"type": "int", "minval": 1, "maxval": 4},
}


@pytest.fixture
async def searched(make_world):
    world = await make_world(training(3))
    await world.add_agent()
    made = await world.submit(config(name="s", searcher=SEARCH, hyperparameters=SPACE))
    await world.finish(made.id)
    yield world, made.id
    await world.services[Figures].close()


async def test_every_kind_is_drawn_and_the_master_imports_neither_plotly_nor_optuna(searched) -> None:
    world, number = searched
    for kind in kinds.KINDS:
        figure = await world.services[Figures].draw(ALICE, number, kind, {})
        assert set(figure) == {"data", "layout"}
        assert "template" not in figure["layout"]
        assert bool(figure["data"]) == (kind not in {"pareto_front", "lineage"}), kind
    check = "import sys, detlab_hub.services.master; sys.exit(bool({'plotly', 'optuna', 'sklearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


async def test_attempts_with_their_slots_and_parents_come_if_asked_for(searched) -> None:
    world, number = searched
    plain = await world.services[Experiments].curves(ALICE, number)
    assert (plain.attempts, plain.parents) == ([], [])
    first, second = [trial.id for trial in plain.trials[:2]]

    def adopt(unit) -> None:
        row = CheckpointRow(uuid="u1", trial_id=first, experiment_id=number, steps_completed=20, state="DELETED")
        unit.session.add(row)
        unit.session.execute(update(TrialRow).where(TrialRow.id == second).values(parent_checkpoint="u1"))

    await world.services.context.write(adopt)
    full = await world.services[Experiments].curves(ALICE, number, history=True)
    assert {one.trial_id for one in full.attempts} == {trial.id for trial in full.trials}
    assert all(one.slots and one.ended_at >= one.started_at for one in full.attempts)
    assert [(one.trial_id, one.parent_id, one.steps_completed) for one in full.parents] == [(second, first, 20)]
    drawn = await world.services[Figures].draw(ALICE, number, "lineage", {})
    assert f"from trial {first} at batch 20" in str(drawn["data"])


async def test_options_are_passed_on_and_odd_ones_refused(searched) -> None:
    world, number = searched
    figure = await world.services[Figures].draw(ALICE, number, "best_so_far", {"against": "slot_time"})
    assert figure["layout"]["xaxis"]["title"]["text"].startswith("slot time")
    with pytest.raises(ConfigError) as odd:
        await world.services[Figures].draw(ALICE, number, "timeline", {"against": "time"})
    assert odd.value.problems[0].path == "against"
    with pytest.raises(ConfigError) as odd:
        await world.services[Figures].draw(ALICE, number, "best_so_far", {"against": "money"})
    assert "choose one of trials, time, slot_time" in odd.value.problems[0].message
    with pytest.raises(NotFound, match="no figure 'pie'"):
        await world.services[Figures].draw(ALICE, number, "pie", {})
    with pytest.raises(NotFound, match="experiment"):
        await world.services[Figures].draw(BOB, number, "best_so_far", {})


async def test_a_figure_that_takes_too_long_is_given_up_and_the_next_one_is_drawn(searched) -> None:
    world, number = searched
    process = LineProcess("detlab.viz", patience=0.001)
    slow = Figures(world.services.context, world.services[Experiments], process)
    with pytest.raises(Unavailable, match="best_so_far took more than"):
        await slow.draw(ALICE, number, "best_so_far", {})
    process.patience = 60.0
    assert (await slow.draw(ALICE, number, "best_so_far", {}))["data"]
    await slow.close()
