"""The files of a checkpoint at its user's end: in part, resumed, verified, copied, loaded without fear."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from detlab.client import loading
from detlab.client.client import Client
from detlab.client.loading import PickleNotAllowed, load_folder, plan
from detlab.client.tasks import Task
from detlab.client.transport.copying import store_of
from detlab.client.transport.direct import remote_store
from detlab.client.transport.downloads import matches
from detlab.errors import CheckpointError, StorageError
from detlab.pytorch.checkpoint.files import write_state
from detlab.storage import from_config
from detlab.storage.objects.store import ObjectStorage
from detlab.testing.storage_faults import files_of
from testbed.fake_master.api import ApiFault, FakeMaster

WEIGHTS = save({"w": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(2, dtype=torch.bfloat16)})
FILES = {"model.safetensors": WEIGHTS, "config.json": b'{"a": 1}', "optimizer/m.bin": b"x" * 1000}


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("pwned"),)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def master(master: FakeMaster) -> FakeMaster:
    master.add_trial(master.add_experiment().id)
    return master


def checkpoint(master: FakeMaster, client: Client, files: dict[str, bytes] = FILES, **fields: Any) -> Any:
    return client.get_checkpoint(master.add_checkpoint(1, files, **fields).uuid)


# --- in part, resumed


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*", {"model.safetensors", "config.json"}),
        ("*.json", {"config.json"}),
        ("**", set(FILES)),
        ("**/*.bin", {"optimizer/m.bin"}),
        ("optimizer/", {"optimizer/m.bin"}),
        ("optimizer/*", {"optimizer/m.bin"}),
        ("?onfig.json", {"config.json"}),
        ("config.jso", set()),
        ("[c]onfig.json", set()),
    ],
)
def test_patterns_mean_what_they_mean_in_det_checkpoint_rm(glob: str, found: set[str]) -> None:
    assert {name for name in FILES if matches(name, glob)} == found


def test_a_part_is_downloaded_alone(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    item = checkpoint(master, client)
    target = item.download(tmp_path / "part", globs=["*.json", "optimizer/**"])
    assert sorted(files_of(target)) == ["config.json", "optimizer/m.bin"]
    assert sorted(files_of(item.download(target))) == sorted(FILES), "an unchanged part is replaced by the whole"
    with pytest.raises(CheckpointError, match=r"no file that matches '\*\.pt'") as error:
        item.download(tmp_path / "none", globs=["*.pt"])
    assert "config.json" in str(error.value)


def test_an_interrupted_download_goes_on_with_what_was_verified(
    master: FakeMaster, client: Client, tmp_path: Path
) -> None:
    item = checkpoint(master, client)

    def interrupt(done: int, _total: int) -> None:
        if done > len(FILES["config.json"]):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        item.download(tmp_path / "best", progress=interrupt)
    assert not (tmp_path / "best").exists()
    asked = len(master.requests)
    told: list[int] = []
    assert files_of(item.download(tmp_path / "best", progress=lambda done, _: told.append(done))) == FILES
    assert len(master.requests) == asked + 2, "one of the three files was there"
    assert told[-1] == item.view.size
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".best") and path.is_dir()] == []


def test_what_was_altered_in_between_is_fetched_again(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    item = checkpoint(master, client)

    def interrupt(done: int, _total: int) -> None:
        if done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        item.download(tmp_path / "best", progress=interrupt)
    (kept,) = tmp_path.glob(".best.*.resume")
    (kept / "config.json").write_bytes(b'{"a": 2}')
    assert files_of(item.download(tmp_path / "best")) == FILES


# --- verified


def test_all_is_as_committed(master: FakeMaster, client: Client) -> None:
    assert checkpoint(master, client).verify() == []


def test_a_flipped_byte_and_a_missing_file_are_named(master: FakeMaster, client: Client) -> None:
    item = checkpoint(master, client)
    master.blobs[item.files["model.safetensors"].digest] = WEIGHTS[:-1] + b"\x01"
    master.blobs[item.files["config.json"].digest] = b"{}"
    del master.blobs[item.files["optimizer/m.bin"].digest]
    bad = {file.path: (file.problem, file.detail) for file in item.verify()}
    assert bad["config.json"] == ("altered", "2 bytes, 8 were stored")
    assert bad["model.safetensors"][0] == "altered"
    assert "its digest is sha256:" in bad["model.safetensors"][1]
    assert bad["optimizer/m.bin"][0] == "missing"


def test_a_fault_of_the_way_is_not_one_of_the_file(master: FakeMaster, client: Client) -> None:
    master.faults.append(ApiFault("GET", "checkpoints/.*/files", "unavailable"))
    assert checkpoint(master, client).verify() == []


def test_a_folder_on_this_machine_is_read_itself(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    block = {"type": "directory", "container_path": str(tmp_path / "store")}
    item = checkpoint(master, client, storage=block)
    for name, data in FILES.items():
        path = tmp_path / "store" / item.uuid / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    asked = len(master.requests)
    assert item.verify("direct") == []
    (tmp_path / "store" / item.uuid / "config.json").unlink()
    assert [(file.path, file.problem) for file in item.verify()] == [("config.json", "missing")]
    assert len(master.requests) == asked


# --- copied


def test_a_copy_is_a_checkpoint_in_the_other_storage(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    files = {**FILES, "metadata.json": json.dumps({"steps_completed": 3}, indent=2).encode()}
    item = checkpoint(master, client, files, metadata={"steps_completed": 3, "added": "later"})
    digest = item.copy(str(tmp_path / "other"))
    store = from_config({"type": "directory", "container_path": str(tmp_path / "other")})
    manifest = store.manifest(item.uuid)
    assert manifest.digest == digest
    assert manifest.metadata == {"steps_completed": 3}, "as it was committed"
    assert manifest.files.keys() == files.keys()
    assert {name: entry.digest for name, entry in manifest.files.items()} == {
        name: entry.digest for name, entry in item.files.items()
    }
    asked = len(master.requests)
    assert item.copy(str(tmp_path / "other"), "master") == digest
    assert len(master.requests) > asked


def test_a_damaged_checkpoint_is_not_copied(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    item = checkpoint(master, client)
    master.blobs[item.files["config.json"].digest] = b"{}"
    with pytest.raises(CheckpointError, match=r"config\.json"):
        item.copy(str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_another_checkpoint_of_this_uuid_is_left_alone(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    item = checkpoint(master, client)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "model.safetensors").write_bytes(b"another")
    store = from_config({"type": "directory", "container_path": str(tmp_path / "other")})
    there = store.publish(item.uuid, {"steps_completed": 1}, store.upload(tmp_path / "source", item.uuid))
    with pytest.raises(CheckpointError, match="is not the file that was committed"):
        item.copy(str(tmp_path / "other"))
    assert store.manifest(item.uuid) == there


@pytest.mark.parametrize(
    ("where", "address"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("gs://bucket/p", "gs://bucket/p"),
        ("ms://account/box/p", "az://box/p"),
        ("memory://box/dir", "memory://box/dir"),
        ("{type: s3, bucket: b}", "s3://b"),
        ({"type": "s3", "bucket": "b", "prefix": "p"}, "s3://b/p"),
        ('{"checkpoint_storage": {"type": "s3", "bucket": "b"}}', "s3://b"),
    ],
)
def test_where_to_copy_to(where: Any, address: str) -> None:
    store = store_of(where)
    assert isinstance(store, ObjectStorage)
    assert store.objects.where == address


def test_a_folder_to_copy_to(tmp_path: Path) -> None:
    assert store_of("~/x").root == Path.home() / "x"  # type: ignore[attr-defined]
    assert store_of(str(tmp_path)).root == tmp_path  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", ["{type: [", "{checkpoint_storage: 3}", "tape://x", "{}", "s3:///x"])
def test_a_place_that_cannot_be_used(where: str) -> None:
    with pytest.raises(StorageError):
        store_of(where)


# --- which store gets this machine's credentials


@pytest.mark.parametrize(
    ("block", "tried"),
    [
        ({"type": "s3", "bucket": "b"}, True),
        ({"type": "s3", "bucket": "b", "endpoint_url": "https://evil.example"}, False),
        ({"type": "s3", "bucket": "b", "endpoint_url": "https://minio.mine"}, True),
        ({"type": "azure", "container": "c", "account_url": "https://evil.example/"}, False),
        ({"type": "azure", "container": "c", "account_url": "http://a.blob.core.windows.net"}, False),
        ({"type": "azure", "container": "c", "account_url": "https://a.blob.core.windows.net"}, True),
        ({"type": "gcs", "bucket": "b"}, False),
    ],
)
def test_credentials_go_only_where_they_belong(
    master: FakeMaster, client: Client, monkeypatch: pytest.MonkeyPatch, block: dict[str, Any], tried: bool
) -> None:
    """The block of a shared experiment is another user's word."""
    for name, value in (
        ("HOME", "/nonexistent"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "x"),
        ("AWS_ENDPOINT_URL", "https://minio.mine"),
    ):
        monkeypatch.setenv(name, value)
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    asked: list[dict[str, Any]] = []

    def opened(config: dict[str, Any]) -> Any:
        asked.append(config)
        raise StorageError("away")

    monkeypatch.setattr("detlab.client.transport.direct.from_config", opened)
    view = checkpoint(master, client, storage={**block, "secret_key": "********"}).view
    assert remote_store(view, asked=False) is None
    assert asked == ([block] if tried else []), "without what is masked"
    with pytest.raises(StorageError):
        remote_store(view, asked=True)


# --- loaded


def test_foreign_safetensors_load_by_name(master: FakeMaster, client: Client) -> None:
    item = checkpoint(master, client)
    found = item.load()
    assert found["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["b"].dtype is torch.bfloat16
    assert found.keys() == {"w", "b"}
    fetched = [path for path in master.requests if "/files/" in str(path)]
    assert len(fetched) == 1, "only what is read"
    assert item.load()["w"].equal(found["w"])
    assert len([path for path in master.requests if "/files/" in str(path)]) == 1, "from the cache"


def test_a_cached_file_that_was_altered_is_not_believed(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    item = checkpoint(master, client)
    item.load()
    (cached,) = (tmp_path / "cache").rglob("*.safetensors")
    cached.write_bytes(save({"w": torch.full((2, 3), 666.0)}))
    assert item.load()["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_trials_state_loads_without_a_cluster(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    write_state(tmp_path / "state", {"models_state_dict": [{"w": torch.ones(3)}], "callbacks": {"n": 5}})
    state = checkpoint(master, client, files_of(tmp_path / "state")).load()
    assert state["models_state_dict"][0]["w"].tolist() == [1, 1, 1]
    assert state["callbacks"] == {"n": 5}


def test_a_pickle_is_refused_and_what_it_would_import_is_said(
    master: FakeMaster, client: Client, tmp_path: Path
) -> None:
    item = checkpoint(master, client, {"state_dict.pth": pickle.dumps(Evil())})
    for _ in range(2):  # the second time from the cache
        with pytest.raises(
            PickleNotAllowed, match=r"checkpoint .*state_dict\.pth is a pickle: .*import.*Path"
        ) as error:
            item.load()
    assert "touch" in error.value.message
    assert "allow_pickle=True" in str(error.value)
    assert not (tmp_path / "pwned").exists()


def test_a_large_pickle_is_refused_by_name_before_it_is_downloaded(
    master: FakeMaster, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "LOOKED_AT_BYTES", 10)
    item = checkpoint(master, client, {"state_dict.pth": pickle.dumps(Evil())})
    with pytest.raises(PickleNotAllowed, match=r"state_dict\.pth of checkpoint .* can run any code") as error:
        item.load()
    assert "allow_pickle=True" in str(error.value)
    assert not [path for path in master.requests if "/files/" in str(path)]
    assert not (tmp_path / "pwned").exists()


def test_files_are_chosen_by_their_bytes_and_not_by_their_names(
    master: FakeMaster, client: Client, tmp_path: Path
) -> None:
    assert checkpoint(master, client, {"pytorch_model.bin": WEIGHTS}).load().keys() == {"w", "b"}
    disguised = checkpoint(master, client, {"model.safetensors": pickle.dumps(Evil())})
    with pytest.raises(PickleNotAllowed, match=r"model\.safetensors is a pickle: opening it would import"):
        disguised.load()
    both = checkpoint(master, client, {"a.safetensors": WEIGHTS, "b.safetensors": pickle.dumps(Evil())})
    with pytest.raises(PickleNotAllowed, match=r"b\.safetensors is a pickle"):
        both.load()
    plain = checkpoint(master, client, {"notes.pkl": b'{"a": 1}', "config.json": b'{"a": 1}'})
    assert plain.load(globs=["*.json"]) == {"config.json": {"a": 1}}
    assert not (tmp_path / "pwned").exists()


def test_a_folder_of_links_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(WEIGHTS)
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.bin").symlink_to("../blob")
    assert load_folder(tmp_path / "snapshot").keys() == {"w", "b"}


def test_a_pickle_is_opened_if_one_says_so(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")
    item = checkpoint(master, client, {"w.pt": (tmp_path / "w.pt").read_bytes(), "n.pkl": pickle.dumps({1: {2}})})
    found = item.load(allow_pickle=True)
    assert found["w.pt"]["w"].tolist() == [1, 1]
    assert found["n.pkl"] == {1: {2}}


def test_safetensors_come_first_and_a_pickle_beside_them_stays_shut(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS)
    (tmp_path / "optimizer.pt").write_bytes(pickle.dumps(Evil()))
    assert load_folder(tmp_path).keys() == {"w", "b"}
    assert load_folder(tmp_path, allow_pickle=True).keys() == {"w", "b"}
    assert not (tmp_path / "pwned").exists()


def test_a_pickled_value_inside_of_a_state_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path, {"models_state_dict": [{"w": torch.ones(1)}], "callbacks": {"x": Path.cwd, "y": Evil()}})
    with pytest.raises(CheckpointError, match=r"pickled .*trainer\.json") as error:
        load_folder(tmp_path)
    assert error.value.code == "checkpoint.pickled"
    assert "allow_pickle=True" in str(error.value)
    assert not (tmp_path / "pwned").exists()


def test_shards_are_joined_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(save({"x": torch.ones(1)}))
    (tmp_path / "b.safetensors").write_bytes(save({"y": torch.ones(1)}))
    assert load_folder(tmp_path).keys() == {"x", "y"}
    (tmp_path / "b.safetensors").write_bytes(save({"x": torch.ones(1)}))
    with pytest.raises(CheckpointError, match="both hold a tensor 'x'") as error:
        load_folder(tmp_path)
    assert "load(globs=['b.safetensors'])" in str(error.value)


def test_plain_values(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"step": 7}')
    (tmp_path / "metadata.json").write_text("{}")
    assert load_folder(tmp_path) == {"state.json": {"step": 7}}
    (tmp_path / "state.json").write_text('{"step": ')
    with pytest.raises(CheckpointError, match="cut off or damaged"):
        load_folder(tmp_path)


@pytest.mark.parametrize("names", [[], ["metadata.json"], ["a.txt", "b.onnx"]])
def test_what_cannot_be_loaded_is_said(names: list[str]) -> None:
    with pytest.raises(CheckpointError, match="neither safetensors nor JSON"):
        plan(names, "it", allow_pickle=False)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS[:-3])
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read: it is cut off or damaged"):
        load_folder(tmp_path)


def test_the_client_imports_neither_torch_nor_a_store() -> None:
    code = (
        "import sys, detlab, detlab.client.resources; print(sorted({'torch', 'obstore', 'fsspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- by a task of the owner


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_a_task_that_reads_is_ended_when_its_client_gives_up(
    master: FakeMaster, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def wait(self: Task) -> None:
        raise error

    monkeypatch.setattr(Task, "wait", wait)
    with pytest.raises(error):
        checkpoint(master, client).download(tmp_path / "best", mode="task")
    assert [task.state for task in client.list_tasks()] == ["CANCELED"]
    assert not (tmp_path / "best").exists()


def test_a_task_that_ends_without_a_report_is_an_error_that_names_it(
    master: FakeMaster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Task, "wait", Task.kill)
    with pytest.raises(StorageError, match="no report") as caught:
        checkpoint(master, client).verify(mode="task")
    assert f"det task logs {client.list_tasks()[0].id}" in str(caught.value)
