"""Dump the databases that a commit's master writes: one search that has ended, one in the middle, a user task.

    git worktree add ../old COMMIT
    python tests/integration/services/upgrades/make.py ../old REVISION
    python tests/integration/services/upgrades/make.py ../old REVISION-COMMIT           # an earlier one of it
    python tests/integration/services/upgrades/make.py ../old REVISION-COMMIT ../older  # its tables

Run it for the last commit of a schema's revision, when the next revision is made: what people have by then is of that
kind. Some revisions were changed by commits after the one that made them; each such commit has a dump, too, for its
master may have run. The commit of the first tables (84f17d4) had no master yet: tables as it made them, filled by a
later one. Masters of two commits of 0006 (0f7017a, b7f4acc) could not start. A dump is REVISION.sqlite.sql.gz,
REVISION.postgresql.sql.gz and REVISION.json.gz (what that master said of them).
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOTS = ("harness", "hub_ext", "tests/integration/services")


def service(services: Any, name: str, module: str, cls: str) -> Any:
    """Return a service of a master: by its class, in earlier commits an attribute; None if it was not there yet."""
    try:
        return getattr(services, name, None) or services[getattr(import_module(f"detlab_hub.services.{module}"), cls)]
    except ImportError:
        return None


async def fill(url: str, folder: Path) -> dict[str, Any]:
    """Run a search, a user task, and a search to its middle; all write lines. Return what the master says of them."""
    from services_scripted import ALICE, World, asha, config, training

    def talking(launch: Any) -> Iterator[Any]:
        kind = getattr(launch, "kind", "trial")  # before 0002 there were no others
        for number in range(3):
            yield ("log", number % 2, f"line {number} of {kind} \N{GREEK SMALL LETTER BETA}")
        if kind == "trial":
            yield from training(9)(launch)

    world = World(url, folder, script=talking)
    await world.boot()
    await world.add_agent("node", slots=2)
    ended = await world.submit(config(asha(), name="ended \N{GREEK SMALL LETTER ALPHA} <b>"))
    await world.finish(ended.id)
    task = None
    usertasks = service(world.services, "usertasks", "usertasks.usertasks", "UserTasks")
    if usertasks is not None:  # since 0002
        from detlab.schemas.taskwire import CreateTask, TaskKind

        wanted = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": 1}})
        task = (await usertasks.create(ALICE, wanted)).task
    await world.steps(9)
    half = await world.submit(config(asha(), name="half"))
    await world.steps(12)
    trials_service = service(world.services, "trials", "experiments.trials", "Trials")
    said: dict[str, Any] = {}
    if task is not None:
        lines, _ = await usertasks.logs(ALICE, task.id)
        said["task"] = {
            "view": (await usertasks.get(ALICE, task.id)).model_dump(mode="json"),
            "lines": [line.model_dump(mode="json") for line in lines],
        }
    for experiment in (ended.id, half.id):
        experiments = service(world.services, "experiments", "experiments.experiments", "Experiments")
        trials, _ = await experiments.trials(ALICE, experiment)
        said[str(experiment)] = {
            "experiment": (await experiments.get(ALICE, experiment)).model_dump(mode="json"),
            "trials": [trial.model_dump(mode="json") for trial in trials],
            "checkpoints": [one.model_dump(mode="json") for one in await experiments.checkpoints(ALICE, experiment)],
            "curves": [one.model_dump(mode="json") for one in (await experiments.curves(ALICE, experiment)).curves],
            "lines": [
                line.model_dump(mode="json")
                for trial in trials
                for line in (await trials_service.logs(ALICE, trial.id))[0]
            ],
        }
    world.close()
    return said


def fill_in(old: Path, url: str, folder: Path) -> dict[str, Any]:
    """`fill`, with the code of another commit."""
    paths = os.pathsep.join(str(old / root) for root in ROOTS)
    command = [sys.executable, __file__, "--fill", url, str(folder)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, check=True, stdout=subprocess.PIPE, text=True
    )
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def make_tables(old: Path, url: str) -> None:
    """Make the tables as another commit does, and nothing in them."""
    make = f"""
from sqlalchemy import create_engine
from detlab_hub.store import migrate
from detlab_hub.store.engine import parse_url
with create_engine(parse_url({url!r})).begin() as connection:
    migrate.upgrade(connection)
"""
    paths = os.pathsep.join(str(old / root) for root in ROOTS)
    subprocess.run([sys.executable, "-c", make], env={**os.environ, "PYTHONPATH": paths}, check=True)


def keep(name: str, text: str) -> None:
    (HERE / f"{name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    if sys.argv[1] == "--fill":
        print(json.dumps(asyncio.run(fill(sys.argv[2], Path(sys.argv[3])))))
        return
    old, revision = Path(sys.argv[1]).resolve(), sys.argv[2]
    older = Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else None
    for tree in (old, older):
        if tree and (tree / "harness/make_sync.py").is_file():  # what it makes was committed in earlier commits
            subprocess.run([sys.executable, tree / "harness/make_sync.py"], check=True)
    sys.path.insert(0, str(HERE.parents[2]))
    from testbed.databases import postgres

    with tempfile.TemporaryDirectory() as name:
        folder = Path("/tmp/detlab-upgrade")  # it is in the dumps, and should be the same in all
        if older is not None:
            make_tables(older, f"sqlite:///{name}/x.sqlite")
        said = fill_in(old, f"sqlite:///{name}/x.sqlite", folder)
        with sqlite3.connect(f"{name}/x.sqlite") as connection:
            text = "\n".join(connection.iterdump()) + "\n"
        keep(f"{revision}.sqlite.sql", text)
        server = postgres.up()
        try:
            server.sql("CREATE DATABASE old")
            if older is not None:
                make_tables(older, server.url("old"))
            fill_in(old, server.url("old"), folder)
            keep(f"{revision}.postgresql.sql", server.dump("old"))
        finally:
            postgres.down(server.directory)
    keep(f"{revision}.json", json.dumps(said, sort_keys=True))


if __name__ == "__main__":
    main()
