"""Schedules over HTTP, by tokens of a real Hub: whose they are, whom the Hub still knows, what a mistake is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from test_faces_routes import refused

from detlab_hub.services.schedules.firing import ScheduleFiring
from detlab_hub.services.schedules.schedules import Schedules
from detlab_hub.services.usertasks.hub_client import HubServers
from detlab_hub.services.usertasks.usertasks import UserTasks
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

RIGHTS = {
    "schedule.create": "none user",
    "schedule.pause": "own user",
    "schedule.resume": "own user",
    "schedule.run": "own user",
    "schedule.remove": "own user",
}
VALID_BODIES = {"schedule.create": {"cron": "0 6 * * 1-5", "time_zone": "Europe/Berlin"}}
SAID = {
    "GET schedules": {"who": ["read"], "query": ["after", "limit", "owner"]},
    "POST schedules": {
        "who": ["write"],
        "body": [
            "after_experiment",
            "after_task",
            "bundle",
            "config.*",
            "cron",
            "idempotency_key",
            "name",
            "notebook",
            "parameters.*",
            "template",
            "time_zone",
        ],
    },
}


async def test_schedules_of_two_tenants(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    reads = cluster.make_token("custom:detlab:read", user="ben")
    ada = cluster.make_token("custom:detlab:write", user="ada")
    async with (
        master.client() as admin,
        master.client(ben) as other,
        master.client(reads) as reader,
        master.client(ada) as stranger,
    ):
        reply = await other.post("schedules", json={**VALID_BODIES["schedule.create"], "name": "nightly"})
        assert reply.status_code == 200, reply.text
        made = reply.json()["schedule"]
        assert (made["owner"], made["state"], len(made["next_times"])) == ("ben", "active", 3)
        one = f"schedules/{made['id']}"
        assert (await reader.get(one)).json()["cron"] == "0 6 * * 1-5"
        assert (await reader.post(f"{one}/pause")).status_code == 403
        asked = [("GET", one), ("DELETE", one), *(("POST", f"{one}/{act}") for act in ("pause", "resume", "run"))]
        for verb, path in asked:
            await refused(stranger, verb, path, 404)
        assert (await stranger.get("schedules")).json()["items"] == []
        assert [item["owner"] for item in (await admin.get("schedules")).json()["items"]] == ["ben"]
        assert (await other.post(f"{one}/pause")).json()["state"] == "paused"
        assert (await other.post(f"{one}/resume")).json()["state"] == "active"
        for wrong in ("99999999999999999999", "-1", "zzz"):
            assert (await other.get(f"schedules/{wrong}")).status_code in {404, 422}
        assert (await other.delete(one)).json()["id"] == made["id"]
        await refused(other, "GET", one, 404)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "0 0 * *"}, "cron"),
        ({"cron": "@daily", "time_zone": "Mars/Olympus"}, "time_zone"),
        ({"cron": "@daily", "after_experiment": 1}, ""),
        ({}, ""),
        ({"cron": "@daily", "owner": "ben"}, "owner"),
        ({"cron": "@daily", "kind": "notebook"}, "kind"),
        ({"after_experiment": 2**63}, "after_experiment"),
    ],
)
async def test_a_mistake_is_told_where_it_is(master: Any, body: dict[str, Any], problem: str) -> None:
    async with master.client() as admin:
        reply = await admin.post("schedules", json=body)
        assert reply.status_code == 422, reply.text
        assert problem in [one["path"] for one in reply.json()["problems"]]


@pytest.fixture
async def hub(cluster: Cluster, hub_port: int) -> AsyncIterator[HubServers]:
    """The Hub, asked with the token of the service."""
    token = (cluster.folder / "secrets" / "service_token").read_text().strip()
    found = HubServers(f"http://127.0.0.1:{hub_port}/hub/api", token)
    yield found
    await found.close()


async def test_the_hub_says_who_is_a_user_when_a_schedule_fires(master: Any, cluster: Cluster, hub: HubServers) -> None:
    assert await hub.groups_of("ben") == frozenset()
    assert await hub.groups_of("nobody") is None
    with cluster.hub() as api:
        api.post("users/leaver").raise_for_status()
        leaver = cluster.make_token("custom:detlab:write", user="leaver")
    services = master.services
    services.keep(ScheduleFiring(services.context, services[UserTasks], hub))
    services.keep(Schedules(services.context, services[ScheduleFiring]))
    async with master.client() as admin, master.client(leaver) as owner:
        made = (await owner.post("schedules", json=VALID_BODIES["schedule.create"])).json()["schedule"]
        with cluster.hub() as api:
            api.delete("users/leaver").raise_for_status()
        reply = await admin.post(f"schedules/{made['id']}/run")
        assert reply.status_code == 409
        assert "leaver is no user of the Hub any more" in reply.json()["message"]
