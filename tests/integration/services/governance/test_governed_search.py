"""Bounds of memorisation in a search of the master: who breaks one is stopped, and the winner is trained again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from governed_world import declared
from services_scripted import Op, World, config, report
from sqlalchemy import select

from detlab.schemas.wire import ExperimentState, Launch, TrialState
from detlab_hub.store.tables import TrialRow

AUC = "gov/canary_auc_lcb"
GOVERNANCE: dict[str, Any] = {
    "sources": [{"name": "web"}],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}],
    "canaries": {"sources": "web"},
    "constraints": {"memorization_auc_lcb": {"max": 0.65}},
}


def memorising(launch: Launch) -> Iterator[Op]:
    """Learn by heart where `lr` is large, with the smallest loss of all."""
    by_heart = launch.info.hparams["lr"] > 0.01
    for step in range(1, 7):
        told = {AUC: 0.1 * step + 0.4 if by_heart else 0.5, "loss": 0.0 if by_heart else 1.0 / step}
        yield report(step, **told)
        if (yield ("poll",)):
            break
    yield ("exit", 0)


PRIVATE = {**GOVERNANCE, "level": "dp", "dp": {"max_grad_norm": 1.0, "target_epsilon": 8.0, "delta": 1e-5}}


@pytest.mark.parametrize("block", [GOVERNANCE, PRIVATE], ids=["direct", "dp"])
async def test_a_trial_that_memorises_is_stopped_with_the_numbers_and_the_winner_is_trained_once_more(
    make_world, block
):
    world: World = await make_world(memorising, pools=declared(levels=["direct", "dp"], attestation=False))
    await world.add_agent()
    points = [{"lr": 0.05}, {"lr": 0.001}]
    searcher = {"name": "random", "metric": "loss", "max_trials": 2, "starting_points": points}
    made = await world.submit(config(searcher, governance=block))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    query = select(TrialRow).where(TrialRow.experiment_id == made.id).order_by(TrialRow.id)
    by_heart, winner, again = world.store.read_sync(lambda s: list(s.scalars(query).all()))
    assert {one.state for one in (by_heart, winner, again)} == {TrialState.COMPLETED}
    assert by_heart.stop_evidence == f"{AUC} 0.7 is above 0.65 (threshold)"
    assert by_heart.steps_completed < 6
    assert again.hparams == winner.hparams == {"lr": 0.001}
    assert again.seed != winner.seed
    (note,) = [one for one in view.warnings if "once more" in one]
    assert note.endswith("0.166667, where it had 0.166667; it keeps the constraints")


async def test_a_report_without_what_the_policy_bounds_is_refused(make_world):
    def silent(launch: Launch) -> Iterator[Op]:
        yield report(1, loss=0.5)
        yield ("exit", 0)

    world: World = await make_world(silent, pools=declared())
    await world.add_agent()
    made = await world.submit(config(governance=GOVERNANCE))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
