"""The job queue and quotas over HTTP, by a real Hub's tokens: who may do what, and what is no request."""

from __future__ import annotations

from typing import Any

import pytest
from test_faces_routes import refused, submit

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub


@pytest.fixture
def ben(cluster: Cluster) -> str:
    """A user who is no administrator."""
    return cluster.make_token("custom:detlab:write", user="ben")


async def test_jobs_of_two_tenants(master: Any, cluster: Cluster, ben: str) -> None:
    reads = cluster.make_token("custom:detlab:read", user="ben")
    async with master.client() as admin, master.client(ben) as other, master.client(reads) as reader:
        theirs = await submit(admin)
        mine = await submit(other)
        await master.services.schedule()
        seen = (await other.get("jobs")).json()["items"]
        assert [(item["id"], item["owner"], item["name"]) for item in seen] == [
            ("place 1", "another user", ""),
            (str(mine), "ben", "<b>faces</b>"),
        ]
        assert [item["id"] for item in (await other.get("jobs", params={"mine": "true"})).json()["items"]] == [
            str(mine)
        ]
        assert [item["id"] for item in (await admin.get("jobs")).json()["items"]] == [str(theirs), str(mine)]
        why = (await reader.get(f"jobs/{mine}/why")).json()
        assert (why["waiting"], why["items"][0]["reason"]) == (1, "no_agent")
        trial = why["items"][0]["trial_id"]
        assert (await reader.get(f"jobs/trial-{trial}/why")).json()["items"] == why["items"]
        for path in (f"jobs/{theirs}/why", "jobs/no-such/why", "jobs/%2e%2e/why", "jobs/99999999999999999999/why"):
            await refused(other, "GET", path, 404)
        changed = await other.post(f"jobs/{mine}", json={"priority": 17, "weight": 2})
        assert (changed.json()["priority"], changed.json()["order"]) == (17, 1)
        assert (await reader.post(f"jobs/{mine}", json={"priority": 18})).status_code == 403
        assert (await other.post(f"jobs/{theirs}", json={"priority": 18})).status_code == 404
        assert (await admin.post(f"jobs/{mine}", json={"priority": 42})).json()["priority"] == 42
        for wrong in (
            {},
            {"priority": 0},
            {"priority": 100},
            {"priority": "high"},
            {"weight": 0},
            {"weight": -1},
            {"weight": 1e300},
            {"weight": "NaN"},
            {"pool": ""},
            {"pool": "no such"},
            {"ahead_of": "1", "behind_of": "2"},
        ):
            reply = await other.post(f"jobs/{mine}", json=wrong)
            assert reply.status_code == 422, f"{wrong}: {reply.text}"


@pytest.mark.parametrize(
    ("path", "lists"),
    [
        ("experiments?state=DONE", "'COMPLETED'"),
        ("experiments?state=active", "'ACTIVE'"),
        ("experiments?archived=yes", "'only'"),
        ("experiments?limit=0", "greater than or equal to 1"),
        ("experiments?limit=1001", "less than or equal to 1000"),
        ("tasks?state=RUNNING", "'ACTIVE'"),
        ("tasks?state=ACTIVE,DONE", "'COMPLETED'"),
        ("tasks?kind=notebok", "'notebook'"),
        ("tasks?limit=-1", "greater than or equal to 1"),
        ("jobs?pool=nowhere", "default"),
        ("quotas?kind=team&name=x", "'group'"),
        ("storage/usage?by=team", "'project'"),
        ("models?archived=some", "'any'"),
    ],
)
async def test_filters_that_nothing_can_match_are_refused_and_not_answered_by_nothing(
    master: Any, path: str, lists: str
) -> None:
    async with master.client() as admin:
        reply = await admin.request("DELETE" if path.startswith("quotas") else "GET", path)
        assert reply.status_code == 422, reply.text
        assert lists in reply.text


async def test_filters_of_tasks_and_experiments_take_what_there_is(master: Any) -> None:
    async with master.client() as admin:
        mine = await submit(admin)
        found = (await admin.get("experiments", params={"state": "ACTIVE"})).json()["items"]
        assert [item["id"] for item in found] == [mine]
        for path in (
            "experiments?state=ERROR",
            "tasks?state=ACTIVE,ERROR&kind=notebook&kind=shell",
            "jobs?pool=default",
        ):
            assert (await admin.get(path)).status_code == 200


async def test_pools_are_for_everybody(master: Any, cluster: Cluster, ben: str) -> None:
    reads = cluster.make_token("custom:detlab:read", user="ben")
    async with master.client() as admin, master.client(ben) as other, master.client(reads) as reader:
        await submit(admin)
        await master.services.schedule()
        (pool,) = (await reader.get("pools")).json()["items"]
        assert (pool["name"], pool["scheduler"], pool["takes"]) == ("default", "priority", ["slots", "no_slots"])
        assert (pool["agents"], pool["slots_total"], pool["tasks_waiting"]) == (0, 0, 1)
        assert (await other.get("pools")).json() == (await admin.get("pools")).json()


async def test_quotas_are_administrators_to_set(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        body = {"kind": "user", "name": "ben", "slots": 0}
        assert (await other.put("quotas", json=body)).status_code == 403
        await refused(other, "DELETE", "quotas?kind=user&name=ben", 403)
        nothing = {"items": [], "storage": [], "workspaces": [], "costs": [], "currency": ""}
        assert (await other.get("quotas")).json() == nothing
        assert (await admin.put("quotas", json=body)).json()["items"][0]["slots"] == 0
        await admin.put("quotas", json={"kind": "group", "name": "<b>", "slots": 3})
        assert [item["name"] for item in (await other.get("quotas")).json()["items"]] == ["ben"]
        refusal = await other.post("experiments", json={"config": {
            "name": "x", "entrypoint": ["true"], "searcher": {"name": "single", "metric": "x", "max_length": 1},
            "resources": {"slots_per_trial": 1}}})  # fmt: skip
        assert refusal.status_code == 422, refusal.text
        assert "more than the quota of user ben: 0" in refusal.json()["message"]
        await submit(admin)
        assert len((await admin.request("DELETE", "quotas?kind=user&name=ben")).json()["items"]) == 1
        await refused(admin, "DELETE", "quotas?kind=user&name=ben", 404)
        await submit(other)
        for wrong in (
            {"kind": "role", "name": "ben", "slots": 1},
            {"kind": "user", "name": "", "slots": 1},
            {"kind": "user", "name": "ben", "slots": -1},
            {"kind": "user", "name": "ben", "slots": 10**12},
            {"kind": "user", "name": "ben"},
            {"kind": "user", "name": "x" * 400, "slots": 1},
            {"kind": "user", "name": "ben", "storage": -1},
            {"kind": "workspace", "name": "1", "storage": 1},
            {"kind": "user", "name": "ben", "storage": 2**70},
        ):
            assert (await admin.put("quotas", json=wrong)).status_code == 422, wrong


async def test_quotas_of_bytes_and_who_stores_how_much(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        body = {"kind": "user", "name": "ben", "storage": 0}
        assert (await other.put("quotas", json=body)).status_code == 403
        assert (await admin.put("quotas", json=body)).json()["storage"][0]["storage"] == 0
        config = {"name": "x", "entrypoint": ["true"], "searcher": {"name": "single", "metric": "x", "max_length": 1}}
        refusal = await other.post("experiments", json={"config": config})
        assert refusal.status_code == 409, refusal.text
        assert refusal.json()["code"] == "quota.storage"
        assert "the storage quota of user ben is used up" in refusal.json()["message"]
        shown = (await other.get("storage/usage")).json()
        assert [(item["name"], item["limit"]) for item in shown["items"]] == [("ben", 0)]
        assert len(shown["warnings"]) == 1
        for by in ("user", "group", "project", "experiment"):
            assert (await admin.get("storage/usage", params={"by": by, "limit": 1})).json()["by"] == by
        for wrong in ("by=planet", "limit=0", "limit=1001", "limit=x"):
            await refused(other, "GET", f"storage/usage?{wrong}", 422)
        await refused(admin, "DELETE", "quotas?kind=user&name=ben&what=slots", 404)
        await refused(admin, "DELETE", "quotas?kind=user&name=ben&what=all", 422)
        assert (await admin.request("DELETE", "quotas?kind=user&name=ben&what=storage")).json()["storage"] == []
        await submit(other)
