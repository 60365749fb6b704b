"""No page of any list is large: every GET with `items`, over rows as large as users can make them.

The routes come from the router. Each list is read from its first page to its last: no page has more than its bytes, no
item comes twice, and none is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import itertools
import json
import socket
import tarfile
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import insert

from detlab.schemas.wire import LogRecord
from detlab_hub.services.base.threads import Tickets
from detlab_hub.services.views.pages import PAGE_BYTES, VIEW_BYTES
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.queries.metrics import reports
from detlab_hub.store.tables import (
    AllocationRow,
    AuditRow,
    BookmarkRow,
    CheckpointRow,
    ExperimentRow,
    GrantRow,
    MediaRow,
    ModelRow,
    OutputRow,
    RemovalRow,
    SearcherJournal,
    TaskRow,
    TrialRow,
    VersionRow,
)
from testbed.routes import Asked, verbs

pytestmark = pytest.mark.hub

LARGEST = PAGE_BYTES + VIEW_BYTES + 4096
PARTS = {"overview": 2 * LARGEST, "experiments/{experiment_id}/curves": 2 * LARGEST}
"""Replies of several lists, each of which is bounded."""
TEXT = "x" * 390_000
ROUND, MANY = 40, 1200
SHOWN_WHOLE = 60
"""Trials so large that none is shortened, and fewer fit into a page than are read for it."""
UUID = "00000000-0000-8000-8000-{:012x}".format
TASK = "command-{:012x}".format
EXPECTED = {
    "experiments": ROUND,
    "experiments/{experiment_id}/trials": ROUND + SHOWN_WHOLE,
    "experiments/{experiment_id}/checkpoints": ROUND,
    "trials": ROUND + SHOWN_WHOLE,
    "trials/{trial_id}/checkpoints": ROUND,
    "trials/{trial_id}/values": ROUND,
    "trials/{trial_id}/logs": 400,
    "experiments/{experiment_id}/search/journal": ROUND,
    "checkpoints/{uuid}/pins": MANY + 1,
    "trials/{trial_id}/media": MANY,
    "trials/{trial_id}/media/keys": MANY,
    "trials/{trial_id}/media/steps": MANY,
    "tasks": ROUND,
    "tasks/{task_id}/outputs": MANY * 3,
    "models": ROUND,
    "models/{model}/versions": ROUND,
    "model-versions": ROUND,
    "experiments/{experiment_id}/code": 3000,
    "trials/{trial_id}/metrics": 600,
    "comparison/curves": 600,
}
"""How many items there are."""


def bundle() -> bytes:
    """Code of many files with long names."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for number in range(EXPECTED["experiments/{experiment_id}/code"]):
            archive.addfile(tarfile.TarInfo(f"{number:05}{'n' * 240}/{'m' * 240}.py"), io.BytesIO())
    return packed.getvalue()


def fill(unit: Any) -> None:
    """Make rows as large as an ordinary user's can be, or could be before texts had limits."""
    s = unit.session
    files = {f"{number:05}{'f' * 80}": {"size": 1, "digest": f"sha256:{number:064x}"} for number in range(3000)}
    large = {"name": "x", "hyperparameters": {"a": TEXT}, "searcher": {"name": "single", "metric": "loss"}}
    owned = {"owner": "ben", "owner_groups": []}
    rows: dict[Any, list[dict[str, Any]]] = {
        ExperimentRow: [
            {
                **owned,
                "id": number,
                "name": f"{number} {TEXT[:1000]}",
                "description": TEXT,
                "labels": [TEXT],
                "config": large,
                "state": "PAUSED",
                "source": {"cell": TEXT},
                "warnings": [TEXT],
                "searcher_name": "single",
                "metric": "loss",
            }
            for number in range(1, ROUND + 1)
        ],
        TrialRow: [
            {
                "id": number,
                "experiment_id": 1,
                "idx": number - 1,
                "request_id": f"r{number}",
                "state": "PAUSED",
                "hparams": {"a": TEXT if number <= ROUND else TEXT[:60_000], "lr": 0.1},
                "warnings": [TEXT] if number <= ROUND else [],
                "would_stop": [],
                "policy_matches": [],
                "metadata_": {"note": TEXT} if number <= ROUND else {},
            }
            for number in range(1, ROUND + SHOWN_WHOLE + 1)
        ],
        CheckpointRow: [
            {
                "uuid": UUID(number),
                "trial_id": 1,
                "experiment_id": 1,
                "steps_completed": number,
                "created_at": float(number),
                "files": files,
                "metadata_": {"a": TEXT, "b": TEXT},
                "storage": {"type": "shared_fs", "host_path": "/" + "p" * 2000},
            }
            for number in range(1, ROUND + 1)
        ],
        TaskRow: [
            {
                **owned,
                "id": TASK(number),
                "kind": "command",
                "name": "t" * 200,
                "state": "CANCELED",
                "config": {"runtime": "docker", "environment": {"image": TEXT}, "resources": {"slots": 0}},
                "source": {"notebook": TEXT},
                "experiment_ids": list(range(1000)),
                "trial_ids": list(range(1000)),
                "created_at": float(number),
            }
            for number in range(1, ROUND + 1)
        ],
        AllocationRow: [
            {
                "id": f"1.r{number}.1",
                "trial_id": 1,
                "experiment_id": 1 + number % ROUND,
                "owner": "ben",
                "run": number,
                "state": "PENDING",
                "slots": [],
            }
            for number in range(1, MANY + 1)
        ],
        SearcherJournal: [
            {"experiment_id": 1, "seq": number, "event": {"type": "x", "text": TEXT}, "decisions": []}
            for number in range(1, ROUND + 1)
        ],
        BookmarkRow: [{"uuid": UUID(1), "name": f"user {number}", "note": "n" * 1000} for number in range(MANY)],
        OutputRow: [
            {"task_id": TASK(1), "name": f"{number} {'o' * 240}", "digest": f"sha256:{number:064x}"}
            for number in range(MANY * 3)
        ],
        MediaRow: [
            {
                "experiment_id": 1,
                "trial_id": 1,
                "kind": "image",
                "media_type": "image/png",
                "step": number,
                "key": f"{number} {'ü' * 190}",
                "caption": "\x01" * 500,
                "digest": f"{number:064x}",
            }
            for number in range(MANY)
        ],
        GrantRow: [
            {"experiment_id": 1, "kind": "user", "name": f"{number} {'g' * 240}", "granted_by": "ben"}
            for number in range(500)
        ],
        AuditRow: [
            {"time": 1.0, "actor": "ben", "action": "x.y", "subject": "s", "detail": "\x01" * 300} for _ in range(MANY)
        ],
        RemovalRow: [{"uuid": UUID(2), "due_at": 1e12, "requested_at": 1.0}],
        ModelRow: [
            {"id": number, "name": f"m{number}", "owner": "ben", "description": TEXT, "metadata_": {"a": TEXT * 2}}
            | {"labels": ["l" * 200] * 100}
            for number in range(1, ROUND + 1)
        ],
        VersionRow: [
            {
                "model_id": 1,
                "version": number,
                "checkpoint_uuid": UUID(number),
                "comment": TEXT,
                "metadata_": {"a": TEXT * 2},
                "lineage": {"experiment_id": 1, "hparams": {"a": TEXT}},
            }
            for number in range(1, ROUND + 1)
        ],
    }
    for table, values in rows.items():
        for one in values:
            s.execute(insert(table), [one])
    for step in range(ROUND):
        reports.insert_report(s, 1, 1, "validation", step, 1.0, {"matrix": [TEXT[:250_000]]})
    for step in range(8):
        names = {f"metric {number} {'n' * 60}": step / 7 for number in range(600)}
        reports.insert_report(s, 1, 1, "training", step, 1.0, names)
    said = [LogRecord(seq=number + 1, time=1.0, text=f"{number:05} {'l' * 15_900}") for number in range(400)]
    lines.append(s, 1, 1, said)


@pytest.fixture
async def filled(master: Any) -> Any:
    await master.services.context.write(fill)
    data = bundle()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    async with master.client() as client:
        (await client.put(f"bundles/{digest}", content=data)).raise_for_status()

    def has_code(unit: Any) -> None:
        unit.session.get_one(ExperimentRow, 1).bundle = digest

    await master.services.context.write(has_code)
    return master


IDS = {"experiment_id": "1", "trial_id": "1", "uuid": UUID(1), "task_id": TASK(1), "model": "1", "version": "1"}
CURSORS = ("skip", "after", "before")
LISTS = {"items", "curves", "experiments", "runs"}
NEEDED = {
    "comparison": {"trials": "1,2,3", "experiments": "1,2,3"},
    "comparison/curves": {"trials": "1"},
    "comparison/code": {"experiments": "1,2"},
}
"""Parameters without which a route refuses."""


def asked() -> list[Asked]:
    """Every GET of the API that people have and that answers in JSON."""
    found = [one for one in verbs(IDS) if one.verb == "GET" and one.path.startswith("api/v1/")]
    return [one for one in found if {scope.name for scope in one.operation.scopes} & {"READ", "WRITE", "ADMIN"}]


async def pages(client: httpx.AsyncClient, one: Asked) -> list[bytes]:
    """Read a list to its end; nothing for a route that answers with something else."""
    fields = {} if one.operation.query is None else one.operation.query.model_fields
    most = next((bound.le for bound in getattr(fields.get("limit"), "metadata", []) if hasattr(bound, "le")), None)
    params: dict[str, Any] = {} if most is None else {"limit": most}
    params |= NEEDED.get(one.route.removeprefix("api/v1/"), {})
    cursor = next((name for name in CURSORS if name in fields), None)
    bodies: list[bytes] = []
    for _ in range(2000):
        async with client.stream("GET", one.path.removeprefix("api/v1/"), params=params) as reply:
            if reply.status_code != 200 or "json" not in reply.headers["Content-Type"]:
                return bodies
            bodies.append(await reply.aread())
        body = json.loads(bodies[-1])
        edge = (body.get("next") or body.get("after")) if isinstance(body, dict) else None
        if edge is None or cursor is None:
            return bodies
        params[cursor] = edge
    raise AssertionError(f"{one.route} never ends")


async def test_no_page_of_any_list_is_large_and_none_loses_an_item(filled: Any) -> None:
    """Pages had 72 to 99 MB; sixty open requests took the master to 3.9 GB."""
    large, lost, walked = [], [], {}
    async with filled.client() as client:
        client.timeout = httpx.Timeout(60)
        for one in asked():
            if one.route.endswith(("stream", "openapi.json")):
                continue
            route = one.route.removeprefix("api/v1/")
            bodies = await pages(client, one)
            sizes = [len(body) for body in bodies]
            parsed = [json.loads(body) for body in bodies]
            if not parsed or not (
                isinstance(parsed[0], list) or {"items", "curves", "experiments", "runs"} & parsed[0].keys()
            ):
                continue
            walked[route] = sum(sizes)
            if max(sizes) > PARTS.get(route, LARGEST):
                large.append((route, max(sizes)))
            lists = [body if isinstance(body, list) else body.get("items", []) for body in parsed]
            items = [json.dumps(item, sort_keys=True) for item in itertools.chain(*lists)]
            if len(set(items)) != len(items) or EXPECTED.get(route, len(items)) != len(items):
                lost.append((route, len(items), len(set(items)), EXPECTED.get(route)))
    assert large == []
    assert lost == []
    assert len(walked) >= 30
    assert EXPECTED.keys() | NEEDED.keys() <= walked.keys()


async def test_replies_that_a_user_does_not_read_are_bounded(filled: Any) -> None:
    """Further ones are refused until the first are read, or their readers have gone."""
    filled.application.settings["replies"] = Tickets("bytes of replies", 4 * PAGE_BYTES, 64 * PAGE_BYTES)
    url = httpx.URL(filled.base)
    head = f"GET {url.path}api/v1/trials/1/logs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {filled.token}\r\n\r\n"
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            unread = stack.enter_context(contextlib.closing(socket.socket()))
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.setblocking(False)
            await loop.sock_connect(unread, (url.host, url.port))
            await loop.sock_sendall(unread, head.encode() * 12)  # the buffers of a socket take the first few
        async with filled.client() as client:

            async def refused() -> bool:
                reply = await client.get("trials/1/logs")
                assert reply.status_code in {200, 503}
                return reply.status_code == 503 and reply.json()["code"] == "unavailable.busy"

            await until(refused)
            (await client.get("me")).raise_for_status()
            stack.close()
            await until(lambda: answered(client))


async def answered(client: httpx.AsyncClient) -> bool:
    """Whether a large page is given out again."""
    return (await client.get("trials/1/logs")).status_code == 200


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: It is not so in ten seconds.
    """
    async with asyncio.timeout(10):
        while not await done():
            await asyncio.sleep(0.05)
