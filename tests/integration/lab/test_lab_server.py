"""The server extension behind the panel and the form: versions, schema, judging, submitting from the user's folder."""

import json
import time
import uuid
from importlib.metadata import version
from pathlib import Path

import httpx
import psutil
import pytest

pytestmark = pytest.mark.hub
CONFIG = "name: from the form\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"
TRAIN = {"path": "my project/train.py", "folder": "my project"}


def test_it_tells_the_versions_of_both_halves_and_where_the_hub_is(front, lab_cluster):
    answer = front.get("version").json()
    assert answer["server"] == version("detlab")
    assert answer["cluster"] == version("detlab")
    assert answer["hub"] == lab_cluster.url
    assert answer["hub"] + answer["page"] == lab_cluster.service
    assert lab_cluster.token not in json.dumps(answer)


def test_the_panel_is_of_the_same_version_as_the_package():
    package = Path(__file__).parents[3] / "labextension" / "package.json"
    assert json.loads(package.read_text())["version"] == version("detlab")


def test_the_form_gets_the_schemas(front):
    assert "searcher" in front.get("schema").json()["properties"]
    assert "idle_timeout" in front.get("schema", params={"kind": "notebook_run"}).json()["properties"]


def test_the_tutorial_comes_as_a_notebook(front):
    answer = front.get("tutorial").json()
    assert answer["name"] == "detlab-tutorial/your-first-search.ipynb"
    assert any("%%det_experiment" in "".join(cell["source"]) for cell in answer["content"]["cells"])


def test_a_script_travels_with_what_it_imports_and_nothing_else(front):
    answer = front.post("code", json={**TRAIN, "context": "file"}).json()
    assert answer["files"] == ["helper.py", "train.py"]
    assert answer["bundle"].startswith("tree:")
    whole = front.post("code", json={**TRAIN, "context": "folder"}).json()
    assert {"unrelated.py", "report.ipynb"} < set(whole["files"])
    assert front.post("code", json={"context": "none"}).json() == {"bundle": None, "files": [], "size": 0}


@pytest.mark.parametrize(
    "path", ["../outside.py", "/../outside.py", "my project/../../outside.py", "absent.py", "a\0b"]
)
def test_nothing_outside_the_users_folder_travels(front, path):
    answer = front.post("code", json={"path": path, "context": "file"})
    assert answer.status_code == 404, answer.text
    assert "sha256" not in answer.text


def test_a_folder_is_no_script(front):
    answer = front.post("code", json={"path": "my project", "context": "file"})
    assert answer.status_code == 422
    assert answer.json()["hint"]


def test_every_kind_of_mistake_comes_back_at_its_path(front):
    config = """
name: 3
entrypoint: python3 absent.py
searcher: {name: adaptive_asha, metric: loss, max_trials: none}
resources: {slots_per_trial: -1, priority: 400, slotz: 1}
hyperparameters: {lr: {type: log, minval: 3, maxval: 1}}
bind_mounts: [{host_path: relative, container_path: /x}]
"""
    answer = front.post("judge", json={"config": config})
    assert answer.status_code == 200
    errors = {found["path"] for found in answer.json()["problems"] if found["level"] == "error"}
    assert {"searcher.max_trials", "resources.slots_per_trial", "resources.priority", "resources.slotz"} <= errors
    assert any(path.startswith("hyperparameters.lr") for path in errors)


@pytest.mark.parametrize("config", ["", "- 1", "a: [", "name: &a [*a]", "x" * 300_000, "\0"])
def test_what_is_no_config_is_judged_not_a_failure(front, config):
    answer = front.post("judge", json={"config": config})
    assert answer.status_code in {200, 413, 422}, answer.text
    body = answer.json()
    assert body.get("problems") or body.get("message")


def test_a_missing_key_alone_is_a_mistake(front):
    bundle = front.post("code", json={**TRAIN, "context": "file"}).json()["bundle"]
    config = "entrypoint: python3 train.py\nsearcher: {name: random, metric: loss}\n"
    found = front.post("judge", json={"config": config, "bundle": bundle}).json()["problems"]
    assert [(p["path"], p["level"]) for p in found if p["path"] == "searcher.max_trials"] == [
        ("searcher.max_trials", "error")
    ]


def test_what_the_form_submits_runs_with_its_code(front, lab_cluster):
    bundle = front.post("code", json={**TRAIN, "context": "file"}).json()["bundle"]
    assert front.post("judge", json={"config": CONFIG, "bundle": bundle}).json()["problems"] == []
    body = {**TRAIN, "config": CONFIG, "context": "file", "idempotency_key": "one-click"}
    made = front.post("submit", json=body).json()
    again = front.post("submit", json=body).json()
    assert made["experiment_id"] == again["experiment_id"]
    deadline = time.monotonic() + 60
    with lab_cluster.client() as master:
        while (view := master.get(f"experiments/{made['experiment_id']}").json())["state"] == "ACTIVE":
            assert time.monotonic() < deadline, view
            time.sleep(0.2)
    assert (view["state"], view["best"]["value"]) == ("COMPLETED", 0.25), lab_cluster.logs()
    assert view["source"]["path"] == TRAIN["path"]


def test_a_notebook_runs_with_its_parameters(front, lab_cluster):
    judged = front.post(
        "judge", json={"config": "resources: {slots: 1}\n", "kind": "notebook_run", "notebook": "r.ipynb"}
    )
    assert [p for p in judged.json()["problems"] if p["level"] == "error"] == []
    body = {"path": "my project/report.ipynb", "config": "resources: {slots: 1}\n", "kind": "notebook_run"}
    made = front.post("submit", json={**body, "parameters": {"lr": 3}})
    assert made.status_code == 200, made.text
    deadline = time.monotonic() + 90
    with lab_cluster.client() as master:
        path = f"tasks/{made.json()['task_id']}"
        while (view := master.get(path).json())["state"] not in {"COMPLETED", "ERROR", "CANCELED"}:
            assert time.monotonic() < deadline, view
            time.sleep(0.2)
        assert view["state"] == "COMPLETED", master.get(f"{path}/logs").text
        (output,) = master.get(f"{path}/outputs").json()["items"]
        assert output["name"] == "executed.ipynb"
    executed = front.get(f"api/{path}/outputs/{output['digest']}").json()
    printed = [piece["text"] for cell in executed["cells"] for piece in cell.get("outputs", ()) if "text" in piece]
    assert "".join("".join(text) for text in printed) == "3\n", "the default is 1"


def test_a_config_with_mistakes_is_refused_with_all_of_them(front):
    answer = front.post("submit", json={**TRAIN, "config": "searcher: {name: nope}\nmax_restarts: -1\n"})
    assert answer.status_code == 422
    assert len(answer.json()["problems"]) >= 2


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b'{"config": 1}', b'{"config": "a: 1", "extra": 1}'])
def test_a_malformed_body_is_refused_in_words(front, body):
    answer = front.post("submit", content=body)
    assert answer.status_code == 422
    assert answer.json()["message"]


def test_the_relay_takes_the_faces_routes_and_only_those(front):
    for path in ("overview", "queue", "agents", "cluster", "tasks", "usage?first=2026-01-01&last=2026-01-02"):
        assert front.get(f"api/{path}").status_code == 200, path
    for path in (
        "audit",
        "tokens",
        "service",
        "spawns",
        "tasks/%2e%2e/kill",
        "agents/enrolments",
        "agents/records",
        "task/outputs/x",
    ):
        assert front.get(f"api/{path}").status_code == 404, path
    for path in ("pools", "instances"):
        assert set(front.get(f"api/{path}").json()) == {"items"}, path
    for path in ("jobs", "jobs?pool=default&mine=true"):
        assert set(front.get(f"api/{path}").json()) == {"items", "next"}, path
    assert set(front.get("api/quotas").json()) == {"items", "storage", "workspaces", "costs", "currency"}
    for path in ("jobs/999999/why", "jobs/trial-999999/why"):
        reply = front.get(f"api/{path}")
        assert (reply.status_code, reply.json()["code"]) == (404, "not_found"), path
    for path in ("jobs/999999", "agents/nowhere/drain", "agents/nowhere/enable", "agents/nowhere/disable"):
        reply = front.post(f"api/{path}", json={"priority": 7} if path.startswith("jobs") else {})
        assert (reply.status_code, "relayed" in reply.json()["message"]) == (404, False), path
    assert front.get("api/models").json() == {"items": [], "after": None}
    for path in (
        "no%20such.model",
        "bob%2Fdigits",
        "bob@lab.org%2Fdigits/versions/3",
        "m/versions",
        "m/versions/1.0.0",
        "m/versions/3/lineage",
        "m/compare?versions=1,2",
        "m/grants",
    ):
        reply = front.get(f"api/models/{path}")
        assert (reply.status_code, "relayed" in reply.json()["message"]) == (404, False), path
    for path in ("%2e%2e", "a%2fb%2fc", "m/grants/x", "m/labels/1x", "m%3fx", "-m", "m/versions/%2e%2e/edit"):
        reply = front.post(f"api/models/{path}", json={})
        assert (reply.status_code, "relayed" in reply.text) == (404, True), path
    assert "relayed" not in front.put(f"api/checkpoints/{uuid.UUID(int=1)}/bookmark", json={}).text
    to = {"kind": "group", "name": "vision"}
    assert front.put("api/models/m/grants", json=to).json()["code"] == "not_found", "as the master says it"
    assert front.delete("api/models/m/grants", params=to).json()["code"] == "not_found"
    for path in ("quotas", "agents/nowhere", "agents/enrol/enable"):
        assert front.post(f"api/{path}", json={}).status_code in {404, 405}, path
    for path in ("archive", f"files/sha256:{'0' * 64}"):
        reply = front.get(f"api/checkpoints/{uuid.UUID(int=1)}/{path}")
        assert (reply.status_code, "there is no checkpoint" in reply.json()["message"]) == (404, True), path


def test_the_relay_takes_artifacts_by_names_of_any_script(front):
    assert front.get("api/artifacts").json() == {"items": [], "next": None}
    for path in (
        "cats",
        "bob%2Fbig%20cats",
        "Katzen-%C3%A4",
        "cats/versions/3/files",
        "cats/versions/3/file?path=a/b",
        "12",
    ):
        reply = front.get(f"api/artifacts/{path}")
        assert (reply.status_code, "relayed" in reply.json()["message"]) == (404, False), path
    for path in ("%2e%2e", "%2e%2e/edit", "a%2f%2e%2e", "a%2fb%2fc", "m%3fx", "m/files/x", "m%0a"):
        reply = front.post(f"api/artifacts/{path}", json={})
        assert (reply.status_code, "relayed" in reply.text) == (404, True), path


def test_code_comes_back_as_a_download_never_as_a_page(front, lab_cluster):
    hostile = "<script>alert(1)</script>"
    with lab_cluster.client():
        from detlab.client import Client, build_bundle

        with Client(lab_cluster.url, lab_cluster.token) as client:
            bundle = build_bundle(files={"page.html": hostile, "t.py": "1"})
            config = {"entrypoint": "python3 t.py", "searcher": {"name": "single", "metric": "x"}}
            made = client.submit(config, bundle=bundle, activate=False).experiment.id
    files = {item["path"]: item["digest"] for item in front.get(f"api/experiments/{made}/code").json()["items"]}
    answer = front.get(f"api/experiments/{made}/code/{files['page.html']}")
    assert answer.text == hostile
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_nobody_gets_through_without_the_servers_own_login(lab_server):
    with httpx.Client(base_url=f"{lab_server.url}detlab/", trust_env=False) as stranger:
        assert stranger.get("version").status_code == 403
        for path in ("submit", "code", "judge"):
            assert stranger.post(path, json={}).status_code == 403


def test_a_stream_that_its_page_leaves_is_left_at_once(lab_cluster, lab_server, tmp_path):
    """A page opens its stream anew whenever a view is opened: the old one must not linger at the master."""
    (server,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if f"--IdentityProvider.token={lab_server.token}" in (process.info["cmdline"] or ())
    ]

    def upstream():
        found = server.net_connections(kind="tcp")
        return [c for c in found if c.raddr and c.raddr.port == lab_cluster.port and c.status == "ESTABLISHED"]

    headers = {"Authorization": f"token {lab_server.token}"}
    with httpx.Client(base_url=f"{lab_server.url}detlab/", headers=headers, trust_env=False, timeout=60) as page:
        with page.stream("GET", "api/stream", params={"follow": '[{"experiment": 1}]'}) as reply:
            assert reply.status_code == 200
            assert len(upstream()) == 1
        deadline = time.monotonic() + 4  # the next keep-alive, at which it would be seen without more ado, takes five
        while upstream():
            assert time.monotonic() < deadline
            time.sleep(0.05)
