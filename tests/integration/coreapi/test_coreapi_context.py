"""`init()`: what each way in and out of the block does."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import pytest

import detlab as det
from detlab.client.registry.facts import folder_config
from detlab.core import RecordsRefused
from detlab.errors import NotInCluster, StorageError
from detlab.run import register_folder
from detlab.testing.master import MasterDouble


def test_reports_reach_the_spool_in_order(in_task: Any) -> None:
    with det.core.init() as core:
        core.train.set_status("warming up")
        core.train.report_training_metrics(1, {"loss": float("nan"), "hist": {"bins": [1, 2]}}, [{"loss": 1.0}])
        core.train.report_validation_metrics(1, {"acc": 0.5, "blob": b"dropped"})
        core.train.report_metrics("inference", 2, {"x": 1})
        core.train.report_progress(0.5)
    records = in_task.records()
    assert [(r["seq"], r["kind"], r.get("group")) for r in records] == [
        (1, "status", None),
        (2, "metrics", "training"),
        (3, "metrics", "validation"),
        (4, "metrics", "inference"),
        (5, "progress", None),
    ]
    assert records[1]["metrics"] == {"loss": "NaN", "hist": {"bins": [1, 2]}}
    assert records[1]["batch_metrics"] == [{"loss": 1.0}]
    assert records[2]["metrics"] == {"acc": 0.5}


def test_a_registered_folder_reports_the_metric_of_its_experiment_beside_the_step_of_its_checkpoint(
    in_task: Any, api: MasterDouble, tmp_path: Path
) -> None:
    """Regression: a warning that its trial never reported `registered`, though nobody had thought of a trial."""
    folder = tmp_path / "exported"
    (folder / "deep").mkdir(parents=True)
    for name in ("model.safetensors", "deep/config.json"):
        (folder / name).write_bytes(b"x")
    assert register_folder.main([str(folder)]) == 0
    (reported,) = [one for one in in_task.records() if one["kind"] == "metrics"]
    searcher = folder_config("digits", "exported")["searcher"]
    assert (reported["group"], reported["metrics"]) == ("validation", {searcher["metric"]: 2})
    (saved,) = api.checkpoints.values()
    assert saved["steps_completed"] != reported["steps_completed"], "it is no metric of the model"


def test_reporting_does_not_need_the_master(in_task: Any, api: MasterDouble) -> None:
    api.tokens = set()
    with det.core.init() as core:
        core.train.report_training_metrics(1, {"x": 1})
    assert len(in_task.records()) == 1


def test_refusals_are_raised_by_the_next_report(in_task: Any) -> None:
    with det.core.init() as core:
        core.train.report_metrics("g", 1, {"x": 1})
        (in_task.root / "spool" / "refused.jsonl").write_text('{"seq": 1, "code": "bad", "message": "too wide"}\n')
        with pytest.raises(RecordsRefused, match="too wide"):
            core.train.report_metrics("g", 2, {"x": 1})
        core.train.report_metrics("g", 2, {"x": 1})
    assert [r["steps_completed"] for r in in_task.records()] == [1, 2]


def test_metadata_and_best_validation(in_task: Any, api: MasterDouble) -> None:
    with det.core.init() as core:
        assert core.train.get_metadata() == {}
        assert core.train.set_metadata({"a": {"b": [1]}}) == {"a": {"b": [1]}}
        assert core.train.get_metadata() == {"a": {"b": [1]}}
        assert core.train.get_experiment_best_validation() is None
        api.best = 0.25
        assert core.train.get_experiment_best_validation() == 0.25


def test_invalid_hp_ends_the_trial_with_exit_0(task: Any) -> None:
    code = """
    import logging, detlab as det
    logging.basicConfig(level=logging.INFO)
    with det.core.init():
        raise det.InvalidHP("lr is negative")
    """
    status, output = task.run(code)
    assert status == 0
    assert "lr is negative" in output
    assert [(r["kind"], r["reason"]) for r in task.records()] == [("early_exit", "INVALID_HP")]


def test_any_other_exception_ends_it_with_exit_1(task: Any) -> None:
    status, output = task.run("import detlab as det\nwith det.core.init(): raise ValueError('x')")
    assert status == 1
    assert "ValueError: x" in output
    assert task.records() == []


def test_several_slots_need_a_distributed_context(in_task: Any) -> None:
    in_task.set_info(slot_ids=[0, 1])
    from detlab import info

    info._load.cache_clear()
    with pytest.raises(ValueError, match="DistributedContext"):
        det.core.init()


def ranks_on(nodes: int) -> det.core.DistributedContext:
    """Ranks that say so of themselves, without the connections that such would make."""
    ranks = det.core.DistributedContext(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)
    ranks.cross_size = nodes
    return ranks


@pytest.mark.parametrize("ranks", [None, 1, 3])
def test_a_trial_of_several_nodes_whose_ranks_do_not_span_them_is_refused(in_task: Any, ranks: int | None) -> None:
    """Under plain torchrun each node was a world of its own, and the trial was trained once on each."""
    in_task.set_info(container_addrs=["10.0.0.1", "10.0.0.2"], container_slot_counts=[1, 1])
    from detlab import info

    info._load.cache_clear()
    with pytest.raises(ValueError, match="slots on 2 nodes") as caught:
        det.core.init(distributed=None if ranks is None else ranks_on(ranks))
    assert "python3 -m detlab.launch.torch_distributed" in str(caught.value)
    assert "resources.is_single_node: true" in str(caught.value)
    det.core.init(distributed=ranks_on(2)).close()


def test_cluster_info(in_task: Any, api: MasterDouble) -> None:
    info = det.get_cluster_info()
    assert info is not None
    assert info.master_url == api.url
    assert (info.trial.trial_id, info.trial.experiment_id, info.trial.trial_seed) == (7, 3, 42)
    assert info.trial.hparams == {"increment_by": 2}
    assert info.user_data == {"who": "me"}
    assert info.slot_ids == [0]
    assert (info.container_addrs, info.container_rank, info.container_slot_counts) == (["127.0.0.1"], 0, [1])
    assert info.latest_checkpoint is None
    assert info.session_token == "dttask_test"
    (in_task.root / "token").write_text("renewed\n")
    assert info.session_token == "renewed"
    assert "renewed" not in repr(info)


def test_a_task_directory_without_info_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_TASK_DIR", str(tmp_path))
    with pytest.raises(NotInCluster, match=r"info\.json"):
        det.get_cluster_info()


def test_off_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("DET_TASK_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    caplog.set_level(logging.INFO)
    assert det.get_cluster_info() is None
    with det.core.init() as core:
        assert core.info is None
        core.train.report_training_metrics(1, {"loss": 0.5})
        core.train.report_progress(0.5)
        core.train.set_metadata({"a": 1})
        assert core.train.get_metadata() == {"a": 1}
        assert core.train.get_experiment_best_validation() is None
        assert core.train.get_tensorboard_path().is_dir()
        assert core.preempt.should_preempt() is False
        with pytest.warns(FutureWarning):
            (operation,) = list(_completed(core.searcher.operations()))
        assert operation.length == 1
        core.alert("title", "description", "warn")
        core.profiler.on()
        core.profiler.off()
        with pytest.raises(ValueError, match=r"must not contain '\.'"):
            core.train.report_metrics("a.b", 1, {"x": 1})
    text = caplog.text
    assert "training metrics at step 1: {'loss': 0.5}" in text
    assert "alert: title: description" in text
    assert "off-cluster: the profiler records nothing" in text
    assert str(tmp_path / "detlab" / "checkpoints") in text


def _completed(operations: Any) -> Any:
    for operation in operations:
        operation.report_completed(1.0)
        yield operation


def test_alert_levels(in_task: Any) -> None:
    with det.core.init() as core, pytest.raises(ValueError, match="level"):
        core.alert("t", level="loud")


def test_a_storage_that_is_not_installed_is_refused(in_task: Any) -> None:
    with pytest.raises(StorageError, match="no checkpoint storage of type 'tape' here; installed: azure, directory"):
        det.core.init(checkpoint_storage={"type": "tape"})


def test_sigusr1_prints_all_stacks_and_training_goes_on(task: Any) -> None:
    code = """
    import os, signal, detlab as det
    def where_it_is_stuck():
        os.kill(os.getpid(), signal.SIGUSR1)
    with det.core.init():
        where_it_is_stuck()
    print("went on")
    """
    status, output = task.run(code)
    assert status == 0, output
    assert "in where_it_is_stuck" in output
    assert "went on" in output


def test_sigusr1_still_reaches_the_users_handler(task: Any) -> None:
    code = """
    import os, signal, detlab as det
    signal.signal(signal.SIGUSR1, lambda *_: print("mine"))
    with det.core.init():
        os.kill(os.getpid(), signal.SIGUSR1)
    """
    status, output = task.run(code)
    assert status == 0, output
    assert "mine" in output


def test_tensorboard_files_are_copied_to_storage(in_task: Any) -> None:
    with det.core.init() as core:
        path = core.train.get_tensorboard_path()
        (path / "events.1").write_text("e")
        with pytest.raises(RuntimeError, match="MANUAL"):
            core.train.upload_tensorboard_files()
    stored = in_task.checkpoints / "tensorboard-c1-3-7"
    assert (stored / "events.1").read_text() == "e"


def test_tensorboard_files_by_hand(in_task: Any) -> None:
    with det.core.init(tensorboard_mode=det.core.TensorboardMode.MANUAL) as core:
        path = core.train.get_tensorboard_path()
        (path / "events.1").write_text("e")
        (path / "skip").write_text("s")
        core.train.upload_tensorboard_files(
            selector=lambda p: p.name != "skip", mangler=lambda p, rank: p.with_name(f"{p.name}.rank{rank}")
        )
    stored = in_task.checkpoints / "tensorboard-c1-3-7"
    assert [p.name for p in stored.iterdir()] == ["events.1.rank0"]


def test_no_thread_or_socket_outlives_the_block(in_task: Any) -> None:
    import threading

    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("detlab")]

    with det.core.init() as core:
        core.preempt.should_preempt()
        assert ours() == ["detlab-preemption"]
    assert ours() == []


def test_killed_by_sigterm_as_usual(task: Any) -> None:
    process = task.start(
        "import detlab as det, time\nwith det.core.init():\n    print('in', flush=True)\n    time.sleep(60)"
    )
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == -signal.SIGTERM
    process.stdout.close()


def test_the_log_shows_numbers_not_tensors(in_task: Any, caplog: pytest.LogCaptureFixture) -> None:
    import numpy

    caplog.set_level(logging.INFO)
    with det.core.init() as core:
        core.train.report_training_metrics(3, {"loss": numpy.array([0.5], dtype=numpy.float32)})
    assert "training metrics at step 3: {'loss': 0.5}" in caplog.text


CLOSED = """
import detlab as det
from detlab.errors import StorageError
from detlab.storage import DirectoryStorage

def check(self):
    raise StorageError("NoSuchBucket: The specified bucket does not exist")

DirectoryStorage.check = check
with det.core.init(checkpoint_storage="/nowhere") as context:
    print("the first step")
"""


def test_a_storage_that_says_no_ends_the_task_before_the_first_step(task: Any) -> None:
    code, output = task.run(CLOSED.replace("DirectoryStorage", "SharedFSStorage"))
    assert code == 1
    assert "the first step" not in output
    lines = output.strip().splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line for line in lines if "/harness/detlab/" in line] == [], "no frame of ours"
    assert lines[-2].startswith("detlab.errors.StorageRefused: checkpoints cannot be stored")
    assert "NoSuchBucket: The specified bucket does not exist" in lines[-2]
    assert "det config check" in lines[-1]
    assert task.records() == []


def test_off_a_cluster_the_storage_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_TASK_DIR", raising=False)
    with det.core.init(checkpoint_storage=str(tmp_path / "later")):
        assert not (tmp_path / "later").exists()
