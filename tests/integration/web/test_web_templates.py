"""Templates and config policies over HTTP, by tokens of a real Hub, and by the commands of `det`."""

from __future__ import annotations

from typing import Any

import pytest
from test_faces_routes import refused

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

RIGHTS = {
    "template.set": "write user",
    "template.remove": "write user",
    "config_policy.set": "own user",
    "config_policy.remove": "own user",
}
VALID_BODIES = {
    "template.set": {"name": "small", "config": {"max_restarts": 1}},
    "config_policy.set": {"workload": "experiment", "constraints": {"resources": {"max_slots": 4}}},
}
SAID = {
    "GET templates": {"who": ["read"], "query": ["after", "limit", "workspace"]},
    "PUT templates": {
        "who": ["write"],
        "body": ["base", "config.*", "config_yaml", "create", "description", "name", "workspace"],
    },
    "GET templates/one": {"who": ["read"], "query": ["name"]},
    "DELETE templates/one": {"who": ["write"], "query": ["name"]},
    "GET config-policies": {"who": ["read"], "query": ["workload", "workspace"]},
    "PUT config-policies": {
        "who": ["write"],
        "body": [
            "constraints",
            "constraints.priority_limit",
            "constraints.resources",
            "constraints.resources.max_slots",
            "invariant_config.*",
            "workload",
            "workspace",
        ],
    },
    "DELETE config-policies": {"who": ["write"], "query": ["workload", "workspace"]},
}
CONFIG = {
    "entrypoint": "true",
    "searcher": {"name": "single", "metric": "loss"},
    "hyperparameters": {"lr": 0.1},
    "resources": {"slots_per_trial": 1},
}


async def test_templates_of_two_tenants(master: Any, cluster: Cluster) -> None:
    tokens = [cluster.make_token("custom:detlab:write", user=name) for name in ("ada", "ben")]
    async with master.client(tokens[0]) as ada, master.client(tokens[1]) as ben, master.client() as admin:
        made = await ada.put("templates", json=VALID_BODIES["template.set"])
        assert (made.status_code, made.json()["reference"]) == (200, "ada/Uncategorized:small")
        sent = {"config": CONFIG, "template": "small", "dry_run": True}
        reply = (await ada.post("experiments", json=sent)).json()
        assert reply["config"]["max_restarts"] == 1
        assert reply["given"][0]["source"] == "template small"
        assert (await ben.post("experiments", json=sent)).status_code == 404
        assert (await ben.get("templates")).json()["items"] == []
        for name in ("ada/Uncategorized:small", "ada/Uncategorized:none", "small"):
            assert (await ben.get("templates/one", params={"name": name})).status_code == 404, name
        assert (await ada.get("templates/one", params={"name": "small"})).json()["config"] == {"max_restarts": 1}
        wrong = await ada.put("templates", json={"name": "x", "config": {"max_restart": 1}})
        assert (wrong.status_code, wrong.json()["problems"][0]["path"]) == (422, "max_restart")
        await refused(ada, "DELETE", "templates/one?name=cluster:none", 404)
        cluster_wide = {**VALID_BODIES["template.set"], "workspace": "cluster"}
        assert (await ada.put("templates", json=cluster_wide)).status_code == 403
        assert (await admin.put("templates", json=cluster_wide)).status_code == 200
        assert [one["name"] for one in (await ben.get("templates")).json()["items"]] == ["small"]
        assert (await ada.delete("templates/one", params={"name": "ada/Uncategorized:small"})).status_code == 200
        assert (await admin.delete("templates/one", params={"name": "cluster:small"})).status_code == 200


async def test_a_policy_of_the_cluster_by_http(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    which = {"workload": "experiment"}
    async with master.client(ben) as other, master.client() as admin:
        assert (await other.put("config-policies", json=VALID_BODIES["config_policy.set"])).status_code == 403
        typo = {"workload": "experiment", "constraints": {"resources": {"max_slot": 4}}}
        assert (await admin.put("config-policies", json=typo)).status_code == 422
        try:
            made = await admin.put("config-policies", json=VALID_BODIES["config_policy.set"])
            assert made.json()["constraints"]["resources"]["max_slots"] == 4
            assert (await other.get("config-policies", params=which)).json()["set_at"] is not None
            sent = {"config": {**CONFIG, "resources": {"slots_per_trial": 8}}, "dry_run": True}
            reply = await other.post("experiments", json=sent)
            assert reply.status_code == 422
            assert "config policy of the cluster says constraints.resources.max_slots: 4" in reply.text
            assert (await other.delete("config-policies", params=which)).status_code == 403
        finally:
            gone = await admin.delete("config-policies", params=which)
        assert gone.json()["constraints"]["resources"]["max_slots"] == 4
