"""A page that one user serves, in the browser of another, where each user's servers have a host name of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page

from detlab.client.task_facts import TaskFacts
from detlab.client.transport.discovery import ClusterAddress
from detlab.schemas.taskwire import TaskView
from testbed.cluster import Cluster
from testbed.front.lab import chromium
from testbed.waiting import until

pytestmark = [
    pytest.mark.hub,
    pytest.mark.browser,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="only a cluster that root started serves several users"),
]

READ = """
async address => {
  try {
    const reply = await fetch(address, { credentials: 'include' });
    return [reply.status, await reply.text()];
  } catch (error) {
    return [0, String(error)];
  }
}
"""
SEND = """
async address => {
  try {
    const reply = await fetch(address, { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}' });
    return reply.type;
  } catch (error) {
    return String(error);
  }
}
"""
FRAMED = """
async address => {
  const frame = document.createElement('iframe');
  const loaded = new Promise(resolve => frame.addEventListener('load', resolve));
  frame.src = address;
  document.body.append(frame);
  await loaded;
  try {
    return frame.contentWindow.document.body.innerText;
  } catch (error) {
    return error.name;
  }
}
"""


@dataclass
class Site:
    """A cluster whose Hub is `hub.test`, and ada's browser."""

    cluster: Cluster
    context: BrowserContext

    def at(self, name: str = "") -> str:
        """The address of the Hub, or of a name below it."""
        return f"http://{f'{name}.' if name else ''}hub.test:{self.cluster.port}"


@pytest.fixture(scope="module")
def site(open_folder: Path) -> Iterator[Site]:
    root = open_folder / "origins"
    root.mkdir(mode=0o755)
    cluster = Cluster(root, slots=1)
    cluster.folder.mkdir()
    (cluster.folder / "detlab_config.py").write_text(
        f"c.JupyterHub.subdomain_host = 'http://hub.test:{cluster.port}'\n"
        "c.EmbeddedCluster.extra_users = ['ada', 'mallory']\nc.EmbeddedCluster.docker = False\n"
    )
    started = cluster.up()
    assert started.returncode == 0, started.stdout + started.stderr + cluster.logs()
    assert f"http://hub.test:{cluster.port}/hub/login" in started.stdout
    try:
        with chromium("--host-resolver-rules=MAP hub.test 127.0.0.1, MAP *.hub.test 127.0.0.1") as browser:
            context = browser.new_context()
            yield Site(cluster, context)
            context.close()
    finally:
        cluster.down("--timeout", "5")


@pytest.fixture(scope="module")
def ada(site: Site) -> Page:
    """A page of ada's browser, logged in by the Hub's form, on the hub page."""
    page = site.context.new_page()
    page.goto(f"{site.at()}/services/detlab/")
    page.fill("#username_input", "ada")
    page.fill("#password_input", (site.cluster.folder / "secrets" / "password-ada").read_text().strip())
    page.click("#login_submit")
    page.wait_for_selector("main h1")
    return page


@pytest.fixture(scope="module")
def notebook(site: Site, ada: Page) -> str:
    """Ada's notebook server, opened in her browser; returns its address."""
    with site.cluster.hub() as hub:
        assert hub.post("users/ada/server").status_code in {201, 202}

        def ready() -> bool:
            return bool(hub.get("users/ada").json()["servers"].get("", {}).get("ready"))

        until(ready, site.cluster.logs, 60)
    ada.goto(f"{site.at()}/user/ada/lab")
    ada.wait_for_url(f"{site.at('ada')}/user/ada/**")
    return f"{site.at('ada')}/user/ada/"


def test_the_hub_page_and_the_hub_lead_to_each_other(site: Site, ada: Page) -> None:
    assert ada.url == f"{site.at()}/services/detlab/"
    ada.goto(f"{site.at()}/hub/home")
    assert "--service." not in ada.content()  # the Hub's own name for it, at which nobody is logged in
    ada.get_by_role("link", name="Cluster").click()
    ada.wait_for_selector("main h1")
    assert ada.url == f"{site.at()}/services/detlab/"


def test_every_cookie_is_same_site(site: Site, ada: Page, notebook: str) -> None:
    cookies = site.context.cookies()
    assert {"jupyterhub-session-id", "service-detlab", "_xsrf"} <= {cookie["name"] for cookie in cookies}
    assert [cookie for cookie in cookies if cookie["sameSite"] not in {"Lax", "Strict"}] == []


@pytest.mark.parametrize("path", ["services/detlab/", "hub/login"])
def test_every_cookie_says_so_itself(site: Site, path: str) -> None:
    """A browser of today takes a cookie that says nothing for `Lax`; others do not."""
    host = {"Host": f"hub.test:{site.cluster.port}"}
    reply = httpx.get(f"http://127.0.0.1:{site.cluster.port}/{path}", headers=host, trust_env=False)
    made = reply.headers.get_list("set-cookie")
    assert made
    assert [cookie for cookie in made if "samesite=lax" not in cookie.lower()] == []


def test_a_notebook_opens_at_its_users_own_name_and_its_owner_reads_it(site: Site, ada: Page, notebook: str) -> None:
    assert ada.url.startswith(notebook)
    status, text = ada.evaluate(READ, f"{notebook}api/contents")
    assert status == 200
    assert '"type": "directory"' in text
    with site.cluster.client() as api:
        (task,) = api.get("tasks").json()["items"]
    assert task["server_host"] == site.at("ada")  # where the command line asks it
    facts = TaskFacts(TaskView.model_validate(task), ClusterAddress(site.cluster.service, "token", "a test"))
    assert facts.server_url == notebook


def test_a_page_of_another_user_reads_and_changes_nothing_of_hers(site: Site, ada: Page, notebook: str) -> None:
    page = evil_page(site)
    theirs = {
        "a file of her notebook server": f"{notebook}api/contents",
        "her kernels": f"{notebook}api/kernels",
        "her experiments": f"{site.at()}/services/detlab/api/v1/experiments",
        "her tokens": f"{site.at()}/hub/api/users/ada/tokens",
        "the page with its token": f"{site.at()}/services/detlab/",
    }
    read: dict[str, Any] = {what: page.evaluate(READ, address) for what, address in theirs.items()}
    assert {what: status for what, (status, _) in read.items()} == dict.fromkeys(theirs, 0), read
    for address in (notebook, f"{site.at()}/services/detlab/", f"{site.at()}/hub/home"):
        assert page.evaluate(FRAMED, address) in {"SecurityError", "TypeError"}, address
    assert "service-detlab" not in page.evaluate("document.cookie")

    # what she may do, the page may not have her browser do
    page.evaluate(SEND, f"{notebook}api/kernels")
    page.evaluate(SEND, f"{site.at()}/services/detlab/api/v1/experiments")
    page.evaluate(SEND, f"{site.at()}/hub/api/users/ada/tokens")
    assert ada.evaluate(READ, f"{notebook}api/kernels") == [200, "[]"]
    with site.cluster.client() as api:
        assert api.get("experiments").json()["items"] == []
    page.close()


def evil_page(site: Site) -> Page:
    """A page under mallory's name in ada's browser: what a server of mallory's own sends is mallory's to choose."""
    page = site.context.new_page()
    address = f"{site.at('mallory')}/user/mallory/evil"
    page.route(address, lambda route: route.fulfill(body="<h1>free slots</h1>", content_type="text/html"))
    page.goto(address)
    return page
