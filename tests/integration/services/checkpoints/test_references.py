"""References to checkpoints: only keys that refer pin, with the rights of who submits; a mention is text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from services_scripted import ALICE, BOB, World, config, report
from sqlalchemy import event, insert, select, text

from detlab.errors import ConfigError, Conflict
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import GrantRequest
from detlab_hub.services.base.references import MOST_NAMED
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.checkpoints.pins import pins_of
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, ReferenceRow


def saving(launch: Any) -> Iterator[Any]:
    """Save once and end; user tasks wait."""
    if not launch.info.trial_id:
        while True:
            yield ("wait",)
    yield report(1, loss=0.5)
    yield ("save", 1)
    yield ("exit", 0)


class Place:
    """A world with one checkpoint of Alice's, whose experiment has ended."""

    def __init__(self, world: World, experiment: int, uuid: str) -> None:
        self.world, self.experiment, self.uuid = world, experiment, uuid
        self.services = world.services

    async def kinds(self) -> list[str]:
        return [pin.kind for pin in (await self.services[Collecting].pins(ALICE, self.uuid)).items]

    async def recorded(self) -> list[tuple[str, str, str]]:
        def read(s: Any) -> list[tuple[str, str, str]]:
            return [(row.referrer, row.referrer_id, row.purpose) for row in s.scalars(select(ReferenceRow))]

        return await self.services.context.read(read)

    async def command(self, caller: Any, *words: str, **more: Any) -> str:
        wanted = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": list(words), **more})
        return (await self.services[UserTasks].create(caller, wanted)).task.id


@pytest.fixture
async def place(make_world: Any) -> Place:
    world = await make_world(saving)
    await world.add_agent()
    made = await world.submit(config())
    await world.finish(made.id)
    (found,) = await world.services[Experiments].checkpoints(ALICE, made.id)
    return Place(world, made.id, found.uuid)


def mentioning(uuid: str) -> dict[str, Any]:
    """A config with the id of a checkpoint in every place that is text."""
    return config(
        name=f"of {uuid}",
        description=f"{uuid} {uuid}",
        labels=[uuid],
        hyperparameters={"source_checkpoint_uuid": uuid, "all": {"type": "categorical", "vals": [uuid]}},
        environment={"environment_variables": [f"CHECKPOINT={uuid}"]},
        data={"source_checkpoint_uuid": uuid, "secrets": {"id": uuid}},
        entrypoint=["python3", "-c", f"print('{uuid}')", f"--list={uuid},{uuid}"],
    )


@pytest.mark.parametrize("caller", [ALICE, BOB])
async def test_a_mention_pins_nothing(place: Place, caller: Any) -> None:
    """Of a stranger, of the owner: all configs were searched for ids, and anybody's paused experiment pinned."""
    await place.world.submit(mentioning(place.uuid), caller=caller, activate=False, source={"note": place.uuid})
    variables = {"environment": {"environment_variables": [f"CHECKPOINT={place.uuid}"]}}
    await place.command(caller, "sleep", f"1 {place.uuid}", description=place.uuid, **variables)
    assert await place.recorded() == []
    assert await place.kinds() == []
    await place.services[Removals].delete(ALICE, place.uuid)


async def test_words_of_an_entrypoint_pin_what_their_owner_may_read_until_the_end(place: Place) -> None:
    words = ("evaluate", place.uuid), ("evaluate", f"--checkpoint={place.uuid}")
    tasks = [await place.command(ALICE, *each) for each in words]
    made = await place.world.submit(config(entrypoint=["evaluate", place.uuid]), activate=False)
    assert await place.kinds() == ["evaluation"] * 3
    with pytest.raises(Conflict, match=f"experiment {made.id}, which has not ended, names it in its entrypoint"):
        await place.services[Removals].delete(ALICE, place.uuid)
    for task in tasks:
        await place.services[UserTasks].end(ALICE, task)
    await place.world.steps(4)
    assert await place.recorded() == [("experiment", str(made.id), "evaluation")]
    await place.services[Experiments].kill(ALICE, made.id)
    assert await place.recorded() == []
    await place.services[Removals].delete(ALICE, place.uuid)


async def test_a_reference_needs_the_right_to_read(place: Place) -> None:
    """A word that its submitter may not read is a word; a warm start from it is refused as one that does not exist."""
    await place.command(BOB, "evaluate", place.uuid)
    await place.world.submit(config(entrypoint=["evaluate", place.uuid]), caller=BOB, activate=False)
    source = {"name": "single", "metric": "loss", "source_checkpoint_uuid": place.uuid}
    with pytest.raises(ConfigError, match=f"there is no checkpoint {place.uuid}"):
        await place.world.submit(config(source), caller=BOB, activate=False)
    assert await place.recorded() == []
    await place.services[Grants].put(ALICE, place.experiment, GrantRequest(kind="user", name="bob"))
    task = await place.command(BOB, "evaluate", place.uuid)
    assert await place.recorded() == [("task", task, "evaluation")]
    made = await place.world.submit(config(source), caller=BOB, activate=False)
    assert ("experiment", str(made.id), "warm_start") in await place.recorded()


async def test_a_warm_start_by_a_trial_refers_to_the_checkpoint_of_then(place: Place) -> None:
    (trial,) = await place.world.trials(place.experiment)
    source = {"name": "single", "metric": "loss", "source_trial_id": trial.id}
    made = await place.world.submit(config(source), activate=False)
    assert await place.kinds() == ["warm_start"]
    await place.services[Experiments].kill(ALICE, made.id)
    assert await place.kinds() == []


async def test_what_is_deleted_is_referred_to_by_nothing_new(place: Place) -> None:
    await place.services[Removals].delete(ALICE, place.uuid)
    await place.command(ALICE, "evaluate", place.uuid)
    assert await place.recorded() == []


async def test_an_entrypoint_names_a_hundred_checkpoints_at_most(place: Place) -> None:
    many = [f"00000000-0000-8000-8000-{number:012x}" for number in range(MOST_NAMED + 1)]
    for submit in (lambda: place.world.submit(config(entrypoint=many)), lambda: place.command(ALICE, *many)):
        with pytest.raises(ConfigError) as refused:
            await submit()
        (problem,) = refused.value.problems
        assert problem.path == "entrypoint"
        assert "101 ids" in problem.message


async def test_pins_cost_the_same_however_much_others_have_stored(place: Place) -> None:
    """No statement reads a config, or more rows: every delete of everybody waited for 100 MB of Mallory's configs."""

    def asked(s: Any) -> list[str]:
        said: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            said.append(statement)

        (row,) = s.scalars(select(CheckpointRow).where(CheckpointRow.uuid == place.uuid))
        engine = s.get_bind().engine
        event.listen(engine, "before_cursor_execute", note)
        try:
            assert pins_of(s, [row], None) == {}
        finally:
            event.remove(engine, "before_cursor_execute", note)
        return said

    before = await place.services.context.read(asked)
    large = json.loads(json.dumps(mentioning(place.uuid) | {"description": f"{place.uuid} " * 10_000}))
    common = {"labels": [], "source": {}, "warnings": [], "owner_groups": [], "searcher_name": "single"}
    rows = [
        {"id": 1000 + number, "name": "x", "owner": "bob", "state": "PAUSED", "config": large, **common}
        for number in range(20)
    ]
    await place.services.context.write(lambda unit: unit.session.execute(insert(ExperimentRow), rows) and None)
    after = await place.services.context.read(asked)
    assert after == before
    assert len(after) <= 6
    assert [statement for statement in after if "config" in statement] == []

    def plans(s: Any) -> list[str]:
        if s.get_bind().dialect.name != "sqlite":
            return []
        by_uuid = "SELECT * FROM {} WHERE {} IN ('a', 'b')"
        places = ("checkpoint_references", "uuid"), ("trials", "parent_checkpoint"), ("checkpoint_bookmarks", "uuid")
        return [s.execute(text(f"EXPLAIN QUERY PLAN {by_uuid.format(*each)}")).one()[3] for each in places]

    assert [plan for plan in await place.services.context.read(plans) if not plan.startswith("SEARCH")] == []
