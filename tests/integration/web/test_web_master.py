"""The master's log, settings and message over HTTP, by tokens of a real Hub: administrators alone change them."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

RIGHTS = {"cluster.message": "own administrator", "master.configure": "own administrator"}
VALID_BODIES = {"cluster.message": {"text": "down at six"}, "master.configure": {"log_level": "info"}}
SAID = {
    "PUT cluster/message": {"who": ["admin"], "body": ["begins_at", "ends_at", "text"]},
    "GET master/logs": {"who": ["admin"], "query": ["after", "level", "limit", "search"]},
    "POST master/config": {"who": ["admin"], "body": ["log_level"]},
}


async def test_what_administrators_tell_everybody(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    async with master.client() as admin, master.client(ben) as other:
        assert (await other.get("cluster/message")).json() == {"message": None}
        hostile = "<img src=x onerror=alert(1)> down at \u202e6"
        assert (await other.put("cluster/message", json={"text": hostile})).status_code == 403
        assert (await other.delete("cluster/message")).status_code == 403
        made = (await admin.put("cluster/message", json={"text": hostile})).json()["message"]
        assert (made["text"], made["ends_at"]) == (hostile, None)
        assert (await other.get("cluster")).json()["message"]["text"] == hostile
        assert (await other.get("overview")).json()["cluster"]["message"]["text"] == hostile
        soon = time.time() + 3600
        later = {"text": "tomorrow", "begins_at": soon, "ends_at": soon + 60}
        assert (await admin.put("cluster/message", json=later)).status_code == 200
        assert (await other.get("cluster/message")).json() == {"message": None}
        assert (await other.get("cluster")).json()["message"] is None
        assert (await admin.get("cluster/message")).json()["message"]["text"] == "tomorrow"
        for wrong in (
            {"text": ""},
            {"text": "x" * 251},
            {**later, "ends_at": soon - 1},
            {"text": "gone", "ends_at": 5},
        ):
            assert (await admin.put("cluster/message", json=wrong)).status_code == 422, wrong
        assert (await admin.delete("cluster/message")).json()["message"]["text"] == "tomorrow"
        assert (await admin.delete("cluster/message")).json() == {"message": None}
        acts = [one["action"] for one in (await admin.get("audit", params={"limit": 5})).json()["items"]]
        assert acts[:3] == ["cluster.clear_message", "cluster.set_message", "cluster.set_message"]


async def test_the_log_and_the_settings_are_for_administrators(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    async with master.client() as admin, master.client(ben) as other:
        for way, path in (("GET", "master/logs"), ("GET", "master/config"), ("POST", "master/config")):
            assert (await other.request(way, path, json={"log_level": "debug"})).status_code == 403
        config = (await admin.get("master/config")).json()
        level = config["log_level"]
        try:
            assert (await admin.post("master/config", json={"log_level": "error"})).json()["log_level"] == "error"
        finally:
            assert (await admin.post("master/config", json={"log_level": level})).json()["log_level"] == level
        assert (await admin.post("master/config", json={"log_level": "loud"})).status_code == 422
        page = (await admin.get("master/logs", params={"limit": 3, "level": "warning"})).json()
        assert set(page) == {"items", "last", "dropped"}
        nothing = (await admin.get("master/logs", params={"search": "no line has this text"})).json()
        assert nothing == {**page, "items": [], "last": nothing["last"]}
        assert (await admin.get("master/logs", params={"search": "x" * 201})).status_code == 422


async def test_probes_need_no_token_and_learn_nothing_else(master: Any) -> None:
    async with httpx.AsyncClient(base_url=master.base, trust_env=False, timeout=20) as nobody:
        for page in ("health", "ready"):
            answer = await nobody.get(page)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert (await nobody.get("api/v1/service")).status_code in {401, 403}
