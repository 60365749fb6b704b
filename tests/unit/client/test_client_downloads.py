"""Downloads of checkpoints and code against a real socket: whole and verified, or nothing."""

from pathlib import Path

import pytest

from detlab.client.aclient import AsyncClient
from detlab.client.client import Client
from detlab.errors import CheckpointError, StorageError
from detlab.launch.archives import tree_digest
from testbed.fake_master.api import ApiFault, FakeMaster

FILES = {"model.bin": b"x" * 100_000, "deep/state.json": b"{}", "deep/copy.json": b"{}"}


def test_a_download_is_complete_and_verified(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    checkpoint = client.get_checkpoint(view.uuid)
    told: list[tuple[int, int]] = []
    target = checkpoint.download(tmp_path / "best", progress=lambda done, total: told.append((done, total)))
    assert {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*.*")} == FILES
    assert told[-1] == (view.size, view.size)
    asked = len(master.requests)
    assert checkpoint.download(tmp_path / "best") == target
    assert len(master.requests) == asked
    assert list(tmp_path.glob(".*partial")) == []


async def test_an_asynchronous_download(master: FakeMaster, aclient: AsyncClient, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    master.faults.append(ApiFault("GET", "checkpoints/.*/files", "unavailable"))
    target = await (await aclient.get_checkpoint(view.uuid)).download(tmp_path / "best")
    assert (target / "model.bin").read_bytes() == FILES["model.bin"]


def test_a_damaged_file_leaves_nothing(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    master.blobs[view.files["model.bin"].digest] = b"y" * 100_000
    with pytest.raises(CheckpointError, match=r"model\.bin.*altered or damaged"):
        client.get_checkpoint(view.uuid).download(tmp_path / "best")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", "a\\b", "", "a//b", "./a"])
def test_a_hostile_path_is_refused(master: FakeMaster, client: Client, tmp_path: Path, path: str) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, {path: b"evil"})
    with pytest.raises(CheckpointError, match="outside of itself"):
        client.get_checkpoint(view.uuid).download(tmp_path / "in" / "best")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_else_is_kept(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "mine").write_text("precious")
    with pytest.raises(StorageError, match="exists"):
        client.get_checkpoint(view.uuid).download(tmp_path / "best")
    assert (tmp_path / "best" / "mine").read_text() == "precious"


def test_a_download_onto_its_own_earlier_result_replaces_it(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    # The tutorial's last cell run a second time, after another search with another best checkpoint.
    master.add_trial(master.add_experiment().id)
    first = client.get_checkpoint(master.add_checkpoint(1, FILES).uuid)
    second = client.get_checkpoint(master.add_checkpoint(1, {"model.bin": b"new"}).uuid)
    target = first.download(tmp_path / "best")
    assert second.download(target) == target
    assert [path.name for path in target.iterdir()] == ["model.bin"]
    assert (target / "model.bin").read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".best.detlab", "best"]
    (target / "model.bin").write_bytes(b"mine")
    with pytest.raises(StorageError, match="unchanged download"):
        first.download(target)
    assert (target / "model.bin").read_bytes() == b"mine"


def test_a_failed_download_leaves_the_earlier_result(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    target = client.get_checkpoint(master.add_checkpoint(1, FILES).uuid).download(tmp_path / "best")
    damaged = master.add_checkpoint(1, {"model.bin": b"new"})
    master.blobs[damaged.files["model.bin"].digest] = b"bad"
    with pytest.raises(CheckpointError):
        client.get_checkpoint(damaged.uuid).download(target)
    assert (target / "model.bin").read_bytes() == FILES["model.bin"]


def test_direct_copies_from_the_storage(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "shared"), "storage_path": "ckpt"}
    view = master.add_checkpoint(1, FILES, storage=storage)
    checkpoint = client.get_checkpoint(view.uuid)
    with pytest.raises(StorageError, match="not readable on this machine"):
        checkpoint.download(tmp_path / "a", "direct")
    for path, content in FILES.items():
        file = tmp_path / "shared" / "ckpt" / view.uuid / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    asked = len(master.requests)
    assert (checkpoint.download(tmp_path / "a", "direct") / "deep/state.json").read_bytes() == b"{}"
    assert checkpoint.download(tmp_path / "b") == tmp_path / "b"
    assert len(master.requests) == asked
    file.write_bytes(b"changed")
    with pytest.raises(CheckpointError):
        checkpoint.download(tmp_path / "c", "direct")


def test_the_best_checkpoint(master: FakeMaster, client: Client) -> None:
    master.add_trial(master.add_experiment(smaller_is_better=False).id)
    values = [0.5, float("nan"), None, 0.9, 0.7]
    uuids = [
        master.add_checkpoint(1, {"a": b"%d" % n}, validation=value, steps_completed=n).uuid
        for n, value in enumerate(values)
    ]
    experiment = client.get_experiment(1)
    assert experiment.top_checkpoint().uuid == uuids[3]
    assert [item.validation for item in experiment.top_n_checkpoints(2)] == [0.9, 0.7]
    steps = [item.steps_completed for item in experiment.list_checkpoints("steps_completed", "desc")]
    assert steps == [4, 3, 2, 1, 0]
    assert [item.uuid for item in experiment.list_checkpoints("val_loss", "asc", 2)] == [uuids[0], uuids[4]]
    assert client.get_trial(1).select_checkpoint(latest=True).uuid == uuids[4]
    with pytest.raises(ValueError, match="cannot be sorted by 'accuracy'"):
        experiment.list_checkpoints("accuracy")


def test_the_code_comes_back(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)\n")
    experiment = client.create_experiment({"name": "x"}, tmp_path / "code")
    path = experiment.download_code(tmp_path / "out")
    assert tree_digest(path) == experiment.view.bundle


def test_an_interrupted_download_leaves_nothing(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    with pytest.raises(KeyboardInterrupt):
        client.get_checkpoint(view.uuid).download(tmp_path / "best", progress=interrupt)
    assert list(tmp_path.iterdir()) == []
