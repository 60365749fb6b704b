"""MLflow's client in a trial logs into it, by the trial's own token, as long as its code names no other server."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detlab.launch.delivery.mlflow_auth import PROVIDER, TaskTokens, is_below
from detlab.launch.environment import PLUGINS, entrypoint_environment

INFO: dict[str, Any] = {
    "master_url": "https://lab.example/services/detlab/",
    "cluster_id": "c",
    "agent_id": "a",
    "experiment_id": 1,
    "trial_id": 1,
    "trial_seed": 1,
    "task_id": "1",
    "allocation_id": "1.1",
    "slot_ids": [],
}


def environment(
    base: dict[str, str] | None = None, task_type: str = "TRIAL", runtime: str = "process", **given: str
) -> dict[str, str]:
    launch = {"info": {**INFO, "task_type": task_type}, "environment": given, "runtime": runtime}
    return entrypoint_environment(base or {}, launch, Path("/d"))


def test_a_trial_has_the_address_and_the_name_of_the_provider_and_no_token() -> None:
    env = environment({"DET_MASTER_CERT_FILE": "/c.pem"})
    assert env["MLFLOW_TRACKING_URI"] == "https://lab.example/services/detlab/mlflow"
    assert env["MLFLOW_TRACKING_AUTH"] == PROVIDER
    assert env["MLFLOW_TRACKING_SERVER_CERT_PATH"] == "/c.pem"
    assert "MLFLOW_TRACKING_TOKEN" not in env


def test_in_a_container_the_provider_is_on_the_path_and_elsewhere_no_path_makes_a_trial_start_cold() -> None:
    assert environment(runtime="docker", PYTHONPATH="/mine")["PYTHONPATH"] == f"/mine:{PLUGINS}"
    assert environment({"PYTHONPATH": "/src"})["PYTHONPATH"] == f"/src:{PLUGINS}"
    assert "PYTHONPATH" not in environment()
    assert environment(PYTHONPATH="/mine")["PYTHONPATH"] == "/mine"


def test_an_installed_detlab_names_the_same_provider() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (point,) = next(iter(distributions(path=[str(PLUGINS)]))).entry_points
    assert project["entry-points"]["mlflow.request_auth_provider"] == {PROVIDER: point.value}


def test_a_server_that_the_experiment_names_stays_the_one() -> None:
    env = environment(MLFLOW_TRACKING_URI="https://mlflow.example")
    assert env["MLFLOW_TRACKING_URI"] == "https://mlflow.example"
    assert "MLFLOW_TRACKING_AUTH" not in env
    assert "PYTHONPATH" not in env


def test_what_is_no_trial_is_left_alone() -> None:
    assert "MLFLOW_TRACKING_URI" not in environment(task_type="COMMAND")


def test_mlflow_finds_the_provider_wherever_detlab_is_though_it_is_not_installed() -> None:
    (found,) = distributions(path=[str(PLUGINS)])
    (point,) = found.entry_points
    assert (point.group, point.name) == ("mlflow.request_auth_provider", PROVIDER)
    assert point.load()().get_name() == PROVIDER
    assert str(PLUGINS) not in sys.path


def test_the_token_is_read_for_each_request_and_goes_to_the_master_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_MASTER", INFO["master_url"])
    monkeypatch.setenv("DET_TASK_DIR", str(tmp_path))
    auth = TaskTokens().get_auth()
    ours = "https://lab.example/services/detlab/mlflow/api/2.0/mlflow/runs/create"
    for token in ("dttask_one", "dttask_two"):
        (tmp_path / "token").write_text(token)
        assert auth(SimpleNamespace(url=ours, headers={})).headers == {"Authorization": f"Bearer {token}"}
    for other in (
        "https://evil.example/services/detlab/mlflow",
        "http://lab.example/services/detlab/mlflow",
        "https://lab.example/services/other/mlflow",
        "https://lab.example/services/detlab-evil/x",
        "https://lab.example:8443/services/detlab/x",
        "https://lab.example@evil.example/services/detlab/x",
    ):
        assert auth(SimpleNamespace(url=other, headers={})).headers == {}
    assert not is_below(ours, "")
