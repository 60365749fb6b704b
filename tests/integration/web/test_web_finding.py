"""Finding over HTTP, by tokens of a real Hub: filters, orders and columns in queries, completion, saved views."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_faces_routes import refused, submit

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

RIGHTS = {"view.save": "none user, notebook run", "view.remove": "none user"}
VALID_BODIES = {"view.save": {"name": "good", "table": "trials", "filter": "acc > 0.9"}}
SAID = {
    "GET trials": {
        "who": ["read"],
        "query": ["after", "archived", "column", "filter", "limit", "sort"],
    },
    "GET filters/complete": {"who": ["read"], "query": ["cursor", "filter", "kind", "table"]},
    "GET tables/export": {"who": ["read"], "query": ["archived", "column", "filter", "format", "sort", "table"]},
    "GET saved-views": {"who": ["read"], "query": ["after", "limit", "table"]},
    "PUT saved-views": {
        "who": ["write"],
        "body": ["columns", "filter", "layout.*", "name", "project", "sort", "table", "workspace"],
    },
    "DELETE saved-views": {"who": ["write"], "query": ["name", "table"]},
}

PLAIN = {"hint": None, "level": "error"}


@pytest.fixture
def ben(cluster: Cluster) -> str:
    """A user who is no administrator."""
    return cluster.make_token("custom:detlab:write", user="ben")


async def test_two_tenants_find_their_own(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        await submit(admin)
        mine = await submit(other)
        await master.services.schedule()
        columns = ["hparams.lr", "state", '"no, such"']
        asked = {"filter": "experiment > 0", "sort": "-id,name", "column": json.dumps(columns)}
        page = (await other.get("trials", params=asked)).json()
        assert [item["experiment_id"] for item in page["items"]] == [mine]
        assert [column["name"] for column in page["columns"]] == columns
        assert page["items"][0]["values"][1:] == ["ACTIVE", None]
        assert len((await admin.get("trials", params=asked)).json()["items"]) == 2
        found = (await other.get("experiments", params={"filter": "owner = me", "column": "trials"})).json()
        assert [(item["id"], item["values"]) for item in found["items"]] == [(mine, [1])]
        assert (await other.get("trials", params={"column": "id"})).json()["items"][0]["values"]
        place = (await other.get(f"experiments/{mine}")).json()["workspace_id"]
        in_it = {"filter": "owner = me", "workspace": place, "project": "uncategorized"}
        assert [one["id"] for one in (await other.get("experiments", params=in_it)).json()["items"]] == [mine]
        await refused(other, "GET", "experiments?filter=id>0&workspace=elsewhere", 404)
        trials = await other.get(f"experiments/{mine}/trials", params={"filter": "state = active"})
        assert len(trials.json()["items"]) == 1
        complete = (await other.get("filters/complete", params={"filter": "owner = "})).json()
        assert [item["text"] for item in complete["items"]] == ["me", "ben"]
        only = (await other.get("filters/complete", params={"kind": "column"})).json()
        assert {item["kind"] for item in only["items"]} == {"column"}
        assert (await other.get("filters/complete", params={"kind": "metric"})).json()["items"] == []
        await refused(other, "GET", f"trials?after={page['items'][0]['id'] - 1}", 404)


async def test_tables_as_files_of_two_tenants(master: Any, ben: str) -> None:
    async with master.client() as admin, master.client(ben) as other:
        for client in (admin, other):
            await submit(client)
        await master.services.schedule()
        asked = {"table": "trials", "filter": "experiment > 0", "column": "id,owner", "sort": "-id"}
        reply = await other.get("tables/export", params=asked)
        assert reply.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert reply.headers["Content-Disposition"] == 'attachment; filename="trials.csv"'
        assert [line.split(",")[-1] for line in reply.text.splitlines()] == ["owner", "ben"]
        assert len((await admin.get("tables/export", params=asked)).text.splitlines()) == 3
        wrong = await other.get("tables/export", params={**asked, "filter": "owner ="})
        assert (wrong.status_code, wrong.json()["problems"][0]["path"]) == (422, "filter")
        assert (await other.get("tables/export?format=xlsx")).status_code == 422


async def test_a_mistake_is_an_answer_with_a_caret(master: Any, ben: str) -> None:
    async with master.client(ben) as other:
        for path in ("trials", "experiments"):
            reply = await other.get(path, params={"filter": "acc >"})
            assert reply.status_code == 422
            assert reply.json()["problems"][0]["path"] == "filter"
            assert reply.json()["message"].splitlines()[1:] == ["  acc >", "       ^"]
            long = await other.get(path, params={"filter": f"label = {'x' * 10_000}"})
            assert (long.status_code, long.json()["problems"]) == (
                422,
                [{"path": "filter", "message": "String should have at most 4000 characters", **PLAIN}],
            )
        for path in ("trials", "experiments"):
            halves = {"column": json.dumps(['"\ud800"']), "sort": json.dumps(['-"\ud800"'])}
            assert (await other.get(path, params=halves)).status_code == 422
            zero = await other.get(path, params={"column": json.dumps(['"a\x00"']), "filter": "name ~ 'a\x00'"})
            assert [one["name"] for one in zero.json()["columns"]] == ['"a\ufffd"']
        for wrong in ("trials?limit=0", "trials?archived=some", "filters/complete?table=models"):
            assert (await other.get(wrong)).status_code == 422, wrong


async def test_saved_views_of_two_tenants(master: Any, cluster: Cluster, ben: str) -> None:
    reads = cluster.make_token("custom:detlab:read", user="ben")
    body = {**VALID_BODIES["view.save"], "sort": ["-acc"], "columns": ["acc"], "layout": {"pinned": ["acc"]}}
    async with master.client() as admin, master.client(ben) as other, master.client(reads) as reader:
        made = (await other.put("saved-views", json=body)).json()
        assert {key: made[key] for key in body} == body
        assert (await reader.get("saved-views", params={"table": "trials"})).json()["items"] == [made]
        assert (await admin.get("saved-views")).json()["items"] == []
        assert (await reader.put("saved-views", json=body)).status_code == 403
        again = (await other.put("saved-views", json={**body, "name": " caf\u00e9"})).json()
        same = (await other.put("saved-views", json={**body, "name": "cafe\u0301 "})).json()
        assert (again["id"], again["name"]) == (same["id"], same["name"])
        gone = await other.delete("saved-views", params={"table": "trials", "name": "cafe\u0301"})
        assert gone.json()["id"] == again["id"]
        for wrong in (
            {**body, "name": ""},
            {**body, "name": " \t"},
            {**body, "name": "x" * 201},
            {**body, "owner": "root"},
            {**body, "table": "models"},
            {"name": "x"},
        ):
            assert (await other.put("saved-views", json=wrong)).status_code == 422, wrong
        assert (await admin.delete("saved-views", params={"table": "trials", "name": "good"})).status_code == 404
        assert (await other.delete("saved-views", params={"table": "trials", "name": "good"})).json() == made
