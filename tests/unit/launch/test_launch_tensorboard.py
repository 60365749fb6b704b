"""`tensorboard: import`: the launcher reports what a plain script has written for TensorBoard."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from detlab.testing.master import FakeAllocation, MasterDouble
from testbed.event_files import first as first_event
from testbed.event_files import record

TESTS = Path(__file__).parents[2]
SCRIPT = """
import os, sys, time
sys.path.insert(0, {tests!r})
from testbed.event_files import event, first, name, record, scalar
now, rank = time.time(), int(os.environ.get("RANK", 0))
os.makedirs("runs/x", exist_ok=True)
if os.path.exists("old"):
    os.rename("old", "runs/x/" + name(7))  # what a checkpoint brings along
with open("runs/x/" + name(rank, os.getpid()), "wb") as file:
    file.write(record(first(now)))
    for step in range({begin}, {begin} + 3):
        file.write(record(event(scalar("loss", step + rank * 100.0), scalar("score", 1.0), step=step, at=now)))
print("trained")
"""


def run(master: MasterDouble, root: Path, begin: int = 0, **told: Any) -> FakeAllocation:
    """Run an attempt of a trial to its end."""
    for name in ("work", "spool", "home", "tmp"):
        (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    script = SCRIPT.format(tests=str(TESTS), begin=begin)
    allocation = master.allocate([sys.executable, "-c", script])
    message = allocation.launch.model_dump(mode="json", exclude={"task_token"})
    config = {"searcher": {"name": "single", "metric": "score"}, "tensorboard": "import"}
    message["info"] |= {"trial_id": 7, "run": 1, "config": config, **told}
    (root / "launch.json").write_text(json.dumps(message))
    (root / "token").write_text(allocation.token)
    subprocess.run([sys.executable, "-m", "detlab.launch.task", "--dir", str(root)], check=True, timeout=60)
    return allocation


def reports(allocation: FakeAllocation) -> list[tuple[str, int, dict[str, float]]]:
    return [(one["group"], one["steps_completed"], one["metrics"]) for one in allocation.records["metrics"]]


def test_a_script_that_knows_nothing_of_the_cluster_has_curves_and_the_next_attempt_goes_on(tmp_path: Path) -> None:
    with MasterDouble() as master:
        first = run(master, tmp_path / "1")
        assert reports(first) == [
            one
            for step in range(3)
            for one in (("training", step, {"loss": float(step)}), ("validation", step, {"score": 1.0}))
        ]
        assert master.texts(first) == ["trained"]
        (old,) = (tmp_path / "1" / "work" / "runs" / "x").iterdir()
        (tmp_path / "2" / "work").mkdir(parents=True)
        begin = record(first_event(time.time() - 100))
        (tmp_path / "2" / "work" / "old").write_bytes(begin + old.read_bytes()[len(begin) :])
        second = run(master, tmp_path / "2", begin=3, run=2)
        assert {step for _, step, _ in reports(second)} == {3, 4, 5}


@pytest.mark.parametrize("told", [{"config": {"tensorboard": None}}, {"config": {}}, {"container_rank": 1}])
def test_only_a_trial_that_asks_for_it_and_on_its_first_node(tmp_path: Path, told: dict[str, Any]) -> None:
    with MasterDouble() as master:
        assert not reports(run(master, tmp_path, **told))
