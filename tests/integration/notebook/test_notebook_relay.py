"""The server extension: a real Jupyter server between a browser and the cluster."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from detlab.testing.ports import free_port
from testbed.front.lab import jupyter

pytestmark = pytest.mark.hub
EXTENSION = ("--ServerApp.jpserver_extensions={'detlab_server': True}",)
WAITS = """import detlab as det, time
with det.core.init() as core:
    for i in range(1, 9):
        core.train.report_validation_metrics(i, {"loss": 1 / i})
        time.sleep(0.3)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory, kernel_env):
    with jupyter(tmp_path_factory.mktemp("relay"), kernel_env, lab=False, options=EXTENSION) as running:
        yield running


@pytest.fixture
def front(server):
    """A front end that shows the server's token."""
    headers = {"Authorization": f"token {server.token}"}
    with httpx.Client(base_url=f"{server.url}detlab/", headers=headers, trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture
def browser_session(server):
    """A front end with a cookie, as a browser after login."""
    with httpx.Client(base_url=server.url, trust_env=False, follow_redirects=True, timeout=30) as client:
        client.get("login", params={"token": server.token})
        yield client


def submit(cluster, text, name="relayed"):
    from detlab.client import Client, build_bundle

    with Client(cluster.url, cluster.token) as client:
        bundle = build_bundle(files={"t.py": text})
        config = {"name": name, "entrypoint": "python3 t.py", "searcher": {"name": "single", "metric": "loss"}}
        return client.submit(config, bundle=bundle).experiment.id


def test_it_says_which_cluster_it_speaks_to(front, cluster):
    answer = front.get("status").json()
    assert answer["url"] == cluster.service
    assert re.match(r"\d+\.\d+", answer["version"])
    assert cluster.token not in json.dumps(answer)


def test_reads_are_relayed_with_the_users_token(front, cluster):
    assert front.get("api/me").json()["name"] == cluster.user
    assert front.get("api/cluster").json()["slots_total"] == 2
    listing = front.get("api/experiments", params={"limit": 3, "name": "a&b=c é"})
    assert listing.status_code == 200
    assert listing.json()["items"] == []
    missing = front.get("api/experiments/99999")
    assert missing.status_code == 404
    assert missing.json()["code"] == "not_found"
    assert missing.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize(
    "path",
    ["task/preempt", "agents/enrol", "bundles/sha256:0", "../hub", "experiments/1/bundle", "me/x", ""],
)
def test_only_peoples_routes_are_relayed(front, path):
    assert front.get(f"api/{path}").status_code == 404
    assert front.post(f"api/{path}").status_code in {404, 405}


def test_nobody_gets_through_without_the_servers_own_login(server):
    with httpx.Client(base_url=f"{server.url}detlab/", trust_env=False) as stranger:
        for path in ("status", "api/me", "api/experiments"):
            assert stranger.get(path).status_code == 403
        assert stranger.post("api/experiments/1/kill").status_code == 403
        assert stranger.get("api/me", headers={"Authorization": "token wrong"}).status_code == 403


def test_a_browsers_cookie_needs_the_xsrf_token_to_change_anything(browser_session):
    assert browser_session.get("detlab/api/me").status_code == 200
    refused = browser_session.post("detlab/api/experiments/99999/kill")
    assert refused.status_code == 403
    assert "xsrf" in refused.text.lower()
    token = browser_session.cookies["_xsrf"]
    passed = browser_session.post("detlab/api/experiments/99999/kill", headers={"X-XSRFToken": token})
    assert passed.status_code == 404
    assert passed.json()["code"] == "not_found", "it reached the master"


def test_a_stream_arrives_as_it_comes_and_actions_pass(front, cluster):
    number = submit(cluster, WAITS)
    arrivals = []
    with front.stream("GET", f"api/experiments/{number}/stream", params={"after": 0, "groups": "validation"}) as stream:
        assert stream.headers["content-type"].startswith("application/x-ndjson")
        for line in stream.iter_lines():
            event = json.loads(line) if line else {}
            if event.get("kind") == "metrics":
                arrivals.append((time.monotonic(), event["data"]["steps_completed"]))
            if len(arrivals) == 6:
                break
    assert [step for _, step in arrivals] == [1, 2, 3, 4, 5, 6]
    assert arrivals[-1][0] - arrivals[0][0] > 1, "they came one after another, not in one piece"
    assert front.get(f"api/experiments/{number}/curves", params={"name": "loss"}).json()["curves"]
    assert front.post(f"api/experiments/{number}/kill").status_code == 200
    made = front.post("api/experiments", json={"config": {"entrypoint": "x"}, "dry_run": True})
    assert made.status_code == 422
    assert made.json()["problems"]


def test_many_open_streams_do_not_block_each_other(front, cluster):
    number = submit(cluster, "import time; time.sleep(60)", name="many")
    entered = threading.Semaphore(0)
    leave = threading.Event()

    def listen():
        with front.stream("GET", f"api/experiments/{number}/stream", params={"after": 0}) as stream:
            for _ in stream.iter_lines():
                entered.release()
                leave.wait(30)
                return

    threads = [threading.Thread(target=listen, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert all(entered.acquire(timeout=20) for _ in threads)
    assert front.get("api/me").status_code == 200
    leave.set()
    for thread in threads:
        thread.join(20)
    front.post(f"api/experiments/{number}/kill")


def test_a_cluster_that_is_away_is_a_503_with_the_next_command(tmp_path, kernel_env):
    env = {**kernel_env, "DET_URL": f"http://127.0.0.1:{free_port()}"}
    with jupyter(tmp_path, env, lab=False, options=EXTENSION) as server:
        headers = {"Authorization": f"token {server.token}"}
        for path in ("api/me", "api/experiments/1/stream"):
            reply = httpx.get(f"{server.url}detlab/{path}", headers=headers, trust_env=False)
            assert reply.status_code == 503
            assert reply.json()["code"] == "cluster.unreachable"
            assert "det up" in reply.json()["hint"]


class HubWithoutRoutes(BaseHTTPRequestHandler):
    """What a Hub says while its proxy, started anew, knows no other way than to it."""

    def do_GET(self):
        self.send_response(302)
        self.send_header("Location", f"/hub{self.path}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        self.send_error(403, "'_xsrf' argument missing from POST")


def test_a_hub_that_answers_in_the_clusters_stead_is_an_outage(tmp_path, kernel_env):
    """The page took its redirect, an empty answer, and its refusal for the cluster's."""
    with ThreadingHTTPServer(("127.0.0.1", 0), HubWithoutRoutes) as hub:
        serving = threading.Thread(target=hub.serve_forever)
        serving.start()
        env = {**kernel_env, "DET_URL": f"http://127.0.0.1:{hub.server_port}", "DET_TOKEN": "t"}
        try:
            with jupyter(tmp_path, env, lab=False, options=EXTENSION) as server:
                headers = {"Authorization": f"token {server.token}"}
                for method, path in (("GET", "experiments/1/stream"), ("POST", "experiments/1/kill")):
                    reply = httpx.request(method, f"{server.url}detlab/api/{path}", headers=headers, trust_env=False)
                    assert (reply.status_code, reply.json()["code"]) == (503, "cluster.unreachable")
        finally:
            hub.shutdown()
            serving.join(10)
