"""Many random histories of one search: agents vanish, the master dies at any write, tasks crash, words are doubled.

Whatever happens, every trial ends, no slot is owned twice, no metric is lost, doubled or written by an attempt
that is over, and the journal alone gives back every decision. A seed that fails is named in the test's id.
"""

from __future__ import annotations

import random

import pytest
from services_scripted import ALICE, CrashError, Flaw, World, asha, config, curve, report
from sqlalchemy import select
from test_services_promises import check_slots, journal

from detlab.schemas.wire import CreateExperiment, EndReason, ExperimentState, TrialState
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.store.tables import AllocationRow, TrialRow

LENGTH = 9


def moody(rng: random.Random):
    """Trains, saves now and then; now and then dies, ignores the poll, or exits 0 without an acknowledgement."""

    def script(launch):
        start = yield ("resume",)
        for step in range(start + 1, LENGTH + 1):
            yield report(step, loss=curve(launch, step), batches=step, run=launch.run)
            if rng.random() < 0.4:
                yield ("save", step)
            if rng.random() < 0.04:
                yield ("exit", rng.choice([1, -9, 137]))
            if rng.random() < 0.8 and (yield ("poll",)):
                yield ("save", step)
                yield ("exit", 0)
        yield ("exit", 0)

    return script


async def one_step(world: World, rng: random.Random, experiment_id: int) -> None:
    agent = rng.choice(list(world.agents.values()))
    dice = rng.random()
    if dice < 0.03:
        agent.drop()
        if rng.random() < 0.3:
            agent.tasks = {}
    elif dice < 0.13:
        agent.online = True
    elif dice < 0.15:
        await world.reboot()
    elif dice < 0.17:
        world.twice = not world.twice
    elif dice < 0.19:
        await world.services[Experiments].pause(ALICE, experiment_id)
    elif dice < 0.25:
        await world.services[Experiments].activate(ALICE, experiment_id)
    await world.step(rng.choice([0.1, 0.5, 0.5, 2.0, 12.0]))


def check_runs(world: World) -> None:
    """Runs of a trial count up without a gap, and at most the newest is not over."""

    def read(s):
        query = select(AllocationRow.trial_id, AllocationRow.run, AllocationRow.state).order_by(AllocationRow.run)
        return [tuple(row) for row in s.execute(query)]

    by_trial: dict[int, list] = {}
    for trial_id, run, state in world.store.read_sync(read):
        by_trial.setdefault(trial_id, []).append((run, state))
    for trial_id, runs in by_trial.items():
        assert [run for run, _ in runs] == list(range(1, len(runs) + 1)), trial_id
        assert all(state == "TERMINATED" for _, state in runs[:-1]), (trial_id, runs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(5, 12))])
async def test_I2_I3_I4_I7_I8_random_histories(tmp_path, seed):
    rng = random.Random(seed)
    flaw = Flaw(rng.randrange(2, 200), rng.random() < 0.5)
    world = World(f"sqlite:///{tmp_path}/chaos.sqlite", tmp_path, script=moody(rng), flaw=flaw)
    await world.boot()
    await world.add_agent("one", slots=2)
    await world.add_agent("two", slots=1)
    wanted = CreateExperiment(config=config(asha(trials=6, concurrent=3), max_restarts=50), idempotency_key="k")
    experiment_id = None
    for _ in range(800):
        try:
            if experiment_id is None:
                reply = await world.services[Experiments].create(ALICE, wanted)
                experiment_id = reply.experiment.id
            view = await world.view(experiment_id)
            if view.state.terminal:
                break
            await one_step(world, rng, experiment_id)
        except CrashError:
            await world.reboot()
        check_slots(world)
        check_runs(world)
    for agent in world.agents.values():
        agent.online = True
    world.twice = False
    if not (await world.view(experiment_id)).state.terminal:
        await world.services[Experiments].activate(ALICE, experiment_id)
    view = await world.finish(experiment_id)
    assert view.state is ExperimentState.COMPLETED
    trials = await world.trials(experiment_id)
    for trial in trials:
        # One that was told to stop and dies instead is an ERROR at once, whatever restarts it has left.
        told = world.store.read_sync(lambda s, key=trial.id: s.get(TrialRow, key).searcher_stopped)
        died_leaving = told and trial.state is TrialState.ERROR and trial.failure is not None
        assert trial.state is TrialState.COMPLETED or died_leaving, trial
        (losses,) = await world.services[Trials].metrics(ALICE, trial.id, names=["loss"])
        assert losses.steps == list(range(1, len(losses.steps) + 1)), "a gap or a double (I4)"
        assert losses.steps[-1] == trial.steps_completed
        if trial.end_reason is EndReason.COMPLETED:
            assert losses.steps[-1] == LENGTH
        (runs,) = await world.services[Trials].metrics(ALICE, trial.id, names=["run"])
        assert runs.values == sorted(runs.values), "an older attempt wrote after a newer one (I3)"
    _, decided, stored = journal(world, experiment_id)
    assert decided == stored
    world.close()
