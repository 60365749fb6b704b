"""The newest checkpoint is the one of the most steps, whatever the clock said when each was committed.

A clock that is set back between two checkpoints makes the later one the older by time. Each place that chooses "the
newest" is asked here, and is to choose by steps.
"""

from __future__ import annotations

import pytest
from services_scripted import ALICE, ROOT, config, report

from detlab.client.ordering import newest_checkpoint, sort_checkpoints
from detlab.schemas.wire import CheckpointView
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks

HOUR = 3600.0


class Course:
    """Saves at each step, the clock an hour further back each time; then fails once, and then finishes."""

    def __init__(self, steps=(2, 4, 6)):
        self.steps = steps
        self.world = None
        self.resumed_from = []

    def __call__(self, launch):
        self.resumed_from.append(launch.info.latest_checkpoint)
        if len(self.resumed_from) == 1:
            for step in self.steps:
                yield report(step, loss=1.0 / step, batches=step)
                yield ("save", step)
                self.world.now -= HOUR
            yield ("end", "failed", "it ends once")
        while not self.done:
            yield ("wait",)
        yield ("exit", 0)

    done = False


@pytest.fixture
async def saved(make_world):
    """A world whose one trial has saved three times with a clock that went back, and its course."""
    course = Course()
    world = await make_world(course)
    course.world = world
    await world.add_agent()
    view = await world.submit(config())

    async def resumed():
        return len(course.resumed_from) == 2

    await world.until(resumed)
    return world, course, view.id


async def by_steps(world, trial_id):
    """uuid of each checkpoint, most steps first; and a check that time says the opposite."""
    found = await world.services[Trials].checkpoints(ROOT, trial_id)
    times = [item.created_at for item in sorted(found, key=lambda item: item.steps_completed)]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times) == 3
    return [item.uuid for item in sorted(found, key=lambda item: -item.steps_completed)]


async def test_a_trial_resumes_from_the_most_steps(saved):
    world, course, experiment = saved
    (trial,) = await world.trials(experiment)
    newest, *_ = await by_steps(world, trial.id)
    assert course.resumed_from == [None, newest]


async def test_a_trials_view_names_the_most_steps(saved):
    world, _, experiment = saved
    (trial,) = await world.trials(experiment)
    newest, *_ = await by_steps(world, trial.id)
    assert trial.latest_checkpoint == newest
    assert (await world.services[Trials].get(ALICE, trial.id)).latest_checkpoint == newest


async def test_a_trials_checkpoints_are_listed_by_steps(saved):
    world, _, experiment = saved
    (trial,) = await world.trials(experiment)
    found = await world.services[Trials].checkpoints(ALICE, trial.id)
    assert [item.steps_completed for item in found] == [6, 4, 2]


async def test_the_next_one_is_newest_when_the_newest_is_deleted(saved):
    world, _, experiment = saved
    (trial,) = await world.trials(experiment)
    first, second, _ = await by_steps(world, trial.id)
    (agent,) = world.agents.values()
    running = next(task for task in agent.tasks.values() if not task.exited)
    await world.services[Tasks].delete_checkpoint(running.caller, first)
    assert (await world.services[Trials].get(ALICE, trial.id)).latest_checkpoint == second


async def test_a_warm_start_takes_the_most_steps(saved):
    world, course, experiment = saved
    (trial,) = await world.trials(experiment)
    newest, *_ = await by_steps(world, trial.id)
    course.done = True
    await world.finish(experiment)
    warm = await world.submit(config({"name": "single", "metric": "loss", "source_trial_id": trial.id}))
    await world.finish(warm.id)
    assert course.resumed_from[-1] == newest


async def test_the_best_of_an_experiment_has_the_checkpoint_of_its_step(saved):
    """The best validation is that of the last step; the checkpoint is the one that led there."""
    world, _, experiment = saved
    (trial,) = await world.trials(experiment)
    newest, *_ = await by_steps(world, trial.id)
    best = (await world.view(experiment)).best
    assert (best.steps_completed, best.checkpoint) == (6, newest)


def checkpoint(uuid, steps, created_at, **more):
    return CheckpointView(
        uuid=uuid,
        trial_id=1,
        experiment_id=1,
        steps_completed=steps,
        state="COMPLETED",
        created_at=created_at,
        size=1,
        manifest_digest="sha256:" + "0" * 64,
        **more,
    )


FOUND = [checkpoint("a", 2, 30.0), checkpoint("b", 6, 10.0), checkpoint("c", 4, 20.0)]


def test_the_clients_newest_is_the_most_steps_and_of_equal_ones_the_youngest():
    """As the master resumes: a checkpoint that a later attempt made at the same step is the one that counts."""
    assert newest_checkpoint(FOUND).uuid == "b"
    again = checkpoint("d", 6, 40.0)
    assert newest_checkpoint([*FOUND, again]).uuid == newest_checkpoint([again, *FOUND]).uuid == "d"


def test_a_deleted_checkpoint_is_not_the_newest():
    gone = checkpoint("e", 9, 50.0).model_copy(update={"state": "DELETED"})
    assert newest_checkpoint([gone, *FOUND]).uuid == "b"
    assert newest_checkpoint([gone]) is None


def test_the_clients_sort_by_batches_ignores_the_clock():
    order = sort_checkpoints(FOUND, sort_by="steps_completed", order_by="desc", metric="loss", smaller_is_better=True)
    assert [item.uuid for item in order] == ["b", "c", "a"]


async def test_a_trials_attempts_say_where_they_went_on(saved):
    world, course, experiment = saved
    (trial,) = await world.trials(experiment)
    assert trial.attempts == []  # only a single trial has them
    course.done = True
    await world.finish(experiment)
    first, second = (await world.services[Trials].get(ALICE, trial.id)).attempts
    assert [(one.run, one.resume_step, one.agent_id) for one in (first, second)] == [
        (1, None, second.agent_id),
        (2, 6, second.agent_id),
    ]
    assert first.reason == "failed"
    assert None not in (first.started_at, first.ended_at, second.started_at, second.ended_at)
