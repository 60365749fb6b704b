"""The program that reads a checkpoint for its owner: what is right is handed over, what is not is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detlab.run.read_checkpoint import read
from detlab.schemas.taskwire import READING_REPORT, ReadingView
from detlab.schemas.wire import CheckpointFile
from detlab.storage import from_config
from detlab.storage.base import StorageManager

UUID = "0b8d1c6e-6c0c-4d0a-9d6f-0a1b2c3d4e5f"


@pytest.fixture
def store(tmp_path: Path) -> StorageManager:
    found = from_config({"type": "shared_fs", "host_path": str(tmp_path)})
    folder = found.stage(UUID)
    (folder / "sub").mkdir()
    (folder / "model.pt").write_bytes(b"weights")
    (folder / "sub" / "state.json").write_bytes(b"[1]")
    found.publish(UUID, {}, found.seal(UUID))
    return found


def wanted(store: StorageManager, *, hands_over: bool, **more: CheckpointFile) -> ReadingView:
    files = {
        path: CheckpointFile.model_validate(file, from_attributes=True)
        for path, file in store.manifest(UUID).files.items()
    }
    return ReadingView(uuid=UUID, files=files | more, hands_over=hands_over, storage={})


def outputs_of(view: ReadingView, store: StorageManager) -> tuple[int, dict[str, bytes]]:
    given: dict[str, bytes] = {}

    def put(name: str, data: bytes | Path) -> None:
        given[name] = data.read_bytes() if isinstance(data, Path) else data

    return read(view, store, put, lambda text: None), given


def test_files_are_handed_over_by_their_digests(store: StorageManager) -> None:
    view = wanted(store, hands_over=True)
    bad, given = outputs_of(view, store)
    assert bad == 0
    assert json.loads(given.pop(READING_REPORT)) == {"bad": []}
    names = {file.digest.removeprefix("sha256:"): path for path, file in view.files.items()}
    assert {names[name]: data for name, data in given.items()}["sub/state.json"] == b"[1]"
    assert len(given) == len(view.files)


def test_to_verify_hands_over_the_report_alone(store: StorageManager) -> None:
    assert outputs_of(wanted(store, hands_over=False), store)[1].keys() == {READING_REPORT}


def test_what_is_altered_or_missing_is_reported_and_not_handed_over(store: StorageManager, tmp_path: Path) -> None:
    view = wanted(store, hands_over=True, gone=CheckpointFile(size=3, digest=f"sha256:{'0' * 64}"))
    (tmp_path / UUID / "model.pt").write_bytes(b"changed")
    (tmp_path / UUID / "sub" / "state.json").write_bytes(b"[1] and more than was stored")
    bad, given = outputs_of(view, store)
    found = {one["path"]: one["problem"] for one in json.loads(given[READING_REPORT])["bad"]}
    assert found == {"model.pt": "altered", "sub/state.json": "altered", "gone": "missing"}
    assert bad == 3
    assert view.files["model.pt"].digest.removeprefix("sha256:") not in given
