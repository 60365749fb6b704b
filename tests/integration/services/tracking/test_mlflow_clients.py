"""Real clients of MLflow of two versions: what their users write works as with MLflow's own server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE

import detlab
from detlab.launch.environment import entrypoint_environment
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.registry.versions import Versions

VERSIONS = pytest.mark.parametrize("version", ["3", "2"])
NEWEST = pytest.mark.parametrize("version", ["3", pytest.param("2", marks=pytest.mark.soak)])
"""Where what is tested is rather ours than the client's: the older client is in `make soak`."""


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


@NEWEST
async def test_autolog_of_scikit_learn_ends_well_and_its_model_is_loaded_again(door: Any, version: str) -> None:
    said = json.loads(await door.run(AUTOLOG, "alice", version=version))
    assert (said["status"], said["C"], said["search"], said["children"]) == ("FINISHED", "0.5", "FINISHED", 2)
    assert "training_accuracy_score" in said["metrics"]
    assert said["again"] > 0.6
    assert "estimator.html" in said["files"]


LEARNT = """
import json, mlflow, numpy as np
X = np.random.default_rng(1).random((40, 2)); y = (X[:, 0] > 0.5).astype(int)
mlflow.autolog()
if BOOSTED:
    import lightgbm
    data = lightgbm.Dataset(X[:30], y[:30])
    lightgbm.train({"objective": "binary", "verbosity": -1, "min_data_in_leaf": 2, "num_threads": 1}, data,
        num_boost_round=3, valid_sets=[lightgbm.Dataset(X[30:], y[30:])])
else:
    from sklearn.linear_model import LogisticRegression
    LogisticRegression(C=0.5).fit(X, y)
run = mlflow.last_active_run()
print(json.dumps({"run": run.info.run_id}))
"""


async def learnt(door: Any, version: str, boosted: bool) -> tuple[Any, dict[tuple[str, str], Any]]:
    """Let a framework's autolog report into a trial; return the trial and its curves."""
    trial = await door.trial()
    said = json.loads(await door.run(LEARNT.replace("BOOSTED", str(boosted)), trial.token, version=version))
    assert said["run"] == f"{trial.id:032x}"
    view = await door.world.services[Trials].get(ALICE, trial.id)
    assert view.state == "ACTIVE"
    curves = await door.world.services[Trials].metrics(ALICE, trial.id)
    return view, {(one.group, one.name): one for one in curves}


@NEWEST
async def test_autolog_of_scikit_learn_in_a_trial_reports_into_it(door: Any, version: str) -> None:
    view, curves = await learnt(door, version, boosted=False)
    assert view.metadata["mlflow"]["params"]["C"] == "0.5"
    assert curves["training", "training_accuracy_score"].values[0] > 0.6


@pytest.mark.soak
async def test_autolog_of_lightgbm_in_a_trial_draws_its_curve(door: Any) -> None:
    view, curves = await learnt(door, "2", boosted=True)
    assert view.metadata["mlflow"]["params"]["objective"] == "binary"
    (curve,) = [one for (_, name), one in curves.items() if "binary_logloss" in name and len(one.steps) > 1]
    assert curve.steps == [0, 1, 2]


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
    curves = await door.world.services[Trials].metrics(ALICE, trial.id)
    found = {(one.group, one.name): (one.steps, one.values) for one in curves}
    assert found["validation", "loss"] == ([0, 1, 2], [1.0, 0.5, 1 / 3])
    assert found["validation", "val_loss"] == ([0, 1, 2], [2.0, 1.0, 2 / 3])
    assert found["training", "no step"] == ([0, 1, 2], [0.1, 0.2, 0.3])


REGISTERED = """
import json, mlflow, numpy as np
from mlflow import MlflowClient
from sklearn.linear_model import LinearRegression
X = np.arange(10.0).reshape(-1, 1); y = 2 * X[:, 0]
client = MlflowClient()
for _ in range(2):
    with mlflow.start_run() as run:
        mlflow.log_metric("r2", 1.0)
        fitted, how = LinearRegression().fit(X, y), {"serialization_format": "cloudpickle", "NAMED": "model"}
        mlflow.sklearn.log_model(fitted, registered_model_name="line", **how)
client.set_registered_model_alias("line", "champion", "1")
client.set_model_version_tag("line", "1", "checked", "yes")
client.set_registered_model_tag("line", "team", "vision")
client.update_model_version("line", "2", "the second")
first = client.get_model_version("line", "1")
print(json.dumps({
    "versions": sorted(v.version for v in client.search_model_versions("name = 'line'")),
    "models": [m.name for m in client.search_registered_models()],
    "alias": client.get_model_version_by_alias("line", "champion").version, "tags": first.tags,
    "status": first.status, "second": client.get_model_version("line", "2").description,
    "run": client.get_model_version("line", "2").run_id == run.info.run_id,
    "by number": float(mlflow.sklearn.load_model("models:/line/2").predict([[4.0]])[0]),
    "by alias": float(mlflow.pyfunc.load_model("models:/line@champion").predict(np.array([[4.0]]))[0]),
    "latest": client.get_latest_versions("line")[0].version,
    "model": client.get_registered_model("line").tags,
}))
"""


@NEWEST
async def test_models_are_registered_found_and_loaded_again(door: Any, version: str) -> None:
    code = REGISTERED.replace("NAMED", "name" if version == "3" else "artifact_path")
    said = json.loads(await door.run(code, "alice", version=version))
    assert (said["versions"], said["models"], said["alias"]) == (["1", "2"], ["line"], "1")
    assert (said["tags"], said["status"], said["second"]) == ({"checked": "yes"}, "READY", "the second")
    assert (said["by number"], said["by alias"]) == pytest.approx((8.0, 8.0))
    assert (said["latest"], said["model"], said["run"]) == ("2", {"team": "vision"}, True)
    found = await door.world.services[Versions].get(ALICE, "line", "champion")
    assert found.format == "pickle"  # marked: loading it runs code
    assert found.lineage.metrics == {"r2": 1.0}


BY_FILE = """
import json, mlflow, os, pathlib
mlflow.set_experiment("any")
with mlflow.start_run() as run:
    mlflow.log_metric("loss", 1.0, step=1)
pathlib.Path(os.environ["DET_TASK_DIR"], "token").write_text("dttask_stale")
try:
    mlflow.log_metric("loss", 1.0, run_id=run.info.run_id)
    said = ""
except Exception as error:
    said = str(error)
print(json.dumps({"run": run.info.run_id, "said": said}))
"""


@VERSIONS
async def test_a_trials_client_reads_its_token_from_the_file_at_each_request(door: Any, version: str) -> None:
    trial = await door.trial()
    (door.folder / "token").write_text(trial.token)
    info = {
        **dict.fromkeys(("cluster_id", "agent_id", "experiment_id", "trial_id", "trial_seed", "allocation_id"), 1),
        "master_url": door.base,
        "task_id": "1",
        "slot_ids": [],
        "task_type": "TRIAL",
    }
    made = entrypoint_environment({}, {"info": info, "runtime": "docker"}, door.folder)
    given = {name: value for name, value in made.items() if name.startswith(("MLFLOW", "PYTHONPATH", "DET_"))}
    given["PYTHONPATH"] += f":{Path(detlab.__file__).parents[1]}"
    said = json.loads(await door.run(BY_FILE, "", version=version, **given, MLFLOW_TRACKING_TOKEN=""))
    assert said["run"] == f"{trial.id:032x}"
    assert "UNAUTHENTICATED" in said["said"]
