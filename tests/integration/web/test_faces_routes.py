"""The routes of the faces over HTTP, by a real Hub's tokens: right user, wrong user, no administrator, bad input."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
import tarfile
import uuid
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from detlab.schemas.taskwire import HealthView, OverviewView
from detlab.schemas.wire import Hello, SlotView
from detlab_hub.services.cluster.metrics import METRICS
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

CONFIG = {
    "name": "<b>faces</b>",
    "entrypoint": ["true"],
    "searcher": {"name": "single", "metric": "x", "max_length": 1},
    "resources": {"slots_per_trial": 1},
}
TRAIN = b"print('<script>alert(1)</script>')\n"


@pytest.fixture
def ben(cluster: Cluster) -> str:
    """A user who is no administrator."""
    return cluster.make_token("custom:detlab:write", user="ben")


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def submit(client: httpx.AsyncClient, **more: Any) -> int:
    reply = await client.post("experiments", json={"config": CONFIG, **more})
    assert reply.status_code == 200, reply.text
    return int(reply.json()["experiment"]["id"])


async def enrol(master: Any, client: httpx.AsyncClient, name: str) -> str:
    invited = (await client.post("agents/enrolments", json={"ttl": 600})).json()["token"]
    async with master.client(invited) as holder:
        reply = await holder.post("agents/enrol", json={"agent_id": name})
    assert reply.status_code == 200, reply.text
    return str(reply.json()["token"])


async def connect(master: Any, key: str, name: str) -> Any:
    url = master.base.replace("http", "ws", 1) + "api/v1/agents/connect"
    socket = await websocket_connect(HTTPRequest(url, headers={"Authorization": f"Bearer {key}"}))
    await socket.write_message(
        Hello(uids={}, agent_id=name, slots=[SlotView(id="a"), SlotView(id="b")]).model_dump_json()
    )
    assert json.loads(await socket.read_message())["type"] == "welcome"
    return socket


async def end_of(socket: Any) -> int | None:
    """Read the master's last words; the code with which it closed the connection."""
    async with asyncio.timeout(5):
        while await socket.read_message() is not None:
            pass
    socket.close()
    code: int | None = socket.close_code
    return code


async def refused(client: httpx.AsyncClient, verb: str, path: str, status: int) -> None:
    reply = await client.request(verb, path)
    assert reply.status_code == status, f"{verb} {path}: {reply.text}"
    assert reply.json()["message"]


# --- overview, queue, timeline


async def test_faces_overview_and_queue_for_owner_and_others(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        made = await submit(admin)
        await master.services.schedule()
        look = OverviewView.model_validate((await admin.get("overview")).json())
        assert [view.id for view in look.experiments] == [made]
        assert look.me.admin is True
        assert [item.experiment_id for item in look.queue] == [made]
        seen = OverviewView.model_validate((await other.get("overview", params={"all": "true"})).json())
        assert (seen.experiments, seen.tasks, seen.me.name, seen.me.admin) == ([], [], "ben", False)
        (item,) = seen.queue
        assert (item.owner, item.name, item.mine) == ("another user", "", False)
        assert "faces" not in (await other.get("queue")).text
        await submit(other)
        assert len((await admin.get("overview")).json()["experiments"]) == 1
        assert len((await admin.get("overview?all=true")).json()["experiments"]) == 2
        await refused(admin, "GET", "overview?all=perhaps", 422)
        await refused(admin, "POST", "overview", 405)


async def test_faces_timeline_for_owner_and_others(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        made = await submit(other)
        await admin.post(f"experiments/{made}/kill")
        for client in (other, admin):
            reply = await client.get(f"experiments/{made}/timeline")
            assert reply.status_code == 200
            said = [item["what"] for item in reply.json()["items"]]
            assert said[0] == "created"
            assert "kill requested" in said
            assert said[-1] == "ended"
        theirs = await submit(admin)
        await refused(other, "GET", f"experiments/{theirs}/timeline", 404)
        await refused(other, "GET", "experiments/999999/timeline", 404)
        await refused(other, "GET", "experiments/x/timeline", 404)


# --- code


async def test_faces_code_is_an_attachment_of_plain_text(master: Any, ben: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo("page.html")
        info.size = len(TRAIN)
        tar.addfile(info, io.BytesIO(TRAIN))
    bundle = out.getvalue()
    async with master.client() as admin, master.client(ben) as other:
        assert (await other.put(f"bundles/{sha(bundle)}", content=bundle)).status_code == 201
        made = await submit(other, bundle=sha(bundle))
        listed = (await other.get(f"experiments/{made}/code")).json()["items"]
        assert listed == [{"path": "page.html", "size": len(TRAIN), "digest": sha(TRAIN)}]
        for client in (other, admin):
            reply = await client.get(f"experiments/{made}/code/{sha(TRAIN)}")
            assert reply.content == TRAIN
            assert reply.headers["content-type"].startswith("text/plain")
            assert reply.headers["content-disposition"] == "attachment"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in reply.headers["content-security-policy"]
        theirs = await submit(admin, bundle=sha(bundle))
        for path in (f"experiments/{theirs}/code", f"experiments/{theirs}/code/{sha(TRAIN)}"):
            await refused(other, "GET", path, 404)
        for wrong in ("page.html", "..%2Fpage.html", sha(b"x"), "sha256:zz"):
            await refused(other, "GET", f"experiments/{made}/code/{wrong}", 404)


# --- agents


async def test_faces_agents_are_disabled_enabled_and_sent_away(master: Any, ben: str) -> None:
    name = f"node {uuid.uuid4()}"
    async with master.client() as admin, master.client(ben) as other:
        key = await enrol(master, admin, name)
        socket = await connect(master, key, name)
        steered = ("/enable", "/disable", "/drain", "/slots/cpu0/disable", "/slots/cpu0/enable")
        for verb, path in (*(("POST", path) for path in steered), ("DELETE", "")):
            await refused(other, verb, f"agents/{name}{path}", 403)
            await refused(admin, verb, f"agents/nobody{path}", 404)
        drained = (await admin.post(f"agents/{name}/drain", json={"trials": "finish", "deadline": 60})).json()
        assert (drained["mode"], drained["enabled"], drained["drain_until"] > 0) == ("drained", False, True)
        for wrong in ({"trials": "stay"}, {"deadline": -1}, {"deadline": "soon"}):
            assert (await admin.post(f"agents/{name}/drain", json=wrong)).status_code in {400, 422}
        assert (await admin.post(f"agents/{name}/disable")).json()["enabled"] is False
        (seen,) = (await other.get("agents")).json()
        assert (seen["enabled"], seen["state"], [slot["enabled"] for slot in seen["slots"]]) == (
            *(False, "connected"),
            [True, True],
        )
        assert (await admin.post(f"agents/{name}/enable")).json()["enabled"] is True
        reply = await admin.delete(f"agents/{name}")
        assert (reply.status_code, reply.json()["state"]) == (200, "lost")
        assert await end_of(socket) == 4004
        with pytest.raises(HTTPClientError) as error:
            await connect(master, key, name)
        assert error.value.code == 401
        assert (await other.get("agents")).json() == []


async def test_faces_a_second_process_of_an_agent_is_told_why_it_is_not_let_in(master: Any) -> None:
    name = f"node {uuid.uuid4()}"
    url = master.base.replace("http", "ws", 1) + "api/v1/agents/connect"
    async with master.client() as admin:
        key = await enrol(master, admin, name)
        request = HTTPRequest(url, headers={"Authorization": f"Bearer {key}"})
        first, second = [await websocket_connect(request) for _ in range(2)]
        await first.write_message(Hello(uids={}, agent_id=name, process="a", slots=[]).model_dump_json())
        assert json.loads(await first.read_message())["type"] == "welcome"
        await second.write_message(Hello(uids={}, agent_id=name, process="b", slots=[]).model_dump_json())
        assert await end_of(second) == 4003
        assert (second.close_reason or "").startswith("another process, at 127.0.0.1, is connected as this agent")
        (seen,) = [view for view in (await admin.get("agents")).json() if view["id"] == name]
        assert seen["state"] == "connected"
        await admin.delete(f"agents/{name}")
        assert await end_of(first) == 4004


# --- usage


async def test_faces_usage_as_json_and_as_a_table(master: Any, ben: str) -> None:
    def fill(unit: Any) -> None:
        from detlab_hub.store.queries import usage

        usage.add(unit.session, "2026-01-02", "=HYPERLINK(1)", "trial", 7200.0)
        usage.add(unit.session, "2026-01-03", "ben", "notebook", 1800.0)
        usage.add(unit.session, "2026-01-03", "ben", "notebook", 1800.0)

    await master.services.context.write(fill)
    days = {"first": "2026-01-01", "last": "2026-01-31"}
    async with master.client() as admin, master.client(ben) as other:
        items = (await admin.get("usage", params=days)).json()["items"]
        assert [(item["user"], item["slot_hours"]) for item in items] == [("=HYPERLINK(1)", 2.0), ("ben", 1.0)]
        own = (await other.get("usage", params=days)).json()["items"]
        assert [(item["user"], item["kind"]) for item in own] == [("ben", "notebook")]
        table = await admin.get("usage", params=days, headers={"Accept": "text/csv"})
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        assert table.headers["content-disposition"] == 'attachment; filename="slot-hours_2026-01-01_2026-01-31.csv"'
        rows = list(csv.reader(io.StringIO(table.text)))
        assert [row[1] for row in rows] == ["user", "'=HYPERLINK(1)", "ben"]
        assert (await admin.get("usage")).status_code == 200
        for wrong in (
            {"first": "yesterday"},
            {"first": "2026-02-30"},
            {"first": "2026-02-01", "last": "2026-01-01"},
            {"first": "1971-01-01", "last": "2026-01-01"},
            {"last": "0001-01-01"},
            {"first": "-1"},
        ):
            reply = await admin.get("usage", params=wrong)
            assert reply.status_code == 422, f"{wrong}: {reply.text}"


# --- audit


async def test_faces_audit_is_paged_for_administrators(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        for _ in range(3):
            await submit(other)
        await refused(other, "GET", "audit", 403)
        first = (await admin.get("audit", params={"limit": 2})).json()
        assert [item["actor"] for item in first["items"]] == ["ben", "ben"]
        assert first["items"][0]["detail"] == "<b>faces</b>"
        second = (await admin.get("audit", params={"limit": 2, "before": first["next"]})).json()
        assert (len(second["items"]), second["next"]) == (1, None)
        assert (await admin.get("audit", params={"actor": "nobody"})).json()["items"] == []
        assert len((await admin.get("audit", params={"action": "experiment.create"})).json()["items"]) == 3
        for wrong in ({"limit": 0}, {"limit": 5000}, {"before": "x"}, {"before": 2**70}, {"actor": "x" * 400}):
            assert (await admin.get("audit", params=wrong)).status_code == 422, wrong


# --- tokens, service


async def test_faces_tokens_and_service_for_administrators(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        key = await enrol(master, admin, "one")
        for verb, path in (("GET", "tokens"), ("DELETE", "tokens/" + "a" * 12), ("GET", "service")):
            await refused(other, verb, path, 403)
        items = (await admin.get("tokens")).json()["items"]
        (found,) = [item for item in items if item["kind"] == "agent"]
        assert key not in json.dumps(items)
        assert found["id"] == hashlib.sha256(key.encode()).hexdigest()[:12]
        socket = await connect(master, key, "one")
        assert (await admin.delete(f"tokens/{found['id']}")).json()["subject"] == "one"
        assert await end_of(socket) == 4004
        for wrong in (found["id"], "x", "%25"):
            await refused(admin, "DELETE", f"tokens/{wrong}", 404)
        view = HealthView.model_validate((await admin.get("service")).json())
        said = {item.name: item for item in view.items}
        assert said["hub"].ok
        assert said["hub"].detail.startswith("JupyterHub ")
        assert said["database"].ok
        assert said["loops"].ok, said["loops"].detail


async def test_metrics_are_what_prometheus_reads(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        key = await enrol(master, admin, "one")
        socket = await connect(master, key, "one")
        await submit(other)
        reply = await other.get("metrics")
        socket.close()
        assert reply.headers["Content-Type"].startswith("text/plain")
        found = {
            sample.name: sample.value
            for family in text_string_to_metric_families(reply.text)
            for sample in family.samples
        }
        assert found.keys() == {metric.name for metric in METRICS}
        assert (found["detlab_ready"], found["detlab_agents"], found["detlab_experiments_active"]) == (1, 1, 1)
        assert found["detlab_slots"] > 0


async def test_faces_service_says_when_the_hub_is_away(master: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with master.client() as admin:
        assert (await admin.get("me")).status_code == 200  # the Hub's answer about the token is known for a while
        monkeypatch.setattr(master.application.settings["identifier"].hub, "api_url", "http://127.0.0.1:9/hub/api")
        view = HealthView.model_validate((await admin.get("service")).json())
    (hub,) = [item for item in view.items if item.name == "hub"]
    assert (hub.ok, view.ok) == (False, False)
    assert "does not answer" in hub.detail
