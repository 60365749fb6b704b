"""What clients have logged into a trial goes with its experiment."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE
from test_mlflow_protocol import new_run

from detlab.errors import Conflict
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.store.queries.tracking import runs
from detlab_hub.store.tables import ExperimentRow

FILES = "mlflow/api/2.0/mlflow-artifacts/artifacts"


async def test_rows_and_files_go_with_the_experiment_unless_a_version_is_of_them(door: Any) -> None:
    trial = await door.trial()
    task, ask = door.of(trial.token), door.of("alice")
    run, child = await new_run(task, "0"), await new_run(task, "0")
    await task("POST", "runs/log-metric", run_id=child, key="loss", value=1, timestamp=1)
    for one in (run, child):
        assert (await task.http.put(f"{FILES}/0/{one}/artifacts/m/a", content=b"x")).status_code == 200
    await task("POST", "registered-models/create", name="digits")
    assert (await task("POST", "model-versions/create", name="digits", source=f"runs:/{run}/m"))[0] == 200
    trial.task._exit(0)
    await door.world.finish(trial.experiment)
    experiments = door.world.services[Experiments]
    with pytest.raises(Conflict, match="version of a model"):
        await experiments.delete(ALICE, trial.experiment)
    assert (await ask("DELETE", "registered-models/delete", name="digits"))[0] == 200
    left = await experiments.delete(ALICE, trial.experiment)
    assert (left.checkpoints, left.event_files) == (0, True), "a task removes those; ours are gone"
    assert door.world.store.write_sync(lambda s: runs.roots_of_experiment(s, trial.experiment)) == []
    assert [one for one in door.world.settings.artifacts_dir.rglob("*") if one.is_file()] == []
    late = await ask.http.put(f"{FILES}/0/{child}/artifacts/m/a", content=b"x")
    assert (late.status_code, late.json()["error_code"]) == (400, "INVALID_STATE"), "nothing is left that comes late"
    door.world.store.write_sync(lambda s: _book_event_files(s, trial.experiment))
    await door.world.services.tick()
    for one in (run, child):
        assert (await ask("GET", "runs/get", run_id=one))[0] == 404


def _book_event_files(s: Any, experiment: int) -> None:
    s.get_one(ExperimentRow, experiment).event_files_due = None


async def test_a_project_with_runs_is_archived_and_not_deleted(door: Any) -> None:
    from detlab_hub.services.projects.projects import Projects

    ask = door.of("alice")
    _, reply = await ask("POST", "experiments/create", name="cifar")
    await new_run(ask, reply["experiment_id"])
    with pytest.raises(Conflict, match="1 runs from elsewhere"):
        await door.world.services[Projects].delete(ALICE, "Uncategorized", "cifar")
