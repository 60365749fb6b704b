"""`core_context.alert()`: a record of the spool on a cluster, a line of the log everywhere."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from detlab.core import context as module
from detlab.core.checkpoint.context import DummyCheckpointContext
from detlab.core.context import Context
from detlab.core.distributed.context import DummyDistributedContext
from detlab.core.metrics.spool import Spool
from detlab.core.metrics.train import DummyTrainContext
from detlab.core.preemption.context import DummyPreemptContext, PreemptMode
from detlab.core.searcher import DummySearcherContext
from detlab.schemas.wire import RecordBatch


def made(spool: Spool | None) -> Context:
    alone = DummyDistributedContext()
    return Context(
        DummyCheckpointContext(alone, None),
        alone,
        DummyPreemptContext(alone, PreemptMode.WorkersAskChief),
        DummyTrainContext(alone),
        DummySearcherContext(alone),
        spool=spool,
    )


def test_an_alert_is_a_record_that_the_master_takes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "detlab.core"):
        made(Spool(tmp_path)).alert("loss is NaN", "x" * 9000 + "\ud800", "error")
        made(Spool(tmp_path)).alert(description="only text", level="WARN")
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    first, second = RecordBatch(stream="metrics", records=records).records
    assert (first.kind, first.title, first.text, first.level) == (
        "alert",
        "loss is NaN",
        "x" * module.ALERT_CHARS,
        "error",
    )
    assert (second.title, second.text, second.level) == ("", "only text", "warn")
    assert "alert: loss is NaN" in caplog.text


def test_off_cluster_an_alert_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "detlab.core"):
        made(None).alert("title", "text")
    assert "alert: title: text" in caplog.text
    with pytest.raises(ValueError, match="level"):
        made(None).alert("title", level="loud")
