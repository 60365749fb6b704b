"""System metrics of a training: the groups arrive among the trial's metrics, at steps it has trained."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
from trainer_one_weight import OneWeightTrial, train

from detlab.core import ProfilerContext
from detlab.pytorch import Batch, PyTorchCallback
from detlab.schemas.wire import RecordBatch
from testbed.waiting import until

GROUPS = {
    "cpu": {"cpu_util_simple"},
    "memory": {"memory_free", "memory_used"},
    "disk": {"disk_throughput_read", "disk_throughput_write", "disk_iops"},
    "network": {"net_throughput_sent", "net_throughput_recv"},
}


class _Fast(ProfilerContext):
    """Determined's defaults report each ten seconds; a test has less time."""

    def on(self, sampling_interval: float = 0.1, samples_per_report: int = 2) -> None:
        super().on(sampling_interval, samples_per_report)


class _Wait(PyTorchCallback):
    """Ends no epoch before the profiler has reported in it."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        until(lambda: any(entry["steps"] >= 10 * epoch_idx for entry in self.task.metrics("cpu")), seconds=20)


def test_fit_reports_system_metrics(in_trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detlab.core.context.ProfilerContext", _Fast)
    train(fit={"max_length": Batch(20), "profiling_enabled": True}, callbacks={"wait": _Wait(in_trial)})
    for group, names in GROUPS.items():
        entries = in_trial.metrics(group)
        assert entries
        assert all(names <= set(entry) for entry in entries)
        assert all(math.isfinite(value) and value >= 0 for entry in entries for value in entry.values())
        assert [entry["steps"] for entry in entries] == sorted(entry["steps"] for entry in entries)
        assert entries[-1]["steps"] <= 20
    assert all(entry["cpu_util_simple"] <= 100 for entry in in_trial.metrics("cpu"))
    assert all(entry["memory_used"] > 0 for entry in in_trial.metrics("memory"))
    RecordBatch.model_validate({"stream": "metrics", "records": in_trial.records()})
    assert [record["seq"] for record in in_trial.records()] == list(range(1, len(in_trial.records()) + 1))
    assert not [thread for thread in threading.enumerate() if thread.name == "detlab-profiler"]


def test_without_it_none_are_reported_and_an_error_ends_it(in_trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detlab.core.context.ProfilerContext", _Fast)
    train(fit={"max_length": Batch(5), "checkpoint_policy": "none"})
    assert {record["group"] for record in in_trial.records() if record["kind"] == "metrics"} == {
        "training",
        "validation",
    }

    class Failing(OneWeightTrial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            raise ZeroDivisionError("in the trial")

    with pytest.raises(ZeroDivisionError):
        train(fit={"max_length": Batch(6), "profiling_enabled": True}, trial_class=Failing)
    assert not [thread for thread in threading.enumerate() if thread.name == "detlab-profiler"]
