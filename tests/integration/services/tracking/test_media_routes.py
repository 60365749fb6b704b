"""Media of trials over HTTP: taken from the task, listed in pages, sent as nobody's, gone with the experiment."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from services_scripted import ALICE
from sqlalchemy import insert

from detlab.client.operations.runs.media import file_name
from detlab.media import kinds
from detlab.media.signals import write_png
from detlab.schemas.wire.media import MediaView
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.views.pages import PAGE_BYTES
from detlab_hub.store.queries.storage import usage
from detlab_hub.store.tables import ExperimentRow, MediaRow

PNG = write_png(2, 1, 3, [b"abcdef"])
BOMB_HEAD = PNG[:16] + struct.pack(">II", 40_000, 40_000) + PNG[24:]
SCRIPT = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(2)</script></svg>"


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """One database; the migration is tested on both."""
    return sqlite_url


async def put(ask: Any, body: bytes = PNG, **facts: Any) -> Any:
    said = {"key": "samples", "step": 1, "place": 0, "kind": "image", "media_type": kinds.PNG, **facts}
    headers = {"Content-Type": "application/octet-stream"}
    return await ask.http.put("api/v1/task/media", params=said, content=body, headers=headers)


async def listed(ask: Any, trial: int, **query: Any) -> list[dict[str, Any]]:
    """Read all pages; each is bounded."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        params = {**query, **({} if after is None else {"after": after})}
        reply = await ask.http.get(f"api/v1/trials/{trial}/media", params=params)
        assert reply.status_code == 200, reply.text
        assert len(reply.content) <= PAGE_BYTES + 70_000
        found += reply.json()["items"]
        after = reply.json()["next"]
        if after is None:
            return found


def stored(door: Any) -> list[Any]:
    return [one for one in door.world.settings.media_dir.rglob("*") if one.is_file()]


async def test_media_that_arrive_late_keep_their_time_and_none_is_of_tomorrow(door: Any) -> None:
    trial = await door.trial()
    task = door.of(trial.token)
    told = [(await put(task, step=step, logged_at=at)).json()["time"] for step, at in enumerate((1.5, 1e12))]
    assert told == [1.5, door.world.now]
    assert (await put(task, logged_at=-1)).status_code == 422


async def test_an_image_a_table_and_a_text_are_kept_listed_and_sent(door: Any) -> None:
    trial = await door.trial()
    task, alice = door.of(trial.token), door.of("alice")
    table = json.dumps({"columns": ["a"], "rows": [[1]], "left_out": 0}).encode()
    made = (await put(task, caption="a cat")).json()
    assert (made["width"], made["height"], made["size"], made["caption"]) == (2, 1, len(PNG), "a cat")
    assert (await put(task, table, key="t", kind="table", media_type=kinds.JSON)).status_code == 200
    assert (await put(task, b"words", key="said", kind="text", media_type=kinds.PLAIN, step=2)).status_code == 200
    items = await listed(alice, trial.id)
    assert [(one["step"], one["key"], one["kind"]) for one in items] == [
        (1, "samples", "image"),
        (1, "t", "table"),
        (2, "said", "text"),
    ]
    assert [one["key"] for one in await listed(alice, trial.id, at=1)] == ["samples", "t"]
    assert [one["key"] for one in await listed(alice, trial.id, at=9)] == ["samples", "t", "said"]
    assert [one["key"] for one in await listed(alice, trial.id, kind="table")] == ["t"]
    keys = (await alice.http.get(f"api/v1/trials/{trial.id}/media/keys")).json()["items"]
    assert [(one["key"], one["kind"], one["count"]) for one in keys] == [
        ("said", "text", 1),
        ("samples", "image", 1),
        ("t", "table", 1),
    ]
    steps = (await alice.http.get(f"api/v1/trials/{trial.id}/media/steps")).json()
    assert steps == {"items": [1, 2], "next": None}
    reply = await alice.http.get(f"api/v1/trials/{trial.id}/media/{made['id']}/file")
    assert reply.content == PNG
    assert reply.headers["content-type"] == kinds.PNG
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    part = await alice.http.get(f"api/v1/trials/{trial.id}/media/{made['id']}/file", headers={"Range": "bytes=1-3"})
    assert (part.status_code, part.content, part.headers["content-range"]) == (206, b"PNG", f"bytes 1-3/{len(PNG)}")
    assert reply.headers["content-disposition"] == f'attachment; filename="trial-{trial.id}-samples-step-1.png"'


async def test_documents_are_shown_in_an_origin_of_their_own_and_scripts_only_if_asked_for(door: Any) -> None:
    trial = await door.trial()
    task, alice = door.of(trial.token), door.of("alice")
    page = b"<script>parent.document.body.remove()</script>"
    html = (await put(task, page, kind="html", media_type=kinds.MARKUP)).json()["id"]
    svg = (await put(task, SCRIPT, key="svg", media_type=kinds.SVG)).json()["id"]
    base = f"api/v1/trials/{trial.id}/media"
    for one, name in ((html, "html"), (svg, "svg")):
        sent = await alice.http.get(f"{base}/{one}/file")
        assert sent.headers["content-disposition"].startswith("attachment; filename=")
        assert sent.headers["content-disposition"].endswith(f'.{name}"')
        assert sent.headers["content-security-policy"].startswith("sandbox; ")
    shown = await alice.http.get(f"{base}/{html}/document")
    assert (shown.content, shown.headers["content-type"]) == (page, "text/html; charset=utf-8")
    assert shown.headers["content-disposition"] == "inline"
    assert shown.headers["x-frame-options"] == "SAMEORIGIN"
    policy = shown.headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none';")
    assert "script-src" not in policy
    with_scripts = (await alice.http.get(f"{base}/{html}/document?scripts=true")).headers["content-security-policy"]
    assert with_scripts.startswith("sandbox allow-scripts; default-src 'none';")
    for said in (policy, with_scripts):
        assert "allow-same-origin" not in said
        assert "allow-top-navigation" not in said
        assert "form-action 'none'" in said
    assert (await alice.http.get(f"{base}/{svg}/document")).status_code == 404, "a drawing is no document"


@pytest.mark.parametrize(
    ("body", "facts", "says"),
    [
        (BOMB_HEAD, {}, "40,000 x 40,000 pixels"),
        (b"<script>", {}, "by its first bytes nothing that is known"),
        (SCRIPT, {}, "by its first bytes image/svg+xml"),
        (PNG, {"media_type": "text/html"}, "is no image"),
        (PNG, {"kind": "html", "media_type": kinds.PNG}, "is no html"),
        (b"", {}, "has 0 bytes"),
        (b"x" * (kinds.MB + 1), {"kind": "text", "media_type": kinds.PLAIN}, "text has 1 to 1,048,576"),
        (b"<svg>" + b"x" * kinds.MOST_SVG_BYTES, {"media_type": kinds.SVG}, "image has 1 to 2,097,152"),
        (PNG, {"kind": "script"}, "not valid for this route"),
        (PNG, {"key": ""}, "not valid for this route"),
        (PNG, {"key": "k" * 201}, "not valid for this route"),
        (PNG, {"step": -1}, "not valid for this route"),
        (PNG, {"step": 2**63}, "not valid for this route"),
        (PNG, {"place": 100}, "not valid for this route"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_not_what_it_says_is_refused_and_leaves_nothing(
    door: Any, body: bytes, facts: dict[str, Any], says: str
) -> None:
    trial = await door.trial()
    reply = await put(door.of(trial.token), body, **facts)
    assert reply.status_code in {400, 422}, reply.text
    assert says in reply.json()["message"]
    assert stored(door) == []
    assert await listed(door.of("alice"), trial.id) == []


async def test_a_decompression_bomb_is_kept_as_the_small_file_that_it_is(door: Any) -> None:
    import zlib

    data = zlib.compress(b"\0" * 30_000_000, 9)
    chunk = struct.pack(">I", len(data)) + b"IDAT" + data + struct.pack(">I", zlib.crc32(b"IDAT" + data))
    trial = await door.trial()
    made = (await put(door.of(trial.token), PNG[:33] + chunk)).json()
    assert (made["width"], made["height"]) == (2, 1), "the master inflates nothing"


@pytest.mark.parametrize(
    "key",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "a/../b",
        "..",
        ".hidden",
        "C:\\x",
        "ключ/图",
        "a\u202etxt",
        "a'\"<b>&",
        "\r\nX: y",
    ],
)
async def test_a_key_is_never_a_path_nor_a_header(door: Any, key: str) -> None:
    trial = await door.trial()
    alice = door.of("alice")
    made = (await put(door.of(trial.token), key=key)).json()
    assert [one["key"] for one in await listed(alice, trial.id, key=key)] == [key]
    reply = await alice.http.get(f"api/v1/trials/{trial.id}/media/{made['id']}/file")
    name = reply.headers["content-disposition"].removeprefix('attachment; filename="').removesuffix('"')
    assert name.replace("-", "").replace(".png", "").isalnum()
    assert name.isascii()
    local = file_name(MediaView.model_validate(made))
    assert "/" not in local
    assert "\\" not in local
    assert not local.startswith(".")
    assert [one.parent.parent for one in stored(door)] == [door.world.settings.media_dir / str(trial.experiment)]


async def test_another_users_media_are_answered_as_nobodys(door: Any) -> None:
    """Two tenants: neither lists, files nor documents tell whether they are there, whoever has the same bytes."""
    hers, his = await door.trial("alice"), await door.trial("bob")
    bob = door.of("bob")
    made = (await put(door.of(hers.token), b"<p>secret", kind="html", media_type=kinds.MARKUP)).json()["id"]
    own = (await put(door.of(his.token), b"<p>own", kind="html", media_type=kinds.MARKUP)).json()["id"]
    for path in ("media", "media/keys", "media/steps", f"media/{made}/file", f"media/{made}/document"):
        reply, nobodys = [await bob.http.get(f"api/v1/trials/{trial}/{path}") for trial in (hers.id, 999_999)]
        assert reply.status_code == nobodys.status_code == 404
        assert reply.text.replace(str(hers.id), "ID") == nobodys.text.replace("999999", "ID")
    for path in ("file", "document"):
        reply, nobodys = [await bob.http.get(f"api/v1/trials/{his.id}/media/{one}/{path}") for one in (made, 999_999)]
        assert reply.status_code == nobodys.status_code == 404, "an id is of its trial"
        assert reply.text.replace(str(made), "ID") == nobodys.text.replace("999999", "ID")
    assert (await bob.http.get(f"api/v1/trials/{his.id}/media/{own}/file")).content == b"<p>own"


async def test_equal_bytes_of_two_owners_are_two_files(door: Any) -> None:
    """Nothing is answered "present": what another has stored spares nobody an upload, nor is it shared."""
    hers, his = await door.trial("alice"), await door.trial("bob")
    for trial in (hers, his):
        assert (await put(door.of(trial.token))).status_code == 200
        assert (await put(door.of(trial.token), step=2)).status_code == 200
    files = stored(door)
    assert len(files) == 2
    assert len({one.parent.parent.name for one in files}) == 2
    assert files[0].stat().st_ino != files[1].stat().st_ino


async def test_a_key_reported_again_replaces_what_it_had_at_that_step(door: Any) -> None:
    trial = await door.trial()
    task, alice = door.of(trial.token), door.of("alice")
    for place in range(3):
        await put(task, write_png(1, 1, 1, [bytes([place])]), place=place)
    await put(task, PNG, step=2)
    await put(task, write_png(1, 1, 1, [b"x"]))
    assert [(one["step"], one["place"]) for one in await listed(alice, trial.id)] == [(1, 0), (2, 0)]
    assert len(stored(door)) == 2, "what no row names is removed"


async def test_a_resumed_attempt_supersedes_what_came_after(door: Any) -> None:
    from detlab_hub.store.tables import MediaRow as Row

    trial = await door.trial()
    task = door.of(trial.token)
    for step in (1, 2, 3):
        await put(task, write_png(1, 1, 1, [bytes([step])]), step=step)
        await put(task, b"t", key="other", kind="text", media_type=kinds.PLAIN, step=step)
    # As though an attempt before had logged them.
    door.world.store.write_sync(lambda s: s.query(Row).update({"attempt": 0}) and None)
    await put(task, PNG, step=2)
    items = await listed(door.of("alice"), trial.id)
    assert [(one["key"], one["step"]) for one in items if one["key"] == "samples"] == [("samples", 1), ("samples", 2)]
    assert len([one for one in items if one["key"] == "other"]) == 3


async def test_a_trial_logs_no_more_than_it_may(make_door: Any) -> None:
    door = await make_door(media_objects=2, media_bytes=10_000)
    trial = await door.trial()
    task = door.of(trial.token)
    large = await put(task, b"x" * 20_000, kind="text", media_type=kinds.PLAIN)
    assert (large.status_code, large.json()["code"]) == (409, "media.full")
    assert "DetHub.media_mb" in large.json()["hint"]
    codes = [(await put(task, step=step)).status_code for step in (1, 2, 3)]
    assert codes == [200, 200, 409]
    assert len(await listed(door.of("alice"), trial.id)) == 2


async def test_10000_images_are_listed_in_bounded_pages(door: Any) -> None:
    trial = await door.trial()

    def fill(s: Any) -> None:
        row = {"experiment_id": trial.experiment, "trial_id": trial.id, "kind": "image", "media_type": kinds.PNG}
        rows = [
            {**row, "step": n // 10, "place": n % 10, "key": "k" * 180, "caption": "ü" * 500, "digest": f"{n:064x}"}
            for n in range(10_000)
        ]
        s.execute(insert(MediaRow), rows)

    door.world.store.write_sync(fill)
    alice = door.of("alice")
    items = await listed(alice, trial.id, limit=1000)
    assert len({one["id"] for one in items}) == 10_000
    assert [one["step"] for one in items] == sorted(one["step"] for one in items)
    steps = (await alice.http.get(f"api/v1/trials/{trial.id}/media/steps")).json()
    assert (steps["items"], steps["next"]) == (list(range(1000)), None)
    assert len(await listed(alice, trial.id, at=500)) == 10


async def test_media_count_as_stored_and_go_with_the_experiment(door: Any) -> None:
    trial = await door.trial()
    await put(door.of(trial.token))
    assert door.world.store.write_sync(lambda s: usage.of_user(s, "alice")).output_bytes == len(PNG)
    trial.task._exit(0)
    await door.world.finish(trial.experiment)
    late = await put(door.of(trial.token), step=9)
    assert (late.status_code, late.json()["code"]) == (409, "stale_attempt")
    await door.world.services[Experiments].delete(ALICE, trial.experiment)
    assert stored(door) == []
    assert not (door.world.settings.media_dir / str(trial.experiment)).exists()
    door.world.store.write_sync(lambda s: setattr(s.get_one(ExperimentRow, trial.experiment), "event_files_due", None))
    await door.world.services.tick()
    assert door.world.store.write_sync(lambda s: s.get(ExperimentRow, trial.experiment)) is None
    assert door.world.store.write_sync(lambda s: usage.of_user(s, "alice")).output_bytes == 0


async def test_a_quota_of_bytes_holds_for_media(door: Any) -> None:
    from detlab_hub.store.tables import StorageQuotaRow

    trial = await door.trial()
    door.world.store.write_sync(lambda s: s.add(StorageQuotaRow(kind="user", name="alice", size=len(PNG) + 10)))
    task = door.of(trial.token)
    assert (await put(task)).status_code == 200
    full = await put(task, step=2)
    assert (full.status_code, full.json()["code"]) == (409, "quota.storage")


async def test_only_trials_log_media(door: Any) -> None:
    alice = door.of("alice")
    assert (await put(alice)).status_code == 403
    trial = await door.trial()
    for verb in ("put", "post", "delete"):
        reply = await getattr(alice.http, verb)(f"api/v1/trials/{trial.id}/media")
        assert reply.status_code == 405
