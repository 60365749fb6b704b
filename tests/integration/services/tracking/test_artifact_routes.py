"""Artifacts over HTTP: versions of uploaded files, rights of owners, members and trials, quotas, lineage, deletion."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from services_scripted import ALICE
from sqlalchemy import func, insert, select

from detlab.schemas.wire.registry import CreateModel, CreateVersion
from detlab_hub.services.checkpoints.named_files import UNFINISHED_SECONDS, path_of, remove_unfinished
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions
from detlab_hub.store.queries.storage import usage
from detlab_hub.store.tables import (
    ArtifactFileRow,
    ArtifactLinkRow,
    ArtifactRow,
    ArtifactVersionRow,
    CheckpointRow,
    DeletedArtifactLinkRow,
    ExperimentRow,
    StorageQuotaRow,
)

CATS = {"a.txt": b"one", "deep/b.txt": b"two"}


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """One database; the migration is tested on both."""
    return sqlite_url


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def entries(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [{"path": path, "size": len(data), "digest": digest_of(data)} for path, data in files.items()]


class Artist:
    """Asks as somebody, a user or a trial."""

    def __init__(self, door: Any, token: str) -> None:
        self.http = door.of(token).http

    async def ask(self, verb: str, path: str, /, status: int = 200, **said: Any) -> Any:
        key = "params" if verb in {"GET", "DELETE"} else "json"
        reply = await self.http.request(verb, f"api/v1/{path}", **{key: said})
        assert reply.status_code == status, (reply.status_code, reply.text)
        return reply.json()

    async def upload(self, name: str, data: bytes, status: int = 204, digest: str = "") -> Any:
        path = f"api/v1/artifacts/{quote(name, safe='')}/files/{digest or digest_of(data)}"
        reply = await self.http.put(path, content=data, headers={"Content-Type": "application/octet-stream"})
        assert reply.status_code == status, (reply.status_code, reply.text)
        return reply.json() if reply.content else None

    async def log(self, name: str = "cats", files: Mapping[str, bytes] = CATS, **more: Any) -> Any:
        """Log a version, as a client does it: ask, upload what is missing, ask again."""
        path = f"artifacts/{quote(name, safe='')}/versions"
        said = {"files": entries(files), **more}
        reply = await self.ask("POST", path, **said)
        by_digest = {digest_of(data): data for data in files.values()}
        for digest in reply["missing"]:
            await self.upload(name, by_digest[digest])
        return (await self.ask("POST", path, **said))["version"] if reply["missing"] else reply["version"]

    async def refused(self, verb: str, path: str, /, **said: Any) -> tuple[int, str]:
        key = "params" if verb in {"GET", "DELETE"} else "json"
        reply = await self.http.request(verb, f"api/v1/{path}", **{key: said})
        assert reply.status_code >= 400, reply.text
        return reply.status_code, reply.json()["message"]


@pytest.fixture
def alice(door: Any) -> Artist:
    return Artist(door, "alice")


@pytest.fixture
def bob(door: Any) -> Artist:
    return Artist(door, "bob")


async def ended(door: Any, trial: Any) -> None:
    """End an experiment, and wait until its trial's attempt is over."""
    trial.task._exit(0)
    await door.world.finish(trial.experiment)


def stored(door: Any) -> list[Any]:
    return [one for one in (door.world.settings.artifacts_dir / "named").rglob("*") if one.is_file()]


async def test_a_version_is_made_of_what_is_uploaded_and_the_same_content_is_the_same_version(
    door: Any, alice: Artist
) -> None:
    first = await alice.log(aliases=["raw"], metadata={"rows": 2}, comment="by hand", description="small cats")
    assert (first["version"], first["kind"], first["files"], first["size"]) == (1, "dataset", 2, 6)
    assert first["aliases"] == ["raw", "latest"]
    again = await alice.log()
    assert again["version"] == 1
    changed = {**CATS, "a.txt": b"three"}
    second = await alice.log(files=changed, aliases=["raw"])
    assert (second["version"], second["aliases"]) == (2, ["raw", "latest"])
    assert len(stored(door)) == 3, "what both versions have is stored once"
    assert (await alice.ask("GET", "artifacts/cats/versions/v1"))["aliases"] == []
    listed = await alice.ask("GET", "artifacts/cats/versions", limit=1)
    assert [one["version"] for one in listed["items"]] == [2]
    assert [one["version"] for one in (await alice.ask("GET", "artifacts/cats/versions", after=2))["items"]] == [1]
    files = await alice.ask("GET", "artifacts/cats/versions/raw/files", limit=1)
    assert [one["path"] for one in files["items"]] == ["a.txt"]
    rest = await alice.ask("GET", "artifacts/cats/versions/raw/files", after=files["next"])
    assert [one["path"] for one in rest["items"]] == ["deep/b.txt"]
    sent = await alice.http.get("api/v1/artifacts/cats/versions/latest/file", params={"path": "a.txt"})
    assert sent.content == b"three"
    assert sent.headers["content-disposition"] == 'attachment; filename="a.txt"'
    assert sent.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert sent.headers["x-content-type-options"] == "nosniff"
    (item,) = (await alice.ask("GET", "artifacts"))["items"]
    assert (item["name"], item["versions"], item["latest"], item["size"]) == ("cats", 2, 2, 11)
    assert item["description"] == "small cats"
    status, said = await alice.refused("POST", "artifacts/cats/versions", files=entries(CATS), kind="model")
    assert (status, "is of the kind 'dataset'" in said) == (400, True)


BAD = {
    "above": [{"path": "../a", "size": 1, "digest": digest_of(b"a")}],
    "absolute": [{"path": "/etc/passwd", "size": 1, "digest": digest_of(b"a")}],
    "within": [{"path": "a/../../b", "size": 1, "digest": digest_of(b"a")}],
    "twice": [{"path": "a", "size": 1, "digest": digest_of(b"a")}] * 2,
    "file and folder": entries({"a": b"1", "a/b": b"2"}),
    "backslash": entries({"a\\..\\b": b"1"}),
    "unseen": entries({"a\u202eb": b"1"}),
    "line": entries({"a\nb": b"1"}),
    "deep": entries({"/".join("a" * 40): b"1"}),
    "file reference": [{"path": "a", "digest": digest_of(b"a"), "uri": "file:///etc/passwd"}],
    "script": [{"path": "a", "digest": digest_of(b"a"), "uri": "javascript:alert(1)"}],
    "no scheme": [{"path": "a", "digest": digest_of(b"a"), "uri": "/etc/passwd"}],
    "password": [{"path": "a", "digest": digest_of(b"a"), "uri": "https://ada:secret@example.org/a"}],
    "space": [{"path": "a", "digest": digest_of(b"a"), "uri": "s3://bucket/a b"}],
    "digest": [{"path": "a", "size": 1, "digest": "md5:0"}],
    "none": [],
}


async def test_paths_that_lead_out_and_references_that_are_none_are_refused(door: Any, alice: Artist) -> None:
    for what, files in BAD.items():
        status, said = await alice.refused("POST", "artifacts/cats/versions", files=files)
        assert status in {400, 422}, (what, said)
        assert "secret" not in said
    for name in ("42", "a:b", "a@b", "bob/cats", "a/b/c"):
        status, said = await alice.refused("POST", f"artifacts/{quote(name, safe='')}/versions", files=entries(CATS))
        assert status in {400, 404, 422}, (name, said)
    assert (await alice.ask("GET", "artifacts"))["items"] == []
    assert not stored(door)


async def test_uploads_count_by_what_they_are_and_nothing_is_a_version_before_all_is_there(
    door: Any, alice: Artist
) -> None:
    reply = await alice.ask("POST", "artifacts/cats/versions", files=entries(CATS))
    assert sorted(reply["missing"]) == sorted(map(digest_of, CATS.values()))
    assert reply["version"] is None
    said = await alice.upload("cats", b"other", 400, digest=digest_of(b"one"))
    assert "has the digest" in said["message"]
    await alice.upload("cats", b"one")
    reply = await alice.ask("POST", "artifacts/cats/versions", files=entries(CATS))
    assert reply["missing"] == [digest_of(b"two")]
    assert (await alice.ask("GET", "artifacts/cats/versions"))["items"] == []
    lies = [{**entries({"a": b"one"})[0], "size": 99}]
    assert (await alice.refused("POST", "artifacts/cats/versions", files=lies))[0] == 400
    assert len(stored(door)) == 1
    assert await remove_unfinished(door.world.services.context) == 0, "somebody may still be at it"
    door.world.now += UNFINISHED_SECONDS + 1
    assert await remove_unfinished(door.world.services.context) == 1
    assert not stored(door)


async def test_the_tenant_next_door_cannot_tell_whether_there_is_one(door: Any, alice: Artist, bob: Artist) -> None:
    await alice.log(aliases=["raw"])
    view = await alice.ask("GET", "artifacts/cats")
    for name in ("alice/cats", str(view["id"])):
        named = quote(name, safe="")
        absent = {name: "alice/dogs", str(view["id"]): "999"}[name]
        for verb, path, said in (
            ("GET", "", {}),
            ("DELETE", "", {}),
            ("POST", "/edit", {"description": "mine"}),
            ("GET", "/versions", {}),
            ("POST", "/versions", {"files": entries(CATS)}),
            ("GET", "/versions/1", {}),
            ("GET", "/versions/raw", {}),
            ("GET", "/versions/1/files", {}),
            ("GET", "/versions/1/file", {"path": "a.txt"}),
            ("GET", "/versions/1/lineage", {}),
            ("POST", "/versions/1/use", {}),
            ("POST", "/versions/1/edit", {"comment": "mine"}),
            ("DELETE", "/versions/1", {}),
        ):
            hidden = await bob.refused(verb, f"artifacts/{named}{path}", **said)
            nothing = await bob.refused(verb, f"artifacts/{quote(absent, safe='')}{path}", **said)
            assert hidden[0] == nothing[0] == 404, (verb, path, hidden)
            assert hidden[1].replace(name, absent) == nothing[1]
        await bob.upload(name, b"one", 404)
    assert (await bob.ask("GET", "artifacts"))["items"] == []
    # The same bytes are asked for again: nobody learns from a digest what others have.
    reply = await bob.ask("POST", "artifacts/cats/versions", files=entries(CATS))
    assert len(reply["missing"]) == len(CATS)
    mine = await bob.log()
    assert (mine["version"], mine["artifact_reference"]) == (1, "cats")
    assert len(stored(door)) == 2 * len(CATS)


async def test_members_of_its_workspace_read_it_by_its_owners_name_and_editors_log_versions(
    door: Any, alice: Artist, bob: Artist
) -> None:
    await door.world.workspace("vision", "digits", bob="viewer", carol="editor")
    carol = Artist(door, "carol")
    await alice.log(workspace="vision")
    view = await bob.ask("GET", "artifacts/alice%2Fcats")
    assert (view["reference"], view["workspace"], view["right"]) == ("alice/cats", "alice/vision", "read")
    assert [one["name"] for one in (await bob.ask("GET", "artifacts", workspace="alice/vision"))["items"]] == ["cats"]
    status, said = await bob.refused("GET", "artifacts/cats")
    assert (status, said) == (404, "you have no artifact 'cats'")
    assert (await bob.refused("POST", "artifacts/alice%2Fcats/versions", files=entries({"a": b"x"})))[0] == 403
    await bob.upload("alice/cats", b"x", 403)
    assert (await bob.refused("DELETE", "artifacts/alice%2Fcats"))[0] == 403
    theirs = await carol.log("alice/cats", {"a": b"carol's"})
    assert (theirs["version"], theirs["owner"]) == (2, "carol")
    assert (await carol.refused("DELETE", "artifacts/alice%2Fcats/versions/2"))[0] == 403
    assert (await carol.refused("POST", "artifacts/alice%2Fcats/edit", name="dogs"))[0] == 403
    assert (await alice.refused("DELETE", "workspaces/vision"))[0] == 409
    await alice.ask("POST", "artifacts/cats/edit", workspace="")
    assert (await bob.refused("GET", "artifacts/alice%2Fcats"))[0] == 404


async def test_a_trial_logs_and_uses_artifacts_of_its_owner_and_no_run_of_others(
    door: Any, alice: Artist, bob: Artist
) -> None:
    await alice.log("raw")
    await bob.log("secret")
    trial = await door.trial()
    task = Artist(door, trial.token)
    used = await task.ask("POST", "artifacts/raw/versions/latest/use")
    run = f"{trial.id:032x}"
    assert used["used_by"] == [run]
    made = await task.log("clean", {"c": b"clean"})
    assert (made["owner"], made["logged_by"]) == ("alice", [run])
    assert (await task.refused("GET", "artifacts/bob%2Fsecret"))[0] == 404
    assert (await task.refused("POST", "artifacts/bob%2Fsecret/versions/1/use"))[0] == 404
    assert (await task.refused("DELETE", "artifacts/raw"))[0] == 403
    of_run = await alice.ask("GET", f"runs/{run}/artifacts")
    assert [(one["role"], one["version"]["artifact"]) for one in of_run["items"]] == [
        ("used", "raw"),
        ("logged", "clean"),
    ]
    # Another's run: it is not there, and nothing is recorded.
    for role in ("versions", "versions/1/use"):
        said = {"run": run, **({"files": entries(CATS)} if role == "versions" else {})}
        assert (await bob.refused("POST", f"artifacts/secret/{role}", **said))[0] == 404
    assert (await bob.refused("GET", f"runs/{run}/artifacts"))[0] == 404
    graph = await alice.ask("GET", "artifacts/raw/versions/1/lineage")
    assert {one["id"] for one in graph["nodes"]} == {
        "artifact:raw:v1",
        "artifact:clean:v1",
        f"trial:{trial.id}",
        f"experiment:{trial.experiment}",
    }
    status, said = await alice.refused("DELETE", "artifacts/raw/versions/1")
    assert (status, "a run uses it" in said) == (409, True)
    await alice.ask("DELETE", "artifacts/raw/versions/1", force=True)


async def test_lineage_leads_in_both_directions_up_to_a_version_of_a_model(door: Any, alice: Artist) -> None:
    await alice.log("raw", comment="from the camera")
    trial = await door.trial()
    task = Artist(door, trial.token)
    await task.ask("POST", "artifacts/raw/versions/1/use")
    saved = "00000000-0000-4000-8000-000000000001"
    kept = {"weights.bin": {"size": 3, "digest": digest_of(b"one")}}
    facts = {"uuid": saved, "trial_id": trial.id, "experiment_id": trial.experiment, "state": "COMPLETED"}
    await door.world.store.write(
        lambda s: s.execute(insert(CheckpointRow).values(**facts, run=0, steps_completed=1, files=kept))
    )
    await door.world.services[Models].create(ALICE, CreateModel(name="classifier"))
    await door.world.services[Versions].register(ALICE, "classifier", CreateVersion(checkpoint=saved))
    down = await alice.ask("GET", "artifacts/raw/versions/1/lineage")
    edges = {(one["source"], one["label"], one["target"]) for one in down["edges"]}
    assert ("version:classifier@1", "is", f"checkpoint:{saved}") in edges
    assert (f"trial:{trial.id}", "uses", "artifact:raw:v1") in edges
    up = await alice.ask("GET", "models/classifier/versions/1/lineage")
    edges = {(one["source"], one["label"], one["target"]) for one in up["edges"]}
    assert (f"trial:{trial.id}", "uses", "artifact:raw:v1") in edges


@pytest.mark.parametrize("what", ["artifacts/sorted", "artifacts/sorted/versions/1"])
async def test_lineage_goes_on_saying_what_was_used_after_it_is_deleted(
    door: Any, alice: Artist, bob: Artist, what: str
) -> None:
    """A model that had used a deleted version looked as if it had been made from nothing."""
    await door.world.workspace("vision", bob="viewer")
    await alice.log("raw", workspace="vision")
    first, second = await door.trial(), await door.trial()
    cleaner, trainer = Artist(door, first.token), Artist(door, second.token)
    await cleaner.ask("POST", "artifacts/raw/versions/1/use")
    await cleaner.log("sorted", {"m": b"made"})  # in alice's personal workspace
    await trainer.ask("POST", "artifacts/sorted/versions/1/use")
    await trainer.log("model", workspace="vision")
    await alice.ask("DELETE", what, force=True)
    chain = {
        (f"trial:{first.id}", "uses", "artifact:raw:v1"),
        ("artifact:sorted:v1 (deleted)", "logged by", f"trial:{first.id}"),
        (f"trial:{second.id}", "uses", "artifact:sorted:v1 (deleted)"),
        ("artifact:model:v1", "logged by", f"trial:{second.id}"),
    }
    for end in ("raw", "model"):
        drawn = await alice.ask("GET", f"artifacts/{end}/versions/1/lineage")
        assert chain <= {(one["source"], one["label"], one["target"]) for one in drawn["edges"]}, end
        seen = await bob.ask("GET", f"artifacts/alice%2F{end}/versions/1/lineage")
        assert "sorted" not in json.dumps(seen)
    for trial in (first, second):
        await ended(door, trial)
        await door.world.services[Experiments].delete(ALICE, trial.experiment)
        stop = trial.experiment
        door.world.store.write_sync(lambda s, at=stop: setattr(s.get_one(ExperimentRow, at), "event_files_due", None))
    await door.world.services.tick()
    kept = door.world.store.write_sync(lambda s: s.scalar(select(func.count()).select_from(DeletedArtifactLinkRow)))
    assert kept == 0


async def test_lineage_leaves_out_what_its_reader_may_not_see(door: Any, alice: Artist, bob: Artist) -> None:
    await door.world.workspace("vision", bob="viewer")
    await alice.log(workspace="vision")
    trial = await door.trial()  # in alice's personal workspace
    task = Artist(door, trial.token)
    await task.ask("POST", "artifacts/cats/versions/1/use")
    await task.log("private", {"p": b"private"})
    view = await bob.ask("GET", "artifacts/alice%2Fcats/versions/1")
    assert (view["used_by"], view["logged_by"]) == ([], [])
    graph = await bob.ask("GET", "artifacts/alice%2Fcats/versions/1/lineage")
    assert [one["id"] for one in graph["nodes"]] == ["artifact:alice/cats:v1"]


async def test_an_attempt_that_is_over_logs_nothing(door: Any, alice: Artist) -> None:
    await alice.log()
    trial = await door.trial()
    task = Artist(door, trial.token)
    await ended(door, trial)
    reply = await task.http.post("api/v1/artifacts/cats/versions/1/use", json={})
    assert reply.status_code in {401, 409}
    reply = await task.http.post("api/v1/artifacts/new/versions", json={"files": entries(CATS)})
    assert reply.status_code in {401, 409}
    assert [one["name"] for one in (await alice.ask("GET", "artifacts"))["items"]] == ["cats"]


async def test_two_that_log_at_once_get_two_numbers(door: Any, alice: Artist) -> None:
    made = await asyncio.gather(*(alice.log("many", {"n": str(n).encode()}) for n in range(8)))
    assert sorted(one["version"] for one in made) == list(range(1, 9))


async def test_files_count_towards_quotas_and_go_with_the_last_version_that_has_them(door: Any, alice: Artist) -> None:
    await alice.log()
    assert await door.world.store.read(lambda s: usage.of_user(s, "alice").output_bytes) == 6
    await alice.log(files={**CATS, "c": b"three"})
    await alice.ask("DELETE", "artifacts/cats/versions/1")
    assert len(stored(door)) == 3
    status, said = await alice.refused("GET", "artifacts/cats/versions/1")
    assert (status, said) == (404, "artifact 'cats' has no version '1'")
    assert (await alice.log(files={"d": b"four"}))["version"] == 3, "no number is given again"
    await alice.ask("DELETE", "artifacts/cats/versions/2")
    assert [one.read_bytes() for one in stored(door)] == [b"four"]
    await alice.ask("POST", "artifacts/cats/versions/3/edit", add_aliases=["good"])
    assert (await alice.refused("DELETE", "artifacts/cats"))[0] == 409
    await alice.ask("DELETE", "artifacts/cats", force=True)
    assert not stored(door)
    assert await door.world.store.read(lambda s: s.scalar(select(func.count()).select_from(ArtifactFileRow))) == 0
    door.world.store.write_sync(lambda s: s.add(StorageQuotaRow(kind="user", name="alice", size=10)))
    await alice.ask("POST", "artifacts/cats/versions", files=entries({"a": b"x" * 11}))
    said = await alice.upload("cats", b"x" * 11, 409)
    assert "storage quota of user alice" in said["message"]


async def test_the_runs_of_an_experiment_go_with_it_and_the_versions_stay(door: Any, alice: Artist) -> None:
    trial = await door.trial()
    task = Artist(door, trial.token)
    await task.log("made", {"m": b"made"})
    await ended(door, trial)
    await door.world.services[Experiments].delete(ALICE, trial.experiment)
    door.world.store.write_sync(lambda s: setattr(s.get_one(ExperimentRow, trial.experiment), "event_files_due", None))
    await door.world.services.tick()
    assert door.world.store.write_sync(lambda s: s.scalar(select(func.count()).select_from(ArtifactLinkRow))) == 0
    view = await alice.ask("GET", "artifacts/made/versions/1")
    assert (view["logged_by"], view["files"]) == ([], 1)


async def test_ten_thousand_versions_are_paged(door: Any, alice: Artist) -> None:
    made = await alice.log()

    def many(s: Any) -> None:
        rows = [
            {"artifact_id": made["artifact_id"], "version": n, "digest": "", "metadata_": {}, "owner": "alice"}
            for n in range(2, 10_001)
        ]
        s.execute(insert(ArtifactVersionRow), rows)
        s.execute(insert(ArtifactRow), [{"name": f"n{n}", "kind": "x", "owner": "alice"} for n in range(1500)])

    await door.world.store.write(many)
    seen, after = 0, {}
    while True:
        page = await alice.ask("GET", "artifacts/cats/versions", limit=1000, **after)
        seen += len(page["items"])
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == 10_000
    page = await alice.ask("GET", "artifacts", limit=1000)
    assert (len(page["items"]), page["next"] is not None) == (1000, True)


def test_paths_of_files_stay_below_their_artifact(tmp_path: Any) -> None:
    class Where:
        artifacts_dir = tmp_path

    path = path_of(Where, 7, digest_of(b"x"))  # type: ignore[arg-type]
    assert path.is_relative_to(tmp_path / "named" / "7")
