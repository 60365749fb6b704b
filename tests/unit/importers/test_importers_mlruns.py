"""A folder mlruns/, read without MLflow: what two versions have written, and what nobody should have."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from detlab.errors import DetlabError
from detlab.importers.folders import Unreadable, read_yaml
from detlab.importers.importing import mlflow_source
from detlab.importers.left_out import LeftOut
from detlab.importers.mlflow.folder import MlflowFolder
from testbed.foreign_runs import mlrun, unpacked, write


def counts(left_out: LeftOut) -> dict[str, int]:
    return {why: one.count for why, one in left_out.items()}


@pytest.mark.parametrize("version", ["3", "2"])
def test_what_mlflow_has_written_is_read(version: str, tmp_path: Path) -> None:
    unpacked(f"mlruns-mlflow{version}.zip", tmp_path / "mlruns")
    left_out = LeftOut()
    source = MlflowFolder(tmp_path, left_out)
    experiments = {one.name: one for one in source.experiments()}
    assert set(experiments) == {"Default", "digits", "other"}
    parent, child = source.runs(experiments["digits"])
    assert (parent.name, parent.status, child.tags["mlflow.parentRunId"]) == ("parent", "FINISHED", parent.id)
    assert parent.params == {"lr": "0.1", "opt": "adam", "net/depth": "3"}
    assert (parent.tags["team"], parent.tags["mlflow.note.content"]) == ("vision", "a **note**")
    points = list(source.points(parent))
    loss = {(one.step, one.value) for one in points if one.key == "loss"}
    assert loss == {(step, 1 / (step + 1)) for step in range(5)}
    assert {(one.key, repr(one.value)) for one in points if one.key in {"odd", "big"}} == {
        ("odd", "nan"),
        ("big", "inf"),
    }
    assert all(parent.started_ms <= one.time_ms <= (parent.ended_ms or 0) for one in points)
    [dataset] = parent.datasets
    assert (dataset["dataset"]["name"], dataset["tags"]) == (
        "zeros",
        [{"key": "mlflow.data.context", "value": "training"}],
    )
    files = {one.path: one for one in source.files(parent)}
    with source.open(files["notes/hello é+.txt"]) as (stream, size):
        assert (stream.read(), size) == (b"hello", 5)
    models = list(source.models(experiments["digits"]))
    [registered] = source.registered()
    [number] = registered.versions
    assert (registered.name, number.number, number.description, number.labels) == (
        "doubler",
        1,
        "the first",
        ("champion",),
    )
    if version == "3":
        [model] = models
        assert (model.run, model.name, model.ready, number.model) == (parent.id, "model", True, model.id)
        assert "python_model.pkl" in {one.path for one in source.model_files(model)}
        assert parent.models_out == ((model.id, 0),)
        assert {one.key for one in model.metrics} >= {"loss"}
    else:
        assert (models, number.model, number.run, number.folder) == ([], "", parent.id, "model")
        assert "model/python_model.pkl" in files
    [failed] = source.runs(experiments["other"])
    assert failed.status == "FAILED"
    assert counts(left_out) == {"deleted experiments": 1, "deleted runs": 1}


LINES = {
    "1 0.5 3\n": [(0.5, 1, 3)],
    "1 0.5\n": [(0.5, 1, 0)],
    "1 0.5 3 data digest\n": [(0.5, 1, 3)],
    "1 0.5 3 run data digest\n": [(0.5, 1, 3)],
    "1 inf 3\n1 -1e400 4\n": [(float("inf"), 1, 3), (float("-inf"), 1, 4)],
    "1 0.5 -3\n": [(0.5, 1, -3)],
}
DAMAGED = ["1\n", "a 0.5 3\n", "1 b 3\n", "1 0.5 3", "1 0.5 3 4 5 6 7\n", "\x00\x00\n", "1 " + "9" * 5000 + " 3\n"]


@pytest.mark.parametrize("text", [*LINES, *DAMAGED])
def test_each_line_of_a_metric_is_a_value_or_damage(text: str, tmp_path: Path) -> None:
    mlrun(tmp_path, loss=text)
    left_out = LeftOut()
    source = MlflowFolder(tmp_path, left_out)
    [run] = source.runs(source.experiments()[0])
    found = [(one.value, one.time_ms, one.step) for one in source.points(run)]
    assert found == LINES.get(text, [])
    assert ("damaged lines of metrics" in counts(left_out)) == (text in DAMAGED)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(12)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: &a [*a]\n",
        "x: " + "[" * 5000,
        "- 1\n",
        "a: " + "b" * 1_100_000,
        "a: !!python/object/apply:os.system [id]\n",
        "\x00",
        "a: 2026-99-99\n",
        "a: " + "9" * 10_000 + "\n",
        "".join(f"k{n}: 1\n" for n in range(30_000)),
    ],
    ids=["bomb", "circle", "deep", "list", "long", "object", "zero", "date", "digits", "many"],
)
def test_hostile_yaml_is_refused_at_once(text: str, tmp_path: Path) -> None:
    write(tmp_path / "meta.yaml", text)
    before = time.process_time()
    with pytest.raises(Unreadable):
        read_yaml(tmp_path, "meta.yaml")
    assert time.process_time() - before < 20
    left_out = LeftOut()
    mlrun(tmp_path / "mlruns")
    write(tmp_path / "mlruns" / "1" / ("b" * 32) / "meta.yaml", text)
    source = MlflowFolder(tmp_path, left_out)
    assert len(list(source.runs(source.experiments()[0]))) == 1
    assert counts(left_out) == {"folders whose meta.yaml cannot be read": 1}


def test_no_link_is_followed_and_no_address_in_a_file_is_opened(tmp_path: Path) -> None:
    write(tmp_path / "secret", "s")
    root = tmp_path / "mlruns"
    run = mlrun(root, loss="1 1 1\n")
    with (run / "meta.yaml").open("a") as meta:
        meta.write(f"artifact_uri: file://{tmp_path}\n")
    write(run / "artifacts" / "a" / "own.txt", "own")
    for name, target in (("file", "secret"), ("folder", ".")):
        (run / "artifacts" / name).symlink_to(tmp_path / target)
    os.mkfifo(run / "artifacts" / "fifo")
    (run / "metrics" / "linked").symlink_to(tmp_path / "secret")
    (run / "params").symlink_to(tmp_path)
    (root / "1" / ("c" * 32)).symlink_to(run)
    (root / "2").symlink_to(root / "1")
    left_out = LeftOut()
    source = MlflowFolder(root, left_out)
    [experiment] = source.experiments()
    [found] = source.runs(experiment)
    assert (found.params, found.metrics) == ({}, ("loss",))
    [file] = source.files(found)
    assert file.path == "a/own.txt"
    (run / "artifacts" / "a" / "own.txt").unlink()
    (run / "artifacts" / "a").rmdir()
    (run / "artifacts" / "a").symlink_to(tmp_path)
    with pytest.raises(Unreadable), source.open(file):
        pass
    assert counts(left_out) == {"links, and what is no regular file": 4}


def test_many_and_deep_files_end_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detlab.importers.folders.MOST_FILES", 20)
    run = mlrun(tmp_path)
    for number in range(30):
        write(run / "artifacts" / f"{number}.txt", "x")
    deep = run / "params"
    for _ in range(40):
        deep = deep / "d"
    write(deep / "p", "1")
    left_out = LeftOut()
    source = MlflowFolder(tmp_path, left_out)
    [found] = source.runs(source.experiments()[0])
    assert len(list(source.files(found))) == 20
    assert counts(left_out) == {"files that are too many, or lie too deep": 2}


@pytest.mark.slow
def test_a_million_values_are_read_in_bounded_memory(tmp_path: Path) -> None:
    mlrun(tmp_path, loss="".join(f"{1_700_000_000_000 + n} 0.25 {n}\n" for n in range(1_000_000)))
    source = MlflowFolder(tmp_path, LeftOut())
    [run] = source.runs(source.experiments()[0])
    points = source.points(run)
    next(points)
    tracemalloc.start()
    for _ in range(100_000):
        next(points)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000, peak
    assert sum(1 for _ in points) == 899_999


@pytest.mark.parametrize(
    "where", ["sqlite:///mlflow.db", "postgresql://ada:secret@db/mlflow", "mysql+pymysql://u:secret@db/x", "mlflow.db"]
)
def test_a_database_is_answered_with_the_command_that_starts_a_server(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlflow.db").write_bytes(b"SQLite format 3\x00" + bytes(100))
    with pytest.raises(DetlabError) as error:
        mlflow_source(where, LeftOut(), file_bytes=1, others_token=None)
    assert "mlflow server --backend-store-uri" in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("where", ["absent", ".", "file:///absent", "http://", "https:///x"])
def test_what_is_no_source_is_named(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DetlabError):
        mlflow_source(where, LeftOut(), file_bytes=1, others_token=None)
