"""Artifacts from where people make and use them: scripts with a run, trials, the client, `det artifact`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_runs_from_anywhere import DET, PYTHON, Place

from detlab.cli.root import det as root
from detlab.client import Client
from detlab.client.artifacts.draft import Artifact
from detlab.client.transport.discovery import ClusterAddress
from detlab.core.artifacts import ArtifactContext
from detlab.errors import CheckpointError, ConfigError, DetlabError, NotFound, StorageError
from detlab.info import ClusterInfo
from detlab.track.in_trial import TrialRun

EXAMPLES = Path(__file__).parents[4] / "examples" / "artifacts"


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """One database: what of it differs between two is in the tests of the store."""
    return sqlite_url


@pytest.fixture
def place(door: Any, tmp_path: Path) -> Place:
    folder = tmp_path / "laptop"
    folder.mkdir()
    return Place(door, folder, variables={"DET_ARTIFACT_CACHE": str(tmp_path / "cache")})


@pytest.fixture
def alice(door: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("DET_ARTIFACT_CACHE", str(tmp_path / "own-cache"))
    with Client(address=ClusterAddress(door.base, "user:alice", "the test")) as client:
        yield client


def client_of(alice: Client, user: str) -> Client:
    return Client(address=replace(alice.address, token=f"user:{user}"))


async def off_loop(function: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """The master is in this process, too."""
    return await asyncio.to_thread(function, *given, **more)


MAKING = """
import detlab.track as wandb
from pathlib import Path

run = wandb.init(project="digits", id="making")
made = wandb.Artifact("digits", type="dataset", metadata={"rows": 3})
Path("data").mkdir()
Path("data/train.csv").write_text("a")
made.add_dir("data")
with made.new_file("notes.txt") as file:
    file.write("by hand")
run.log_artifact(made, aliases=["latest", "raw"])
Path("data/train.csv").write_text("changed later")
made.wait(30)
print("logged as", made.version)
run.finish()
"""


async def test_the_examples_make_a_data_set_and_a_fit_of_it_with_their_lineage(place: Place) -> None:
    for name in ("prepare.py", "train.py"):
        shutil.copyfile(EXAMPLES / name, place.folder / name)
    said = await place.run(PYTHON, "prepare.py", "100")
    assert "lines:v1 has 100 rows" in said
    assert "the master has all of it" in said
    said = await place.run(PYTHON, "train.py", "newest-rows")
    assert "line-fit:v1 of lines:v1: slope" in said
    (making,) = (await place.get("runs", project="artifacts", job_type="prepare"))["items"]
    (using,) = (await place.get("runs", project="artifacts", job_type="train"))["items"]
    view = await place.get("artifacts/lines/versions/newest-rows")
    assert (view["logged_by"], view["used_by"]) == ([making["id"]], [using["id"]])
    assert (view["aliases"], view["metadata"]) == (["newest-rows", "latest"], {"rows": 100})
    shown = " ".join((await det(place, "lineage", "line-fit")).split())
    user, maker = (f"{one['name']} (id {one['id'][:8]})" for one in (using, making))
    assert shown == f"line-fit:v1 (model) logged by {user} uses lines:v1 (dataset) logged by {maker}"
    assert using["name"] == f"run-{using['key'][:8]}"
    shown = await det(place, "lineage", "lines")
    assert f"used by {using['name']}" in shown
    assert "made line-fit:v1" in shown
    cached = [one for one in Path(place.variables["DET_ARTIFACT_CACHE"]).rglob("*") if one.is_file()]
    assert len(cached) == 2


@pytest.mark.soak
async def test_what_is_logged_offline_is_sent_by_a_later_sync(place: Place) -> None:
    script = MAKING.replace('id="making"', 'id="making", mode="offline"').replace("made.wait(30)", "")
    script = script.replace("made.version", "'nothing'")
    said = await place.script(script)
    assert "on disk only" in said
    assert "det sync" in said
    reply = await place.http().get("artifacts/digits")
    assert reply.status_code == 404
    await place.run(DET, "sync", "detlab-runs")
    view = await place.get("artifacts/digits/versions/latest")
    assert (view["files"], view["logged_by"]) == (2, [(await place.get("runs/making"))["id"]])
    await place.run(DET, "sync", "detlab-runs")
    assert [one["version"] for one in (await place.get("artifacts/digits/versions"))["items"]] == [1]


@pytest.mark.soak
async def test_a_script_goes_on_if_an_artifact_cannot_be_logged(place: Place) -> None:
    text = """
import os
run = det.init(id="hostile")
os.makedirs("data")
os.symlink("/etc/passwd", "data/link")
run.log_artifact("data", name="data")
run.log_artifact("nothing-here", name="data")
det.log({"loss": 1})
print("trained")
"""
    said = await place.script(text)
    assert "symbolic link" in said
    assert "nothing-here cannot be added" in said
    assert "trained" in said
    assert (await place.get("runs/hostile"))["metrics"]["loss"]["value"] == 1
    assert (await place.get("artifacts"))["items"] == []


@pytest.mark.soak
async def test_what_the_master_refuses_is_told_once_and_does_not_hold_up_the_run(place: Place) -> None:
    said = await place.script("""
run = det.init(id="refused")
made = det.Artifact("bob/cats")
made.add_file("train.py")
run.log_artifact(made)
try:
    made.wait(30)
except Exception as error:
    print("refused:", error)
""")
    assert "refused: the artifact is not logged: there is no artifact 'bob/cats'" in said
    assert (await place.get("runs/refused"))["status"] == "FINISHED"


async def det(place: Place, *words: str, code: int = 0) -> str:
    """Run a command in this process, as `det artifact WORDS`."""
    runner = CliRunner()
    with chdir(place.folder):
        done = await off_loop(runner.invoke, root, ["artifact", *words], env=place.environment())
    assert done.exit_code == code, done.output
    return str(done.output)


async def test_det_artifact_from_the_first_version_to_the_last(place: Place) -> None:
    folder = place.folder / "cats"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("one")
    (folder / "deep" / "b.txt").write_text("two")
    said = await det(place, "log", "cats", "cats", "--alias", "raw", "--metadata", "rows=2")
    assert "cats:v1: 2 files, 6 B" in said
    said = await det(place, "log", "cats", "cats", "--json")
    assert json.loads(said)["version"] == 1
    (folder / "a.txt").write_text("three")
    await det(place, "log", "cats", "cats")
    listed = json.loads(await det(place, "list", "--type", "dataset", "--json"))
    assert [(one["reference"], one["versions"], one["size"]) for one in listed] == [("cats", 2, 11)]
    shown = await det(place, "describe", "cats")
    assert "v2" in shown
    assert "raw" in shown
    files = json.loads(await det(place, "describe", "cats:raw", "--files", "--json"))
    assert [one["path"] for one in files["entries"]] == ["a.txt", "deep/b.txt"]
    await det(place, "download", "cats:raw", "-o", "here")
    assert (place.folder / "here" / "a.txt").read_text() == "one"
    await det(place, "download", "cats", "-o", "here")
    assert (place.folder / "here" / "a.txt").read_text() == "three", "an unchanged download is replaced"
    await det(place, "edit", "cats:v2", "--alias", "raw", "--comment", "larger")
    assert (await place.get("artifacts/cats/versions/raw"))["version"] == 2
    refused = await det(place, "delete", "cats:v2", "--yes", code=1)
    assert "aliases point at it: raw" in refused
    await det(place, "delete", "cats:v1", "--yes")
    await det(place, "delete", "cats", "--yes", "--force")
    assert json.loads(await det(place, "list", "--json")) == []


async def test_a_folder_with_links_devices_or_dots_is_no_artifact(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    made = Artifact("x")
    with pytest.raises(CheckpointError, match="not a regular file"):
        made.add_dir(folder)
    (folder / "pipe").unlink()
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(CheckpointError, match="symbolic link"):
        made.add_dir(folder)
    with pytest.raises(ConfigError, match="symbolic link"):
        made.add_file(folder / "link")
    with pytest.raises(ConfigError, match="no regular file"):
        made.add_file("/dev/null")
    real = tmp_path / "real"
    real.write_text("x")
    for name in ("../up", "/etc/passwd", "a/../b", "", "a\\b", "./a"):
        with pytest.raises(ConfigError, match="cannot be a path"):
            made.add_file(real, name)
    with pytest.raises(ConfigError, match="cannot be a reference"):
        made.add_reference("file:///etc/passwd")


async def test_downloads_are_verified_cached_by_artifact_and_never_partial(
    door: Any, alice: Client, tmp_path: Path
) -> None:
    source = tmp_path / "data.bin"
    source.write_bytes(b"data" * 1000)
    made = Artifact("data")
    made.add_file(source)
    version = await off_loop(alice.log_artifact, made)
    first = await off_loop(version.download, tmp_path / "first")
    assert (first / "data.bin").read_bytes() == source.read_bytes()
    stored = [one for one in (door.world.settings.artifacts_dir / "named").rglob("*") if one.is_file()]
    stored[0].write_bytes(b"evil" * 1000)
    again = await off_loop(version.download, tmp_path / "second")
    assert (again / "data.bin").read_bytes() == source.read_bytes(), "it is copied from the cache"
    (cached,) = [one for one in (tmp_path / "own-cache").rglob("*") if one.is_file()]
    assert cached.stat().st_mode & 0o777 == 0o400
    cached.chmod(0o600)
    cached.write_bytes(b"damaged")
    with pytest.raises(DetlabError):
        await off_loop(version.download, tmp_path / "third")
    assert not (tmp_path / "third").exists()
    assert not cached.exists(), "what was damaged in the cache is not used again"
    with client_of(alice, "bob") as bob, pytest.raises(NotFound, match="there is no artifact"):
        await off_loop(bob.get_artifact, "alice/data")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match="neither data:v1 nor an unchanged download"):
        await off_loop(version.download, tmp_path / "taken")


async def test_a_reference_is_followed_on_demand_and_compared_with_its_digest(
    alice: Client, tmp_path: Path, objects_folder: tuple[str, Path]
) -> None:
    address, behind = objects_folder
    (behind / "far.bin").write_bytes(b"far away")
    made = Artifact("far", metadata={"from": "a bucket"})
    made.add_reference(f"{address}/far.bin")
    made.add_reference("data:imagenet", "imagenet", digest="0" * 64)
    version = await off_loop(alice.log_artifact, made)
    assert (version.view.references, version.size) == (2, 0)
    entries = {one.path: one for one in await off_loop(version.files)}
    assert entries["far.bin"].uri == f"{address}/far.bin"
    assert entries["far.bin"].size == len(b"far away")
    with pytest.raises(CheckpointError, match="nothing of far:v1 to download"):
        await off_loop(version.download, tmp_path / "none")
    got = await off_loop(version.download, tmp_path / "got", references=True, globs=["far.bin"])
    assert (got / "far.bin").read_bytes() == b"far away"
    (behind / "far.bin").write_bytes(b"other now")
    for one in (tmp_path / "own-cache").rglob("*"):
        if one.is_file():
            one.unlink()
    with pytest.raises(CheckpointError) as caught:
        await off_loop(version.download, tmp_path / "new", references=True, globs=["far.bin"])
    assert hashlib.sha256(b"other now").hexdigest() in str(caught.value)
    assert hashlib.sha256(b"far away").hexdigest() in str(caught.value)
    with pytest.raises(StorageError, match="names a data set"):
        await off_loop(version.download, tmp_path / "set", references=True, globs=["imagenet"])


@pytest.fixture
def objects_folder(tmp_path: Path) -> Any:
    """A web server, as an address with https would be one."""
    import functools
    import http.server
    import threading

    folder = tmp_path / "web"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_trial_uses_and_logs_by_the_core_api_and_by_its_run(door: Any, alice: Client, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    raw = Artifact("raw")
    raw.add_file(tmp_path / "x.txt")
    await off_loop(alice.log_artifact, raw)
    trial = await door.trial()
    task = tmp_path / "task"
    task.mkdir()
    (task / "token").write_text(trial.token)
    info = ClusterInfo(door.base, "c", "a", [0], "t", "al", "TRIAL", None, {}, [""], 0, [1], [], task)
    context = ArtifactContext(info)
    used = await off_loop(context.use, "raw:latest")
    folder = await off_loop(used.download, tmp_path / "in-task")
    assert (folder / "x.txt").read_text() == "x"
    made = await off_loop(context.log, tmp_path / "x.txt", "made", "thing", aliases=["best"])
    assert (made.version, made.logged.aliases) == ("v1", ["best", "latest"])
    run = TrialRun(None, f"{trial.id:032x}", strict=True, records=None)
    run.artifacts = context
    assert (await off_loop(run.use_artifact, "made")).version == 1
    view = (await off_loop(alice.get_artifact, "made:best")).view
    assert view.logged_by == view.used_by == [f"{trial.id:032x}"]
    listed = await off_loop(alice.get_run_artifacts, f"{trial.id:032x}")
    assert [(one.role, one.version.artifact) for one in listed] == [
        ("used", "raw"),
        ("logged", "made"),
        ("used", "made"),
    ]
    (collection,) = await off_loop(alice.list_artifacts, type="thing")
    assert [one.version for one in await off_loop(collection.versions)] == [1]
    context.close()
    version = await off_loop(collection.get_version, "best")
    assert len((await off_loop(version.lineage)).nodes) == 4
