"""What people see of a governed trial while it runs: the matrices S and D."""

from __future__ import annotations

from typing import Any

import pytest
from governed_world import CODE, POLICY, another_trial, governed_trial
from services_scripted import ALICE, BOB
from sqlalchemy import delete, update

from detlab.errors import Conflict, NotFound
from detlab.schemas.wire.records import MetricsRecord
from detlab_hub.services.governance import reading
from detlab_hub.services.governance.reading import EvidenceReading
from detlab_hub.store.tables import ExperimentRow, PreflightRow

DEPTH = {"sources": ["web", "trusted"], "layers": ["body", "head"], "mass": [[0.0, 1.0], [0.75, 0.25]]}


async def look(trial: Any, caller: Any = ALICE) -> Any:
    return await trial.world.services[EvidenceReading].learning(caller, trial.trial_id)


async def report(trial: Any, values: dict[str, Any]) -> None:
    record = MetricsRecord(seq=1, time=1.0, group="validation", steps_completed=5, metrics=values)
    await trial.task.send("metrics", record)


async def test_s_is_there_before_the_first_step_and_d_with_the_first_report(make_world):
    trial = await governed_trial(make_world)
    await trial.record()
    seen = await look(trial)
    assert (seen.s_hash, seen.sources) == (trial.plan.s_hash, ["trusted", "web"])
    assert [(one.label, one.count, one.scales) for one in seen.groups] == [
        ("body.*", 2, [1.0, 0.0]),
        ("head.weight", 1, [1.0, 1.0]),
    ]
    assert seen.depth is None
    await report(trial, {"gov/depth": DEPTH, "gov/share": {"web": 0.25}})
    seen = await look(trial)
    assert seen.depth is not None
    assert (seen.depth.steps_completed, seen.depth.layers) == (5, ["body", "head"])
    assert seen.depth.shares == [[0.75, 0.25], [0.0, 1.0]]  # in the order of S
    assert seen.share == {"web": 0.25}


async def test_trials_with_the_same_matrix_both_have_it(make_world):
    trial = await governed_trial(make_world)
    other = await another_trial(trial.world, POLICY)
    assert (await look(other)).s_hash == (await look(trial)).s_hash == trial.plan.s_hash


async def test_a_preflight_keeps_the_matrix_and_refusals_are_told(make_world):
    trial = await governed_trial(make_world)
    await trial.preflight(refusals=[{"code": "PATH", "message": "layer body is bypassed"}])
    await trial.record()
    seen = await look(trial)
    assert seen.s_hash == trial.plan.s_hash
    assert [(one.code, one.message) for one in seen.refusals] == [("PATH", "layer body is bypassed")]
    assert await trial.preflight(code=[CODE]) == [("PATH", "layer body is bypassed")]  # it stays for this attempt


async def test_a_recorded_matrix_is_no_preflight(make_world):
    trial = await governed_trial(make_world)
    await trial.world.services.context.write(lambda unit: unit.session.execute(delete(PreflightRow)))
    await trial.record()
    row = await trial.world.services.context.read(lambda s: s.get_one(PreflightRow, trial.trial_id))
    assert (row.passed, row.body) == (False, {"s_hash": trial.plan.s_hash})
    with pytest.raises(Conflict, match="has not shown in a pre-flight"):
        await trial.save(5)


@pytest.mark.parametrize(
    "value",
    [
        "text",
        {"sources": ["web"], "omitted": "30000 layers"},
        {"sources": ["web"], "layers": ["body"], "mass": [[0.5, 0.5]]},
        {"sources": ["web"], "layers": ["body"], "mass": [["0.5"]]},
        {"sources": ["web"], "layers": ["body"], "mass": [[True]]},
        {"sources": ["web"], "layers": ["body"], "mass": [[-3.0]]},
        {"sources": 3, "layers": ["body"], "mass": [[1.0]]},
    ],
)
async def test_what_is_no_matrix_is_not_shown(make_world, value):
    trial = await governed_trial(make_world)
    await report(trial, {"gov/depth": value, "gov/share": ["x"]})
    seen = await look(trial)
    assert (seen.depth, seen.share) == (None, {})


async def test_layers_that_got_most_are_shown_of_a_large_model(make_world, monkeypatch):
    monkeypatch.setattr(reading, "MOST_LINES", 1)
    trial = await governed_trial(make_world)
    await report(trial, {"gov/depth": {**DEPTH, "mass": [[0, 1], [0.9, 0.1]]}})
    seen = await look(trial)
    assert (len(seen.groups), seen.left_out) == (1, 1)
    assert (seen.depth.layers, seen.depth.left_out) == (["head"], 1)


async def test_strangers_are_told_that_there_is_no_such_trial(make_world):
    trial = await governed_trial(make_world)
    with pytest.raises(NotFound, match="there is no trial"):
        await look(trial, BOB)


async def test_a_trial_without_a_policy_has_none_to_show(make_world):
    trial = await governed_trial(make_world)
    await change(trial.world, {})
    with pytest.raises(NotFound, match="has no policy"):
        await look(trial)


async def change(world: Any, config: dict[str, Any]) -> None:
    await world.services.context.write(lambda unit: unit.session.execute(update(ExperimentRow).values(config=config)))
