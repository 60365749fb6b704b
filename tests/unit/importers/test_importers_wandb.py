"""Folders of W&B's client, read without it: what it has written, and what nobody should have."""

from __future__ import annotations

import io
import math
import time
import tracemalloc
from pathlib import Path

import pytest

from detlab.errors import DetlabError
from detlab.importers.folders import Unreadable
from detlab.importers.left_out import LeftOut
from detlab.importers.wandb import records as of
from detlab.importers.wandb.log import LogDamage, records
from detlab.importers.wandb.runs import WandbFolder
from testbed.foreign_runs import BLOCK, exit_record, item, log_of, part, row, start, unpacked, varint, wandb_run, write


def read(folder: Path) -> tuple[WandbFolder, dict[str, object], dict[str, int]]:
    """Read all; return the source, its runs by name and what was left out."""
    left_out = LeftOut()
    source = WandbFolder(folder, left_out)
    runs = {
        run.name: (run, list(source.points(run)), list(source.files(run)))
        for one in source.experiments()
        for run in source.runs(one)
    }
    return source, runs, {why: one.count for why, one in left_out.items()}


@pytest.mark.parametrize("version", ["0.31", "0.16"])
def test_what_the_client_has_written_offline_is_read(version: str, tmp_path: Path) -> None:
    folder = unpacked(f"wandb-{version}.zip", tmp_path / "wandb")
    next(folder.glob("*/files/own.txt")).with_name("weights.bin").symlink_to(tmp_path)
    source, runs, left_out = read(tmp_path)
    assert [one.name for one in source.experiments()] == ["digits", "other"]
    run, points, files = runs["first"]
    assert (run.experiment, run.status, run.tags["mlflow.note.content"]) == ("digits", "FINISHED", "a **note**")
    assert run.params == {
        "lr": "0.1",
        "opt": "adam",
        "net.depth": "3",
        "net.bias": "True",
        "layers": "[8, 4]",
        "none": "None",
        "batch": "16",
    }
    assert (run.tags["wandb.tags"], run.tags["wandb.group"], run.tags["summary.word"]) == ("a, b", "g", "done")
    loss = [(one.step, one.value) for one in points if one.key == "loss"]
    assert loss == [(step, 1 / (step + 1)) for step in range(30)]
    values = {one.key: one for one in points}
    assert (values["late"].step, values["big"].value, values["flag"].value) == (100, math.inf, 1.0)
    assert sum(math.isnan(one.value) for one in points if one.key == "odd") == 1
    assert (values["best"].value, values["summary/loss"].value, values["val.acc"].step) == (0.97, 0.01, 29)
    assert all(abs(one.time_ms - run.started_ms) < 60_000 for one in points)
    assert version == "0.16" or any(key.startswith("system/proc.memory") for key in values)
    assert not any("picture" in key or key.startswith("_") for key in values)
    assert "own.txt" in {one.path for one in files}
    assert not {"weights.bin"} & {one.path for one in files}
    assert left_out.pop("media in rows (images, tables, histograms, …)") == 1
    assert set(left_out) == {
        "artifacts of W&B: log them anew",
        "files of media",
        "links, such as `wandb.save` makes: copy what they lead to",
        "values of rows that are no numbers",
    }
    large = {one.key: one.value for one in runs["large"][1] if one.key.startswith("metric/")}
    assert large == {f"metric/{number}": float(number) for number in range(1500)}
    assert (runs["fails"][0].status, runs["fails"][0].experiment) == ("FAILED", "other")


# --- the log


def told(data: bytes) -> tuple[list[bytes], LogDamage]:
    damage = LogDamage()
    return list(records(io.BytesIO(data), damage)), damage


SIZES = [1, 100, BLOCK - 14, BLOCK - 7, BLOCK, 3 * BLOCK + 5, 0, 10]


def test_records_of_all_sizes_come_back() -> None:
    wanted = [bytes([number]) * size for number, size in enumerate(SIZES)]
    found, damage = told(log_of(wanted))
    assert found == wanted
    assert not damage


@pytest.mark.parametrize("at", [1, 6, 8, 15, 40, 1000, BLOCK - 3, BLOCK, BLOCK + 3, 2 * BLOCK])
def test_a_log_that_was_cut_off_gives_what_is_whole(at: int) -> None:
    wanted = [bytes([number]) * 300 for number in range(256)]
    data = log_of(wanted)
    if at < 7:
        with pytest.raises(Unreadable):
            told(data[:at])
        return
    found, damage = told(data[:at])
    assert found == wanted[: len(found)]
    assert damage.cut or at in {2 * BLOCK} or sum(307 for _ in found) + 7 == at


def test_a_wrong_checksum_costs_its_block_and_no_more() -> None:
    wanted = [bytes([number % 256]) * 1000 for number in range(200)]
    data = bytearray(log_of(wanted))
    data[BLOCK + 5000] ^= 1
    found, damage = told(bytes(data))
    assert damage.blocks == 1
    assert found[:32] == wanted[:32]
    assert found[-100:] == wanted[-100:]
    assert set(found) <= set(wanted)
    assert 150 < len(found) < 200


@pytest.mark.parametrize(
    "data", [b"", b":W&", b"SQLite format 3\x00", b":W&B\x00\x00\x00aaaa", b":W&B\xe1\xbe\x09aaaa"]
)
def test_what_is_no_log_says_so(data: bytes) -> None:
    with pytest.raises(Unreadable):
        told(data)


@pytest.mark.parametrize("data", [b"\xff" * 40, bytes(50_000), b"\x01" * 70_000, bytes(range(256)) * 300])
def test_noise_behind_the_header_ends_quietly(data: bytes) -> None:
    found, _ = told(log_of([b"good"]) + data)
    assert found[:1] == [b"good"]


def test_a_record_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detlab.importers.wandb.log.MOST_RECORD", 4 * BLOCK)
    found, damage = told(log_of([b"a" * (40 * BLOCK), b"after"]))
    assert found == [b"after"]
    assert damage.records == 1


# --- the messages


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",
        b"\xff" * 11,
        b"\x12\x7fabc",
        b"\x0b",
        b"\x0c",
        varint(2 << 3 | 2) + varint(2**62),
        b"\x11\x00",
        b"\x15\x00\x00",
    ],
)
def test_a_damaged_message_says_so(data: bytes) -> None:
    with pytest.raises(of.BadMessage):
        list(of.fields(data))


def test_fields_of_all_kinds_are_passed_over() -> None:
    data = part(1, 300) + b"\x11" + bytes(8) + b"\x1d" + bytes(4) + part(4, b"text")
    assert list(of.fields(data)) == [(1, 300), (2, bytes(8)), (3, bytes(4)), (4, b"text")]


def test_negative_steps_and_statuses_are_numbers() -> None:
    minus = (1 << 64) - 5
    assert of.exit_code(part(1, minus)) == (-5, 0)
    assert of.items(of.HISTORY, part(2, part(1, minus))).step == -5


# --- folders


def test_a_run_that_was_killed_is_copied_as_far_as_it_is(tmp_path: Path) -> None:
    data = log_of([start(lr=0.1), *(row(step, loss=1.0) for step in range(10))])
    wandb_run(tmp_path, data[:-5])
    _, runs, left_out = read(tmp_path)
    run, points, _ = runs["name"]
    assert (run.status, len(points)) == ("KILLED", 9)
    assert list(left_out) == ["runs whose log is damaged, or ends within a record: the rest is copied"]


def test_values_of_every_kind(tmp_path: Path) -> None:
    odd = {"a": "NaN", "b": "-Infinity", "c": 10**400, "d": None, "e": [1], "f": {"g": {"h": 2}}, "i": True, "j": "x"}
    picture = {"_type": "image-file", "width": 5}
    wandb_run(
        tmp_path, log_of([start(deep={"a": {"b": None}}, _wandb={"x": 1}), row(3, **odd, p=picture), exit_record(0)])
    )
    _, runs, left_out = read(tmp_path)
    run, points, _ = runs["name"]
    assert run.params == {"deep.a.b": "None"}
    assert (run.started_ms, run.ended_ms) == (1_000_005, 1_007_005)
    assert {one.key: repr(one.value) for one in points} == {
        "a": "nan",
        "b": "-inf",
        "c": "inf",
        "f.g.h": "2.0",
        "i": "1.0",
    }
    assert {(one.step, one.time_ms) for one in points} == {(3, 1_003_000)}
    assert left_out == {"media in rows (images, tables, histograms, …)": 1, "values of rows that are no numbers": 2}


def test_a_value_that_is_no_json_is_left_out(tmp_path: Path) -> None:
    broken = part(1, b"x") + part(16, b"[" * 100_000)
    config = part(5, part(1, part(1, b"c") + part(16, b"{")))
    wandb_run(tmp_path, log_of([start(), config, part(2, part(1, broken) + part(1, item("y", 1)))]))
    _, runs, left_out = read(tmp_path)
    assert [one.key for one in runs["name"][1]] == ["y"]
    assert left_out == {"values that are no JSON": 1}


def test_folders_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(DetlabError, match="no runs of W&B"):
        WandbFolder(tmp_path, LeftOut())
    wandb_run(tmp_path, b"nothing")
    wandb_run(tmp_path, log_of([row(1, loss=1)]), "run-20261130_000000-r2")
    (tmp_path / "latest-run").symlink_to(tmp_path / "run-20261130_000000-r2")
    _, runs, left_out = read(tmp_path)
    assert not runs
    assert left_out == {"runs whose log cannot be read": 1, "runs whose log does not say what they are": 1}


def test_files_outside_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "secret", "s")
    folder = wandb_run(tmp_path / "wandb", log_of([start(), exit_record()]))
    (folder / "files" / "out").symlink_to(tmp_path)
    (folder / "files" / "media").mkdir()
    write(folder / "files" / "media" / "a.png", "png")
    write(folder / "files" / "diff.patch", "d")
    source, runs, left_out = read(folder)
    assert [one.path for one in runs["name"][2]] == ["diff.patch"]
    (folder / "files" / "diff.patch").unlink()
    (folder / "files" / "diff.patch").symlink_to(tmp_path / "secret")
    with pytest.raises(Unreadable), source.open(runs["name"][2][0]):
        pass
    assert left_out["files of media"] == 1


@pytest.mark.slow
def test_many_values_are_read_in_bounded_memory(tmp_path: Path) -> None:
    wandb_run(tmp_path, log_of([start(), *(row(step, **{f"m{n}": n for n in range(20)}) for step in range(5000))]))
    source = WandbFolder(tmp_path, LeftOut())
    [experiment] = source.experiments()
    [run] = source.runs(experiment)
    tracemalloc.start()
    before = time.process_time()
    count = sum(1 for _ in source.points(run))
    spent, (_, peak) = time.process_time() - before, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 100_000
    assert peak < 2_000_000, peak
    assert spent < 60
