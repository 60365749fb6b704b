"""Workspaces, members, projects and moves over HTTP, by a real Hub's tokens: members, others, bad input."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from test_faces_routes import CONFIG

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

RIGHTS = {
    "workspace.create": "none user",
    "workspace.edit": "own user",
    "workspace.archive": "own user",
    "workspace.delete": "own user",
    "member.set": "own user",
    "member.remove": "own user",
    "member.leave": "read user",
    "project.create": "write user, notebook run",
    "project.edit": "write user, notebook run",
    "project.archive": "own user",
    "project.delete": "own user",
}
SAID = {
    "GET workspaces": {"who": ["read"], "query": ["after", "archived", "limit", "name"]},
    "POST workspaces": {"who": ["write"], "body": ["description", "name"]},
    "POST workspaces/{workspace}/edit": {
        "who": ["write"],
        "body": [
            "archived",
            "defaults",
            "defaults.checkpoint_storage.*",
            "defaults.environment.*",
            "defaults.resource_pool",
            "defaults.task_container_defaults.*",
            "defaults.template",
            "description",
            "name",
        ],
    },
    "PUT workspaces/{workspace}/members": {"who": ["write"], "body": ["kind", "name", "role"]},
    "DELETE workspaces/{workspace}/members": {"who": ["write"], "query": ["kind", "name"]},
    "GET workspaces/{workspace}/projects": {"who": ["read"], "query": ["after", "archived", "limit"]},
    "POST workspaces/{workspace}/projects": {"who": ["write"], "body": ["description", "name", "notes"]},
    "POST workspaces/{workspace}/projects/{project}/edit": {
        "who": ["write"],
        "body": ["archived", "description", "name", "notes", "notes_before"],
    },
    "POST experiments/{experiment_id}/move": {"who": ["write"], "body": ["keep_storage", "project", "workspace"]},
    "POST models/{model}/move": {"who": ["write"], "body": ["workspace"]},
}
VALID_BODIES = {
    "workspace.create": {"name": "lab", "description": "x"},
    "workspace.edit": {"description": "y"},
    "workspace.archive": {"archived": True},
    "member.set": {"kind": "user", "name": "carol", "role": "viewer"},
    "project.create": {"name": "speech"},
    "project.edit": {"notes": "y"},
    "project.archive": {"archived": True},
}


async def test_a_workspace_of_two_users(master: Any, cluster: Cluster) -> None:
    tokens = [cluster.make_token("custom:detlab:write", user=name) for name in ("ada", "ben")]
    async with master.client(tokens[0]) as ada, master.client(tokens[1]) as ben:
        made = (await ada.post("workspaces", json={"name": "Vision lab"})).json()
        assert (made["owner"], made["role"], made["may"], made["personal"]) == ("ada", "admin", "own", False)
        place = f"workspaces/{quote('ada/vision LAB', safe='')}"
        assert (await ada.post(f"{place}/projects", json={"name": "digits"})).json()["workspace"] == "ada/Vision lab"
        config = {**CONFIG, "workspace": "ada/vision lab", "project": "digits"}
        hers = (await ada.post("experiments", json={"config": config})).json()["experiment"]["id"]
        await next_door(ben, place, config, hers)
        member = {"kind": "user", "name": "ben", "role": "editor"}
        told = (await ada.put(f"{place}/members", json=member)).json()["items"]
        assert [(one["name"], one["role"]) for one in told] == [("ada", "admin"), ("ben", "editor")]
        assert (await ben.get(place)).json()["role"] == "editor"
        assert (await ben.get(f"experiments/{hers}")).json()["may"] == "write"
        assert (await ben.delete(f"{place}/projects/digits")).status_code == 403
        number = (await ben.post("experiments", json={"config": config})).json()["experiment"]["id"]
        narrowed = {"workspace": "Vision lab", "project": "digits"}
        found = (await ada.get("experiments", params=narrowed)).json()["items"]
        assert [(one["id"], one["owner"], one["may"]) for one in found] == [
            (number, "ben", "own"),
            (hers, "ada", "own"),
        ]
        assert (await ada.delete(f"{place}/projects/digits")).status_code == 409
        moved = await ben.post(f"experiments/{number}/move", json={})
        assert (moved.json()["workspace"], moved.json()["project"]) == ("Uncategorized", "Uncategorized")
        assert (await ada.get(f"experiments/{number}")).status_code == 404
        left = await ben.delete(f"{place}/members", params={"kind": "user", "name": "ben"})
        assert (left.status_code, (await ben.get(place)).status_code) == (200, 404)
        assert (await ben.get(f"experiments/{hers}")).status_code == 404
        assert (await ada.delete(f"{place}/members", params={"kind": "user", "name": "ada"})).status_code == 409
        await ada.post(f"experiments/{hers}/move", json={})
        assert (await ada.delete(place)).status_code == 200


async def test_a_task_in_a_workspace_of_two_users(master: Any, cluster: Cluster) -> None:
    """Its members see how it stands; what is in it stays its owner's, by each route."""
    tokens = [cluster.make_token("custom:detlab:write", user=name) for name in ("ada", "ben")]
    secret = "hunter2-of-ada"
    async with master.client(tokens[0]) as ada, master.client(tokens[1]) as ben:
        made = (await ada.post("workspaces", json={"name": "Tasks"})).json()
        place = f"workspaces/{made['id']}"
        waits = f"import time; print('{secret}', flush=True); time.sleep(600)"
        config = {"entrypoint": ["python3", "-c", waits], "resources": {"slots": 0}, "workspace": "Tasks"}
        task = (await ada.post("tasks", json={"kind": "command", "name": "t", "config": config})).json()["task"]
        listed = {"workspace": str(made["id"])}
        hidden = [await ben.get(f"tasks/{task['id']}"), await ben.get("tasks", params=listed)]
        assert [one.status_code for one in hidden] == [404, 404]
        for role, kills in (("viewer", 403), ("editor", 403), ("admin", 200)):
            member = {"kind": "user", "name": "ben", "role": role}
            (await ada.put(f"{place}/members", json=member)).raise_for_status()
            (seen,) = (await ben.get("tasks", params=listed)).json()["items"]
            assert (seen["id"], seen["owner"], seen["opens"], seen["workspace"]) == (task["id"], "ada", False, "Tasks")
            assert (await ben.get("tasks")).json()["items"] == []
            assert secret not in (await ben.get(f"tasks/{task['id']}")).text
            for path in ("logs", "logs/stream", "outputs", f"outputs/sha256:{'0' * 64}"):
                assert (await ben.get(f"tasks/{task['id']}/{path}")).status_code == 403, path
            assert (await ben.get(f"jobs/{task['id']}/why")).status_code == 404
            assert (await ben.post(f"tasks/{task['id']}/move", json={})).status_code == 403
            assert (await ben.post(f"tasks/{task['id']}/kill")).status_code == kills
        assert (await ada.get(f"tasks/{task['id']}")).json()["state"] != "ACTIVE"
        moved = (await ada.post(f"tasks/{task['id']}/move", json={})).json()
        assert (moved["workspace"], moved["opens"], moved["may"]) == ("", True, "own")
        assert (await ben.get(f"tasks/{task['id']}")).status_code == 404
        assert (await ada.delete(place)).status_code == 200


async def next_door(ben: Any, place: str, config: dict[str, Any], number: int) -> None:
    """Nothing of it is there for somebody else, and nothing of its name."""
    for path in (place, f"{place}/members", f"{place}/projects", f"{place}/projects/digits", f"experiments/{number}"):
        assert (await ben.get(path)).status_code == 404
    assert "ada" not in {one["owner"] for one in (await ben.get("workspaces")).json()["items"]}
    hidden = await ben.post("experiments", json={"config": config})
    absent = await ben.post("experiments", json={"config": {**config, "workspace": "ada/no such"}})
    assert (hidden.status_code, absent.status_code) == (422, 422)
    assert hidden.text.replace("vision lab", "no such") == absent.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("workspaces", {}),
        ("workspaces", {"name": ""}),
        ("workspaces", {"name": "a/b"}),
        ("workspaces", {"name": "12"}),
        ("workspaces", {"name": "x" * 100_000}),
        ("workspaces", {"name": "a", "owner": "root"}),
        ("workspaces", {"name": "a", "description": "x" * 10_001}),
        ("workspaces/1/projects", {"name": "a", "notes": "x" * 100_001}),
        ("workspaces/1/projects", {"name": ".."}),
        ("experiments/1/move", {"workspace": "x" * 10_000}),
        ("experiments/1/move", {"workspace_id": 1}),
        ("tasks/command-000000000000/move", {"workspace": "x" * 10_000}),
        ("tasks/command-000000000000/move", {"owner": "ada"}),
    ],
)
async def test_what_is_no_request_is_refused(master: Any, path: str, body: dict[str, Any]) -> None:
    async with master.client() as admin:
        reply = await admin.post(path, json=body)
        assert reply.status_code == 422, reply.text


async def test_a_role_that_there_is_not_is_refused(master: Any) -> None:
    async with master.client() as admin:
        for role in ("owner", "ADMIN", "", 3, None):
            reply = await admin.put("workspaces/1/members", json={"kind": "user", "name": "ben", "role": role})
            assert reply.status_code == 422, reply.text
