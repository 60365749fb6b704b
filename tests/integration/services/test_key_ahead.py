"""A master that is older than the one which took an experiment: a key of its config is ahead of it."""

from __future__ import annotations

from services_scripted import ALICE, asha, config, deaf, training
from sqlalchemy import update

from detlab_hub.store.tables import ExperimentRow

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


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "detlab_hub.services.unknown_keys"]


async def put_ahead(world, experiment_id, **resources):
    """What a newer master would have stored, as of a commit before the database was given to this one."""
    stored = await world.services.shell.read(lambda s: dict(s.get_one(ExperimentRow, experiment_id).config))
    stored["resources"] = {**stored["resources"], **resources}

    def change(turn):
        turn.session.execute(update(ExperimentRow).where(ExperimentRow.id == experiment_id).values(config=stored))

    await world.services.shell.write(change)


async def test_a_stored_key_that_a_downgraded_master_does_not_know_is_told_once_and_the_trial_runs(make_world, caplog):
    world = await make_world(training(6))
    known = await world.submit(config())
    ahead = await world.submit(config())
    ended = await world.submit(config())
    await world.services.experiments.kill(ALICE, ended.id)
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
    await world.services.tidy()
    assert told(caplog) == []
