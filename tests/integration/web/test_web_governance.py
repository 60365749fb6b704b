"""Evidence, ledgers and signing keys over HTTP, by a real Hub's tokens: who may see and do what."""

from __future__ import annotations

from typing import Any

import pytest
from test_faces_routes import refused

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub
HASH = "sha256:" + "0" * 64
SAID = {
    "GET trials/{trial_id}/ledger": {"who": ["read"], "query": ["after"]},
    "POST signing-keys": {"who": ["admin"], "body": []},
    "POST signing-keys/{key}/revoke": {"who": ["admin"], "body": ["reason"]},
    "POST withdrawn-sources": {"who": ["write"], "body": ["manifest", "reason", "source", "workspace"]},
    "POST withdrawn-sources/undo": {"who": ["write"], "body": ["manifest", "reason", "source", "workspace"]},
    "PUT task/governance/matrix": {"who": ["task"], "body": ["matrix.*"]},
    "PUT task/governance/preflight": {
        "who": ["task"],
        "body": [
            "code",
            "enforces",
            "layers",
            "refusals",
            "refusals.code",
            "refusals.message",
            "untried",
            "version",
        ],
    },
    "POST task/checkpoints/{uuid}/verification": {
        "who": ["task"],
        "body": [
            "damaged",
            "manifest_digest",
            "refusals",
            "refusals.code",
            "refusals.message",
            "roster",
            "s_hash",
        ],
    },
}
RIGHTS = {
    "signing_key.rotate": "own administrator",
    "signing_key.revoke": "own administrator",
    "source.withdraw": "own user",
    "source.restore": "own user",
    "attempt.govern": "none task",
}
VALID_BODIES = {
    "signing_key.rotate": {},
    "signing_key.revoke": {"reason": "it was copied"},
    "source.withdraw": {"source": "web", "reason": "a takedown request"},
    "source.restore": {"source": "web", "reason": "it was a mistake"},
    "attempt.govern": {
        "matrix": {
            "sources": ["a"],
            "parameters": [["w", [1]]],
            "scales": [[1.0]],
            "levels": [["direct"]],
            "default": None,
            "normalize": "global",
        },
        "manifest_digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
        "s_hash": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
        "code": ["sha256:0000000000000000000000000000000000000000000000000000000000000000"],
    },
}


async def test_keys_are_public_and_changed_by_administrators_alone(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    async with master.client() as admin, master.client(ben) as other:
        assert (await other.get("signing-keys")).json()["items"] == []
        assert (await other.post("signing-keys", json={})).status_code == 403
        (made,) = (await admin.post("signing-keys", json={})).json()["items"]
        assert (made["state"], len(made["public_key"])) == ("ACTIVE", 64)
        assert (await other.get("signing-keys")).json()["items"] == [made]
        assert (await other.post(f"signing-keys/{made['id']}/revoke", json={})).status_code == 403
        (gone,) = (await admin.post(f"signing-keys/{made['id']}/revoke", json={"reason": "x"})).json()["items"]
        assert gone["state"] == "REVOKED"
        assert (await admin.post(f"signing-keys/{'f' * 64}/revoke", json={})).status_code == 404


async def test_what_is_not_there_is_not_told_from_what_is_hidden(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    async with master.client(ben) as other:
        for path in (
            "checkpoints/00000000-0000-4000-8000-000000000000/evidence",
            "trials/99/ledger",
            "trials/99/governance",
            f"trials/99/matrices/{HASH}",
            "trials/99999999999999999999/ledger",
        ):
            await refused(other, "GET", path, 404)


async def test_sources_are_withdrawn_by_administrators_and_everybody_reads_why(master: Any, cluster: Cluster) -> None:
    ben = cluster.make_token("custom:detlab:write", user="ben")
    wanted = VALID_BODIES["source.withdraw"]
    async with master.client() as admin, master.client(ben) as other:
        assert (await other.post("withdrawn-sources", json=wanted)).status_code == 403
        assert (await admin.post("withdrawn-sources", json={**wanted, "reason": ""})).status_code == 422
        made = (await admin.post("withdrawn-sources", json=wanted)).json()
        assert (made["source"], made["workspace"], made["paused"]) == ("web", "", [])
        assert (await other.get("withdrawn-sources")).json()["items"] == [made]
        assert (await other.post("withdrawn-sources/undo", json=VALID_BODIES["source.restore"])).status_code == 403
        assert (await admin.post("withdrawn-sources/undo", json=VALID_BODIES["source.restore"])).status_code == 200
        assert (await other.get("withdrawn-sources")).json()["items"] == []
        assert (await admin.post("withdrawn-sources/undo", json=VALID_BODIES["source.restore"])).status_code == 404
