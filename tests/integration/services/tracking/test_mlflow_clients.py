"""Real clients of MLflow of two versions: what their users write works as with MLflow's own server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from services_scripted import ALICE

from detlab_hub.services.experiments.trials import Trials

VERSIONS = pytest.mark.parametrize("version", ["3", "2"])


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """One database: what differs between the two is tested without a client."""
    return sqlite_url


USED = """
import json, mlflow, pathlib
from mlflow import MlflowClient
mlflow.set_experiment("cifar")
with mlflow.start_run(run_name="first") as run:
    mlflow.log_param("lr", 0.1)
    mlflow.log_params({"depth": 3, "opt": "adam"})
    for step in range(5):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_metrics({"acc": 0.5, "odd": float("nan"), "big": float("inf")}, step=1)
    mlflow.set_tag("team", "vision")
    path = pathlib.Path("hello é+%.txt"); path.write_text("hi")
    mlflow.log_artifact(str(path), "sub dir")
    mlflow.log_dict({"a": 1}, "x.json")
    with mlflow.start_run(nested=True, run_name="child") as child:
        mlflow.log_metric("loss", 9.0)
client = MlflowClient()
kept = client.get_run(run.info.run_id)
client.set_tag(run.info.run_id, "late", "yes")
client.log_metric(run.info.run_id, "late", 1.0)
down = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="sub dir/hello é+%.txt")
text = pathlib.Path(down).read_text()
where = "metrics.loss < 0.3 and params.opt = 'adam' and tags.team LIKE 'vis%'"
found = mlflow.search_runs(experiment_names=["cifar"], filter_string=where, order_by=["metrics.loss DESC"])
print(json.dumps({
    "status": kept.info.status, "name": kept.info.run_name, "params": kept.data.params,
    "metrics": {k: str(v) for k, v in kept.data.metrics.items()}, "team": kept.data.tags["team"],
    "history": [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss")],
    "files": sorted(f.path for f in client.list_artifacts(run.info.run_id)), "text": text,
    "found": list(found["run_id"]) == [run.info.run_id], "columns": sorted(found.columns),
    "parent": client.get_run(child.info.run_id).data.tags["mlflow.parentRunId"] == run.info.run_id,
    "experiments": sorted(e.name for e in client.search_experiments()),
}))
"""


@VERSIONS
async def test_a_script_at_home_logs_and_reads_as_ever(door: Any, version: str) -> None:
    said = json.loads(await door.run(USED, "alice", version=version))
    assert said["status"] == "FINISHED"
    assert said["params"] == {"lr": "0.1", "depth": "3", "opt": "adam"}
    assert said["metrics"] == {"loss": "0.2", "acc": "0.5", "odd": "nan", "big": "inf"}
    assert said["history"] == [[0, 1.0], [1, 0.5], [2, 1 / 3], [3, 0.25], [4, 0.2]]
    assert said["files"] == ["sub dir", "x.json"]
    assert (said["text"], said["team"], said["found"], said["parent"]) == ("hi", "vision", True, True)
    assert {"metrics.loss", "params.opt", "tags.team"} <= set(said["columns"])
    assert said["experiments"] == ["cifar"]


AUTOLOG = """
import json, mlflow, numpy as np
from mlflow import MlflowClient
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
mlflow.sklearn.autolog()
X = np.random.default_rng(1).random((40, 2)); y = (X[:, 0] > 0.5).astype(int)
LogisticRegression(C=0.5).fit(X, y)
run = mlflow.last_active_run()
client = MlflowClient()
import mlflow.pyfunc
uri = f"runs:/{run.info.run_id}/model"
again = mlflow.sklearn.load_model(uri).predict(X)
GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2).fit(X, y)
search = mlflow.last_active_run()
print(json.dumps({
    "status": run.info.status, "C": run.data.params["C"], "metrics": sorted(run.data.metrics),
    "files": sorted(f.path for f in client.list_artifacts(run.info.run_id)), "again": float((again == y).mean()),
    "search": search.info.status, "inputs": len(run.inputs.dataset_inputs),
    "children": len(client.search_runs([run.info.experiment_id], f"tags.mlflow.parentRunId = '{search.info.run_id}'")),
}))
"""


@VERSIONS
async def test_autolog_of_scikit_learn_ends_well_and_its_model_is_loaded_again(door: Any, version: str) -> None:
    said = json.loads(await door.run(AUTOLOG, "alice", version=version))
    assert (said["status"], said["C"], said["search"], said["children"]) == ("FINISHED", "0.5", "FINISHED", 2)
    assert "training_accuracy_score" in said["metrics"]
    assert said["again"] > 0.6
    assert {"training_confusion_matrix.png", "estimator.html"} <= set(said["files"])


IN_TRIAL = """
import json, mlflow
from mlflow import MlflowClient
mlflow.set_experiment("whatever it is called")
with mlflow.start_run() as run:
    mlflow.log_params({"lr": 0.5, "mine": "x"})
    for step in range(3):
        mlflow.log_metrics({"loss": 1 / (step + 1), "val_loss": 2 / (step + 1)}, step=step)
    for value in (0.1, 0.2, 0.3):
        mlflow.log_metric("no step", value)
    mlflow.set_tag("team", "vision")
    with mlflow.start_run(nested=True) as child:
        mlflow.log_metric("loss", 7.0)
with mlflow.start_run() as second:
    mlflow.log_text("hi", "note.txt")
client = MlflowClient()
print(json.dumps({"run": run.info.run_id, "child": child.info.run_id, "second": second.info.run_id,
    "parent": client.get_run(second.info.run_id).data.tags["mlflow.parentRunId"],
    "status": client.get_run(run.info.run_id).info.status,
    "found": sorted(r.info.run_id for r in client.search_runs([run.info.experiment_id]))}))
"""


@VERSIONS
async def test_in_a_trial_the_first_run_is_the_trial_itself(door: Any, version: str) -> None:
    trial = await door.trial(hyperparameters={"lr": 0.1})
    said = json.loads(await door.run(IN_TRIAL, trial.token, version=version))
    assert said["run"] == said["parent"] == f"{trial.id:032x}"
    assert said["status"] == "RUNNING"  # it has said FINISHED, and goes on
    assert said["found"] == sorted([said["run"], said["child"], said["second"]])
    view = await door.world.services[Trials].get(ALICE, trial.id)
    assert view.state == "ACTIVE"
    assert view.metadata["mlflow"] == {"params": {"lr": "0.5", "mine": "x"}, "tags": {"team": "vision"}}
    assert any("lr was logged as '0.5', and is '0.1'" in said for said in view.warnings)
    curves = await door.world.services[Trials].curves(ALICE, trial.id)
    found = {(one.group, one.name): (one.steps, one.values) for one in curves}
    assert found["training", "loss"] == ([0, 1, 2], [1.0, 0.5, 1 / 3])
    assert found["validation", "val_loss"] == ([0, 1, 2], [2.0, 1.0, 2 / 3])
    assert found["training", "no step"] == ([0, 1, 2], [0.1, 0.2, 0.3])
