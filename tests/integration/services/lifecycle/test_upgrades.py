"""Databases that earlier masters wrote: each is migrated, says what it said, and its search goes on to the same end.

The dumps lie in `upgrades/`; `upgrades/make.py` makes one, when a new revision of the schema is made.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from services_scripted import ALICE, World, config, training
from sqlalchemy import NullPool, create_engine, select, text

from detlab.schemas.wire import HeldTask, Hello, SlotView, TaskExited
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.base.callers import AgentCaller
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.finding.finding import RunFinder
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store import migrate
from detlab_hub.store.engine import parse_url
from detlab_hub.store.tables import AllocationRow, Base, TaskRow

UPGRADES = Path(__file__).parents[1].joinpath("upgrades")
DUMPS = sorted(path.name.partition(".")[0] for path in UPGRADES.glob("*.json.gz"))
"""REVISION, as its last commit made it, or REVISION-COMMIT: an earlier one, after which the revision was changed."""
MIGRATED = (DUMPS[0], *DUMPS[-3:])
"""Which `make test` migrates; `make soak` has all of them."""
ENDED, HALF = 1, 2


def unpacked(name: str) -> str:
    return gzip.decompress((UPGRADES / f"{name}.gz").read_bytes()).decode()


def load(revision: str, url: str, request: pytest.FixtureRequest, folder: Path) -> None:
    """Put a dump into the test's empty database."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.executescript(unpacked(f"{revision}.sqlite.sql"))
        return
    script = folder / "dump.sql"
    script.write_text(unpacked(f"{revision}.postgresql.sql"), encoding="utf-8")
    request.getfixturevalue("postgres_server").load(url.rpartition("/")[2], script)


def schema_of(url: str) -> str:
    with create_engine(parse_url(url), poolclass=NullPool).connect() as connection:
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def differences(url: str) -> list[Any]:
    """What the tables, columns and indices of a database differ in from those of this code."""
    with create_engine(parse_url(url), poolclass=NullPool).connect() as connection:
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), Base.metadata)


def test_every_revision_but_the_newest_has_a_dump() -> None:
    made = sorted(path.name[:4] for path in (migrate.MIGRATIONS / "versions").glob("[0-9]*.py"))
    assert made[:-1] == [name for name in DUMPS if "-" not in name]


@pytest.mark.parametrize(
    "dump", [one if one in MIGRATED else pytest.param(one, marks=pytest.mark.soak) for one in DUMPS]
)
async def test_an_earlier_masters_database_is_migrated_and_its_search_goes_on(
    dump: str, empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    load(dump, empty_db_url, request, tmp_path)
    revision = dump.partition("-")[0]
    assert schema_of(empty_db_url) == revision
    world = World(empty_db_url, tmp_path, script=training(9))
    world.now += 1000.0  # later than the old master's last write
    world._uuids = 1000  # of checkpoints: the old ones are taken
    await world.boot()
    assert schema_of(empty_db_url) > revision
    assert differences(empty_db_url) == [], "beside the tables of a new database"
    said = json.loads(unpacked(f"{dump}.json"))
    assert missing(said[str(ENDED)], await told(world, ENDED)) == []
    found = (await world.services[RunFinder].trials(ALICE, filter=f"experiment = {ENDED}", column=["loss"])).items
    best = [(one.values, [one.best_validation]) for one in found if one.best_validation is not None]
    assert best, "filters know the step of the best validation"
    assert [values for values, _ in best] == [wanted for _, wanted in best]
    if "task" in said:
        assert missing(without_id(said["task"]), without_id(await told_of_task(world))) == []
    assert {trial["state"] for trial in said[str(HALF)]["trials"]} >= {"ACTIVE"}, "it was in the middle"
    await world.add_agent("node", slots=2)
    ended = await world.finish(HALF)
    assert ended.state == "COMPLETED"
    assert outcome(await told(world, HALF)) == outcome(await told(world, ENDED)), "the same search, with no upgrade"
    again = await world.submit(config(name="new"))
    assert again.id == HALF + 1
    world.close()


BEFORE_GANGS = "0005"


def test_what_waits_over_an_upgrade_is_not_spread_over_several_agents(
    empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It was asked for when all slots of a request were of one agent: its code need not know of several."""
    load(BEFORE_GANGS, empty_db_url, request, tmp_path)
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        first, second, third = connection.execute(
            text("SELECT id FROM allocations WHERE trial_id IS NOT NULL ORDER BY id LIMIT 3")
        ).scalars()
        put = text("UPDATE allocations SET state = :state, constraints = :constraints WHERE id = :id")
        connection.execute(put, {"id": first, "state": "PENDING", "constraints": '{"labels": {"disk": "fast"}}'})
        connection.execute(put, {"id": second, "state": "PENDING", "constraints": None})
        connection.execute(put, {"id": third, "state": "TERMINATED", "constraints": None})
        migrate.upgrade(connection)
        stored = dict(connection.execute(text("SELECT id, constraints FROM allocations")).all())
    assert json.loads(stored[first]) == {"labels": {"disk": "fast"}, "single_node": True}
    assert json.loads(stored[second]) == {"single_node": True}
    assert stored[third] is None


BEFORE_RETENTION = "0006"


def test_output_is_kept_over_an_upgrade_for_as_long_as_the_config_says(
    empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Configs said it before any master went by it: the operator's default would have removed what is for ever."""
    load(BEFORE_RETENTION, empty_db_url, request, tmp_path)
    asked = {101: -1, 102: 365, 103: None, 104: "none", 105: 40000, 106: 0, 107: 9}
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        row = connection.execute(text("SELECT * FROM experiments WHERE id = 1")).mappings().one()
        config = json.loads(row["config"])
        put = text(f"INSERT INTO experiments ({', '.join(row)}) VALUES ({', '.join(':' + name for name in row)})")
        for experiment, days in asked.items():
            said = config | {"retention_policy": {"log_retention_days": days}}
            chosen = 30 if experiment == 107 else None  # by a person, later than the config
            new = {**row, "id": experiment, "config": json.dumps(said), "log_retention_days": chosen}
            connection.execute(put, new)
        without = {key: value for key, value in config.items() if key != "retention_policy"}
        connection.execute(put, {**row, "id": 108, "config": json.dumps(without)})
        migrate.upgrade(connection)
        told = text("SELECT id, log_retention_days FROM experiments WHERE id > 100")
        kept = dict(connection.execute(told).all())
    assert kept == {101: -1, 102: 365, 103: None, 104: None, 105: None, 106: 0, 107: 30, 108: None}


def test_what_lives_over_an_upgrade_holds_the_cpus_and_memory_that_it_asked_for(
    empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """They only bounded containers: what ran or waited counted as nothing, and its agent was given to others, too."""
    load("0006", empty_db_url, request, tmp_path)
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        trials = connection.execute(
            text("SELECT id, experiment_id FROM allocations WHERE experiment_id = 1 ORDER BY id LIMIT 3")
        ).all()
        task, task_id = connection.execute(text("SELECT id, task_id FROM allocations WHERE task_id IS NOT NULL")).one()
        state = text("UPDATE allocations SET state = :state WHERE id = :id")
        for one, (allocation, _) in zip(("RUNNING", "PENDING", "TERMINATED"), trials, strict=True):
            connection.execute(state, {"id": allocation, "state": one})
        connection.execute(state, {"id": task, "state": "RUNNING"})
        for table, key, asked in (
            ("experiments", 1, {"cpus": 1.5, "memory": 8 << 30}),
            ("tasks", task_id, {"cpus": 4, "memory": None}),
        ):
            found = connection.execute(text(f"SELECT config FROM {table} WHERE id = :id"), {"id": key}).scalar_one()
            config = json.loads(found)
            config["resources"] = {**(config.get("resources") or {}), **asked}
            put = text(f"UPDATE {table} SET config = :config WHERE id = :id")
            connection.execute(put, {"id": key, "config": json.dumps(config)})
        migrate.upgrade(connection)
        rows = connection.execute(text("SELECT id, millicpus, memory FROM allocations")).all()
    held = {row.id: (row.millicpus, row.memory) for row in rows if row.millicpus or row.memory}
    assert held == {trials[0].id: (1500, 8 << 30), trials[1].id: (1500, 8 << 30), task: (4000, 0)}


def test_code_that_was_sent_before_an_upgrade_is_its_senders(
    empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    load("0008", empty_db_url, request, tmp_path)
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        put = text("INSERT INTO bundles (digest, size, owner, created_at) VALUES ('sha256:ab', 3, 'ada', 5.5)")
        connection.execute(put)
        migrate.upgrade(connection)
        sent = connection.execute(text("SELECT digest, name, created_at FROM bundle_uploads")).all()
        command.downgrade(migrate.alembic_config(connection), "0008")
        kept = connection.execute(text("SELECT digest, owner FROM bundles")).all()
    assert [tuple(row) for row in sent] == [("sha256:ab", "ada", 5.5)]
    assert [tuple(row) for row in kept] == [("sha256:ab", "ada")]


def test_lines_get_new_ids_after_a_downgrade(empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """PostgreSQL counted from 1 again, and the first line that the older master wrote had the id of another."""
    load(BEFORE_GANGS, empty_db_url, request, tmp_path)
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        count = connection.execute(text("SELECT count(*) FROM logs")).scalar_one()
        migrate.upgrade(connection)
        command.downgrade(migrate.alembic_config(connection), BEFORE_GANGS)
        connection.execute(text("INSERT INTO logs (run, stdtype, time, text) VALUES (1, 'stdout', 0, 'new')"))
        newest = connection.execute(text("SELECT text FROM logs ORDER BY id DESC LIMIT 1")).scalar_one()
        assert connection.execute(text("SELECT count(*) FROM logs")).scalar_one() == count + 1
    assert newest == "new"


BEFORE_PARTS = "0011"


def test_what_runs_over_an_upgrade_has_a_part_on_its_node(
    empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Only allocations on several nodes had parts; without one nothing that its agent says of it is taken."""
    load(BEFORE_PARTS, empty_db_url, request, tmp_path)
    states = ("RUNNING", "ASSIGNED", "TERMINATING", "PENDING", "TERMINATED", "RUNNING")
    read = text(
        "SELECT allocation_id, rank, agent_id, slots, started FROM allocation_parts ORDER BY allocation_id, rank"
    )
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        ids = connection.execute(text("SELECT id FROM allocations WHERE trial_id IS NOT NULL ORDER BY id LIMIT 6"))
        running, assigned, leaving, waiting, ended, gang = names = list(ids.scalars())
        connection.execute(text("UPDATE allocations SET state = 'TERMINATED'"))
        put = text(
            "UPDATE allocations SET state = :state, agent_id = :agent, slots = '[\"s0\"]', nodes = 1 WHERE id = :id"
        )
        for name, state in zip(names, states, strict=True):
            agent = None if state == "PENDING" else f"node-of-{state}"
            connection.execute(put, {"id": name, "state": state, "agent": agent})
        connection.execute(text("UPDATE allocations SET nodes = 2 WHERE id = :id"), {"id": gang})
        part = text(
            "INSERT INTO allocation_parts (allocation_id, rank, agent_id, slots, started, metrics_seq, logs_seq) "
            "VALUES (:id, :rank, :agent, '[\"s0\"]', :started, 7, 8)"
        )
        for rank in (0, 1):
            connection.execute(part, {"id": gang, "rank": rank, "agent": f"n{rank}", "started": True})
        before = connection.execute(read).all()
        migrate.upgrade(connection)
        after = {row.allocation_id: tuple(row)[1:] for row in connection.execute(read) if row.allocation_id != gang}
        command.downgrade(migrate.alembic_config(connection), BEFORE_PARTS)
        assert connection.execute(read).all() == before
    slots = '["s0"]'
    assert after == {
        running: (0, "node-of-RUNNING", slots, True),
        assigned: (0, "node-of-ASSIGNED", slots, False),
        leaving: (0, "node-of-TERMINATING", slots, True),
    }
    assert not {waiting, ended} & set(after)


async def test_a_task_that_runs_over_an_upgrade_is_taken_up_again_and_ends_as_itself(
    empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    load(BEFORE_PARTS, empty_db_url, request, tmp_path)
    world = World(empty_db_url, tmp_path, script=training(9))
    world.now += 1000.0
    await world.boot()
    rows = await world.services.context.read(
        lambda s: s.scalars(select(AllocationRow).where(AllocationRow.state == "RUNNING")).all()
    )
    assert rows, "the dump has a trial in the middle"
    said: list[Any] = []
    hello = Hello(
        uids={},
        agent_id="node",
        version="test",
        slots=[SlotView(id=f"node-{number}") for number in range(2)],
        tasks=[HeldTask(allocation_id=row.id, run=row.run) for row in rows],
    )
    session = await world.services[Agents].connect(AgentCaller("node", ""), hello, said.append)
    assert sorted(said[0].keep) == sorted(row.id for row in rows)
    assert said[0].kill == []
    for row in rows:
        await session.receive(TaskExited(allocation_id=row.id, run=row.run, exit_code=3))
        (ended,) = await world.services.context.read(
            lambda s, row=row: s.scalars(select(AllocationRow).where(AllocationRow.id == row.id)).all()
        )
        assert (ended.state, ended.exit_reason, ended.exit_code) == ("TERMINATED", "failed", 3)
    world.close()


async def told(world: World, experiment: int) -> dict[str, Any]:
    """What the master says of an experiment, as `make.fill` asked the old one."""
    service = world.services[Experiments]
    trials, _ = await service.trials(ALICE, experiment)
    return {
        "experiment": (await service.get(ALICE, experiment)).model_dump(mode="json"),
        "trials": [trial.model_dump(mode="json") for trial in trials],
        "checkpoints": [one.model_dump(mode="json") for one in await service.checkpoints(ALICE, experiment)],
        "curves": [one.model_dump(mode="json") for one in (await service.curves(ALICE, experiment)).curves],
        "lines": [
            line.model_dump(mode="json")
            for trial in trials
            for line in (await world.services[Trials].logs(ALICE, trial.id))[0]
        ],
    }


async def told_of_task(world: World) -> dict[str, Any]:
    """What the master says of the user task, as `make.fill` asked the old one."""
    tasks = world.services[UserTasks]
    (task_id,) = await world.services.context.read(lambda s: s.scalars(select(TaskRow.id)).all())
    lines, _ = await tasks.logs(ALICE, task_id)
    return {
        "view": (await tasks.get(ALICE, task_id)).model_dump(mode="json"),
        "lines": [line.model_dump(mode="json") for line in lines],
    }


def without_id(task: dict[str, Any]) -> Any:
    """The ids of tasks are drawn, in each database anew."""
    return json.loads(json.dumps(task).replace(task["view"]["id"], "the task"))


def missing(old: Any, new: Any, where: str = "") -> list[str]:
    """Where `new` does not say what `old` said; it may say more."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [line for key in old for line in missing(old[key], new.get(key), f"{where}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for at, one in enumerate(old) for line in missing(one, new[at], f"{where}[{at}]")]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]


def outcome(said: dict[str, Any]) -> Any:
    """What a search decides: its trials and how far each came, and the best of all."""
    first = said["trials"][0]["id"]
    trials = [(one["hparams"], one["state"], one["steps_completed"], one["best_validation"]) for one in said["trials"]]
    curves = sorted((one["trial_id"] - first, one["name"], one["steps"], one["values"]) for one in said["curves"])
    best = said["experiment"]["best"]
    return trials, curves, (best["trial_id"] - first, best["value"])


BEFORE_REFERENCES = "0017"


def test_references_are_made_of_the_keys_of_what_has_not_ended(
    empty_db_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With the rights of their owners, as far as the database knows them; a mention makes none."""
    load(BEFORE_REFERENCES, empty_db_url, request, tmp_path)
    named = (
        "SELECT uuid, trial_id FROM checkpoints WHERE experiment_id = 1 AND state = 'COMPLETED' ORDER BY uuid LIMIT 2"
    )
    with create_engine(parse_url(empty_db_url), poolclass=NullPool).begin() as connection:
        (uuid, trial), (other, _) = connection.execute(text(named)).all()
        row = dict(connection.execute(text("SELECT * FROM experiments WHERE id = 2")).mappings().one())
        task = dict(connection.execute(text("SELECT * FROM tasks LIMIT 1")).mappings().one())
        base, search = json.loads(row["config"]), json.loads(row["config"])["searcher"]
        configs: dict[int, tuple[str, str, dict[str, Any]]] = {
            101: ("alice", "PAUSED", {"searcher": {**search, "source_checkpoint_uuid": uuid}}),
            102: ("alice", "ACTIVE", {"entrypoint": ["evaluate", uuid, f"--other={other}", uuid]}),
            103: ("bob", "PAUSED", {"entrypoint": ["evaluate", uuid]}),
            104: ("carol", "PAUSED", {"entrypoint": f"evaluate {uuid}"}),
            105: ("dave", "PAUSED", {"entrypoint": f"evaluate {uuid}"}),
            106: ("alice", "PAUSED", {"description": uuid, "hyperparameters": {"x": uuid}, "labels": [uuid]}),
            107: ("alice", "COMPLETED", {"entrypoint": ["evaluate", uuid]}),
            108: ("alice", "PAUSED", {"searcher": {**search, "source_trial_id": trial}}),
        }
        put = text(f"INSERT INTO experiments ({', '.join(row)}) VALUES ({', '.join(':' + name for name in row)})")
        for key, (owner, state, changes) in configs.items():
            groups = '["readers"]' if owner == "dave" else "[]"
            new = {"id": key, "owner": owner, "owner_groups": groups, "state": state}
            connection.execute(put, row | new | {"config": json.dumps(base | changes)})
        grant = text(
            "INSERT INTO grants (experiment_id, kind, name, write, granted_by, created_at)"
            " VALUES (1, :kind, :name, :write, 'alice', 0)"
        )
        for kind, name in (("user", "carol"), ("group", "readers")):
            connection.execute(grant, {"kind": kind, "name": name, "write": False})
        more = {"id": "command-00000000000a", "state": "ACTIVE", "owner": "alice", "key": None}
        more["config"] = json.dumps({"entrypoint": f"sh -c 'evaluate {other}' {uuid}"})
        names = [name for name in task if name != "key"] + ["key"]
        insert = text(f"INSERT INTO tasks ({', '.join(names)}) VALUES ({', '.join(':' + name for name in names)})")
        connection.execute(insert, task | more)
        migrate.upgrade(connection)
        found = set(connection.execute(text("SELECT referrer_id, purpose, uuid FROM checkpoint_references")).all())
        of_trial = text("SELECT uuid FROM checkpoints WHERE trial_id = :trial AND state = 'COMPLETED'")
        saved = set(connection.execute(of_trial, {"trial": trial}).scalars())
    assert {tuple(one) for one in found} == {
        ("101", "warm_start", uuid),
        ("102", "evaluation", uuid),
        ("102", "evaluation", other),
        ("104", "evaluation", uuid),
        ("105", "evaluation", uuid),
        *(("108", "warm_start", one) for one in saved),
        ("command-00000000000a", "evaluation", uuid),
    }
