"""Checkpoints that are stored and not committed yet: their ids can be listed, and are no other trial's to commit."""

from __future__ import annotations

import pytest
from services_scripted import BOB, DIGEST, config

from detlab.errors import Forbidden, StaleAttempt
from detlab.schemas.checkpoint_ids import new_checkpoint_id
from detlab.schemas.wire import CheckpointFile, CommitCheckpoint
from detlab_hub.services import TaskCaller
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.store.tables import CheckpointRow


def idle(launch):
    while True:
        yield ("wait",)


def commit(uuid, digest=DIGEST):
    files = {"model.pt": CheckpointFile(size=1, digest=DIGEST)}
    return CommitCheckpoint(uuid=uuid, steps_completed=3, files=files, manifest_digest=digest)


async def two_tasks(make_world):
    """A world in which a trial of one user and a trial of another run, in this order."""
    world = await make_world(idle)
    agent = await world.add_agent(slots=2)
    await world.submit(config())
    await world.submit(config(), caller=BOB)
    await world.steps(2)
    return (world, *sorted(agent.tasks.values(), key=lambda task: task.caller.trial_id))


async def test_another_users_trial_cannot_commit_first_what_a_trial_has_stored(make_world):
    """It could, and the trial's own commit was refused then, which failed its attempt."""
    world, victim, thief = await two_tasks(make_world)
    tasks = world.services[Tasks]
    listed = new_checkpoint_id(victim.caller.trial_id)
    with pytest.raises(Forbidden, match="was not made for trial"):
        await tasks.commit_checkpoint(thief.caller, commit(listed, "sha256:" + "1" * 64))
    assert await world.services.context.read(lambda s: s.get(CheckpointRow, listed)) is None
    assert (await world.services[Trials].get(BOB, thief.caller.trial_id)).latest_checkpoint is None
    assert (await tasks.commit_checkpoint(victim.caller, commit(listed))).trial_id == victim.caller.trial_id
    assert (await tasks.commit_checkpoint(victim.caller, commit(listed))).manifest_digest == DIGEST


async def test_a_refused_commit_says_the_same_before_and_after_the_trials_own(make_world):
    world, victim, thief = await two_tasks(make_world)
    tasks = world.services[Tasks]
    listed = new_checkpoint_id(victim.caller.trial_id)
    said = []
    for _ in range(2):
        with pytest.raises(Forbidden) as refused:
            await tasks.commit_checkpoint(thief.caller, commit(listed))
        said.append((refused.value.message, refused.value.hint))
        await tasks.commit_checkpoint(victim.caller, commit(listed))
    assert said[0] == said[1]


async def test_a_trial_is_told_first_that_its_attempt_is_over(make_world):
    """Its process is to end, whatever it asked for."""
    world, victim, thief = await two_tasks(make_world)
    old = TaskCaller(thief.caller.allocation_id, thief.caller.trial_id, thief.caller.experiment_id, run=9)
    with pytest.raises(StaleAttempt):
        await world.services[Tasks].commit_checkpoint(old, commit(new_checkpoint_id(victim.caller.trial_id)))


@pytest.mark.parametrize(
    "listed",
    [
        "11111111-1111-4111-8111-111111111111",
        "11111111-1111-8111-0111-111111111111",
        "00000000-0000-0000-0000-000000000000",
    ],
)
async def test_a_folder_whose_name_tells_no_owner_is_nobodys_to_commit(make_world, listed):
    """Of another program in the same bucket, say: it could be committed, and then removed with the master's rights."""
    world, victim, thief = await two_tasks(make_world)
    for task in (victim, thief):
        with pytest.raises(Forbidden, match="was not made for trial"):
            await world.services[Tasks].commit_checkpoint(task.caller, commit(listed))
    assert await world.services.context.read(lambda s: s.get(CheckpointRow, listed)) is None
