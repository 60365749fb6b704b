"""A cluster full of hostile names, and the hub page at every view of it: they are shown, and do nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect
from spine_lab import Lab, until

from detlab.schemas.taskwire import TaskKind
from testbed.cluster import Cluster
from testbed.front.hub_page import HubTab, hub_tab
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(300)]

NAME = (
    '<img src=x onerror=window.hurt=1>"><svg onload=window.hurt=1><script>window.hurt=1</script>'
    " [go](javascript:window.hurt=1) **bold** \u202egnp.exe \x1b[31mred"
)
"""A name of whatever may hold any text."""
FILE = "<img src=x onerror=window.hurt=1>.py"
VALUE = "javascript:window.hurt=1"
SHOWN = "<img src=x onerror=window.hurt=1>"
"""What of the name a page shows as it is; what reorders text or controls a terminal is shown by its number."""

TRIAL = """
import detlab as det

with det.core.init() as core:
    for step in (1, 2):
        core.train.report_validation_metrics(step, {"error": 1 / step, NAME: step})
    print("said", NAME, flush=True)
"""


FAILS = """
import detlab as det

with det.core.init() as core:
    core.train.report_validation_metrics(1, {"error": 1.0})
    with core.checkpoint.store_path({"steps_completed": 1, NAME: NAME}) as (path, uuid):
        (path / FILE).write_text(NAME)
    raise RuntimeError(NAME)
"""


@dataclass
class Planted:
    """Where the names are."""

    experiment: int
    trial: int
    failed: int
    """A trial that failed with such words, after a checkpoint of such a file."""
    task: str
    agent: str


@pytest.fixture(scope="module")
def planted(cluster: Cluster, lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """Put hostile text wherever a user, a task or an agent can."""
    code = tmp_path_factory.mktemp("code")
    (code / "trial.py").write_text(TRIAL.replace("NAME", repr(NAME)))
    (code / FILE).write_text(f"# {NAME}\n")
    config = {
        "name": NAME,
        "description": NAME,
        "labels": [NAME],
        "entrypoint": ["python3", "trial.py", NAME],
        "searcher": {"name": "single", "metric": "error"},
        "hyperparameters": {SHOWN: VALUE, "lr": {"type": "categorical", "vals": [NAME]}},
        "environment": {"environment_variables": [f"TEXT={NAME}"]},
        "max_restarts": 0,
    }
    (code / "fails.py").write_text(FAILS.replace("NAME", repr(NAME)).replace("FILE", repr(FILE)))
    experiment = lab.completed(lab.client.create_experiment(config, code))
    failing = lab.client.create_experiment({**config, "entrypoint": ["python3", "fails.py"]}, code)
    until("it has failed", lambda: failing.reload().state.terminal, 60)
    command = {"entrypoint": ["sh", "-c", 'echo "said $0"', NAME], "resources": {"slots": 0}}
    task = lab.client.create_task(TaskKind.COMMAND, command, name=NAME)
    task.wait(60)
    agent = f"{SHOWN} {uuid.uuid4().hex[:6]}"
    with cluster.client() as api:
        token = api.post("agents/enrolments", json={"ttl": 600}).json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{cluster.service}api/v1/agents/enrol"
        assert httpx.post(url, json={"agent_id": agent}, headers=headers, trust_env=False).status_code == 200
        for kind in ("user", "group"):
            assert api.put("quotas", json={"kind": kind, "name": NAME, "slots": 3}).status_code == 200
        whole = {"entrypoint": ["sleep", "600"], "resources": {"slots": 6}}
        queued = [lab.client.create_task(TaskKind.COMMAND, whole, name=NAME) for _ in range(2)]  # one of them waits
        failed = lab.first_trial(failing).id
        yield Planted(experiment.id, lab.first_trial(experiment).id, failed, task.id, agent)
        for waiting in queued:
            waiting.kill()
        for waiting in queued:
            waiting.wait(60)
        for kind in ("user", "group"):
            assert api.delete("quotas", params={"kind": kind, "name": NAME}).status_code == 200
        assert api.delete(f"agents/{quote(agent, safe='')}").status_code == 200


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[HubTab]:
    with chromium() as browser, hub_tab(browser, cluster, cluster.user) as opened:
        yield opened
        assert opened.violations() == []
        assert opened.console == []
        assert opened.foreign == []


def check(page: Page, *seen: str) -> None:
    """The view shows these texts, and nothing of what is in them has become a part of the page."""
    main = page.locator("main")
    expect(page.locator("main .det-empty[role=status]")).to_have_count(0, timeout=30_000)
    for text in seen:
        expect(main).to_contain_text(text, timeout=30_000)
    assert page.evaluate("() => window.hurt") is None
    found: list[Any] = page.evaluate(
        """() => [...document.querySelectorAll('body img, body script[src*="x"], body [onerror], body [onload]')]
            .map(e => e.outerHTML).concat([...document.querySelectorAll('a[href]')]
            .map(a => a.getAttribute('href')).filter(h => /^\\s*(javascript|data):/i.test(h)))"""
    )
    assert [text for text in found if "hub.js" not in text] == []
    shown = main.inner_text()
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\x1b\x00\x08"), shown


@pytest.mark.parametrize(
    ("view", "agent"),
    [
        ("", False), ("work", False), ("queue", False), ("quotas", False), ("everybody", False),
        ("cluster", True), ("nodes", True), ("tokens", True), ("audit", True),
    ],
)  # fmt: skip
def test_every_view_of_the_hub_page_shows_hostile_names_as_text(
    admin: HubTab, planted: Planted, view: str, agent: bool
) -> None:
    admin.open(view)
    if view == "everybody":
        admin.page.get_by_label("Show ended").check()
    check(admin.page, planted.agent if agent else SHOWN)


@pytest.mark.parametrize(
    ("view", "said"), [("usage", "slot-hours"), ("service", "JupyterHub"), ("new", "New experiment")]
)
def test_views_that_tell_no_texts_of_others_stay_whole_beside_them(
    admin: HubTab, planted: Planted, view: str, said: str
) -> None:
    admin.open(view)
    check(admin.page, said)


@pytest.mark.parametrize(
    ("what", "view", "wanted"),
    [
        ("experiment", "experiments", FILE),  # its code
        ("trial", "trials", f"said {SHOWN}"),  # its log
        ("task", "tasks", f"said {SHOWN}"),
        ("failed", "trials", f"RuntimeError: {SHOWN}"),  # its card
    ],
)
def test_every_tab_of_what_is_opened_shows_hostile_names_as_text(
    admin: HubTab, planted: Planted, what: str, view: str, wanted: str
) -> None:
    admin.open(f"{view}/{getattr(planted, what)}")
    page = admin.page
    tabs = page.locator("main [role=tab]")
    expect(tabs.first).to_be_visible(timeout=30_000)
    texts = []
    for number in range(tabs.count()):
        tabs.nth(number).click()
        check(page)
        texts.append(page.locator("main").inner_text())
    assert any(SHOWN in text for text in texts)
    assert any(wanted in text for text in texts), texts


@pytest.mark.parametrize("name", ["<img src=x>", "../x", "a/b", "a\r\nX: 1", "\0", "\u202e", "x" * 300, "\"'`"])
def test_the_hub_refuses_hostile_names_of_servers(cluster: Cluster, name: str) -> None:
    with cluster.hub() as hub:
        reply = hub.post(f"users/{cluster.user}/servers/{quote(name, safe='')}", json={"user_options": {}})
        assert reply.status_code == 400, reply.text
        assert "server_name" in reply.json()["message"]


@pytest.mark.parametrize("name", [".", "..", "...", "%2e%2e", "%2E", "a/../b", "/", " "])
def test_the_hub_refuses_names_of_users_that_mean_a_folder(cluster: Cluster, name: str) -> None:
    """A user of such a name would have no route: browsers and proxies leave `/user/../` for another place."""
    with cluster.hub() as hub:
        reply = hub.post("users", json={"usernames": [name]})
        assert reply.status_code == 400, reply.text
