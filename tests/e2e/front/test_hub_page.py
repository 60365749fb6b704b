"""The hub page as people use it: a real Hub, a real agent, a real browser."""

from __future__ import annotations

import csv
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from spine_lab import Lab, asha, lab_of, single, until

from testbed.agents import printed_agent
from testbed.cluster import Cluster, running_cluster
from testbed.front.hub_page import HubTab, end_from, faultless_tab, hub_tab, start_dialog
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

HOSTILE = "<img src=x onerror=alert(1)>"
STRANGER = "o'neil <b>%41 & \u202egnp"
"""A user that a site's own way of logging in may let in."""
STREAM = re.compile(r"/api/v1/stream")
OUTER = "found => found.map(element => element.outerHTML)"
VIEWS = [
    "",
    "queue",
    "cluster",
    "models",
    "storage",
    "nodes",
    "everybody",
    "quotas",
    "usage",
    "tokens",
    "audit",
    "log",
    "service",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of this module's own: its parts are killed."""
    root = tmp_path_factory.mktemp("hubpage")
    with running_cluster(root, slots=4, config="c.EmbeddedCluster.extra_users = ['ada']\n") as running:
        yield running


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Iterator[Lab]:
    with lab_of(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def ada(cluster: Cluster) -> Iterator[Lab]:
    with lab_of(cluster, "ada") as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def admin(browser: Browser, cluster: Cluster) -> Iterator[HubTab]:
    with faultless_tab(browser, cluster) as opened:
        yield opened


def slow(name: str, steps: int = 400, **more: object) -> dict[str, object]:
    """A trial that runs until it is killed."""
    return single("toy.py", name=name, hparams={"steps": steps, "pause": 0.25}, **more)


def answers(url: str) -> bool:
    """Whether somebody serves there."""
    try:
        return httpx.get(url, trust_env=False, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def test_a_running_search_is_seen_as_it_goes(operator: Lab, admin: HubTab) -> None:
    search = operator.submit(asha("toy.py", 4, 20, hparams={"steps": 20, "pause": 0.1}, name=HOSTILE))
    page = admin.page
    item = page.get_by_role("listitem").filter(has_text=f"#{search.id}")
    expect(item).to_contain_text(HOSTILE)  # it appeared by itself
    item.get_by_role("link", name=HOSTILE).click()
    expect(page).to_have_url(f"{admin.cluster.service}experiments/{search.id}")
    expect(page.locator("main h1")).to_contain_text(HOSTILE)
    expect(page.locator("main canvas").first).to_be_visible(timeout=60_000)
    expect(page.locator("main")).to_contain_text("4/4 trials", timeout=60_000)
    page.get_by_role("tab", name="Search").click()
    page.get_by_label("Figure", exact=True).select_option("slice")
    expect(page.locator("main .cbfills").first).to_be_attached(timeout=60_000)  # a scale of colours, with styles inline
    assert page.locator("main img").count() == 0
    page.go_back()
    expect(page.locator("main h1")).to_have_text("My work")


def test_an_admin_sees_who_holds_what_and_disables_the_node(ada: Lab, admin: HubTab, cluster: Cluster) -> None:
    held = ada.submit(slow("of ada"))
    ada.at_step(ada.first_trial(held), 1)
    admin.follow("Nodes")
    page = admin.page
    holders = page.get_by_role("list", name="Slot holders")
    expect(holders).to_contain_text(f"experiment {held.id} of ada of ada, 1 slot")
    page.get_by_role("button", name="Disable").click()
    page.get_by_role("dialog").get_by_role("button", name="Disable").click()
    expect(page.get_by_text("Running work continues; nothing new starts.")).to_be_visible()
    with cluster.client() as client:
        assert [agent["enabled"] for agent in client.get("agents").json()] == [False]
    waiting = ada.submit(slow("waits"))
    admin.follow("Queue")
    expect(page.get_by_role("region", name="Queue")).to_contain_text("waits")
    expect(page.get_by_role("region", name="Queue")).to_contain_text("ada")
    admin.follow("Nodes")
    page.get_by_role("button", name="Enable").click()
    page.get_by_role("dialog").get_by_role("button", name="Enable").click()
    ada.at_step(ada.first_trial(waiting), 1)
    admin.follow("All work")
    expect(page.get_by_role("region", name="Users")).to_contain_text("ada")
    for experiment in (held, waiting):
        experiment.kill()
    admin.follow("Audit log")
    page.get_by_label("Action").fill("agent")
    log = page.get_by_role("region", name="Audit log")
    expect(log).to_contain_text("agent.disable")
    expect(log).to_contain_text("agent.enable")
    expect(log).not_to_contain_text("experiment.create")


def test_another_user_sees_neither_admin_views_nor_others_work(
    operator: Lab, browser: Browser, cluster: Cluster
) -> None:
    secret = operator.submit(slow("not for ada", steps=1))
    with hub_tab(browser, cluster, "ada") as tab:
        nav = tab.page.get_by_role("navigation", name="Views")
        assert nav.get_by_role("link").all_inner_texts() == [
            "My work",
            "Experiments",
            "Trials",
            "Runs",
            "Schedules",
            "Shared with me",
            "Queue",
            "Cluster",
            "Models",
            "Artifacts",
            "Storage",
            "Templates",
            "Notifications",
            "My usage",
        ]
        for view in ("nodes", "everybody", "tokens", "audit", "log", "service"):
            tab.open(view)
            expect(tab.page.locator("main")).to_contain_text("This page is for administrators.")
        for view in (f"experiments/{secret.id}", f"trials/{secret.id}", "tasks/command-000000000000"):
            tab.open(view)
            expect(tab.page.get_by_role("alert")).to_contain_text("there is no")
        tab.open()
        assert "not for ada" not in tab.page.content()
        assert tab.console == []
        assert tab.violations() == []


def test_an_agent_comes_by_the_command_and_token_shown_once_and_is_refused_once_its_key_is_revoked(
    admin: HubTab, cluster: Cluster, tmp_path: Path
) -> None:
    admin.follow("Nodes")
    page = admin.page
    page.get_by_role("button", name="Enrol a node").click()
    page.get_by_role("button", name="Create token").click()
    token = page.get_by_label("Token").input_value()
    assert token.startswith("dtenrol_")
    command = page.get_by_label("Command").input_value()
    page.get_by_role("button", name="Done").click()
    assert token not in page.content()
    bundle = f"{cluster.service}api/v1/bundles/sha256:{'0' * 64}"
    with printed_agent(command, token, tmp_path, "second", cluster.environment) as second:
        second.until_it_says("enrolled as second", "connected to cluster", cluster.service)
        expect(page.locator("main")).to_contain_text("second")  # it appeared by itself
        headers = {"Authorization": f"Bearer {second.key}"}
        assert httpx.get(bundle, headers=headers, trust_env=False).status_code == 404
        admin.follow("Tokens")
        row = page.get_by_role("region", name="Tokens").get_by_role("row").filter(has_text="second")
        row.get_by_role("button", name="Revoke").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("The node cannot reconnect")
        dialog.get_by_role("button", name="Revoke").click()
        expect(row).to_have_count(0)
        assert httpx.get(bundle, headers=headers, trust_env=False).status_code == 401
        second.until_it_says("the master does not know this agent's key, and the master refuses the enrolment token")


def test_the_hub_is_restarted_under_an_open_page_which_goes_on(operator: Lab, admin: HubTab, cluster: Cluster) -> None:
    hub = cluster.pid("hub")
    assert hub is not None
    os.kill(hub, signal.SIGKILL)
    during = operator.submit(slow("while the hub is away", steps=2))
    list_item = admin.page.get_by_role("listitem").filter(has_text=f"#{during.id}")
    expect(list_item).to_be_visible(timeout=30_000)
    until("the hub is back", lambda: answers(f"{cluster.url}/hub/api/"), 60)
    operator.finish(during, 60)
    expect(list_item).to_contain_text("completed", timeout=60_000)


def test_the_master_is_restarted_under_an_open_page_which_says_so_and_goes_on(
    operator: Lab, admin: HubTab, cluster: Cluster
) -> None:
    master = cluster.pid("master")
    assert master is not None
    admin.page.route(STREAM, lambda route: route.abort())  # so that it cannot be back before anybody looks
    os.kill(master, signal.SIGKILL)
    lost = admin.page.get_by_text("Connection lost")
    expect(lost).to_be_visible(timeout=17_000)  # a proxy keeps the broken stream open: two missing heartbeats tell
    until("the master is back", lambda: answers(f"{cluster.service}health"), 60)
    admin.page.unroute(STREAM)
    expect(lost).to_be_hidden(timeout=60_000)
    after = operator.submit(slow("after the restart", steps=2))
    expect(admin.page.get_by_role("listitem").filter(has_text=f"#{after.id}")).to_be_visible(timeout=30_000)


def test_a_notebook_is_queued_with_place_and_reason_then_opens_and_is_ended(operator: Lab, admin: HubTab) -> None:
    held = operator.submit(slow("holds a slot"))
    operator.at_step(operator.first_trial(held), 1)
    page = admin.page
    dialog = start_dialog(page, "notebook")
    dialog.get_by_label("Name").fill(HOSTILE)
    dialog.get_by_label("Idle timeout").fill("soon")
    dialog.get_by_label("Slots").fill("4")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_label("Idle timeout")).to_have_attribute("aria-invalid", "true", timeout=30_000)
    dialog.get_by_label("Idle timeout").fill("")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("status")).to_contain_text("Position 1 in the queue: needs 4 slots", timeout=30_000)
    expect(dialog.get_by_role("status")).to_contain_text(HOSTILE)
    with page.expect_popup(timeout=90_000) as opened:
        held.kill()
    expect(opened.value.locator("#main.jp-LabShell")).to_be_visible(timeout=90_000)
    opened.value.close()
    expect(dialog.get_by_role("status")).to_contain_text("Running")
    end_from(page, dialog)


def test_what_is_not_there_says_so_in_a_page_with_the_way_home(operator: Lab, admin: HubTab) -> None:
    gone = operator.submit(slow("soon deleted", steps=1))
    operator.finish(gone, 60)
    admin.open(f"experiments/{gone.id}")
    gone.delete()
    admin.open(f"experiments/{gone.id}")
    expect(admin.page.get_by_role("heading", name=f"Experiment {gone.id} not found")).to_be_visible()
    expect(admin.page.locator("main")).to_contain_text("It was deleted")
    admin.page.goto(f"{admin.cluster.service}no/such/place")
    expect(admin.page.get_by_role("heading", name="Not found")).to_be_visible()
    admin.page.get_by_role("link", name="detlab").click()
    expect(admin.page.locator("main h1")).to_have_text("My work")


def test_usage_is_shown_and_downloaded(admin: HubTab) -> None:
    admin.follow("Usage")
    page = admin.page
    expect(page.get_by_role("img", name=re.compile("Slot-hours by day"))).to_be_visible()
    with page.expect_download() as started:
        page.get_by_role("link", name="Download CSV").click()
    assert re.fullmatch(r"slot-hours_[-0-9_]+\.csv", started.value.suggested_filename)
    rows = list(csv.reader(Path(started.value.path()).read_text().splitlines()))
    assert rows[0] == ["day", "user", "kind", "slot_hours"]
    assert any(row[1] == "ada" for row in rows[1:])
    page.set_viewport_size({"width": 360, "height": 800})
    table = page.get_by_role("region", name="Slot-hours by user")
    expect(table).to_contain_text("ada")
    assert table.evaluate("e => e.scrollWidth - e.clientWidth") <= 0, "all of it is seen on a phone"
    assert admin.overflow() <= 0


def test_details_of_the_service_and_filters_of_deeds_fit_a_very_narrow_page(admin: HubTab) -> None:
    """Beside the names' column five letters a line were left for the details."""
    page = admin.page
    page.set_viewport_size({"width": 240, "height": 800})
    admin.follow("Service")
    details = page.locator(".det-adm-health .det-adm-detail")
    expect(details.first).to_be_visible()
    widths = details.evaluate_all("all => all.map(e => e.getBoundingClientRect().width / e.parentElement.clientWidth)")
    assert min(widths) > 0.9, widths
    admin.follow("Audit log")
    field = page.get_by_label("User", exact=True)
    expect(field).to_be_visible()
    assert field.evaluate("e => e.getBoundingClientRect().right") <= 240 - 14, "the page's own edge"


def test_a_user_of_a_hostile_name_is_text_on_every_page(admin: HubTab, cluster: Cluster) -> None:
    name = quote(STRANGER, safe="")
    with cluster.hub() as hub:
        hub.post(f"users/{name}").raise_for_status()
    with lab_of(cluster, name) as stranger:
        paused = stranger.submit(slow("of a stranger"), activate=False)
    page = admin.page
    for view in ("everybody", "audit", "plain"):
        page.goto(cluster.service + view)
        expect(page.locator("main")).to_contain_text("o'neil <b>%41 & ⟨U+202E⟩gnp")
        assert page.locator("main b", has_text="%41").count() == 0
        assert "\u202e" not in page.locator("body").inner_text()
    with cluster.client() as client:
        client.post(f"experiments/{paused.id}/kill").raise_for_status()


def tab_to(page: Page, target: Locator, at_most: int = 60) -> None:
    """Press Tab until an element has the focus, as somebody without a mouse does."""
    expect(target).to_be_visible()
    for _ in range(at_most):
        page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"{at_most} times Tab, and the focus is at {page.locator(':focus').evaluate_all(OUTER)}")


def test_the_keyboard_alone_reaches_everything(admin: HubTab) -> None:
    page = admin.page
    page.reload()
    page.wait_for_selector("main h1")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("() => location.hash") == "#main"
    tab_to(page, page.get_by_role("link", name="Nodes"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_focused()
    enrol = page.get_by_role("button", name="Enrol a node")
    tab_to(page, enrol)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Enrol a node")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(enrol).to_be_focused()


def test_an_experiment_is_opened_and_killed_by_the_keyboard_alone(operator: Lab, admin: HubTab) -> None:
    doomed = operator.submit(slow("killed by keys"), activate=False)
    page = admin.page
    tab_to(page, page.get_by_role("link", name="killed by keys"))
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("killed by keys")
    kill = page.get_by_role("button", name="Kill", exact=True)
    expect(kill).to_be_visible()
    tab_to(page, kill)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=f"Kill experiment {doomed.id}?")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(kill).to_be_focused()
    page.keyboard.press("Enter")
    tab_to(page, dialog.get_by_role("button", name="Kill"), at_most=3)
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("canceled", timeout=30_000)
    assert operator.client.get_experiment(doomed.id).state.value == "CANCELED"


@pytest.fixture(scope="module")
def subjects(operator: Lab) -> Iterator[dict[str, str]]:
    """Views of what is there: heading by address, of an experiment that runs, its trial, and a task."""
    shown = operator.submit(slow("looked at by axe", steps=40_000))  # both looks at everything take minutes when loaded
    trial = operator.at_step(operator.first_trial(shown), 1)
    config = {"entrypoint": "echo here; sleep 600", "resources": {"slots": 0}}
    task = operator.client.create_task("command", config, name="a task for axe")
    yield {
        f"experiments/{shown.id}": "looked at by axe",
        f"trials/{trial.id}": "Trial",
        f"tasks/{task.id}": "a task for axe",
        "new": "New experiment",
    }
    task.kill()
    shown.kill()


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 360)])
def test_every_view_is_accessible_in_both_themes_and_on_a_narrow_screen(
    browser: Browser, cluster: Cluster, subjects: dict[str, str], dark: bool, width: int
) -> None:
    with hub_tab(browser, cluster, cluster.user, size=(width, 800), dark=dark) as tab:
        page = tab.page
        ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") is not dark
        for view in [*VIEWS, *subjects]:
            tab.open(view)
            expect(page.locator("main h1").first).to_contain_text(subjects.get(view, ""))
            page.wait_for_selector("main .det-empty[role=status]", state="detached")
            assert tab.findings() == [], view
            assert tab.overflow() <= 0, view
        tab.open(next(iter(subjects)))
        page.get_by_role("button", name="Kill", exact=True).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert tab.findings() == [], "the question before a kill"
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        tab.open()
        expect(start_dialog(page, "notebook")).to_be_visible()
        assert tab.findings() == [], "the dialog that starts a notebook"
        assert tab.overflow() <= 0
        assert tab.violations() == []
        assert tab.console == []


def test_the_theme_chosen_on_the_hubs_pages_holds_here(admin: HubTab) -> None:
    page = admin.page
    html = page.locator("html")
    expect(html).to_have_attribute("data-bs-theme", "light")
    page.get_by_role("button", name="Switch to dark colours").click()
    expect(html).to_have_attribute("data-bs-theme", "dark")
    page.goto(f"{admin.cluster.url}/hub/home")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.locator("#dark-theme-toggle").click()
    page.get_by_role("link", name="Cluster", exact=True).click()
    page.wait_for_selector("main h1")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "light")


def test_a_session_that_ended_is_said_with_the_way_back(browser: Browser, cluster: Cluster) -> None:
    with faultless_tab(browser, cluster, login=True) as admin:
        page = admin.page
        page.context.clear_cookies()
        admin.page.get_by_role("navigation", name="Views").get_by_role("link", name="Usage").click()
        expect(page.get_by_text("Your session has ended.")).to_be_visible()
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("#username_input")).to_be_visible()
        admin.console[:] = [line for line in admin.console if "401" not in line]
        page.evaluate("() => { window.__violations = []; }")
