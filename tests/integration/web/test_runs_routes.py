"""Runs from elsewhere over HTTP, by a real Hub's tokens: who may do what, and what a caller may say."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

RIGHTS = {
    "tracked_run.begin": "write user, notebook run",
    "tracked_run.report": "write user, notebook run",
}
VALID_BODIES = {"tracked_run.report": {"records": []}}
SAID = {
    "GET runs": {"who": ["read"], "query": ["deleted", "group", "job_type", "limit", "project", "skip", "status"]},
    "POST runs": {
        "who": ["write"],
        "body": ["group", "job_type", "key", "name", "notes", "project", "started", "writer"],
    },
    "DELETE runs/{run_id}": {"who": ["write"], "query": ["forever"]},
    "GET runs/{run_id}/curves": {"who": ["read"], "query": ["max_points", "name", "skip"]},
    "GET runs/{run_id}/files": {"who": ["read"], "query": ["skip"]},
    "GET runs/{run_id}/file": {"who": ["read"], "query": ["path"]},
    "GET runs/{run_id}/logs/stream": {"who": ["read"], "query": ["after"]},
    "GET runs/{run_id}/media": {"who": ["read"], "query": ["after", "at", "key", "kind", "limit", "step"]},
    "PUT runs/{run_id}/media": {
        "who": ["write"],
        "query": ["caption", "key", "kind", "logged_at", "media_type", "place", "step"],
    },
    "GET runs/{run_id}/media/keys": {"who": ["read"], "query": ["skip"]},
    "GET runs/{run_id}/media/steps": {"who": ["read"], "query": ["after", "key"]},
    "GET runs/{run_id}/media/{object_id}/document": {"who": ["read"], "query": ["scripts"]},
    "GET runs/{run_id}/metrics": {"who": ["read"], "query": ["after", "limit", "name"]},
    "GET runs/{run_id}/logs": {
        "who": ["read"],
        "query": [
            "after",
            "before",
            "context",
            "level",
            "limit",
            "node",
            "rank",
            "regex",
            "search",
            "since",
            "stream",
            "tail",
            "until",
        ],
    },
    "POST runs/{run_id}/writers/{writer}/records": {
        "who": ["write"],
        "body": [
            "records",
            "records.host",
            "records.kind",
            "records.level",
            "records.pid",
            "records.reason",
            "records.seq",
            "records.status",
            "records.stdtype",
            "records.step",
            "records.text",
            "records.time",
            "records.title",
            "records.values.*",
            "stream",
        ],
    },
}


async def test_a_run_is_its_owners_and_read_by_tokens_that_read(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    reads = cluster.make_token("custom:detlab:read", user="ben")
    async with master.client() as admin, master.client(ben) as owner, master.client(reads) as reader:
        begun = (await owner.post("runs", json={"key": "mine", "writer": "w", "project": "digits"})).json()
        run = begun["run"]["id"]
        record = {"kind": "metrics", "seq": 1, "time": 1.0, "step": 0, "values": {"loss": 0.5}}
        path = f"runs/{run}/writers/w/records"
        assert (await owner.post(path, json={"records": [record]})).json() == {"acked": 1, "refused": []}
        for client in (admin, owner, reader):
            assert (await client.get(f"runs/{run}")).json()["metrics"]["loss"]["value"] == 0.5
        assert (await reader.get("runs/mine")).json()["id"] == run
        assert (await reader.post(path, json={"records": []})).status_code == 403
        assert (await reader.post("runs", json={"key": "other"})).status_code == 403
        assert (await reader.delete(f"runs/{run}")).status_code == 403
        assert (await admin.get("runs")).json()["items"] == []
        assert (await owner.delete(f"runs/{run}")).json()["deleted"] is True
        assert (await owner.get("runs")).json()["items"] == []
        assert (await owner.post("runs", json={"key": "mine"})).status_code == 409


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": [{"kind": "metrics", "seq": 1}]},
        {"records": [{"kind": "no such", "seq": 1, "time": 1.0}]},
        {"records": [{"kind": "exit", "seq": 1, "time": 1.0, "status": "COMPLETED"}]},
        {"records": {}, "owner": "root"},
        {},
    ],
)
async def test_what_are_no_records_is_refused(master: Any, wrong: dict[str, Any]) -> None:
    async with master.client() as owner:
        run = (await owner.post("runs", json={"key": "mine", "writer": "w"})).json()["run"]["id"]
        assert (await owner.post(f"runs/{run}/writers/w/records", json=wrong)).status_code == 422
