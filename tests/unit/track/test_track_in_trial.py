"""A script that logs, run by a cluster as a trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from detlab.schemas.wire import RecordBatch
from detlab.track import current


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a trial's task."""
    info: dict[str, Any] = {
        "master_url": "http://127.0.0.1:1/services/detlab/",
        "cluster_id": "c",
        "agent_id": "a",
        "slot_ids": [0],
        "task_id": "1.x",
        "allocation_id": "1.x.1",
        "run": 1,
        "trial_id": 26,
        "experiment_id": 3,
        "trial_seed": 7,
        "hparams": {"lr": 0.5},
        "config": {"searcher": {"name": "single", "metric": "score"}},
    }
    (tmp_path / "info.json").write_text(json.dumps(info))
    monkeypatch.setenv("DET_TASK_DIR", str(tmp_path))
    monkeypatch.setattr(current, "_current", None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_logged_is_reported_in_the_groups_of_the_trial(task: Path) -> None:
    run = current.init(project="anything", config={"lr": 0.1, "epochs": 3})
    assert dict(run.config) == {"lr": 0.5, "epochs": 3}
    assert int(run.id, 16) == 26
    current.log({"loss": 1.0, "val/acc": 0.5, "score": 2})
    current.log({"loss": 0.5}, step=-4)
    run.summary["best"] = 1
    current.finish()
    lines = [json.loads(line) for line in (task / "spool" / "metrics.jsonl").read_text().splitlines()]
    batch = RecordBatch.model_validate({"stream": "metrics", "records": lines})
    assert [(one.group, one.steps_completed, one.metrics) for one in batch.records] == [  # type: ignore[union-attr]
        ("training", 0, {"loss": 1.0}),
        ("validation", 0, {"val/acc": 0.5, "score": 2.0}),
        ("training", 0, {"loss": 0.5}),
    ]
    assert not (task / "detlab-runs").exists()


def test_only_the_first_rank_reports(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    run = current.init(config={"lr": 0.1})
    run.log({"loss": 1.0})
    run.finish()
    assert run.config.lr == 0.5
    assert not (task / "spool" / "metrics.jsonl").exists()
