"""`import detlab`: light, and with Determined's names."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import detlab as det
from detlab.info import TrialInfo

HEAVY = ("torch", "httpx", "pydantic", "numpy", "tornado", "jupyterhub", "sqlalchemy", "rich", "yaml")
NOT_IN_A_TRIAL = ("torch", "httpx", "asyncio", "numpy", "click", "rich", "yaml", "detlab.schemas.expconf")


def test_import_is_light_and_fast() -> None:
    code = f"""
import sys, time
start = time.perf_counter()
import detlab
det_time = time.perf_counter() - start
assert not [name for name in {HEAVY!r} if name in sys.modules]
detlab.get_cluster_info, detlab.InvalidHP, detlab.LOG_FORMAT
assert not [name for name in {HEAVY!r} if name in sys.modules]
detlab.core
assert not [name for name in {NOT_IN_A_TRIAL!r} if name in sys.modules]
print(det_time)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(result.stdout) < 0.3


def test_names() -> None:
    assert set(det.__all__) <= set(dir(det))
    for name in det.__all__:
        assert getattr(det, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        det.nonsense  # noqa: B018  (the look itself raises)


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        ("init", ["distributed", "checkpoint_storage", "preempt_mode", "tensorboard_mode"]),
        ("TrainContext.report_training_metrics", ["self", "steps_completed", "metrics", "batch_metrics"]),
        ("TrainContext.report_validation_metrics", ["self", "steps_completed", "metrics"]),
        ("TrainContext.report_metrics", ["self", "group", "steps_completed", "metrics"]),
        ("TrainContext.report_progress", ["self", "progress"]),
        ("TrainContext.set_status", ["self", "status"]),
        ("TrainContext.set_metadata", ["self", "metadata"]),
        ("TrainContext.get_metadata", ["self"]),
        ("TrainContext.get_experiment_best_validation", ["self"]),
        ("TrainContext.report_early_exit", ["self", "reason"]),
        ("TrainContext.get_tensorboard_path", ["self"]),
        ("TrainContext.upload_tensorboard_files", ["self", "selector", "mangler"]),
        ("CheckpointContext.upload", ["self", "ckpt_dir", "metadata", "shard", "selector"]),
        ("CheckpointContext.store_path", ["self", "metadata", "shard"]),
        ("CheckpointContext.download", ["self", "storage_id", "ckpt_dir", "download_mode", "selector"]),
        ("CheckpointContext.restore_path", ["self", "storage_id", "download_mode", "selector"]),
        ("CheckpointContext.get_metadata", ["self", "storage_id"]),
        ("CheckpointContext.delete", ["self", "storage_id"]),
        ("PreemptContext.should_preempt", ["self", "auto_ack"]),
        ("PreemptContext.acknowledge_preemption_signal", ["self"]),
        ("SearcherContext.operations", ["self", "searcher_mode", "auto_ack"]),
        ("ProfilerContext.on", ["self", "sampling_interval", "samples_per_report"]),
        ("ProfilerContext.off", ["self"]),
        ("Context.alert", ["self", "title", "description", "level"]),
        ("DistributedContext.from_torch_distributed", ["chief_ip"]),
        ("DistributedContext.from_horovod", ["hvd", "chief_ip"]),
        ("DistributedContext.from_deepspeed", ["chief_ip"]),
    ],
)
def test_signatures_are_determineds(function: str, parameters: list[str]) -> None:
    target: object = det.core
    for part in function.split("."):
        target = getattr(target, part)
    assert list(inspect.signature(target).parameters) == parameters


def test_distributed_context_takes_determineds_arguments() -> None:
    names = list(inspect.signature(det.core.DistributedContext).parameters)
    assert names[:11] == [
        "rank",
        "size",
        "local_rank",
        "local_size",
        "cross_rank",
        "cross_size",
        "chief_ip",
        "pub_port",
        "pull_port",
        "port_offset",
        "force_tcp",
    ]


def test_a_trial_reads_its_length_from_the_context() -> None:
    assert TrialInfo(1, 1, 1, _config={"searcher": {"max_time": 18}}).max_time == 18
    assert TrialInfo(1, 1, 1, _config={}).max_time is None
