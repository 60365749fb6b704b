"""A source is withdrawn and given back by `det`, on a real cluster."""

from __future__ import annotations

import json

import pytest

from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

GOVERNED = """
name: governed
entrypoint: 'true'
searcher: {name: single, metric: x}
governance:
  sources: [{name: partner, license: contract-17}]
  rules: [{source: '*', layers: '.*', scale: 1.0}]
resources: {requires: []}
"""


def det(cluster: Cluster, *words: str, code: int = 0) -> str:
    done = cluster.det(*words)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return str(done.stdout + done.stderr)


def test_a_withdrawn_source_stops_a_submit_until_that_is_undone(cluster: Cluster) -> None:
    (cluster.root / "governed.yaml").write_text(GOVERNED)
    submit = ("e", "create", "governed.yaml", "--dry-run")
    assert "No source is withdrawn." in det(cluster, "governance", "sources")
    assert "Missing option '--reason'" in det(cluster, "governance", "withdraw", "partner", code=2)
    said = det(cluster, "governance", "withdraw", " partner", "--reason", "contract 17 has ended")
    assert "the source partner is withdrawn in the whole cluster" in said
    assert "is the name right?" in said, "nothing runs yet that declares it"
    (one,) = json.loads(det(cluster, "governance", "sources", "--json"))
    assert (one["source"], one["reason"], one["versions"]) == ("partner", "contract 17 has ended", [])
    assert "contract 17 has ended" in det(cluster, "governance", "sources")
    refused = det(cluster, *submit, code=1)
    assert "governance.sources: REVOKED: the source 'partner' was withdrawn in the cluster on" in refused
    assert "det governance ablate" in refused
    undone = det(cluster, "governance", "withdraw", "partner", "--undo", "--reason", "it was renewed")
    assert "is no longer withdrawn" in undone
    assert "REVOKED" not in det(cluster, *submit, code=0)
