"""Searches that get bad input: they are paused with the reason and nothing is lost; they continue after the mend."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE, BOB, Op, World, asha, config, report
from sqlalchemy import select

from detlab.errors import ConfigError, Conflict, Forbidden
from detlab.schemas.wire import EndReason, ExperimentState, GrantRequest, Launch, SteerSearch, TrialState
from detlab_hub.services.admission.bundles import Bundles
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.store.tables import AuditRow, ExperimentRow, TrialRow


def naming(name: str, *, until: int = 9):
    """Train to a step, resume from the newest checkpoint, save at the end; report the loss under a name."""

    def script(launch: Launch) -> Iterator[Op]:
        start = yield ("resume",)
        for step in range(start + 1, until + 1):
            yield report(step, **{name: launch.info.trial_index + 1.0 / step, "batches": step})
            if (yield ("poll",)):
                yield ("save", step)
                yield ("exit", 0)
        yield ("save", until)
        yield ("exit", 0)

    return script


async def sent(world: World, folder: Path, text: str) -> str:
    """Upload code; return its digest."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    upload = folder / "upload"
    with tarfile.open(upload, "w:gz") as tar:
        tar.add(folder / "train.py", "train.py")
    digest = "sha256:" + hashlib.sha256(upload.read_bytes()).hexdigest()
    await world.services[Bundles].put(ALICE, digest, upload)
    return digest


async def paused(world: World, experiment_id: int) -> Any:
    async def reached() -> bool:
        return (await world.view(experiment_id)).state is ExperimentState.PAUSED

    await world.until(reached)
    await world.steps(50)
    return await world.view(experiment_id)


def trials_of(world: World) -> list[TrialRow]:
    return list(world.store.read_sync(lambda s: s.scalars(select(TrialRow).order_by(TrialRow.idx)).all()))


def audited(world: World) -> list[str]:
    return list(world.store.read_sync(lambda s: s.scalars(select(AuditRow.action).order_by(AuditRow.id)).all()))


@pytest.mark.parametrize("concurrent", [1, 2])
async def test_a_missing_metric_pauses_the_search_which_continues_by_its_right_name(make_world, concurrent):
    world = await make_world(naming("val_loss"))
    await world.add_agent(slots=2)
    made = await world.submit(config(asha(trials=3, concurrent=concurrent)))
    view = await paused(world, made.id)
    assert view.failure.kind == "searcher"
    first = trials_of(world)[0]
    assert view.failure.message == (
        f"trial {first.id}: the trial ended without ever reporting the searcher metric 'loss'; async_halving cannot"
        " rank it (its validations reported: batches, val_loss)"
    )
    assert f"det search metric {made.id} NAME" in view.failure.hint
    assert view.failure.command == f"det experiment activate {made.id}"
    assert view.warnings == []
    assert {trial.state for trial in trials_of(world)} == {TrialState.PAUSED.value}, "nothing is lost"

    await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="metric", metric="val_loss"))
    await world.services[Experiments].activate(ALICE, made.id)
    view = await world.finish(made.id)
    assert (view.state, view.failure, view.metric) == (ExperimentState.COMPLETED, None, "val_loss")
    assert view.best.trial_id == first.id
    trials = trials_of(world)
    assert len(trials) == 3
    assert (trials[0].state, trials[0].restarts, trials[0].best_validation) == ("COMPLETED", 0, 1.0 / 9)
    assert "search.metric" in audited(world)


async def test_a_missing_metric_pauses_again_until_the_code_is_mended(make_world):
    world = await make_world(naming("val_loss"))
    await world.add_agent(slots=1)
    made = await world.submit(config(asha(trials=2, concurrent=1)))
    await paused(world, made.id)
    await world.services[Experiments].activate(ALICE, made.id)
    again = await paused(world, made.id)
    assert "without ever reporting the searcher metric 'loss'" in again.failure.message
    world.script = naming("loss")
    await world.services[Experiments].activate(ALICE, made.id)
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    # It began anew: from its checkpoint of step 9 it would have had nothing left to report.
    assert [trial.run for trial in trials_of(world)] == [3, 1]


async def test_a_trial_that_begins_anew_resumes_from_checkpoints_made_since_only(make_world):
    world = await make_world(naming("val_loss"))
    agent = await world.add_agent(slots=1)
    made = await world.submit(config(asha(trials=1, concurrent=1)))
    await paused(world, made.id)
    resumed = []
    hear = agent._hear

    async def heard(message):
        if message.type == "launch":
            resumed.append(message.info.resume_step)
        await hear(message)

    agent._hear = heard

    def slow(launch: Launch) -> Iterator[Op]:
        start = yield ("resume",)
        yield report(start + 1, loss=0.5, batches=start + 1)
        if launch.run == 2:
            while not (yield ("poll",)):
                pass
            yield ("save", start + 1)
        yield ("exit", 0)

    world.script = slow
    await world.services[Experiments].activate(ALICE, made.id)

    async def reported() -> bool:
        return trials_of(world)[0].searcher_metric_seen

    await world.until(reported)
    await world.services[Experiments].pause(ALICE, made.id)
    await paused(world, made.id)
    await world.services[Experiments].activate(ALICE, made.id)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert resumed == [None, 1], "not from step 9 of the attempt without the metric"


async def test_a_trial_without_the_metric_fails_alone_where_others_have_reported_it(make_world):
    good, bad = naming("loss"), naming("los")
    world = await make_world(lambda launch: (bad if launch.info.trial_index == 1 else good)(launch))
    await world.add_agent(slots=1)
    made = await world.submit(config(asha(trials=3, concurrent=1)))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    ends = [(trial.state, trial.end_reason) for trial in await world.trials(made.id)]
    assert ends[1] == (TrialState.ERROR, EndReason.NO_METRICS)
    assert [state for state, _ in ends].count(TrialState.ERROR) == 1


async def test_the_metric_of_a_search_that_has_values_of_it_keeps_its_name(make_world):
    world = await make_world(naming("loss"))
    await world.add_agent(slots=1)
    made = await world.submit(config(asha(trials=2, concurrent=1)))

    async def judged() -> bool:
        return any(trial.searcher_metric_seen for trial in trials_of(world))

    await world.until(judged)
    with pytest.raises(Conflict, match="has values of 'loss'"):
        await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="metric", metric="val_loss"))
    with pytest.raises(ConfigError):
        await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="metric"))


async def test_code_of_trials_is_replaced_while_they_are_paused_and_by_the_owner_only(make_world, tmp_path):
    world = await make_world(naming("val_loss"))
    await world.add_agent(slots=1)
    old = await sent(world, tmp_path, "mended = False\n")
    made = await world.submit(config(asha(trials=2, concurrent=1)), bundle=old)
    code = SteerSearch(act="code", bundle=await sent(world, tmp_path, "mended = True\n"))
    with pytest.raises(Conflict, match="its trials may run"):
        await world.services[SearchSteering].steer(ALICE, made.id, code)
    await paused(world, made.id)
    await world.services[Grants].put(ALICE, made.id, GrantRequest(kind="user", name=BOB.name, write=True))
    with pytest.raises(Forbidden):
        await world.services[SearchSteering].steer(BOB, made.id, code)
    with pytest.raises(ConfigError, match="is not code that you have uploaded"):
        await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="code", bundle="sha256:" + 64 * "0"))
    await world.services[SearchSteering].steer(ALICE, made.id, code)
    assert world.store.read_sync(lambda s: s.get(ExperimentRow, made.id).bundle) == code.bundle != old
    world.script = naming("loss")
    await world.services[Experiments].activate(ALICE, made.id)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


def stepping(*steps: int):
    """Report the losses of these steps; trial 0 is the worst, but for a report at step 1 that comes last."""

    def script(launch: Launch) -> Iterator[Op]:
        for place, step in enumerate(steps):
            again = step < max(steps[: place + 1])
            yield report(step, loss=0.0 if again else 9.0 - launch.info.trial_index, batches=step)
            if (yield ("poll",)):
                yield ("exit", 0)
        yield ("exit", 0)

    return script


async def decided(make_world, *steps: int) -> tuple[list[Any], list[str], list[str], list[float | None]]:
    world = await make_world(stepping(*steps))
    await world.add_agent(slots=1)
    made = await world.submit(config(asha(trials=3, concurrent=1, max_time=9)))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    journal = (await world.services[SearchSteering].journal(ALICE, made.id, 0, 1000))[0]
    trials = await world.trials(made.id)
    return (
        [one.decisions for one in journal],
        trials[0].warnings,
        view.warnings,
        [one.best_validation for one in trials],
    )


async def test_steps_that_go_backwards_are_told_and_change_no_decision(make_world):
    calm, none, _, best = await decided(make_world, *range(1, 10))
    assert none == []
    decisions, warnings, shown, after = await decided(make_world, 1, 2, 1, 3, 2, 1, 4, 5, 6, 7, 8, 9)
    assert decisions == calm
    assert after == best
    [warning] = warnings
    assert warning.startswith("steps of validations go backwards: a report of step 1 came after one of step 2.")
    assert any(said.endswith(warning) for said in shown)


async def test_validations_of_steps_behind_those_of_training_are_no_mistake(make_world):
    def script(launch: Launch) -> Iterator[Op]:
        for step in (1, 2, 3):
            yield ("metrics", "training", 10 * step, {"loss": 0.5})
            yield report(step, loss=0.5, batches=step)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 1}))
    assert (await world.finish(made.id)).warnings == []
    assert trials_of(world)[0].latest_validation == 0.5


async def test_an_attempt_that_resumes_at_an_earlier_step_does_not_go_backwards(make_world):
    def script(launch: Launch) -> Iterator[Op]:
        start = yield ("resume",)
        for step in range(start + 1, 6):
            yield report(step, loss=1.0 / step, batches=step)
            if step == 2 and launch.run == 1:
                yield ("save", 2)
            if step == 4 and launch.run == 1:
                yield ("exit", 1)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 1}))
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    [trial] = trials_of(world)
    assert (trial.run, trial.warnings, trial.best_validation) == (2, [], 0.2)
