"""Comparing over HTTP, by tokens of a real Hub: two tenants, bad ids, names with commas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_faces_routes import submit

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

SAID = {
    "GET comparison": {"who": ["read"], "query": ["experiments", "metric", "runs", "skip", "trials"]},
    "GET comparison/curves": {"who": ["read"], "query": ["group", "max_points", "name", "runs", "skip", "trials"]},
    "GET comparison/code": {"who": ["read"], "query": ["experiments", "skip", "trials"]},
}


@pytest.fixture
def ben(cluster: Cluster) -> str:
    """A user who is no administrator."""
    return cluster.make_token("custom:detlab:write", user="ben")


async def test_two_tenants_compare_their_own(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        theirs = await submit(admin)
        mine = await submit(other)
        for path in ("comparison", "comparison/code"):
            reply = await other.get(path, params={"experiments": f"{mine},{theirs},987654"})
            assert reply.status_code == 200
            assert reply.json()["absent_experiments"] == [theirs, 987_654], path
        found = (await other.get("comparison", params={"experiments": f"{theirs},{mine}"})).json()
        assert [run["id"] for run in found["runs"]] == [mine]
        both = (await admin.get("comparison", params={"experiments": f"{theirs},{mine}"})).json()
        assert [run["id"] for run in both["runs"]] == [theirs, mine], "administrators read all"
        hidden = await other.get("comparison", params={"experiments": theirs})
        absent = await other.get("comparison", params={"experiments": 987_654})
        assert hidden.text.replace(str(theirs), "987654") == absent.text, "hidden and absent answer alike"


async def test_bad_ids_are_refused_and_names_may_have_commas(master: Any, ben: str) -> None:
    async with master.client(ben) as other:
        mine = await submit(other)
        names = json.dumps(["a,b", '<img src=x onerror="alert(1)">'])
        assert (await other.get("comparison", params={"experiments": mine, "metric": names})).status_code == 200
        for query in ("", "trials=x", "trials=-1", "trials=99999999999999999999", f"experiments={'1,' * 1001}1"):
            for path in ("comparison", "comparison/code", "comparison/curves"):
                assert (await other.get(f"{path}?{query}")).status_code == 422, (path, query)
        many = await other.get("comparison", params={"trials": ",".join(map(str, range(51)))})
        assert (many.status_code, many.json()["problems"][0]["path"]) == (422, "trials")
