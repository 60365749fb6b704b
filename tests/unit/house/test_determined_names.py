"""Names that scripts written for Determined import or call: they exist and do the same."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import detlab as det
from detlab import errors

# `determined.errors` and `determined.common.api.errors` of 0.38.1.
NAMES_OF_ERRORS = [
    "EnterpriseOnlyError",
    "InternalException",
    "InvalidExperimentException",
    "InvalidDataTypeException",
    "InvalidConfigurationException",
    "InvalidCheckpointException",
    "StopLoadingImplementation",
    "WorkerError",
    "WorkerFinishedGracefully",
    "SkipWorkloadException",
    "InvalidModelException",
    "CheckpointNotFound",
    "CheckpointStateException",
    "NoDirectStorageAccess",
    "ProxiedDownloadFailed",
    "MultipleDownloadsFailed",
    "APIException",
    "ForbiddenException",
    "MasterNotFoundException",
    "NotFoundException",
    "UnauthenticatedException",
]


def test_experimental_has_the_client() -> None:
    """In a fresh interpreter, since other imports would hide a missing one."""
    code = """
import detlab as det
assert det.experimental.client.get_trial
from detlab.experimental import Checkpoint, Determined, Experiment, ExperimentReference, OrderBy, Trial, client
import detlab.client
assert client.create_experiment is detlab.client.create_experiment
assert ExperimentReference is Experiment is detlab.client.Experiment
import detlab.experimental.client as again
assert again is client
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_experimental_names_what_it_lacks() -> None:
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        _ = det.experimental.nothing_of_that_name


def test_import_from_path_takes_the_code_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, then = tmp_path / "now", tmp_path / "then"
    for folder, version in ((now, 2), (then, 1)):
        folder.mkdir()
        (folder / "model_def_of_test.py").write_text(
            f"import helper_of_test\nVERSION = ({version}, helper_of_test.V)\n"
        )
        (folder / "helper_of_test.py").write_text(f"V = {version}\n")
    monkeypatch.syspath_prepend(now)
    new = importlib.import_module("model_def_of_test")

    path, before = list(sys.path), sys.modules["helper_of_test"]
    try:
        with det.import_from_path(then):
            old = importlib.import_module("model_def_of_test")

        assert (old.VERSION, new.VERSION) == ((1, 1), (2, 2))
        assert sys.path == path
        assert sys.modules["helper_of_test"] is before
        assert sys.modules["model_def_of_test"] is new
        assert not list(then.rglob("__pycache__"))  # files of a checkpoint have digests
    finally:
        for name in ("model_def_of_test", "helper_of_test"):
            sys.modules.pop(name, None)
    with pytest.raises(NotADirectoryError, match="nowhere"), det.import_from_path(tmp_path / "nowhere"):
        pass


def test_merge_dicts_changes_neither() -> None:
    base = {"a": {"x": 1, "y": [1]}, "b": 1, "c": {"z": 1}}
    source = {"a": {"y": [2], "w": {"v": 0}}, "b": {"now": "a dict"}, "c": 3}
    merged = det.util.merge_dicts(base, source)
    assert merged == {"a": {"x": 1, "y": [2], "w": {"v": 0}}, "b": {"now": "a dict"}, "c": 3}
    merged["a"]["y"].append(3)
    merged["a"]["w"]["v"] = 1
    assert base == {"a": {"x": 1, "y": [1]}, "b": 1, "c": {"z": 1}}
    assert source == {"a": {"y": [2], "w": {"v": 0}}, "b": {"now": "a dict"}, "c": 3}


@pytest.mark.parametrize("name", NAMES_OF_ERRORS)
def test_an_except_clause_finds_the_error(name: str) -> None:
    found = getattr(det.errors, name)
    assert issubclass(found, Exception)
    with pytest.raises(found):
        raise found("what happened") if found is not errors.ConfigError else found([], "what happened")


def test_a_clause_for_an_error_of_determineds_machinery_swallows_none_of_ours() -> None:
    machinery = [name for name in NAMES_OF_ERRORS if name not in errors.OF_DETERMINED]
    assert len(machinery) == 6
    for name in machinery:
        found = getattr(errors, name)
        assert not issubclass(found, errors.DetlabError)
        assert not issubclass(errors.DetlabError, found)


def test_invalid_hp_takes_its_message_by_name() -> None:
    error = det.InvalidHP(msg="lr is negative")
    assert (error.msg, error.message, str(error)) == ("lr is negative",) * 3
    assert det.InvalidHP("lr").msg == pickle.loads(pickle.dumps(det.InvalidHP("lr"))).msg == "lr"
    assert det.InvalidHP().msg
    with pytest.raises(TypeError, match="must be a string, not int: 3"):
        det.InvalidHP(3)  # type: ignore[arg-type]
