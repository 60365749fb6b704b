"""Settings of users over HTTP, by tokens of a real Hub: each has their own, and mistakes are told."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

RIGHTS = {"user_settings.set": "none user", "user_settings.reset": "none user"}
VALID_BODIES = {"user_settings.set": {"theme": "dark"}}
SAID = {
    "POST me/settings": {"who": ["write"], "body": ["bell", "email", "theme", "time_zone"]},
    "DELETE me/settings": {"who": ["write"], "query": ["name"]},
}
DEFAULTS = {"theme": "system", "time_zone": "local", "bell": True, "email": True, "chosen": []}


async def test_each_has_their_own(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    reads = cluster.make_token("custom:detlab:read", user="ben")
    async with master.client() as admin, master.client(ben) as other, master.client(reads) as reader:
        assert (await reader.post("me/settings", json={"theme": "dark"})).status_code == 403
        assert (await reader.delete("me/settings")).status_code == 403
        before = (await admin.get("me/settings")).json()
        assert (await reader.get("me/settings")).json() == DEFAULTS
        made = (await other.post("me/settings", json={"theme": "dark", "time_zone": "Europe/Berlin"})).json()
        assert made == {**DEFAULTS, "theme": "dark", "time_zone": "Europe/Berlin", "chosen": ["theme", "time_zone"]}
        made = (await other.post("me/settings", json={"bell": False})).json()
        assert (made["theme"], made["bell"], made["chosen"]) == ("dark", False, ["theme", "time_zone", "bell"])
        assert (await admin.get("me/settings")).json() == before
        left = (await other.delete("me/settings", params={"name": "theme"})).json()
        assert (left["theme"], left["chosen"]) == ("system", ["time_zone", "bell"])
        assert (await other.delete("me/settings")).json() == DEFAULTS
        acts = [
            one["action"] for one in (await admin.get("audit", params={"actor": "ben", "limit": 2})).json()["items"]
        ]
        assert acts == ["user_settings.reset", "user_settings.reset"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"theme": "loud"}, "theme"),
        ({"time_zone": "Europe/Atlantis"}, "time_zone"),
        ({"time_zone": "../../etc/passwd"}, "time_zone"),
        ({"time_zone": "/etc/localtime"}, "time_zone"),
        ({"time_zone": ""}, "time_zone"),
        ({"user": "ada", "theme": "dark"}, "user"),
        ({"bell": None, "email": "perhaps"}, "email"),
    ],
)
async def test_mistakes_are_told_by_their_field(master: Any, body: dict[str, Any], path: str) -> None:
    async with master.client() as client:
        reply = await client.post("me/settings", json=body)
        assert reply.status_code == 422
        assert [one["path"] for one in reply.json()["problems"]] == [path]
        assert (await client.delete("me/settings", params={"name": "nothing"})).status_code == 422
