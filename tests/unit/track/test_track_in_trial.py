"""A script that logs, run by a cluster as a trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from detlab.schemas.wire import RecordBatch
from detlab.track import current, in_trial

STORED: list[Any] = []


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
    monkeypatch.setattr(in_trial.RunMetadata, "_store", lambda _self, values: STORED.append(values))
    STORED.clear()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_a_run_says_besides_metrics_is_kept_with_the_trial(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it was dropped without a word, also the results for which the search was made."""
    run = current.init(config={"extra": 5, "lr": 99}, tags=["mine"], notes="a note", name="myname", group="g")
    current.log({"loss": 1.0, "msg": "text"})
    run.summary["best"] = 0.9
    run.config.late = 3
    current.alert("title", "text")
    current.finish()
    [kept] = STORED
    assert kept == {
        "about": {"name": "myname", "group": "g", "notes": "a note"},
        "config": {"extra": 5, "late": 3},
        "tags": {"mine": ""},
        "summary": {"msg": "text", "best": 0.9},
    }
    assert "title: text" in capsys.readouterr().err


def test_a_run_that_says_nothing_else_asks_the_master_nothing(task: Path) -> None:
    current.init(config={"lr": 0.1})
    current.log({"loss": 1.0})
    current.finish()
    assert STORED == []


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
