"""What of the agent's own variables launchers and tasks see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detlab.launch.environment import base_environment, entrypoint_environment

INFO: dict[str, Any] = {
    "master_url": "http://127.0.0.1:8642/services/detlab/",
    "cluster_id": "c",
    "agent_id": "a",
    "experiment_id": 1,
    "trial_id": 1,
    "trial_seed": 1,
    "task_id": "1",
    "allocation_id": "1.1",
    "slot_ids": [],
}


def test_whom_the_operator_trusts_reaches_launchers_and_tasks_and_secrets_do_not() -> None:
    """It is what a refusal of a stranger's port names as the cure: it must arrive where the refusal is."""
    agent = {"DET_TRUSTED_UIDS": "997", "SECRET": "s"}
    launcher = base_environment(agent, bin_dir=Path("/b"), home=Path("/h"), user="ada", tmp=Path("/t"))
    task = entrypoint_environment(launcher, {"info": INFO}, Path("/d"))
    for env in (launcher, task):
        assert env["DET_TRUSTED_UIDS"] == "997"
        assert "SECRET" not in env


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_a_tasks_proxy_is_not_for_its_master_nor_for_loopback(name: str) -> None:
    """Proxy variables of an experiment or an image caught calls to the master: trials stayed in STARTING."""
    info = {**INFO, "master_url": "http://10.0.0.5:8000/services/detlab/"}
    given = {"http_proxy": "http://proxy:3128", "no_proxy": "internal.example, 127.0.0.1", "NO_PROXY": ".corp"}
    task = entrypoint_environment({}, {"info": info, "environment": given}, Path("/d"))
    assert task["http_proxy"] == "http://proxy:3128"
    assert task[name].split(",") == ["internal.example", "127.0.0.1", ".corp", "localhost", "::1", "10.0.0.5"]


def test_a_notebook_runs_token_is_named_by_its_file_and_not_in_the_environment(tmp_path: Path) -> None:
    launch = {"info": INFO, "environment": {"DET_MASTER": "http://evil/services/detlab/"}}
    assert "DET_TOKEN_FILE" not in entrypoint_environment({}, launch, tmp_path)
    (tmp_path / "run_token").write_text("dtrun_abc")
    env = entrypoint_environment({}, launch, tmp_path)
    assert env["DET_TOKEN_FILE"] == str(tmp_path / "run_token")
    assert env["DET_MASTER"] == INFO["master_url"]
    assert "dtrun_abc" not in str(env)
