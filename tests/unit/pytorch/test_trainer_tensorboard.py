"""Event files of the trainer, read back with TensorBoard's own reader, and what must not end a training."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from detlab.core import DummyDistributedContext, DummyTrainContext
from detlab.core.metrics.tensorboard import TensorboardManager, TensorboardMode
from detlab.errors import StorageError
from detlab.pytorch.context.information import TrialInformation
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.metrics import tensorboard as _tensorboard
from detlab.pytorch.metrics.tensorboard import BatchMetricWriter, TorchWriter
from detlab.storage import from_string
from testbed.waiting import until


class Ranked(DummyDistributedContext):
    """A rank of which the writer asks nothing but its number."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank


class Context(TrialInformation):
    """The part of a trial's context that the writer uses, on a real core context and a real store."""

    def __init__(self, directory: Path, rank: int = 0, *, enabled: bool = True, storage: Any = None) -> None:
        self.store = directory / "store"
        self.files = directory / f"rank{rank}"
        self.distributed = Ranked(rank)
        manager = TensorboardManager(
            self.files, TensorboardMode.MANUAL, rank, storage or from_string(str(self.store)), "tb"
        )
        train = DummyTrainContext(self.distributed, manager)
        core: Any = types.SimpleNamespace(train=train)
        super().__init__(core, 0, {}, 1, {}, 0, enabled)

    def stored(self) -> list[str]:
        root = self.store / "tb"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture
def opened() -> Iterator[list[BatchMetricWriter]]:
    writers: list[BatchMetricWriter] = []
    yield writers
    for writer in writers:
        writer.close()


@pytest.fixture
def board(opened: list[BatchMetricWriter]) -> Callable[[Any], BatchMetricWriter]:
    def make(context: Any) -> BatchMetricWriter:
        opened.append(BatchMetricWriter(context))
        return opened[-1]

    return make


Board = Callable[[Any], BatchMetricWriter]


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tags_are_determineds_with_our_name(tmp_path: Path, board: Board) -> None:
    context = Context(tmp_path)
    writer = board(context)
    writer.on_train_step_end(100, {"loss": 0.5, "batches": 100})
    writer.on_train_step_end(200, {"loss": 0.25, "batches": 200})
    writer.on_validation_step_end(200, {"loss": 0.75, "validation_accuracy": 1, "val": 3.0})
    writer.close()
    writer.close()
    expected = {
        "detlab/loss": [(100, 0.5), (200, 0.25)],
        "detlab/batches": [(100, 100.0), (200, 200.0)],
        "detlab/val_loss": [(200, 0.75)],
        "detlab/validation_accuracy": [(200, 1.0)],
        "detlab/val": [(200, 3.0)],
    }
    assert scalars(context.files) == expected
    assert scalars(context.store / "tb") == expected  # close() copied what was written last, too


def test_what_is_no_number_is_left_out(tmp_path: Path, board: Board, caplog: pytest.LogCaptureFixture) -> None:
    context = Context(tmp_path)
    writer = board(context)
    writer.on_train_step_end(
        1,
        {
            "float": 1.5,
            "numpy": np.float32(2.5),
            "array": np.array(3.5),
            "tensor": torch.tensor(4.5),
            "flag": True,
            "huge": 10**400,
            "long": np.longdouble(5.5),
            "nan": math.nan,
            "text": "no",
            "list": [1.0],
            "dict": {"a": 1.0},
            "vector": np.ones(3),
            "none": None,
            "complex": np.complex64(1j),
        },
    )
    writer.close()
    read = {tag.removeprefix("detlab/"): values[0][1] for tag, values in scalars(context.files).items()}
    assert math.isnan(read.pop("nan"))
    assert read == {"float": 1.5, "numpy": 2.5, "array": 3.5, "tensor": 4.5, "flag": 1.0, "huge": math.inf, "long": 5.5}
    assert caplog.records == []


LONE_SURROGATE = "lone " + chr(0xD800)
HOSTILE = ["", " ", "../../etc/passwd", "a/b c", "ü=😀", "<script>", "%s{}", "x" * 5000, "nul\0", "new\nline"]


def test_hostile_names_do_not_end_a_training(tmp_path: Path, board: Board, caplog: pytest.LogCaptureFixture) -> None:
    context = Context(tmp_path)
    writer = board(context)
    for step in (1, 2):
        writer.on_train_step_end(step, dict.fromkeys([*HOSTILE, LONE_SURROGATE], 1.0))
    writer.close()
    expected = {f"detlab/{name}": [(1, 1.0), (2, 1.0)] for name in [*HOSTILE, "lone ?"]}
    assert scalars(context.files) == expected
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "tfevents" not in path.name] == []
    assert caplog.records == []


def test_the_switch_counts_at_each_call(tmp_path: Path, board: Board) -> None:
    context = Context(tmp_path, enabled=False)
    writer = board(context)
    writer.on_train_step_end(1, {"loss": 1.0})
    writer.flush_and_upload()
    assert not context.files.exists()
    context.set_enable_tensorboard_logging(True)
    writer.on_train_step_end(2, {"loss": 2.0})
    context.set_enable_tensorboard_logging(False)
    writer.on_train_step_end(3, {"loss": 3.0})
    writer.close()
    assert scalars(context.files) == {"detlab/loss": [(2, 2.0)]}
    assert context.stored() == []


def test_files_of_all_ranks_are_stored_without_clashing(tmp_path: Path, board: Board) -> None:
    for rank in (0, 1):
        context = Context(tmp_path, rank)
        writer = board(context)
        (context.get_tensorboard_path() / "worker.pt.trace.json").write_text(str(rank))
        context.get_tensorboard_writer().add_scalar("own", 1.0, rank)
        writer.on_train_step_end(1, {"loss": 1.0})
        writer.close()
        context.get_tensorboard_writer().close()
    stored = context.stored()
    assert [name for name in stored if "tfevents" not in name] == ["rank1/worker.pt.trace.json", "worker.pt.trace.json"]
    assert scalars(context.store / "tb") == {"own": [(0, 1.0)], "detlab/loss": [(1, 1.0)]}  # the chief's events alone


def test_flush_and_upload_copies_what_was_written_so_far(tmp_path: Path, board: Board) -> None:
    context = Context(tmp_path)
    writer = board(context)
    extra = TorchWriter(context.files / "extra")
    extra.add_scalar("mine", 1.0, 1)
    writer.on_train_step_end(1, {"loss": 1.0})
    writer.flush_and_upload()
    until(lambda: len(context.stored()) == 2 and scalars(context.store / "tb").keys() == {"detlab/loss"})
    assert scalars(context.store / "tb" / "extra") == {"mine": [(1, 1.0)]}
    extra.reset()


class StuckStorage:
    """A store that takes nothing until it is freed."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.free = threading.Event()
        self.names: list[str] = []

    def put_file(self, path: Path, name: str) -> None:
        self.entered.set()
        self.free.wait(20)
        self.names.append(name)


def test_a_stuck_store_stalls_nothing(tmp_path: Path, board: Board) -> None:
    storage = StuckStorage()
    writer = board(Context(tmp_path, storage=storage))
    writer.on_train_step_end(1, {"loss": 1.0})
    writer.flush_and_upload()
    assert storage.entered.wait(20)
    start = time.monotonic()
    for step in range(2, 50):
        writer.on_train_step_end(step, {"loss": 1.0})
        writer.flush_and_upload()
    assert time.monotonic() - start < 5  # the thread is stuck, the loop is not
    assert storage.names == []
    storage.free.set()
    writer.close()
    assert len(storage.names) == 2  # 48 requests in the meantime became one


def test_a_store_that_stays_stuck_is_told_at_the_end(
    tmp_path: Path, board: Board, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tensorboard, "_CLOSE_SECONDS", 0.2)
    storage = StuckStorage()
    writer = board(Context(tmp_path, storage=storage))
    writer.on_train_step_end(1, {"loss": 1.0})
    writer.close()
    assert "TensorBoard files were not all copied to storage within" in caplog.text
    storage.free.set()


class FailingStorage:
    asked = 0

    def put_file(self, path: Path, name: str) -> None:
        self.asked += 1
        raise StorageError("bucket is gone")


def test_a_store_that_fails_is_one_warning(tmp_path: Path, board: Board, caplog: pytest.LogCaptureFixture) -> None:
    storage = FailingStorage()
    context = Context(tmp_path, storage=storage)
    writer = board(context)
    for step in range(3):
        writer.on_train_step_end(step, {"loss": 1.0})
        writer.flush_and_upload()
        until(lambda before=step: storage.asked > before)
    writer.close()
    assert [record.getMessage() for record in caplog.records] == [
        "TensorBoard files were not copied to storage: StorageError: bucket is gone"
    ]
    assert len(scalars(context.files)["detlab/loss"]) == 3


def test_a_directory_that_cannot_be_made_is_one_warning(
    tmp_path: Path, board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rank0").write_text("a file where the directory should be")
    writer = board(Context(tmp_path))
    for step in range(3):
        writer.on_train_step_end(step, {"loss": 1.0})
    writer.close()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert messages[0].startswith("metrics are not written to TensorBoard any more: FileExistsError")


def test_without_tensorboard_training_goes_on(
    tmp_path: Path, board: Board, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # what import finds when it is not installed
    writer = board(Context(tmp_path))
    for step in range(3):
        writer.on_train_step_end(step, {"loss": 1.0})
        writer.on_validation_step_end(step, {"loss": 1.0})
    writer.close()
    assert len(caplog.records) == 1
    assert "not written to TensorBoard any more" in caplog.text
    with pytest.raises(TrainerError, match="pip install tensorboard"):
        TorchWriter(tmp_path)


def test_long_runs_begin_new_files(tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that grows is copied as a whole each time: after a while the old one is left alone."""
    monkeypatch.setattr(_tensorboard, "SCALARS_PER_FILE", 10)
    context = Context(tmp_path)
    writer = board(context)
    for step in range(25):
        writer.on_train_step_end(step, {"loss": float(step)})
    writer.close()
    assert len(list(context.files.iterdir())) == 3
    assert scalars(context.files) == {"detlab/loss": [(step, float(step)) for step in range(25)]}


def test_files_are_copied_now_and_then_without_checkpoints(
    tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tensorboard, "UPLOAD_SECONDS", 0.0)
    context = Context(tmp_path)
    board(context).on_train_step_end(1, {"loss": 1.0})
    until(lambda: len(context.stored()) == 1)


def test_torch_writer_is_determineds(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = TorchWriter(tmp_path)
    assert isinstance(writer.writer, SummaryWriter)
    writer.add_scalar("a", 1.0, 1)
    writer.writer.add_scalar("b", 2.0, 2)
    writer.reset()
    writer.add_scalars("c", {"x": 3.0}, 3)  # any method of SummaryWriter
    writer.add_text("d", "four", 4)
    writer.flush()
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 2  # reset() began a new one
    assert scalars(tmp_path) == {"a": [(1, 1.0)], "b": [(2, 2.0)]}
    assert scalars(tmp_path / "c_x") == {"c": [(3, 3.0)]}
    writer.close()
    with pytest.raises(AttributeError, match="no_such_method"):
        writer.no_such_method()


def test_torch_writer_finds_the_trials_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("RANK", "2")
    writer = TorchWriter()
    writer.add_scalar("a", 1.0, 1)
    writer.close()
    assert Path(writer.log_dir) == TensorboardManager.off_cluster(2).base_path
    assert scalars(Path(writer.log_dir)) == {"a": [(1, 1.0)]}
    assert tmp_path in Path(writer.log_dir).parents


@pytest.mark.slow
def test_no_import_warns_and_none_comes_early() -> None:
    """The package is imported when it is first used, and never warns."""
    code = (
        "import sys, detlab.pytorch.metrics.tensorboard as t\n"
        "assert 'tensorboard' not in sys.modules and 'torch.utils.tensorboard' not in sys.modules\n"
        "import tempfile; w = t.TorchWriter(tempfile.mkdtemp()); w.add_scalar('a', 1.0, 1); w.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("made", ["link", "others", "open"])
def test_off_cluster_files_go_to_no_folder_that_somebody_else_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    """Its name can be foreseen, and a folder for temporary files is everybody's."""
    if made == "others" and os.getuid() != 0:
        pytest.skip("needs root to make another user's folder")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plain = TensorboardManager.local_path(None, 0)
    own = tmp_path / f"detlab-tensorboard-{os.getuid()}"
    assert plain.is_relative_to(own)
    assert own.stat().st_mode & 0o777 == 0o700
    if made == "link":
        own.rmdir()
        (tmp_path / "elsewhere").mkdir()
        own.symlink_to(tmp_path / "elsewhere")
    elif made == "others":
        os.chown(own, 65534, 65534)
    else:
        own.chmod(0o777)
    moved = TensorboardManager.local_path(None, 0)
    assert moved.parts[len(tmp_path.parts)].startswith(f"{own.name}-")
    assert (tmp_path / moved.parts[len(tmp_path.parts)]).stat().st_mode & 0o777 == 0o700
