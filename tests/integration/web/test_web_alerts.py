"""Alerts, rules and webhooks over HTTP, by tokens of a real Hub: whose they are, and what a mistake is told."""

from __future__ import annotations

from typing import Any

import pytest
from test_faces_routes import refused

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

RIGHTS = {
    "alert.read": "none user",
    "alert_rule.set": "none user",
    "alert_rule.remove": "own user",
    "webhook.create": "none user",
    "webhook.test": "own user",
    "webhook.delete": "own user",
}
VALID_BODIES = {
    "alert.read": {"upto": 1},
    "alert_rule.set": {"kind": "completed"},
    "webhook.create": {"name": "chat", "url": "https://93.184.216.34/hook", "triggers": ["completed"]},
    "webhook.test": {},
}
SAID = {
    "GET alerts": {"who": ["read"], "query": ["all_channels", "before", "limit", "unread"]},
    "POST alerts/read": {"who": ["write"], "body": ["ids", "upto"]},
    "GET alerts/rules": {"who": ["read"], "query": ["after", "limit"]},
    "POST alerts/rules": {
        "who": ["write"],
        "body": ["amount", "bell", "email", "experiment_id", "kind", "pattern", "project", "webhook", "workspace"],
    },
    "GET webhooks": {"who": ["read"], "query": ["after", "limit"]},
    "POST webhooks": {"who": ["write"], "body": ["format", "name", "project", "triggers", "url", "workspace"]},
    "GET webhooks/{webhook}/calls": {"who": ["read"], "query": ["before", "limit"]},
}


async def test_rules_and_webhooks_of_two_tenants(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    reads = cluster.make_token("custom:detlab:read", user="ben")
    async with master.client() as admin, master.client(ben) as other, master.client(reads) as reader:
        made = (await other.post("webhooks", json=VALID_BODIES["webhook.create"])).json()
        assert (made["name"], made["owner"], made["rules"][0]["kind"]) == ("chat", "ben", "completed")
        assert made["secret"]
        seen = (await reader.get("webhooks/chat")).json()
        assert (seen["secret"], seen["url"]) == ("", "https://93.184.216.34/hook")
        (hidden,) = (await admin.get("webhooks")).json()["items"]
        assert (hidden["owner"], hidden["url"]) == ("ben", "https://93.184.216.34/…")
        await refused(admin, "GET", "webhooks/chat", 404)
        assert (await reader.post("alerts/rules", json={"kind": "completed"})).status_code == 403
        rule = (await other.post("alerts/rules", json={"kind": "improved", "webhook": made["id"]})).json()
        assert (rule["amount"], rule["bell"], rule["scope"]) == (1.0, True, "owner")
        assert (await admin.get("alerts/rules")).json()["items"] == []
        assert (await admin.post("alerts/rules", json={"kind": "failed", "webhook": made["id"]})).status_code == 404
        assert (await other.post("webhooks/chat/test")).json()["waiting"] == 1
        assert [one["event"] for one in (await reader.get("webhooks/chat/calls")).json()["items"]] == ["test"]
        assert (await other.delete("webhooks/chat")).json()["id"] == made["id"]
        (left,) = (await other.get("alerts/rules")).json()["items"]
        assert (left["id"], left["webhook"]) == (rule["id"], None)
        assert (await other.delete(f"alerts/rules/{rule['id']}")).status_code == 200
        assert (await other.get("alerts")).json() == {"items": [], "unread": 0, "next": None}
        assert (await other.post("alerts/read", json={"upto": 5})).json() == {"unread": 0}


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("webhooks", {"name": "a", "url": "http://127.0.0.1:1/"}, "url"),
        ("webhooks", {"name": "a", "url": "http://169.254.169.254/latest"}, "url"),
        ("webhooks", {"name": "a", "url": "file:///etc/passwd"}, "url"),
        ("webhooks", {"name": "a", "url": "https://a.example/\r\nHost: b"}, "url"),
        ("webhooks", {"name": "7", "url": "https://93.184.216.34/"}, "name"),
        ("webhooks", {"name": "a", "url": "https://93.184.216.34/", "owner": "ben"}, "owner"),
        ("alerts/rules", {"kind": "improved", "amount": -1}, "amount"),
        ("alerts/rules", {"kind": "never"}, "kind"),
    ],
)
async def test_a_mistake_is_told_where_it_is(master: Any, path: str, body: dict[str, Any], problem: str) -> None:
    async with master.client() as admin:
        reply = await admin.post(path, json=body)
        assert reply.status_code == 422, reply.text
        assert problem in [one["path"] for one in reply.json()["problems"]]
