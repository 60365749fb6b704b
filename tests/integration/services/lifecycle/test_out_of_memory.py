"""What ran out of memory is told apart from what was killed otherwise, on the card that its owner reads."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, config

from detlab.schemas.taskwire import CreateTask, TaskEnd, TaskKind
from detlab.schemas.wire import TrialState
from detlab_hub.services.usertasks.usertasks import UserTasks

TOLD = "the container went over its memory limit of 128 MiB"


def script(launch):
    """Ends by the kernel's OOM kill if its command line says so, else by a SIGKILL from somewhere."""
    yield ("log", None, "step 1")
    if "hungry" in str(launch.entrypoint):
        yield ("end", "oom", TOLD)
    yield ("exit", -9)


@pytest.mark.parametrize(("word", "oom"), [("hungry", True), ("other", False)])
async def test_a_command_that_ran_out_of_memory_is_told_apart_from_other_kills(make_world, word, oom):
    world = await make_world(script)
    await world.add_agent()
    wish = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": [word]})
    task = (await world.services[UserTasks].create(ALICE, wish)).task
    await world.steps(6)
    view = await world.services[UserTasks].get(ALICE, task.id)
    assert (view.state, view.end_reason) == (TrialState.ERROR, TaskEnd.FAILED)
    assert (view.failure.kind == "oom") is oom
    assert (view.failure.message == TOLD) is oom
    assert ("more memory" in view.failure.hint) is oom
    assert view.failure.log_tail == ["step 1"]


@pytest.mark.parametrize(("word", "oom"), [("hungry", True), ("other", False)])
async def test_a_trial_that_ran_out_of_memory_is_told_apart_from_other_kills(make_world, word, oom):
    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(entrypoint=[word], max_restarts=0))
    assert (await world.finish(made.id)).state == "ERROR"
    (trial,) = await world.trials(made.id)
    assert (trial.failure.kind == "oom") is oom
    assert (trial.failure.message == TOLD) is oom
