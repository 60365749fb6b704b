"""What the trainer says when it goes on from an earlier checkpoint than it was given."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from detlab import core
from detlab.core.metrics.train import TrainContext
from detlab.schemas.wire import RecordBatch, ResumedRecord
from detlab.testing.master import MasterDouble
from testbed.task_dirs import make_task_dir


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in [name for name in os.environ if name.startswith("DET_")]:
        monkeypatch.delenv(name)
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "checkpoints")}
    with MasterDouble() as server:
        root = make_task_dir(tmp_path / "task", server.url, storage=storage)
        monkeypatch.setenv("DET_TASK_DIR", str(root))
        with core.init() as context:
            yield root, context.train


def test_resumed_is_spooled_as_the_record_that_the_master_reads(train: tuple[Path, TrainContext]) -> None:
    root, context = train
    context._report_resumed(4)
    context.report_training_metrics(5, {"loss": 1.0})
    lines = (root / "spool" / "metrics.jsonl").read_text().splitlines()
    batch = RecordBatch.model_validate({"stream": "metrics", "records": [json.loads(line) for line in lines]})
    assert isinstance(batch.records[0], ResumedRecord)
    assert (batch.records[0].seq, batch.records[0].steps_completed) == (1, 4)
    assert batch.records[1].kind == "metrics"


@pytest.mark.parametrize("steps", [-1, 2.5, True, None])
def test_resumed_steps_are_checked(train: tuple[Path, TrainContext], steps: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="steps_completed"):
        train[1]._report_resumed(steps)


def test_metrics_at_negative_steps_are_reported_at_zero(
    train: tuple[Path, TrainContext], caplog: pytest.LogCaptureFixture
) -> None:
    """Determined takes them, and its tutorial core_api_pytorch_mnist, distributed, reports its first epoch so."""
    root, context = train
    context.report_training_metrics(-135, {"train_loss": 1.0})
    context.report_validation_metrics(-1, {"test_loss": 1.0})
    context.report_training_metrics(100, {"train_loss": 0.5})
    lines = (root / "spool" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["steps_completed"] for line in lines] == [0, 0, 100]
    assert "steps_completed is -135: these metrics are reported at step 0" in caplog.text
    for wrong in (True, 1.5, None, 2**53 + 1, -(2**53) - 1):
        with pytest.raises((TypeError, ValueError), match="steps_completed"):
            context.report_training_metrics(wrong, {"train_loss": 1.0})


def test_resumed_off_cluster_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    core.DummyTrainContext()._report_resumed(4)
    assert "resumed: 4" in caplog.text
