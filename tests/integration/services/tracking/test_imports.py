"""Imports into a real master: of folders that the real packages have written, and of real servers of MLflow."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from detlab.client.client import Client
from detlab.client.transport.discovery import ClusterAddress
from detlab.errors import DetlabError
from detlab.importers.copying import CopyOptions
from detlab.importers.importing import mlflow_source, run_import, wandb_source
from detlab.importers.left_out import LeftOut
from detlab.importers.report import ImportReport
from testbed.foreign_runs import (
    PYTHONS,
    exit_record,
    log_of,
    make_mlruns,
    mlflow_server,
    mlrun,
    row,
    start,
    unpacked,
    wandb_run,
    write,
)

FILES = "mlflow/api/2.0/mlflow-artifacts/artifacts"


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """One database: an import is a client of the protocol, which is tested on both."""
    return sqlite_url


async def imported(
    door: Any, where: Path | str, user: str = "alice", *, kind: str = "mlflow", **more: Any
) -> ImportReport:
    """Import as a user, in a thread, as the command does."""
    into = {name: more.pop(name) for name in ("workspace", "project") if name in more}

    def work() -> ImportReport:
        left_out, options = LeftOut(), CopyOptions(**more)
        with Client(address=ClusterAddress(door.base, f"user:{user}", "the test")) as client:
            if kind == "wandb":
                source = wandb_source(str(where), left_out)
            else:
                source = mlflow_source(str(where), left_out, file_bytes=options.file_bytes, others_token="")
            try:
                return run_import(client, source, left_out, options, **into)
            finally:
                source.close()

    return await asyncio.to_thread(work)


async def runs_of(ask: Any, name: str) -> dict[str, Any]:
    """Return the runs of an experiment by their names."""
    status, reply = await ask("GET", "experiments/get-by-name", experiment_name=name)
    assert status == 200, reply
    number = reply["experiment"]["experiment_id"]
    _, reply = await ask("POST", "runs/search", experiment_ids=[number])
    found = {one["info"]["run_name"]: one for one in reply.get("runs", [])}
    assert len(found) == len(reply.get("runs", []))
    return found


def tags(run: Any) -> dict[str, str]:
    return {one["key"]: one["value"] for one in run["data"]["tags"]}


async def history(ask: Any, run: Any, key: str) -> list[tuple[int, Any]]:
    _, reply = await ask("GET", "metrics/get-history", run_id=run["info"]["run_id"], metric_key=key)
    return [(one["step"], one["value"]) for one in reply.get("metrics", [])]


async def check_what_was_made(door: Any, report: ImportReport) -> None:
    """Look for all that `make_mlruns.py` has logged."""
    ask = door.of("alice")
    made = await runs_of(ask, "digits")
    parent, child = made["parent"], made["child"]
    assert {one["key"]: one["value"] for one in parent["data"]["params"]} == {
        "lr": "0.1",
        "opt": "adam",
        "net/depth": "3",
    }
    assert (parent["info"]["status"], parent["info"]["end_time"] >= parent["info"]["start_time"]) == ("FINISHED", True)
    assert await history(ask, parent, "loss") == [(step, 1 / (step + 1)) for step in range(5)]
    assert await history(ask, parent, "odd") == [(1, "NaN")]
    assert await history(ask, parent, "big") == [(1, "Infinity")]
    assert tags(parent)["team"] == "vision"
    assert tags(child)["mlflow.parentRunId"] == parent["info"]["run_id"]
    [dataset] = parent["inputs"]["dataset_inputs"]
    assert dataset["dataset"]["name"] == "zeros"
    base = parent["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/")
    reply = await ask.http.get(f"{FILES}/{base}/notes/hello é+.txt")
    assert reply.content == b"hello"
    status, reply = await ask("GET", "registered-models/alias", name="doubler", alias="champion")
    assert (status, reply["model_version"]["version"], reply["model_version"]["description"]) == (200, "1", "the first")
    assert reply["model_version"]["run_id"] == parent["info"]["run_id"]
    named = {one["key"]: one["value"] for one in reply["model_version"]["tags"]}
    assert (named["by"], named["mlflow.version"]) == ("ada", "1")
    failed = (await runs_of(ask, "other"))["fails"]
    assert failed["info"]["status"] == "FAILED"
    assert report.counts["pickles"] == 1
    said = {why: one.count for why, one in report.left_out.items()}
    assert said.pop("deleted experiments") == 1
    assert said.pop("deleted runs") == 1
    assert not said, said


@pytest.mark.parametrize("version", ["3", "2"])
async def test_a_folder_is_copied_once_however_often(door: Any, tmp_path: Path, version: str) -> None:
    unpacked(f"mlruns-mlflow{version}.zip", tmp_path / "mlruns")
    dry = await imported(door, tmp_path / "mlruns", dry=True)
    assert (dry.runs("copied"), dry.counts["versions"], dry.counts["files"] > 1) == (3, 1, True)
    assert (await door.of("alice")("POST", "experiments/search"))[1] == {}
    report = await imported(door, tmp_path / "mlruns")
    assert (report.runs("copied"), report.runs()) == (3, 3), report.to_dict()
    await check_what_was_made(door, report)
    made = await runs_of(door.of("alice"), "digits")
    assert ("detlab.import.pickles" in tags(made["parent"])) == (version == "2")
    again = await imported(door, tmp_path)
    assert (again.runs("present"), again.runs()) == (3, 3), again.to_dict()
    assert {name: count for name, count in again.counts.items() if count} == {}
    assert await runs_of(door.of("alice"), "digits") == made
    _, reply = await door.of("alice")("GET", "model-versions/search", filter="name = 'doubler'")
    assert len(reply["model_versions"]) == 1
    if version == "3":
        _, reply = await door.of("alice")(
            "POST", "logged-models/search", experiment_ids=[made["parent"]["info"]["experiment_id"]]
        )
        [model] = reply["models"]
        assert model["info"]["status"] == "LOGGED_MODEL_READY"
        assert {one["key"] for one in model["info"]["tags"]} >= {"detlab.import.source", "detlab.import.pickles"}
        assert made["parent"]["outputs"]["model_outputs"] == [{"model_id": model["info"]["model_id"], "step": 0}]
        assert {one["key"] for one in model["data"]["metrics"]} >= {"loss"}


@pytest.mark.parametrize("version", ["3", pytest.param("2", marks=pytest.mark.soak)])
async def test_a_real_server_is_copied_once_however_often(door: Any, tmp_path: Path, version: str) -> None:
    if not PYTHONS[version].exists():
        assert "CI" not in os.environ, "make setup-test makes .venv-mlflow and .venv-mlflow2"
        pytest.skip("no environment with this version of MLflow: make setup-test")
    with mlflow_server(version, tmp_path / "server") as url:
        await asyncio.to_thread(make_mlruns, version, url, tmp_path)
        report = await imported(door, url)
        assert (report.runs("copied"), report.runs()) == (3, 3), report.to_dict()
        await check_what_was_made(door, report)
        again = await imported(door, url)
        assert (again.runs("present"), again.runs()) == (3, 3), again.to_dict()
        assert {name: count for name, count in again.counts.items() if count} == {}
        only = await imported(door, url, only=["other"], project="all of it")
        assert (only.runs("present"), len(only.experiments)) == (1, 1)
        with pytest.raises(DetlabError, match="has no experiment 'absent'"):
            await imported(door, url, only=["absent"])


async def test_runs_of_wandb_are_copied_once_however_often(door: Any, tmp_path: Path) -> None:
    unpacked("wandb-0.31.zip", tmp_path / "wandb")
    report = await imported(door, tmp_path, kind="wandb", project="all")
    assert (report.runs("copied"), report.runs()) == (3, 3), report.to_dict()
    ask = door.of("alice")
    made = await runs_of(ask, "all")
    assert set(made) == {"first", "large", "fails"}
    first = made["first"]
    assert {one["key"]: one["value"] for one in first["data"]["params"]}["net.depth"] == "3"
    assert await history(ask, first, "loss") == [(step, 1 / (step + 1)) for step in range(30)]
    assert len(made["large"]["data"]["metrics"]) >= 1500
    assert (made["fails"]["info"]["status"], tags(first)["mlflow.note.content"]) == ("FAILED", "a **note**")
    base = first["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/")
    assert (await ask.http.get(f"{FILES}/{base}/own.txt")).content == b"own"
    again = await imported(door, tmp_path / "wandb", kind="wandb")
    assert (again.runs("present"), again.runs()) == (3, 3), again.to_dict()


async def test_a_run_that_went_on_gets_what_is_new(door: Any, tmp_path: Path) -> None:
    run = mlrun(tmp_path, loss="1 0.5 0\n")
    await imported(door, tmp_path)
    with (run / "metrics" / "loss").open("a") as file:
        file.write("2 0.25 1\n")
    write(run / "artifacts" / "new.txt", "new")
    write(run / "tags" / "late", "yes")
    report = await imported(door, tmp_path)
    assert (report.runs("went_on"), report.runs()) == (1, 1)
    ask = door.of("alice")
    [made] = (await runs_of(ask, "hand")).values()
    assert await history(ask, made, "loss") == [(0, 0.5), (1, 0.25)]
    assert tags(made)["late"] == "yes"
    _, reply = await ask("GET", "artifacts/list", run_id=made["info"]["run_id"])
    assert [one["path"] for one in reply["files"]] == ["new.txt"]
    assert (await imported(door, tmp_path)).runs("present") == 1
    data = [start(lr=0.1), *(row(step, loss=1.0) for step in range(5))]
    wandb_run(tmp_path / "wandb", log_of(data))
    await imported(door, tmp_path / "wandb", kind="wandb")
    wandb_run(tmp_path / "wandb", log_of([*data, row(5, loss=0.5), exit_record()]))
    assert (await imported(door, tmp_path / "wandb", kind="wandb")).runs("went_on") == 1
    made = (await runs_of(ask, "digits"))["name"]
    assert (made["info"]["status"], len(await history(ask, made, "loss"))) == ("FINISHED", 6)


async def test_a_run_that_was_deleted_here_stays_deleted_and_one_that_was_moved_is_known(
    door: Any, tmp_path: Path
) -> None:
    mlrun(tmp_path, "a" * 32, loss="1 0.5 0\n")
    mlrun(tmp_path, "b" * 32, loss="1 0.5 0\n")
    await imported(door, tmp_path, project="first")
    ask = door.of("alice")
    one, other = (await runs_of(ask, "first")).values()
    assert (await ask("POST", "runs/delete", run_id=one["info"]["run_id"]))[0] == 200
    report = await imported(door, tmp_path, project="second")
    assert report.runs("present") == 2
    assert [(why, found.count) for why, found in report.left_out.items()] == [
        ("runs that were deleted here since they were copied", 1)
    ]
    assert list((await runs_of(ask, "first")).values()) == [other]


# --- rights


async def test_another_users_workspace_is_refused_before_anything_is_copied(door: Any, tmp_path: Path) -> None:
    await door.world.workspace("lab", "digits", bob="editor", vic="viewer")
    mlrun(tmp_path, loss="1 0.5 0\n")
    for user in ("mallory", "vic"):
        for options in ({}, {"project": "digits"}, {"dry": True}):
            with pytest.raises(DetlabError) as error:
                await imported(door, tmp_path, user, workspace="alice/lab", **options)
            said = str(error.value)
            assert ("there is no workspace" in said) if user == "mallory" else ("put nothing into it" in said)
    with pytest.raises(DetlabError):
        await imported(door, tmp_path, "alice!read")
    assert await runs_of(door.of("alice"), "lab/digits") == {}
    report = await imported(door, tmp_path, "bob", workspace="alice/lab")
    assert (report.workspace, report.experiments[0].project, report.runs("copied")) == ("alice/lab", "hand", 1)
    assert len(await runs_of(door.of("alice"), "lab/hand")) == 1
    # what a member has copied is there for the others, too
    assert (await imported(door, tmp_path, "alice", workspace="lab")).runs("present") == 1
    # and nobody's import knows of what is in another one's workspace
    assert (await imported(door, tmp_path, "mallory")).runs("copied") == 1
    assert (await door.of("mallory")("GET", "experiments/get-by-name", experiment_name="hand"))[0] == 200


async def test_hostile_folders_leave_their_mark_and_nothing_else(door: Any, tmp_path: Path) -> None:
    write(tmp_path / "secret", "top secret")
    root = tmp_path / "mlruns"
    run = mlrun(root, loss="1 nan 0\n2 inf 1\n3 -inf 2\nx\n", **{"a" * 200: "1 1 1\n"})
    write(run / "params" / ("p" * 200), "x" * 9000)
    write(run / "tags" / "a\nb", "1")
    write(run / "artifacts" / "b\\c.txt", "1")
    write(run / "artifacts" / "empty", "")
    (run / "artifacts" / "secret").symlink_to(tmp_path / "secret")
    (run / "artifacts" / "folder").symlink_to(tmp_path)
    report = await imported(door, root)
    assert report.runs("copied") == 1, report.to_dict()
    ask = door.of("alice")
    [made] = (await runs_of(ask, "hand")).values()
    assert await history(ask, made, "loss") == [(0, "NaN"), (1, "Infinity"), (2, "-Infinity")]
    _, reply = await ask("GET", "artifacts/list", run_id=made["info"]["run_id"])
    assert [one["path"] for one in reply["files"]] == ["empty"]
    assert {why: one.count for why, one in report.left_out.items()} == {
        "damaged lines of metrics": 1,
        "ends of parameters of over 8,000 characters": 1,
        "files whose path cannot be printed, or has a backslash": 1,
        "links, and what is no regular file": 2,
    }
    assert "top secret" not in str(reply)


# --- the command


async def det(door: Any, *arguments: str, user: str = "alice") -> asyncio.subprocess.Process:
    """Start `det` against the master."""
    environment = {**os.environ, "DET_URL": door.base, "DET_TOKEN": f"user:{user}", "HOME": str(door.folder)}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from detlab.cli import main; main()", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=door.folder,
    )


async def test_an_import_that_was_killed_goes_on_and_makes_no_double(door: Any, tmp_path: Path) -> None:
    count, points = 24, 1100
    lines = "".join(f"{step} {step}.5 {step}\n" for step in range(points))
    for number in range(count):
        run = mlrun(tmp_path, f"{number:032x}", loss=lines)
        write(run / "artifacts" / "a" / "file.txt", str(number))
        write(run / "tags" / "mlflow.runName", f"run {number}")
    ask = door.of("alice")
    for how in (signal.SIGINT, signal.SIGKILL):
        process = await det(door, "import", "mlflow", str(tmp_path), "--json")
        before = len(await _begun(ask))
        while len(await _begun(ask)) < before + 6 and process.returncode is None:
            await asyncio.sleep(0.02)
        if process.returncode is None:
            process.send_signal(how)
        out, err = await process.communicate()
        assert process.returncode in {130, -signal.SIGKILL, 0}, err.decode()
        assert how is signal.SIGKILL or "Traceback" not in err.decode(), err.decode()
    begun = await _begun(ask)
    assert len(begun) >= 6
    process = await det(door, "import", "mlflow", str(tmp_path), "--json")
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    said = json.loads(out)
    assert sum(said["runs"].values()) == count
    assert said["runs"]["failed"] == 0
    assert said["runs"]["copied"] < count
    made = await _begun(ask)
    sources = [tags(one)["detlab.import.source"] for one in made]
    assert sorted(sources) == sorted(f"mlflow:{number:032x}" for number in range(count))
    for one in made:
        assert "detlab.import.digest" in tags(one)
        assert one["info"]["status"] == "FINISHED"
        _, reply = await ask("GET", "metrics/get-history", run_id=one["info"]["run_id"], metric_key="loss")
        assert [point["step"] for point in reply["metrics"]] == list(range(points))
        _, reply = await ask("GET", "artifacts/list", run_id=one["info"]["run_id"], path="a")
        assert [file["path"] for file in reply["files"]] == ["a/file.txt"]


async def _begun(ask: Any) -> list[Any]:
    status, reply = await ask("GET", "experiments/get-by-name", experiment_name="hand")
    if status != 200:
        return []
    _, reply = await ask("POST", "runs/search", experiment_ids=[reply["experiment"]["experiment_id"]])
    return list(reply.get("runs", []))


async def test_the_command_says_what_it_has_done(door: Any, tmp_path: Path) -> None:
    unpacked("mlruns-mlflow3.zip", tmp_path / "mlruns")
    process = await det(door, "import", "mlflow", str(tmp_path / "mlruns"), "--dry-run")
    out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert "Would copy 3 runs into your personal workspace" in out.decode()
    process = await det(door, "import", "mlflow", str(tmp_path / "mlruns"))
    out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    said = out.decode()
    assert "There already" in said
    assert "Copied 3 runs into your personal workspace: " in said
    assert "1 registered models with 1 new versions" in said
    assert "1 files are pickles" in said
    assert "1 deleted runs (gone)" in said
    for arguments, status, word in (
        (("import", "mlflow", "sqlite:///x.db"), 1, "mlflow server --backend-store-uri sqlite:///x.db"),
        (("import", "wandb", str(tmp_path)), 1, "has no runs of W&B"),
        (("import", "mlflow", "--help"), 0, "det import mlflow mlruns/"),
        (("import", "mlflow", str(tmp_path), "-w", "bob/lab"), 1, "there is no workspace"),
    ):
        process = await det(door, *arguments)
        out, err = await process.communicate()
        assert process.returncode == status, err.decode()
        assert word in (out + err).decode()
