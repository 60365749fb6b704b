"""Every verb of every route with an id, asked by somebody else than the owner: nothing is told, nothing is done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from testbed.cluster import Cluster
from testbed.people.belongings import CONFIG, DIGEST, FILE, MARK, Belongings, belongings
from testbed.people.callers import task_token
from testbed.routes import Asked, verbs

pytestmark = pytest.mark.hub

STREAM = 0.5
"""Seconds to wait for a stream's first words."""
TO_BEN = {"kind": "user", "name": "ben", "write": True}
BODIES = {
    "PUT api/v1/experiments/{experiment_id}/grants": TO_BEN,
    "POST api/v1/experiments/{experiment_id}/search": {"act": "extend", "trials": 9},
    "POST api/v1/experiments/{experiment_id}/search/tell": {"trial_id": 1},
    "PUT api/v1/models/{model}/grants": TO_BEN,
    "POST api/v1/models/{model}/versions": {"experiment_id": 1},
    "POST api/v1/models/{model}/labels/{label}": {"version": 1},
    "POST api/v1/jobs/{job_id}": {"weight": 99},
    "POST api/v1/artifacts/{artifact}/versions": {"files": [{"path": "own.txt", "size": 1, "digest": DIGEST}]},
    "PUT api/v1/workspaces/{workspace}/members": {"kind": "user", "name": "ben", "role": "admin"},
    "POST api/v1/workspaces/{workspace}/projects": {"name": "bens"},
    "POST api/v1/task/checkpoints/{uuid}/verification": {"manifest_digest": DIGEST, "s_hash": DIGEST},
    "POST api/v1/runs/{run_id}/writers/{writer}/records": {"records": []},
    "POST api/v1/checkpoints/{uuid}/remove-files": {"globs": ["*"]},
}
"""Of verbs that need one to be understood."""
QUERIES = {
    "DELETE api/v1/experiments/{experiment_id}/grants": {"kind": "user", "name": "ben"},
    "DELETE api/v1/models/{model}/grants": {"kind": "user", "name": "ben"},
    "DELETE api/v1/workspaces/{workspace}/members": {"kind": "user", "name": "ben"},
    "GET api/v1/models/{model}/compare": {"versions": "1,1"},
    "GET api/v1/runs/{run_id}/metrics": {"name": MARK},
    "GET api/v1/runs/{run_id}/file": {"path": "own.txt"},
    "PUT api/v1/runs/{run_id}/media": {"key": "bens", "step": 1, "kind": "text", "media_type": "text/plain"},
    "GET api/v1/artifacts/{artifact}/versions/{version}/file": {"path": "own.txt"},
}
LISTS = (
    "experiments",
    "models",
    "workspaces",
    "overview?all=true",
    "queue",
    "jobs",
    "tasks",
    "audit",
    "usage",
    "agents",
    "tokens",
    "runs",
    "webhooks",
    "alerts",
    "alerts/rules",
    "schedules",
    "templates",
    "artifacts",
    "quotas",
)


NOBODYS = {
    **dict.fromkeys(("experiment_id", "trial_id", "job_id", "model", "workspace", "project"), "999999"),
    **dict.fromkeys(("artifact", "webhook", "alert_rule", "alert", "schedule"), "999999"),
    "uuid": "00000000-0000-4000-8000-000000000001",
    "task_id": "command-000000000000",
    "run_id": "9" * 32,
    "s_hash": "sha256:" + "0" * 64,
}
POLICY = {"workload": "experiment", "workspace": "{workspace}"}
WITHDRAWN = {"source": "web", "reason": "why", "workspace": "{workspace}"}
COMMAND = {"kind": "command", "config": {"entrypoint": "true"}, "dry_run": True}
HOOK = {"name": "bens", "url": "https://93.184.216.34/", "triggers": ["completed"]}
NAMED: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "templates", {"workspace": "{workspace}"}),
    ("GET", "templates/one", {"name": "{workspace}:{mark}"}),
    ("GET", "templates/one", {"name": "{owner}/{mark}:{mark}"}),
    ("DELETE", "templates/one", {"name": "{workspace}:{mark}"}),
    ("DELETE", "templates/one", {"name": "{owner}/{mark}:{mark}"}),
    ("PUT", "templates", {"name": "{mark}", "workspace": "{workspace}", "config": {}}),
    ("PUT", "templates", {"name": "bens", "base": "{workspace}:{mark}", "config": {}}),
    ("PUT", "templates", {"name": "bens", "base": "{owner}/{mark}:{mark}", "config": {}}),
    ("POST", "experiments", {"config": CONFIG, "template": "{workspace}:{mark}", "dry_run": True}),
    ("POST", "experiments", {"config": {**CONFIG, "workspace": "{workspace}"}, "dry_run": True}),
    ("POST", "tasks", {**COMMAND, "template": "{owner}/{mark}:{mark}"}),
    ("GET", "config-policies", POLICY),
    ("PUT", "config-policies", POLICY),
    ("DELETE", "config-policies", POLICY),
    ("POST", "withdrawn-sources", WITHDRAWN),
    ("POST", "withdrawn-sources/undo", WITHDRAWN),
    ("POST", "alerts/rules", {"kind": "completed", "experiment_id": "#experiment_id"}),
    ("POST", "alerts/rules", {"kind": "completed", "webhook": "#webhook"}),
    ("POST", "alerts/rules", {"kind": "alert", "workspace": "{workspace}"}),
    ("POST", "alerts/rules", {"kind": "alert", "workspace": "{workspace}", "project": "{project}"}),
    ("POST", "alerts/rules", {"kind": "alert", "project": "{project}"}),
    ("POST", "alerts/rules", {"kind": "alert", "workspace": "{owner}/{mark}"}),
    ("POST", "webhooks", {**HOOK, "workspace": "{workspace}"}),
    ("POST", "webhooks", {**HOOK, "project": "{project}"}),
    ("POST", "alerts/read", {"ids": ["#alert"]}),
    ("POST", "schedules", {"after_experiment": "#experiment_id"}),
    ("POST", "schedules", {"after_task": "{task_id}"}),
    ("POST", "schedules", {"cron": "@daily", "config": {"workspace": "{workspace}"}}),
    ("POST", "schedules", {"cron": "@daily", "template": "{workspace}:{mark}"}),
    ("GET", "artifacts/{owner}%2F{mark}", {}),
    ("GET", "artifacts/{owner}%2F{mark}/versions/v1/file", {"path": "own.txt"}),
    ("GET", "artifacts", {"workspace": "{workspace}"}),
    ("GET", "comparison", {"runs": "{run_id}"}),
    ("GET", "comparison", {"experiments": "{experiment_id}"}),
    ("GET", "comparison/curves", {"runs": "{run_id}"}),
    ("POST", "artifacts/bens/versions", {"files": [{"path": "a", "size": len(FILE), "digest": "{digest}"}]}),
]
"""Ways to say by a query, a body or a name what the operator has: verb, path, and what is said."""
ANSWERED = {"alerts/read", "artifacts/bens/versions", "comparison", "comparison/curves"}
"""Of those what is answered with what there is for the caller, which is nothing."""


@pytest.fixture(scope="module")
def own(cluster: Cluster) -> Iterator[Belongings]:
    with belongings(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def ben(cluster: Cluster) -> Iterator[httpx.Client]:
    with caller(cluster, cluster.make_token("custom:detlab:write", user="ben")) as client:
        yield client


def caller(cluster: Cluster, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=cluster.service, headers=headers, trust_env=False, timeout=20)


def without(text: str, reply: str) -> str:
    """A reply without what was asked, as a word: experiment 4 is no reason to change a status of 404."""
    return re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "ID", reply)


def filled(said: Any, ids: dict[str, str]) -> Any:
    """What is said, with ids in the places of their names: `{webhook}`, or as a number `#webhook`."""
    match said:
        case dict():
            return {key: filled(value, ids) for key, value in said.items()}
        case list():
            return [filled(value, ids) for value in said]
        case str():
            return int(ids[said[1:]]) if said.startswith("#") else said.format_map(ids)
    return said


def say(client: httpx.Client, one: tuple[str, str, dict[str, Any]], *ids: dict[str, str]) -> tuple[int, str]:
    """Status of the reply, and its text without the ids that were asked for, here or in the other question.

    Without both, as a small number is a word of all texts: `the experiment config has 1 error`.
    """
    verb, path, said = one
    where = {"json": filled(said, ids[0])} if verb in {"POST", "PUT"} else {"params": filled(said, ids[0])}
    reply = client.request(verb, "api/v1/" + filled(path, ids[0]), **where)
    text = reply.text
    for name in re.findall(r"[{#](\w+)", f"{path} {said}"):
        for of in ids:
            text = without(of[name], text)
    return reply.status_code, text


def with_ids(own: Belongings) -> list[Asked]:
    """Each verb of the API about something that one may own; code has many owners, and a test of its own."""
    asked = [one for one in verbs(own.ids) if one.route.startswith("api/v1/") and "bundles/" not in one.route]
    return [one for one in asked if any(f"{{{name}}}" in one.route for name in own.ids)]


def ask(client: httpx.Client, one: Asked) -> tuple[int, str]:
    """Status and text of the reply; of a stream, what it says at first."""
    name = f"{one.verb} {one.route}"
    body = BODIES.get(name, {}) if one.verb in {"POST", "PUT", "PATCH"} else None
    request = client.build_request(one.verb, one.path, params=QUERIES.get(name), json=body)
    if one.route.endswith("stream"):
        request.extensions["timeout"]["read"] = STREAM
    reply = client.send(request, stream=True)
    text = ""
    try:
        for part in reply.iter_text():
            text += part
    except httpx.ReadTimeout:
        pass
    finally:
        reply.close()
    return reply.status_code, text


def seen(client: httpx.Client, own: Belongings) -> dict[str, object]:
    """What the owner sees of it all."""
    ids = own.ids
    paths = (
        f"experiments/{ids['experiment_id']}",
        f"experiments/{ids['experiment_id']}/grants",
        f"trials/{ids['trial_id']}",
        f"checkpoints/{ids['uuid']}",
        f"models/{ids['model']}",
        f"models/{ids['model']}/versions",
        f"models/{ids['model']}/labels",
        f"models/{ids['model']}/grants",
        f"workspaces/{ids['workspace']}",
        f"workspaces/{ids['workspace']}/members",
        f"workspaces/{ids['workspace']}/projects",
        f"workspaces/{ids['workspace']}/projects/{ids['project']}",
        f"tasks/{ids['task_id']}",
        f"tasks/{ids['task_id']}/outputs",
        f"runs/{ids['run_id']}",
        f"webhooks/{ids['webhook']}",
        f"runs/{ids['run_id']}/media",
        f"artifacts/{ids['artifact']}/versions",
        f"artifacts/{ids['artifact']}",
        f"trials/{ids['trial_id']}/ledger",
        f"templates/one?name={ids['workspace']}:{MARK}",
        f"config-policies?workload=experiment&workspace={ids['workspace']}",
        "alerts?unread=true",
        "alerts/rules",
        f"schedules/{ids['schedule']}",
    )
    return {path: client.get(f"api/v1/{path}").raise_for_status().json() for path in paths}


def test_the_owner_gets_an_answer_at_each_of_them(cluster: Cluster, own: Belongings) -> None:
    """What the others are refused below is there."""
    with caller(cluster, cluster.token) as owner:
        asked = [one for one in with_ids(own) if one.verb in {"GET", "HEAD"} and "READ" in scopes(one)]
        found = {one.path: ask(owner, one)[0] for one in asked}
    assert {path: status for path, status in found.items() if status != 200} == {}
    assert len(found) >= 20


def scopes(one: Asked) -> set[str]:
    return {scope.name for scope in one.operation.scopes}


def test_no_verb_tells_or_does_anything_for_the_wrong_user(
    cluster: Cluster, ben: httpx.Client, own: Belongings
) -> None:
    asked = with_ids(own)
    with caller(cluster, cluster.token) as owner:
        before = seen(owner, own)
        found = {f"{one.verb} {one.route}": ask(ben, one) for one in asked}
        assert seen(owner, own) == before
    assert {name: reply for name, reply in found.items() if reply[0] not in {403, 404}} == {}
    assert [name for name, (_, text) in found.items() if MARK in text] == []
    assert len(found) >= 40


def test_the_wrong_user_learns_not_even_what_there_is(ben: httpx.Client, own: Belongings) -> None:
    """Somebody else's is refused in the words in which nobody's is."""
    nobodys = {**own.ids, **NOBODYS}

    def refusals(ids: dict[str, str]) -> dict[str, tuple[int, str]]:
        found = {}
        for one in with_ids(Belongings(ids, "")):
            status, text = ask(ben, one)
            for name in NOBODYS:
                if f"{{{name}}}" in one.route:
                    text = without(ids[name], text)
            found[f"{one.verb} {one.route}"] = status, text
        return found

    assert refusals(own.ids) == refusals(nobodys)


def test_what_is_named_by_a_query_or_a_body_is_hidden_as_what_is_not_there(
    cluster: Cluster, ben: httpx.Client, own: Belongings
) -> None:
    """Templates, policies, alerts, rules and webhooks are named so, and artifacts by their owner's name."""
    theirs = {**own.ids, "owner": cluster.user, "mark": MARK}
    nobodys = {**theirs, **NOBODYS, "mark": "nobodys-own", "digest": "sha256:" + "1" * 64}
    with caller(cluster, cluster.token) as owner:
        before = seen(owner, own)
        there = {f"{one}": say(owner, one, theirs)[0] for one in NAMED if one[0] == "GET"}
        found = {f"{one}": (say(ben, one, theirs, nobodys), say(ben, one, nobodys, theirs)) for one in NAMED}
        assert seen(owner, own) == before
    assert {one: status for one, status in there.items() if status != 200} == {}
    assert {one: replies for one, replies in found.items() if replies[0] != replies[1]} == {}
    done = {one for one, ((status, _), _) in found.items() if status < 400}
    assert done == {f"{one}" for one in NAMED if one[1] in ANSWERED}
    assert [one for one, ((_, text), _) in found.items() if MARK in text] == []


def test_code_of_another_is_no_code_for_the_wrong_user(cluster: Cluster, ben: httpx.Client, own: Belongings) -> None:
    """Not even one who has just these bytes learns that another has sent them, or can run them by their digest."""
    there = f"api/v1/experiments/{own.ids['experiment_id']}"
    with caller(cluster, cluster.token) as owner:
        theirs = owner.get(there).raise_for_status().json()["bundle"]
        data = owner.get(f"{there}/bundle").raise_for_status().content
        assert owner.head(f"api/v1/bundles/{theirs}").status_code == 200
        assert owner.put(f"api/v1/bundles/{theirs}", content=data).status_code == 200
    nobodys = "sha256:" + "0" * 64

    def told(digest: str) -> list[tuple[int, str]]:
        body = {"config": {**CONFIG, "name": "bens"}, "bundle": digest}
        replies = [ben.head(f"api/v1/bundles/{digest}")]
        replies += [ben.post("api/v1/experiments", json={**body, "dry_run": dry}) for dry in (True, False)]
        task = {"kind": "command", "config": {"entrypoint": "true"}, "bundle": digest}
        replies.append(ben.post("api/v1/tasks", json=task))
        return [(reply.status_code, reply.text.replace(digest, "DIGEST")) for reply in replies]

    found = told(theirs)
    assert found == told(nobodys)
    assert [status for status, _ in found] == [404, 422, 422, 422]
    sent = ben.put(f"api/v1/bundles/{theirs}", content=data)
    assert (sent.status_code, sent.json()["created"]) == (201, True), "as when he is the first"
    assert ben.head(f"api/v1/bundles/{theirs}").status_code == 200


@pytest.mark.parametrize("path", LISTS)
def test_no_list_names_what_is_not_the_callers(ben: httpx.Client, own: Belongings, path: str) -> None:
    text = ben.get(f"api/v1/{path}").text
    assert MARK not in text
    assert own.ids["uuid"] not in text
    assert own.ids["task_id"] not in text


def test_a_task_gets_at_no_checkpoint_of_another_user(cluster: Cluster, ben: httpx.Client, own: Belongings) -> None:
    config = {"entrypoint": ["sleep", "600"], "resources": {"slots": 0}}
    made = ben.post("api/v1/tasks", json={"kind": "command", "config": config}).raise_for_status().json()
    task = made["task"]["id"]
    try:
        with caller(cluster, task_token(cluster, task)) as client:
            asked = [one for one in verbs(own.ids) if "TASK" in scopes(one) and "{uuid}" in one.route]
            found = {f"{one.verb} {one.route}": ask(client, one) for one in asked}
    finally:
        ben.post(f"api/v1/tasks/{task}/kill")
    assert {name: reply for name, reply in found.items() if reply[0] not in {403, 404, 409}} == {}
    assert [name for name, (_, text) in found.items() if MARK in text] == []
    assert len(found) == 4
