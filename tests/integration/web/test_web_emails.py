"""Addresses for alerts over HTTP, by tokens of a real Hub: whose they are, and what a mistake is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detlab_hub.services.base.settings import SmtpServer
from detlab_hub.services.notify.mails import MailSender
from testbed.cluster import Cluster
from testbed.mail.servers import MailServer

pytestmark = pytest.mark.hub

RIGHTS = {
    "alert_email.set": "none user",
    "alert_email.confirm": "none user",
    "alert_email.remove": "none user",
    "alert_email.give": "own administrator",
    "alert_email.take": "own administrator",
}
VALID_BODIES = {
    "alert_email.set": {"address": "ada@example.org"},
    "alert_email.confirm": {"code": "k7mq-9xwd-4tzp"},
    "alert_email.give": {"user": "ada", "address": "ada@example.org"},
}
SAID = {
    "PUT alerts/email": {"who": ["write"], "body": ["address"]},
    "POST alerts/email/confirm": {"who": ["write"], "body": ["code"]},
    "GET alerts/emails": {"who": ["admin"], "query": ["user"]},
    "PUT alerts/emails": {"who": ["admin"], "body": ["address", "user"]},
    "DELETE alerts/emails": {"who": ["admin"], "query": ["user"]},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MailServer]:
    """A mail server."""
    folder = tmp_path / "mail"
    folder.mkdir()
    found = MailServer(folder).start()
    yield found
    found.kill()


async def test_addresses_of_two_tenants(master: Any, cluster: Cluster, server: MailServer) -> None:
    smtp = SmtpServer("127.0.0.1", server.port, "none", "det@example.org")
    object.__setattr__(master.services.settings, "smtp", smtp)
    ben = cluster.make_token("custom:detlab:write", user="ben")
    reads = cluster.make_token("custom:detlab:read", user="ben")
    async with master.client() as admin, master.client(ben) as other, master.client(reads) as reader:
        body = {"address": "ben@example.org"}
        assert (await reader.put("alerts/email", json=body)).status_code == 403
        assert (await other.put("alerts/emails", json={**body, "user": "ben"})).status_code == 403
        assert (await other.get("alerts/emails", params={"user": "ada"})).status_code == 403
        asked = (await other.put("alerts/email", json=body)).json()
        assert (asked["user"], asked["address"], asked["pending"]) == ("ben", "", "ben@example.org")
        assert "code" not in {key for key, value in asked.items() if value}
        await MailSender(master.services.context).step()
        found = re.search(r"alert email confirm (\S+)", server.mails[-1].get_content())
        assert found is not None
        code = {"code": found[1]}
        assert (await admin.post("alerts/email/confirm", json=code)).status_code == 409
        assert (await other.post("alerts/email/confirm", json=code)).json()["address"] == "ben@example.org"
        assert (await admin.get("alerts/email")).json()["address"] == ""
        seen = (await admin.get("alerts/emails", params={"user": "ben"})).json()
        assert (seen["address"], seen["set_by"]) == ("ben@example.org", "ben")
        rule = (await other.post("alerts/rules", json={"kind": "failed", "email": True, "bell": False})).json()
        assert (rule["email"], rule["bell"]) == (True, False)
        assert (await admin.post("alerts/rules", json={"kind": "failed", "email": True})).status_code == 409
        given = (await admin.put("alerts/emails", json={"user": "ben", "address": "b@example.org"})).json()
        assert (given["address"], given["set_by"]) == ("b@example.org", cluster.user)
        assert (await other.delete("alerts/email")).json()["address"] == ""
        assert (await admin.delete("alerts/emails", params={"user": "ben"})).json()["address"] == ""
        audited = {
            one["action"] for one in (await admin.get("audit", params={"action": "alert_email"})).json()["items"]
        }
        assert audited == {f"alert_email.{one}" for one in ("set", "confirm", "give", "remove")}


@pytest.mark.parametrize(
    ("verb", "path", "body", "problem"),
    [
        ("PUT", "alerts/email", {"address": "ada@example.org\r\nBcc: ben@example.org"}, "address"),
        ("PUT", "alerts/email", {"address": "ada@example.org,ben@example.org"}, "address"),
        ("PUT", "alerts/email", {"address": "ada@example.org", "user": "ben"}, "user"),
        ("PUT", "alerts/emails", {"user": "ben", "address": "ben"}, "address"),
        ("PUT", "alerts/emails", {"user": "", "address": "ben@example.org"}, "user"),
        ("POST", "alerts/email/confirm", {"code": ""}, "code"),
        ("POST", "alerts/rules", {"kind": "failed", "email": "ada@example.org"}, "email"),
    ],
)
async def test_a_mistake_in_it_is_told_where_it_is(
    master: Any, verb: str, path: str, body: dict[str, Any], problem: str
) -> None:
    async with master.client() as admin:
        reply = await admin.request(verb, path, json=body)
        assert reply.status_code == 422, reply.text
        assert problem in [one["path"] for one in reply.json()["problems"]]
