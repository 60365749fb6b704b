"""`det checkpoint verify|copy|metadata`, and downloads in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detlab.storage import from_config
from testbed.fake_master.api import FakeMaster

FILES = {"model.safetensors": b"w" * 2000, "config.json": b"{}"}


@pytest.fixture
def uuid(master: FakeMaster) -> str:
    master.add_trial(master.add_experiment().id)
    return master.add_checkpoint(1, FILES).uuid


def test_a_good_checkpoint_verifies(det: Any, det_json: Any, uuid: str) -> None:
    result = det("checkpoint", "verify", uuid)
    assert result.exit_code == 0
    assert f"Checkpoint {uuid}: 2 files" in result.stdout
    assert "all as committed" in result.stdout
    assert det_json("c", "verify", uuid) == [{"uuid": uuid, "bad": []}]


def test_a_damaged_one_is_named_and_fails(det: Any, master: FakeMaster, uuid: str) -> None:
    view = master.checkpoints[uuid]
    master.blobs[view.files["config.json"].digest] = b"[]"
    other = master.add_checkpoint(1, {"a": b"1"}).uuid
    result = det("checkpoint", "verify", uuid, other)
    assert result.exit_code == 1
    assert "1 of 2 files not as committed" in result.stdout
    assert "config.json" in result.stdout
    assert "altered" in result.stdout
    assert f"Checkpoint {other}: 1 file" in result.stdout, "the others are read, too"
    assert det("checkpoint", "verify", other).exit_code == 0


def test_a_copy(det: Any, det_json: Any, uuid: str, tmp_path: Path) -> None:
    result = det("checkpoint", "copy", uuid, "--to", tmp_path / "archive")
    assert result.exit_code == 0, result.stderr
    manifest = from_config({"type": "directory", "container_path": str(tmp_path / "archive")}).manifest(uuid)
    assert FILES.keys() < manifest.files.keys() or manifest.files.keys() == {*FILES, "metadata.json"}
    (said,) = det_json("c", "copy", uuid, "--to", f"{{type: directory, container_path: {tmp_path}/archive}}")
    assert said == {"uuid": uuid, "manifest_digest": manifest.digest}


def test_a_copy_to_nowhere(det: Any, uuid: str) -> None:
    result = det("checkpoint", "copy", uuid, "--to", "{type: tape}")
    assert result.exit_code != 0
    assert "tape" in result.stderr
    assert "Traceback" not in result.stderr


def test_metadata(det: Any, det_json: Any, uuid: str) -> None:
    view = det_json("checkpoint", "metadata", "set", uuid, "quality=good", "folds=[1, 2]", "n=3", "odd=a=b")
    assert {key: view["metadata"][key] for key in ("quality", "folds", "n", "odd")} == {
        "quality": "good",
        "folds": [1, 2],
        "n": 3,
        "odd": "a=b",
    }
    result = det("checkpoint", "metadata", "remove", uuid, "folds", "odd", "none")
    assert result.exit_code == 0
    assert "quality = good" in result.stdout
    assert "folds" not in result.stdout
    assert det("checkpoint", "metadata", "set", uuid, "quality").exit_code == 2


def test_a_part_is_downloaded(det: Any, uuid: str, workplace: Path) -> None:
    assert det("checkpoint", "download", uuid, "--glob", "*.json", "-o", "part").exit_code == 0
    assert [path.name for path in (workplace / "part").iterdir()] == ["config.json"]
    missed = det("checkpoint", "download", uuid, "--glob", "*.pt", "-o", "none")
    assert missed.exit_code != 0
    assert "no file that matches '*.pt'" in missed.stderr
