"""The checkpoint writer: what it copies, when it waits, and what is left when it fails or is killed."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.core import DummyCheckpointContext, DummyDistributedContext
from detlab.pytorch.checkpoint import host_memory
from detlab.pytorch.checkpoint.files import encode_state, read_state
from detlab.pytorch.checkpoint.host_memory import HostMemory
from detlab.pytorch.checkpoint.writer import CheckpointWriteFailed, CheckpointWriter
from detlab.storage import DirectoryStorage, ManifestPart
from testbed.stores import names_in

torch.set_num_threads(1)


class Gate(DummyCheckpointContext):
    """A context whose commit waits until the gate is opened: a slow storage, at will."""

    def __init__(self, root: Path) -> None:
        super().__init__(DummyDistributedContext(), DirectoryStorage(root))
        self.open = threading.Event()
        self.open.set()

    def _commit(self, uuid: str, metadata: dict[str, Any], part: ManifestPart) -> None:
        assert self.open.wait(20)
        super()._commit(uuid, metadata, part)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def gate(store: Path) -> Gate:
    return Gate(store)


@pytest.fixture
def writer(gate: Gate) -> Iterator[CheckpointWriter]:
    with CheckpointWriter(gate) as made:
        yield made
        gate.open.set()


def tree_of(value: float, size: int = 1000) -> dict[str, Any]:
    shared = torch.full((size,), value)
    return {
        "models_state_dict": [{"a": shared, "b": shared, "c": torch.full((3, 2), value).T}],
        "optimizers_state_dict": [{"step": torch.tensor(value)}],
        "callbacks": {"list": [value]},
    }


def read(store: Path, uuid: str) -> dict[str, Any]:
    return read_state(store / uuid, allow_pickle=False)


def test_what_is_written_is_the_state_at_submit(writer: CheckpointWriter, gate: Gate, store: Path) -> None:
    gate.open.clear()
    tree = tree_of(1.0)
    metadata = {"steps_completed": 7, "previous": ["x"]}
    load_data = {"hparams": {"lr": 1}}
    writer.submit(tree, metadata, load_data=load_data)
    for tensor in (*tree["models_state_dict"][0].values(), tree["optimizers_state_dict"][0]["step"]):
        tensor.zero_()
    tree["callbacks"]["list"][0] = 0.0
    metadata["previous"].append("y")
    load_data["hparams"]["lr"] = 2
    assert writer.poll() == []
    gate.open.set()
    assert writer.wait()
    (finished,) = writer.poll()
    assert finished.steps_completed == 7
    assert finished.metadata == {"steps_completed": 7, "previous": ["x"]}
    saved = read(store, finished.uuid)
    assert saved["models_state_dict"][0]["a"].unique().tolist() == [1.0]
    assert saved["models_state_dict"][0]["c"].tolist() == [[1.0] * 3] * 2
    assert saved["optimizers_state_dict"][0]["step"] == 1
    assert saved["callbacks"]["list"] == [1.0]
    assert json.loads((store / finished.uuid / "load_data.json").read_text()) == {"hparams": {"lr": 1}}
    assert gate.get_metadata(finished.uuid)["previous"] == ["x"]


def test_checkpoints_come_in_order_each_with_its_own_state(writer: CheckpointWriter, store: Path) -> None:
    for step in range(5):
        writer.submit(tree_of(float(step)), {"steps_completed": step})
    writer.wait()
    finished = writer.poll()
    assert [item.steps_completed for item in finished] == [0, 1, 2, 3, 4]
    assert [read(store, item.uuid)["callbacks"]["list"][0] for item in finished] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert writer.poll() == []


@pytest.mark.slow
def test_submit_waits_for_the_previous_write_and_says_so_once(
    writer: CheckpointWriter, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "detlab.pytorch"):
        for step in range(3):
            gate.open.clear()
            threading.Timer(0.5, gate.open.set).start()
            writer.submit(tree_of(0.0), {"steps_completed": step})
        writer.wait()
    assert writer.stall_s > 0.4
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert messages[0].startswith("the checkpoint at step 1 waited 0.")


def test_kept_memory_is_allocated_once(writer: CheckpointWriter) -> None:
    tree = tree_of(1.0)
    writer.prepare(tree)
    addresses = []
    for step in range(4):
        tree["models_state_dict"][0]["a"].add_(1)
        tree["callbacks"]["list"] = ["x"] * step  # what is no tensor may grow as it likes
        writer.submit(tree, {"steps_completed": step})
        writer.wait()
        addresses.append([view.data_ptr() for view in writer._memory._views])
    assert writer._memory.allocations == 1
    assert addresses[1:] == addresses[:-1]


def test_a_state_that_grows_moves_once_and_is_right_at_once(writer: CheckpointWriter, store: Path) -> None:
    writer.prepare({"models_state_dict": [{"w": torch.zeros(10)}]})
    big = {"models_state_dict": [{"w": torch.arange(3_000_000.0)}], "more": [torch.ones(7, dtype=torch.bfloat16)]}
    for step in range(3):
        writer.submit(big, {"steps_completed": step})
    writer.wait()
    assert writer._memory.allocations == 2
    saved = read(store, writer.poll()[-1].uuid)
    assert saved["models_state_dict"][0]["w"].equal(torch.arange(3_000_000.0))
    assert saved["more"][0].equal(torch.ones(7, dtype=torch.bfloat16))


def test_a_layout_of_other_shapes_fits_into_the_same_memory() -> None:
    memory = HostMemory()
    one = {"a": torch.arange(6.0), "b": torch.arange(4)}
    other = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(0), "c": torch.tensor(True)}
    for tensors in (one, other, one):
        copies = memory.copy(tensors)
        assert all(copies[key].equal(tensor) for key, tensor in tensors.items())
    assert memory.allocations == 1


def test_copies_keep_dense_strides_and_close_holes() -> None:
    tensors = {
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "holes": torch.arange(20.0)[::3],
        "expanded": torch.arange(3.0).expand(100, 3),
        "complex": torch.randn(3, dtype=torch.complex64),
        "fp8": torch.arange(5).to(torch.float8_e4m3fn),
        "e8m0": torch.arange(5, dtype=torch.uint8).view(torch.float8_e8m0fnu),
        "u16": torch.arange(5).to(torch.uint16),
    }
    copies = HostMemory().copy(tensors)
    assert copies["channels_last"].stride() == tensors["channels_last"].stride()
    assert copies["holes"].is_contiguous()
    for key, tensor in tensors.items():
        assert copies[key].contiguous().view(torch.uint8).equal(tensor.contiguous().view(torch.uint8)), key


def test_no_tensor_is_copied_a_second_time_to_be_written(
    writer: CheckpointWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = HostMemory()
    state = encode_state(tree_of(1.0))
    copies = memory.copy(state.tensors)
    assert copies["model_0/a"] is copies["model_0/b"]
    from detlab.pytorch.checkpoint import tensor_files

    view = tensor_files._memory(copies["model_0/a"])
    memory._block.zero_()
    assert bytes(view) == bytes(4000), "the bytes to write are the kept memory itself"


def test_nothing_of_the_live_state_is_held_after_the_copy(writer: CheckpointWriter, gate: Gate) -> None:
    import weakref

    gate.open.clear()
    tree = tree_of(1.0)
    alive = weakref.ref(tree["models_state_dict"][0]["a"])
    writer.submit(tree, {"steps_completed": 1})
    del tree
    assert alive() is None
    gate.open.set()


def test_the_collector_is_left_as_it_was(writer: CheckpointWriter) -> None:
    writer.submit(tree_of(1.0), {"steps_completed": 1})
    assert gc.isenabled()
    gc.disable()
    try:
        writer.submit(tree_of(1.0), {"steps_completed": 2})
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_bad_metadata_and_states_are_errors_of_the_caller(writer: CheckpointWriter, store: Path) -> None:
    with pytest.raises(KeyError):
        writer.submit(tree_of(1.0), {})
    with pytest.raises(TypeError):
        writer.submit(tree_of(1.0), {"steps_completed": 1.5})
    from detlab.errors import CheckpointError

    with pytest.raises(CheckpointError, match="callbacks/mine"):
        writer.submit({"callbacks": {"mine": lambda: None}}, {"steps_completed": 1})
    assert not writer.busy
    writer.submit(tree_of(1.0), {"steps_completed": 1})
    assert writer.wait()
    assert len(writer.poll()) == 1


# --- pausing between writing and committing


def until_written(writer: CheckpointWriter) -> Path:
    assert not writer.wait(20)
    assert writer.written is not None
    return writer.written


def test_a_callback_may_add_files_before_the_commit(gate: Gate, store: Path) -> None:
    with CheckpointWriter(gate, pause_after_write=True) as writer:
        writer.submit(tree_of(1.0), {"steps_completed": 1})
        folder = until_written(writer)
        assert {path.name for path in folder.iterdir()} >= {"model_0.safetensors", "trainer.json"}
        assert writer.poll() == []
        assert writer.busy
        with pytest.raises(RuntimeError, match="resume"):
            writer.submit(tree_of(2.0), {"steps_completed": 2})
        (folder / "added.txt").write_text("by a callback")
        writer.resume()
        assert writer.wait(20)
        (finished,) = writer.poll()
        assert writer.written is None
    assert (store / finished.uuid / "added.txt").read_text() == "by a callback"
    with pytest.raises(RuntimeError, match="no checkpoint is pending"):
        writer.resume()


def test_closing_while_paused_leaves_nothing(gate: Gate, store: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = CheckpointWriter(gate, pause_after_write=True)
    writer.submit(tree_of(1.0), {"steps_completed": 4})
    until_written(writer)
    with caplog.at_level(logging.WARNING):
        writer.close()
    assert "step 4 was dropped" in caplog.text
    assert names_in(store) == []


def test_closing_waits_for_the_commit(gate: Gate, store: Path) -> None:
    gate.open.clear()
    writer = CheckpointWriter(gate)
    writer.submit(tree_of(1.0), {"steps_completed": 1})
    threading.Timer(0.3, gate.open.set).start()
    writer.close()
    (uuid,) = names_in(store)
    assert read(store, uuid)["callbacks"]["list"] == [1.0]
    with pytest.raises(RuntimeError, match="closed"):
        writer.submit(tree_of(1.0), {"steps_completed": 2})


def test_wait_gives_up_after_its_timeout(writer: CheckpointWriter, gate: Gate) -> None:
    assert writer.wait(0)
    gate.open.clear()
    writer.submit(tree_of(1.0), {"steps_completed": 1})
    started = time.monotonic()
    assert not writer.wait(0.05)
    assert time.monotonic() - started < 5


# --- failures


def test_a_failed_write_is_told_by_poll_wait_and_submit(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the folder should be")
    with CheckpointWriter(Gate(tmp_path / "store")) as writer:
        writer.submit(tree_of(1.0), {"steps_completed": 12})
        with pytest.raises(CheckpointWriteFailed, match=r"step 12 could not be stored: cannot make"):
            writer.wait()
        with pytest.raises(CheckpointWriteFailed):
            writer.poll()
        with pytest.raises(CheckpointWriteFailed):
            writer.submit(tree_of(1.0), {"steps_completed": 13})
        assert not writer.busy


def test_a_failure_that_nobody_asked_for_is_logged_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "store").write_text("a file where the folder should be")
    writer = CheckpointWriter(Gate(tmp_path / "store"))
    writer.submit(tree_of(1.0), {"steps_completed": 12})
    writer.close()
    assert "step 12 could not be stored" in caplog.text


def test_a_refused_commit_names_the_master(store: Path) -> None:
    from detlab.errors import Conflict

    class Refusing(Gate):
        def _commit(self, uuid: str, metadata: dict[str, Any], part: ManifestPart) -> None:
            raise Conflict("a newer run of this trial has begun")

    with CheckpointWriter(Refusing(store)) as writer:
        writer.submit(tree_of(1.0), {"steps_completed": 3})
        with pytest.raises(CheckpointWriteFailed, match=r"a newer run(.|\n)*det status"):
            writer.wait()
    assert names_in(store) == []


# --- processes that fail, end or are killed

POINTS = ["model_0.safetensors", "model_1.safetensors", "trainer.safetensors", "code", "manifest", "published"]
# One interpreter imports torch and forks a child per scenario; each child has a store of its own.
PROGRAM = """
    import os, resource, signal, sys, time
    from pathlib import Path
    import torch
    from detlab.core import DummyCheckpointContext, DummyDistributedContext
    from detlab.pytorch.checkpoint import source_code, tensor_files
    from detlab.pytorch.checkpoint.writer import CheckpointWriter
    from detlab.storage import DirectoryStorage, posix
    torch.set_num_threads(1)
    root, points = Path(sys.argv[1]), sys.argv[2:]

    def full_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        with CheckpointWriter(context) as writer:
            writer.submit(tree, {"steps_completed": 120})
            try:
                writer.wait()
            except Exception as error:
                left = [str(path) for path in store.rglob("*") if ".unfinished-" not in path.name]
                say(f"{type(error).__name__} {error} {left}")

    def ends_while_writing():
        CheckpointWriter(context).submit(tree, {"steps_completed": 1})

    def ends_while_paused():
        writer = CheckpointWriter(context, pause_after_write=True)
        writer.submit(tree, {"steps_completed": 1})
        writer.wait()

    def stops_at_point():
        writer = CheckpointWriter(context)
        writer.submit(tree, {"steps_completed": 1})
        writer.wait()
        (earlier,) = writer.poll()
        def here():
            say(f"{os.getpid()} {earlier.uuid}")
            time.sleep(60)
        def after(module, function, when):
            original = getattr(module, function)
            def patched(*arguments, **options):
                original(*arguments, **options)
                if when(*arguments):
                    here()
            setattr(module, function, patched)
        after(tensor_files, "write", lambda path, tensors: path.name == name)
        after(source_code, "write", lambda found, target: name == "code")
        after(posix, "write_atomic", lambda target, data: target.name == "metadata.json" and name == "manifest")
        writer.submit(tree, {"steps_completed": 2}, code=root)
        writer.wait()
        here()

    def say(text):
        (root / f"{name}.partial").write_text(text)
        (root / f"{name}.partial").rename(root / f"{name}.out")

    children = {}
    for name in ["full_disk", "ends_while_writing", "ends_while_paused", *points]:
        child = os.fork()
        if child == 0:
            store = root / name
            context = DummyCheckpointContext(DummyDistributedContext(), DirectoryStorage(store))
            tree = {"models_state_dict": [{"w": torch.ones(300_000)}, {"w": torch.ones(5)}], "m": [torch.ones(9)]}
            globals().get(name, stops_at_point)()
            sys.exit()  # as a program ends: the interpreter waits for its threads
        children[child] = name
    while children:
        child, status = os.wait()
        (root / f"{children.pop(child)}.status").write_text(str(os.waitstatus_to_exitcode(status)))
"""


def appears(path: Path) -> str:
    for _ in range(15_000):  # the interpreter imports torch, perhaps on a busy machine
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{path.name} never came")


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("scenarios")
    (root / "train.py").write_text("x = 1")
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), root, *POINTS],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    yield root
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


@pytest.mark.slow
def test_a_full_disk_is_told_with_what_to_do_and_leaves_nothing(scenarios: Path) -> None:
    assert appears(scenarios / "full_disk.status") == "0"
    output = (scenarios / "full_disk.out").read_text()
    assert output.startswith("CheckpointWriteFailed the checkpoint at step 120 could not be stored: OSError")
    assert "Make room in the checkpoint storage" in output
    assert output.endswith("[]"), "nothing half-written stays"


def test_the_interpreter_finishes_a_write_at_its_exit(scenarios: Path) -> None:
    assert appears(scenarios / "ends_while_writing.status") == "0"
    store = scenarios / "ends_while_writing"
    (uuid,) = names_in(store)
    assert read_state(store / uuid)["m"][0].sum() == 9


def test_an_interpreter_that_ends_while_paused_does_not_hang(scenarios: Path) -> None:
    assert appears(scenarios / "ends_while_paused.status") == "0"
    assert names_in(scenarios / "ends_while_paused") == []


@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_at_any_file_leaves_the_earlier_checkpoint_and_nothing_readable_of_its_own(
    scenarios: Path, point: str
) -> None:
    child, earlier = appears(scenarios / f"{point}.out").split()
    os.kill(int(child), signal.SIGKILL)
    assert appears(scenarios / f"{point}.status") == "-9"
    storage = DirectoryStorage(scenarios / point)
    names = [name for name in names_in(storage.root) if not name.startswith(".stage-")]
    assert len(names) == (2 if point == "published" else 1)
    assert earlier in names
    for uuid in names:
        with storage.restore_path(uuid, storage.manifest(uuid)) as path:
            assert read_state(path, allow_pickle=False)["models_state_dict"][0]["w"].sum() == 300_000
    assert len(storage.sweep(0.0)) == 2 - len(names)


def test_large_tensors_of_any_layout_are_copied_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain ones go in pieces, by several threads; transposed, sliced and expanded ones by torch."""
    monkeypatch.setattr(host_memory, "_PIECE", 100_000)  # so that the last piece of each is a shorter one
    base = torch.rand(700, 611)
    sources = {
        "plain": base,
        "transposed": base.T,
        "sliced": torch.rand(800, 700)[:, 5:650],
        "expanded": torch.rand(1, 300).expand(500, 300),
        "half": torch.rand(300_001).to(torch.bfloat16),
        "offset": torch.rand(400_000)[7:],
        "one row": torch.rand(5, 90_000)[2:3],
        "images": torch.rand(4, 3, 200, 201).to(memory_format=torch.channels_last),
        "small": torch.rand(3),
        "none": torch.empty(0, 5),
    }
    memory = HostMemory()
    for _ in range(3):
        copies = memory.copy(sources)
        for name, source in sources.items():
            assert torch.equal(copies[name], source), name
            assert copies[name].untyped_storage().data_ptr() != source.untyped_storage().data_ptr()
        for source in (base, sources["half"], sources["images"]):
            source.add_(1)
        assert not torch.equal(copies["plain"], base)  # a copy, not a view
