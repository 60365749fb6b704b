"""Scripts of the shape that people have, moved here with at most three changed lines."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "moved_scripts"
HARNESS = Path(__file__).parents[4] / "harness"
CHANGED = {"argparse": 3, "mlflow": 1, "wandb": 1}


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """One database: the scripts are clients of the protocol, which is tested on both."""
    return sqlite_url


def changed_lines(name: str) -> int:
    """Return how many lines differ between a script and what became of it; empty lines are not counted."""
    before, after = (
        [line for line in (SCRIPTS / f"{name}_{when}.py").read_text(encoding="utf-8").splitlines() if line.strip()]
        for when in ("before", "after")
    )
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(end - start, till - since) for kind, start, end, since, till in blocks if kind != "equal")


@pytest.mark.parametrize("name", CHANGED)
def test_at_most_three_lines_change(name: str) -> None:
    assert changed_lines(name) == CHANGED[name] <= 3


async def logged(name: str, folder: Path) -> list[dict[str, Any]]:
    """Run a moved script without a master, and return the records that it has left to be sent."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPTS / f"{name}_after.py"),
        env={"PATH": os.defpath, "HOME": str(folder), "PYTHONPATH": str(HARNESS), "DET_RUN_MODE": "offline"},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (out + err).decode()
    lines = [line for path in folder.glob("detlab-runs/*/*/metrics.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


async def test_a_script_of_wandb_logs_what_it_did(tmp_path: Path) -> None:
    records = await logged("wandb", tmp_path)
    metrics = [one["values"] for one in records if one["kind"] == "metrics"]
    assert [values["epoch"] for values in metrics] == [0, 1, 2, 3, 4]
    assert {"train/loss", "epoch"} < set(metrics[0])
    assert any("learning_rate" in json.dumps(one) for one in records)
    assert any("best_accuracy" in json.dumps(one) for one in records)
    assert [one["status"] for one in records if one["kind"] == "exit"] == ["FINISHED"]


async def test_a_plain_script_logs_its_arguments_and_metrics(tmp_path: Path) -> None:
    records = await logged("argparse", tmp_path)
    metrics = {one["step"]: one["values"] for one in records if one["kind"] == "metrics"}
    assert list(metrics) == [1, 2, 3, 4]
    assert set(metrics[1]) == {"loss", "accuracy"}
    assert any("epochs" in json.dumps(one) for one in records if one["kind"] != "metrics")
    assert any("Epoch 4" in json.dumps(one) for one in records)


async def test_a_script_of_mlflow_logs_into_this_master(make_door: Any) -> None:
    door = await make_door()
    code = (SCRIPTS / "mlflow_after.py").read_text(encoding="utf-8")
    assert await door.run(code, "alice") == "4 FINISHED"
    ask = door.of("alice")
    status, reply = await ask("GET", "experiments/get-by-name", experiment_name="wine-quality")
    assert status == 200, reply
    _, found = await ask("POST", "runs/search", experiment_ids=[reply["experiment"]["experiment_id"]])
    (run,) = found["runs"]
    assert run["info"]["run_name"] == "elastic-net"
    assert {one["key"]: one["value"] for one in run["data"]["params"]} == {"alpha": "0.5", "rounds": "4"}
    assert {one["key"] for one in run["data"]["metrics"]} == {"rmse", "final_rmse"}
