"""A master that is older than the one which took an experiment: a key of its config is ahead of it."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE, asha, config, deaf, training
from sqlalchemy import text, update

from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab_hub.services.cluster.unknown_keys import UnknownKeys
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import ExperimentRow, TaskRow

NOTHING_AHEAD = [
    config(),
    config(searcher=asha()),
    config(
        resources={"slots_per_trial": 1, "constraints": {"labels": {"rack": "r2"}}},
        environment={"environment_variables": ["A=1"]},
        log_policies=[{"name": "x", "pattern": "y"}],
        retention_policy={"log_retention_days": 3},
    ),
]
TASKS_WITH_NOTHING_AHEAD = [
    {},
    {
        "resources": {"slots": 1, "constraints": {"labels": {"rack": "r2"}}},
        "environment": {"environment_variables": ["A=1"], "registry_auth": {"username": "puller"}},
        "idle_timeout": "30m",
    },
]


def told(caplog):
    return [
        record.getMessage() for record in caplog.records if record.name == "detlab_hub.services.cluster.unknown_keys"
    ]


async def put_ahead(world, one_id, *, table=ExperimentRow, **resources):
    """What a newer master would have stored, as of a commit before the database was given to this one."""
    stored = await world.services.context.read(lambda s: dict(s.get_one(table, one_id).config))
    stored["resources"] = {**stored["resources"], **resources}

    def change(unit):
        unit.session.execute(update(table).where(table.id == one_id).values(config=stored))

    await world.services.context.write(change)


async def command(world, given: dict[str, Any] | None = None) -> str:
    asked = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", **(given or {})})
    return (await world.services[UserTasks].create(ALICE, asked)).task.id


async def renamed(context, table, name):
    """What a look at the table finds missing until it is named back."""
    await context.write(lambda unit: unit.session.execute(text(f"ALTER TABLE {table} RENAME TO {name}")) and None)


async def test_a_stored_key_that_a_downgraded_master_does_not_know_is_told_once_and_the_trial_runs(make_world, caplog):
    world = await make_world(training(6))
    known = await world.submit(config())
    ahead = await world.submit(config())
    ended = await world.submit(config())
    await world.services[Experiments].kill(ALICE, ended.id)
    for one in (ahead, ended):
        await put_ahead(world, one.id, only_on_sundays=True)
    await world.reboot()
    for _ in range(2):
        await world.services.tidy()
    (line,) = told(caplog)
    assert line.startswith(f"experiment {ahead.id}: ")
    assert "resources.only_on_sundays" in line
    assert "A newer one took it" in line
    await world.add_agent("one", 2)
    for one in (known, ahead):
        assert (await world.finish(one.id)).state == "COMPLETED"


async def test_of_configs_that_this_version_stored_nothing_is_told(make_world, caplog):
    world = await make_world(deaf(1))
    for raw in NOTHING_AHEAD:
        await world.submit(raw)
    for given in TASKS_WITH_NOTHING_AHEAD:
        await command(world, given)
    await world.services.tidy()
    assert told(caplog) == []


async def test_a_stored_key_of_a_waiting_task_is_told_too(make_world, caplog):
    """Only experiments were looked at: a command went on without its key, and nobody was told."""
    world = await make_world(deaf(1))
    await command(world)
    ahead, ended = await command(world), await command(world)
    await world.services[UserTasks].end(ALICE, ended)
    for one in (ahead, ended):
        await put_ahead(world, one, table=TaskRow, only_on_sundays=True)
    await world.reboot()
    for _ in range(2):
        await world.services.tidy()
    (line,) = told(caplog)
    assert line.startswith(f"task {ahead}: ")
    assert "resources.only_on_sundays" in line
    assert "kill the task and start it without them" in line


async def test_after_a_look_that_failed_the_next_one_tells(make_world, caplog):
    """The first look counted as done before it was: one failure of the database, and the operator was never told."""
    world = await make_world(deaf(1))
    one = await world.submit(config())
    await put_ahead(world, one.id, only_on_sundays=True)
    context = world.services.context
    looking = UnknownKeys(context)
    await renamed(context, "tasks", "tasks_away")
    with pytest.raises(Exception, match="tasks"):
        await looking.tell()
    await renamed(context, "tasks_away", "tasks")
    caplog.clear()
    for _ in range(2):
        await looking.tell()
    (line,) = told(caplog)
    assert line.startswith(f"experiment {one.id}: ")
