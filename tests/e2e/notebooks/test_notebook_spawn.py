"""Notebooks and shells that the master places: the queue, the page, the faults, the neighbours."""

import contextlib
import threading
import time

import httpx
import pytest
import websocket

from testbed.cluster import running_cluster
from testbed.servers import Kernel, kill_part, logged_in, open_terminal, user, xsrf
from testbed.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG = """
c.EmbeddedCluster.extra_users = ['ada', 'ben']
c.DetHub.spawn_lease = 4.0
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    root = tmp_path_factory.mktemp("spawn")
    with running_cluster(root, slots=2, config=CONFIG) as running:
        yield running


ada = user("ada")
ben = user("ben")


@pytest.fixture(scope="module")
def notebook(ada):
    """Ada's notebook, which most tests share: its address."""
    reply = ada.start("shared")
    assert reply.status_code in {201, 202}, reply.text
    return ada.ready("shared")


@pytest.fixture
def full(ben):
    """Ben holds both slots, by a server that runs nothing."""
    ben.start("hog", slots=2, kind="shell")
    ben.ready("hog")
    yield ben
    if ben.model("hog"):
        ben.stop("hog")


@pytest.fixture
def queued(ada, full):
    """Ada waits behind ben; her request to the Hub is answered when she has waited long enough."""
    thread = threading.Thread(target=ada.start, args=("wait",), kwargs={"slots": 1})
    thread.start()
    ada.until_task(name="wait", allocation_state="PENDING")
    yield ada
    if ada.model("wait"):
        ada.stop("wait")
    thread.join(30)


def test_a_queued_spawn_shows_place_and_reason_and_then_starts(queued, full):
    said = []
    for event in queued.progress("wait"):
        said.append(event.get("message", ""))
        if "place 1" in said[-1]:
            full.stop("hog")
        assert not event.get("failed"), said
    waiting = next(text for text in said if "place 1" in text)
    assert "slot" in waiting, "the reason is there"
    assert any("starts on" in text for text in said), said
    assert event["ready"]
    assert len(said) == len(set(said)), "no line comes twice"
    queued.until_task(name="wait", display_state="RUNNING")


def test_a_spawn_is_cancelled_while_it_is_queued(queued):
    began = time.monotonic()
    queued.stop("wait")
    assert time.monotonic() - began < 10
    task = queued.until_task(name="wait", state="CANCELED")
    assert task["end_reason"] == "canceled"
    assert queued.get("queue").json()["items"] == []


@pytest.mark.soak
def test_a_hub_that_is_killed_while_a_spawn_is_queued_leaves_no_allocation(queued, cluster):
    kill_part(cluster, "hub")
    task = queued.until_task(name="wait", state="CANCELED")
    assert task["end_reason"] == "abandoned"
    until(lambda: not quiet(queued, "wait"), cluster.logs)


def quiet(who, name):
    try:
        return who.model(name)
    except httpx.HTTPError:
        return True


@pytest.mark.soak
def test_a_master_that_is_killed_while_a_spawn_is_queued_goes_on_with_it(queued, full, cluster):
    before = queued.task("wait")["id"]
    kill_part(cluster, "master")
    queued.until_task(name="wait", id=before, allocation_state="PENDING")
    full.stop("hog")
    queued.ready("wait")
    assert queued.task("wait")["id"] == before


def test_the_same_kernel_answers_after_hub_agent_and_master_were_killed(ada, notebook, cluster):
    kernel = Kernel(notebook, ada.token)
    kernel.run("answer = 41")
    task = ada.task("shared")["id"]
    for part in ("hub", "agent", "master"):
        kill_part(cluster, part)
        ada.ready("shared")
        # the new agent has taken the task up when the master hears of it
        until(lambda: quiet_agents(ada) == "connected", cluster.logs)
        assert "41" in Kernel(notebook, ada.token, kernel.id).run("print(answer)"), part
        assert ada.until_task(name="shared", id=task)["display_state"] == "RUNNING"


def quiet_agents(who):
    try:
        agents = who.get("agents").json()
        return agents[0]["state"] if agents else ""
    except (httpx.HTTPError, KeyError, ValueError):
        return ""


def test_a_neighbour_gets_neither_the_notebook_nor_its_kernel_nor_its_logs(ada, ben, notebook):
    headers = {"Authorization": f"token {ben.token}"}
    for path in ("api/kernels", "api/contents", "lab"):
        reply = httpx.get(f"{notebook}{path}", headers=headers, trust_env=False, timeout=30)
        assert reply.status_code in {302, 403}, path
    kernel = Kernel(notebook, ada.token)
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        Kernel(notebook, ben.token, kernel.id).run("print(1)")
    assert refused.value.status_code == 403
    task = ada.task("shared")["id"]
    for path in (f"tasks/{task}", f"tasks/{task}/logs", f"tasks/{task}/logs/stream"):
        assert ben.get(path).status_code == 404, path
    assert ben.post(f"tasks/{task}/kill").status_code == 404
    assert ben._hub.delete(ada.path("shared")).status_code in {403, 404}


def test_a_neighbours_shell_is_refused_and_its_owner_works_in_it(ada, full):
    server = full.ready("hog")
    url = open_terminal(server, full.token)
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        websocket.create_connection(url, header=[f"Authorization: token {ada.token}"], timeout=30)
    assert refused.value.status_code == 403
    connection = websocket.create_connection(url, header=[f"Authorization: token {full.token}"], timeout=30)
    connection.send('["stdin", "echo $((6*7)); det user whoami; echo $((6*8))\\r"]')
    seen = ""
    while "48\\r" not in seen:  # Jupyter's pings come in between: a silent terminal ends the test by its own limit
        seen += connection.recv()
    assert "42" in seen
    assert "ben" in seen.partition("42")[2], seen
    connection.close()


def token_of(who):
    return {"Authorization": f"token {who.token}"}


def test_files_survive_the_server(ada):
    ada.start("keeps")
    Kernel(ada.ready("keeps"), ada.token).run("open('kept.txt', 'w').write('still here')")
    ada.stop("keeps")
    ada.start("keeps")
    said = Kernel(ada.ready("keeps"), ada.token).run("print(open('kept.txt').read())")
    assert "still here" in said
    ada.stop("keeps")


def test_a_server_that_dies_at_start_says_why_with_its_last_lines(ada):
    broken = {"environment": {"environment_variables": ["JUPYTERHUB_SINGLEUSER_APP=no.such.Server"]}}
    reply = ada.start("dies", config=broken)
    assert reply.status_code == 400, reply.text
    said = reply.json()["message"]
    assert "failed" in said
    assert "no.such" in said, "the log's tail"
    assert ada.task("dies")["end_reason"] == "failed"


def test_wrong_options_are_all_named_at_once(ada):
    reply = ada.start("wrong", slots=-1, kind="spreadsheet", idle_timeout="soon", runtime="vm", colour="red")
    assert reply.status_code == 400
    said = reply.json()["message"]
    for word in ("Slots", "spreadsheet", "soon", "Runtime", "colour"):
        assert word in said, (word, said)
    assert ada.task("wrong") == {}


@pytest.mark.soak
def test_an_idle_shell_is_warned_about_and_ended(ada):
    reply = ada.post("tasks", {"kind": "shell", "name": "forgotten", "config": {"idle_timeout": 8}})
    assert reply.status_code == 201, reply.text
    task = reply.json()["task"]
    name = task["server_name"]
    ada.ready(name)
    until(lambda: ada.task(name)["cull_at"] or ada.task(name)["end_reason"], ada.cluster.logs)
    ended = ada.until_task(name=name, end_reason="idle", state="CANCELED")
    lines = [line["text"] for line in ada.get(f"tasks/{ended['id']}/logs", limit=1000).json()["items"]]
    warned = [line for line in lines if "unless it is used" in line]
    assert warned, lines
    until(lambda: not ada.model(name), ada.cluster.logs)


def test_a_notebook_is_started_and_killed_through_the_service(ada):
    request = {"kind": "notebook", "name": "By the service", "idempotency_key": "only-one"}
    first = ada.post("tasks", request)
    assert first.status_code == 201, first.text
    task = first.json()["task"]
    again = ada.post("tasks", request).json()["task"]
    assert again["id"] == task["id"]
    name = task["server_name"]
    address = ada.ready(name)
    assert address.endswith(f"/user/ada/{name}/")
    assert ada.task(name)["url"] == f"/user/ada/{name}/lab"
    killed = ada.post(f"tasks/{task['id']}/kill")
    assert killed.status_code == 200
    ada.until_task(name=name, state="CANCELED", end_reason="killed")
    until(lambda: not ada.model(name), ada.cluster.logs)


CURVE = """python3 -c "
import detlab as det
with det.core.init() as core:
    for step in range(1, 6):
        core.train.report_validation_metrics(step, {'loss': 1.0 / step})
"
"""


def test_a_tensorboard_shows_what_trials_reported_to_its_owner_alone(ada, ben):
    searcher = {"name": "single", "metric": "loss"}
    made = ada.post("experiments", {"config": {"name": "curve", "entrypoint": CURVE, "searcher": searcher}})
    assert made.status_code == 200, made.text
    number = made.json()["experiment"]["id"]
    until(lambda: ada.get(f"experiments/{number}").json()["state"] == "COMPLETED", ada.cluster.logs)
    assert ben.post("tasks", {"kind": "tensorboard", "experiment_ids": [number]}).status_code == 422
    reply = ada.post("tasks", {"kind": "tensorboard", "experiment_ids": [number]})
    assert reply.status_code == 201, reply.text
    name = reply.json()["task"]["server_name"]
    board = ada.ready(name)

    def tags():
        page = httpx.get(f"{board}data/plugin/scalars/tags", headers=token_of(ada), trust_env=False, timeout=30)
        return page.json() if page.status_code == 200 else {}

    runs = until(tags, ada.cluster.logs)
    assert any("validation/loss" in found for found in runs.values()), runs
    assert "TensorBoard" in httpx.get(board, headers=token_of(ada), trust_env=False, timeout=30).text
    for path in ("", "data/runs", "data/plugin/scalars/tags"):
        assert httpx.get(f"{board}{path}", headers=token_of(ben), trust_env=False).status_code in {302, 403}, path
        assert httpx.get(f"{board}{path}", trust_env=False).status_code in {302, 403}, path
    with contextlib.closing(logged_in(ada.cluster, "ada")) as page:  # its owner's own session, from pages of two sites
        assert page.get(board).status_code == 200
        for site, status in (("same-origin", 200), ("cross-site", 403)):
            headers = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": site}
            asked = {"experimentName": "", "hparamsLimit": 1}
            reply = page.post(f"{board}data/plugin/hparams/experiment", headers=headers, json=asked)
            assert reply.status_code == status, (site, reply.text)
    ada.post(f"tasks/{ada.task(name)['id']}/kill")
    until(lambda: not ada.model(name), ada.cluster.logs)


def test_the_spawners_routes_are_closed_to_people_and_the_spawners_token_to_the_rest(ada, cluster):
    assert ada.post("spawns", {"owner": "ben", "key": "k" * 16}).status_code == 403
    assert ada.get(f"spawns/{ada.task('shared').get('id', 'notebook-0')}").status_code == 403
    secret = (cluster.folder / "secrets" / "spawner_token").read_text().strip()
    headers = {"Authorization": f"Bearer {secret}"}
    for path in ("tasks", "experiments", "agents"):
        reply = httpx.get(f"{cluster.service}api/v1/{path}", headers=headers, trust_env=False, timeout=30)
        assert reply.status_code == 403, path


def test_the_form_is_there_names_all_mistakes_and_the_page_of_a_failure_shows_the_log(ada, cluster):
    with contextlib.closing(logged_in(cluster, "ada")) as page:
        form = page.get("/hub/spawn/ada/formed").text
        for field in ("kind", "slots", "idle_timeout"):
            assert f'name="{field}"' in form
        assert '<option value="docker" disabled>' in form
        assert "No node has a container engine now." in form
        hostile = '"><script>alert(1)</script>'
        wrong = {"slots": "-1", "idle_timeout": hostile, "kind": "spreadsheet"}
        refused = page.post("/hub/spawn/ada/formed", params={"_xsrf": xsrf(page)}, data=wrong)
        assert refused.status_code == 400
        for word in ("Slots", "Idle", "spreadsheet"):
            assert word in refused.text, word
        assert "<script>alert" not in refused.text
        ada.start("broken", config={"environment": {"environment_variables": ["JUPYTERHUB_SINGLEUSER_APP=no.such"]}})
        ada.until_task(name="broken", state="ERROR")
        until(lambda: not ada.model("broken"), cluster.logs)  # the Hub hears of it a moment after the master
        failed = page.get("/hub/spawn-pending/ada/broken")
        assert "det-log-tail" in failed.text
        assert "no.such" in failed.text
