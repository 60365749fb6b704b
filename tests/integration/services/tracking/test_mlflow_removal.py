"""What clients have logged into a trial goes with its experiment."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE
from test_mlflow_protocol import new_run

from detlab.errors import Conflict
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.projects.projects import Projects
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


async def test_a_run_that_is_marked_comes_back_or_goes_for_good_and_its_project_after_it(door: Any) -> None:
    ask, projects = door.of("alice"), door.world.services[Projects]
    _, reply = await ask("POST", "experiments/create", name="cifar")
    run, other = [await new_run(ask, reply["experiment_id"]) for _ in range(2)]
    for one in (run, other):
        await ask("POST", "runs/log-metric", run_id=one, key="loss", value=1, timestamp=1)
    assert (await ask.http.put(f"{FILES}/0/{run}/artifacts/m/a", content=b"x")).status_code == 200
    media = {"key": "k", "step": 1, "place": 0, "kind": "text", "media_type": "text/plain"}
    assert (await ask.http.put(f"api/v1/runs/{run}/media", params=media, content=b"x")).status_code == 200

    async def call(verb: str, path: str, user: str = "alice", **params: str) -> tuple[int, Any]:
        answer = await door.of(user).http.request(verb, f"api/v1/{path}", params=params)
        return answer.status_code, answer.json()

    async def listed(**params: str) -> set[str]:
        _, page = await call("GET", "runs", project="cifar", **params)
        return {one["id"] for one in page["items"]}

    assert (await projects.get(ALICE, "Uncategorized", "cifar")).runs == 2
    status, said = await call("DELETE", f"runs/{run}", forever="true")
    assert (status, f"det run delete {run}" in said["hint"]) == (409, True), "only what is marked goes for good"
    assert (await call("DELETE", f"runs/{run}"))[0] == 200
    assert (await listed(), await listed(deleted="true")) == ({other}, {run})
    assert (await projects.get(ALICE, "Uncategorized", "cifar")).runs == 1
    for verb, path in (("POST", "/restore"), ("DELETE", "?forever=true")):
        theirs, nobodys = [await call(verb, f"runs/{one}{path}", "mallory") for one in (run, "e" * 32)]
        assert theirs[0] == nobodys[0] == 404
    assert (await call("POST", f"runs/{run}/restore"))[1]["deleted"] is False
    assert await listed() == {run, other}

    for one in (run, other):
        await call("DELETE", f"runs/{one}")
    with pytest.raises(Conflict, match="2 runs from elsewhere lie in it, 2 of them marked as deleted") as refused:
        await projects.delete(ALICE, "Uncategorized", "cifar")
    assert "det run list --project alice/Uncategorized/cifar" in str(refused.value.hint)
    for one in (run, other):
        assert (await call("DELETE", f"runs/{one}", forever="true"))[1]["id"] == one
        assert (await call("GET", f"runs/{one}"))[0] == 404
    settings = door.world.settings
    assert [
        one for top in (settings.artifacts_dir, settings.media_dir) for one in top.rglob("*") if one.is_file()
    ] == []
    assert (await projects.delete(ALICE, "Uncategorized", "cifar")).runs == 0


async def test_a_run_goes_not_for_good_while_a_version_is_of_its_files_or_if_it_is_of_a_trial(door: Any) -> None:
    ask = door.of("alice")
    run = await new_run(ask, "0")
    assert (await ask.http.put(f"{FILES}/0/{run}/artifacts/m/a", content=b"x")).status_code == 200
    await ask("POST", "registered-models/create", name="digits")
    assert (await ask("POST", "model-versions/create", name="digits", source=f"runs:/{run}/m"))[0] == 200
    await ask.http.delete(f"api/v1/runs/{run}")
    refused = await ask.http.delete(f"api/v1/runs/{run}", params={"forever": "true"})
    assert (refused.status_code, "a version of a model" in refused.text) == (409, True)
    trial = await door.trial()
    child = await new_run(door.of(trial.token), "0")
    refused = await ask.http.delete(f"api/v1/runs/{child}", params={"forever": "true"})
    assert (refused.status_code, "goes with its experiment" in refused.text) == (409, True)
