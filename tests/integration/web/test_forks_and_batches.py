"""Forks, experiments that go on, and acts on many, over HTTP by a real Hub's tokens and with the client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from test_faces_routes import CONFIG

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

RIGHTS = {"experiment.continue": "write user, notebook run", "experiment.batch": "none user, notebook run"}
SAID = {
    "POST experiments/{experiment_id}/continue": {
        "who": ["write"],
        "body": ["config.*", "from_earlier", "idempotency_key", "trial_ids"],
    },
    "POST experiments/batch": {
        "who": ["write"],
        "body": [
            "act",
            "archived",
            "before",
            "dry_run",
            "experiment_ids",
            "filter",
            "keep_storage",
            "labels",
            "project",
            "workspace",
        ],
    },
}
VALID_BODIES = {
    "experiment.continue": {"config": {"max_restarts": 1}},
    "experiment.batch": {"act": "pause", "experiment_ids": [1]},
}


async def test_two_users_fork_continue_and_tidy_up(master: Any, cluster: Cluster) -> None:
    tokens = [cluster.make_token("custom:detlab:write", user=name) for name in ("ada", "ben")]
    async with master.client(tokens[0]) as ada, master.client(tokens[1]) as ben:
        config = {**CONFIG, "data": {"secrets": {"key": "of-ada"}}}
        first = (await ada.post("experiments", json={"config": config})).json()["experiment"]
        shown = (await ada.get(f"experiments/{first['id']}")).json()["config"]
        mine = await ada.post("experiments", json={"config": shown, "forked_from": first["id"]})
        assert "of-ada" not in mine.text
        assert mine.json()["experiment"]["forked_from"] == first["id"]
        hidden = await ben.post("experiments", json={"config": shown, "forked_from": first["id"]})
        absent = await ben.post("experiments", json={"config": shown, "forked_from": 10**9})
        assert (hidden.status_code, absent.status_code) == (404, 404)
        said = [reply.json()["message"].rpartition(" ")[0] for reply in (hidden, absent)]
        assert said == ["there is no experiment"] * 2
        await ada.put(f"experiments/{first['id']}/grants", json={"kind": "user", "name": "ben"})
        refused = await ben.post("experiments", json={"config": shown, "forked_from": first["id"]})
        assert refused.status_code == 422
        assert "data.secrets.key" in refused.text
        refused = await ben.post(f"experiments/{first['id']}/continue", json={})
        assert refused.status_code == 403

        ids = [first["id"], mine.json()["experiment"]["id"]]
        killed = (await ada.post("experiments/batch", json={"act": "kill", "experiment_ids": ids})).json()
        assert [one["result"] for one in killed["items"]] == ["done", "done"]
        for number in ids:
            await ended(ada, number)
        body = {"act": "archive", "experiment_ids": [*ids, 10**9]}
        by_ben = (await ben.post("experiments/batch", json=body)).json()
        assert [one["result"] for one in by_ben["items"]] == ["refused"] * 3
        by_ada = (await ada.post("experiments/batch", json=body)).json()
        assert [one["result"] for one in by_ada["items"]] == ["done", "done", "refused"]
        assert by_ada["undo"] == [{**by_ada["undo"][0], "act": "unarchive", "experiment_ids": ids}]
        assert (await ada.post(f"experiments/{ids[0]}/continue", json={})).status_code == 409
        assert (await ada.post("experiments/batch", json=by_ada["undo"][0])).status_code == 200
        again = await ada.post(f"experiments/{ids[0]}/continue", json={})
        assert (again.status_code, again.json()["state"]) == (200, "ACTIVE")
        await ada.post("experiments/batch", json={"act": "kill", "experiment_ids": ids})


async def ended(client: Any, number: int) -> None:
    async with asyncio.timeout(60):
        while (await client.get(f"experiments/{number}")).json()["state"] not in ("CANCELED", "COMPLETED", "ERROR"):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("experiments", {"config": {}, "forked_from": 0}),
        ("experiments", {"config": {}, "forked_from": "x"}),
        ("experiments/1/continue", {"config": []}),
        ("experiments/1/continue", {"trial_ids": [0]}),
        ("experiments/1/continue", {"idempotency_key": "x" * 301}),
        ("experiments/1/continue", {"max_length": 3}),
        ("experiments/batch", {}),
        ("experiments/batch", {"act": "archive"}),
        ("experiments/batch", {"act": "drop", "experiment_ids": [1]}),
        ("experiments/batch", {"act": "archive", "experiment_ids": [1] * 501}),
        ("experiments/batch", {"act": "archive", "experiment_ids": [-1]}),
        ("experiments/batch", {"act": "archive", "filter": "x" * 100_000}),
        ("experiments/batch", {"act": "add_labels", "experiment_ids": [1], "labels": ["x" * 10_000]}),
        ("experiments/1/edit", {"notes": "x", "notes_before": "x" * 100_001}),
    ],
)
async def test_what_is_no_request_is_refused(master: Any, path: str, body: dict[str, Any]) -> None:
    async with master.client() as admin:
        reply = await admin.post(path, json=body)
        assert reply.status_code == 422, reply.text
