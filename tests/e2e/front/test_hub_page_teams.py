"""Two people with roles in one project, on the hub page in real browsers: from an invitation to a role that is gone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from spine_lab import lab_of, single

from testbed.cluster import Cluster
from testbed.front.hub_page import HubTab, hub_tab
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

HOSTILE = (
    "# Plan\n\n<script>window.hurt=1</script> <svg onload=window.hurt=1> [go](javascript:window.hurt=1) **lr** first"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def sound(tab: HubTab, name: str) -> None:
    """What is shown now is sound for axe, no wider than its window, and breaks no rule of the page."""
    assert tab.findings() == [], name
    assert tab.overflow() <= 0, name
    assert tab.violations() == [], name
    assert tab.console == [], name
    shots = os.environ.get("FACES_SHOTS")
    if shots is None:
        return
    tab.page.screenshot(path=f"{shots}/team-{name}.png", full_page=True)
    tab.page.set_viewport_size({"width": 400, "height": 800})
    tab.page.screenshot(path=f"{shots}/team-{name}-narrow.png", full_page=True)
    tab.page.set_viewport_size({"width": 1280, "height": 800})
    tab.page.emulate_media(color_scheme="dark")
    tab.page.screenshot(path=f"{shots}/team-{name}-dark.png", full_page=True)
    tab.page.emulate_media(color_scheme="light")


def choose(page: Page, menu: str, item: str) -> None:
    """Choose from a menu of actions."""
    page.get_by_role("button", name=menu).click()
    page.get_by_role("menuitem", name=re.compile(f"^{item}")).click()


def test_two_people_work_in_one_project(browser: Browser, cluster: Cluster) -> None:
    with lab_of(cluster, "ada") as lab:
        made = lab.completed(lab.submit(single("toy.py", name="of the team", hparams={"steps": 3})))
    with hub_tab(browser, cluster, "ada") as ada, hub_tab(browser, cluster, "ben") as ben:
        page, other = ada.page, ben.page
        views = page.get_by_role("navigation", name="Views")
        expect(views.get_by_role("link", name="My work")).to_be_visible()
        expect(views.get_by_role("link", name="Workspaces")).to_have_count(0), "who works alone never meets them"
        ben.follow("Shared with me")
        expect(other.locator("main")).to_contain_text("Nobody shares an experiment with you.")
        sound(ben, "shared-none")

        # A workspace with a member and a project.
        ada.follow("Shared with me")
        page.get_by_role("button", name="New workspace …").click()
        dialog = page.get_by_role("dialog", name="New workspace")
        dialog.get_by_label("Name").fill("Vision")
        dialog.get_by_role("button", name="Create").click()
        expect(page.locator("main h1")).to_have_text("Vision")
        ada.follow("Workspaces")
        page.get_by_role("button", name="New workspace …").click()
        dialog.get_by_label("Name").fill("vision")
        dialog.get_by_role("button", name="Create").click()
        expect(dialog.get_by_role("alert")).to_contain_text("differ only in case")
        sound(ada, "taken")
        dialog.get_by_role("button", name="Cancel").click()
        page.get_by_role("region", name="Yours").get_by_role("link", name="Vision").click()
        page.get_by_role("tab", name="Members").click()
        form = page.get_by_role("form", name="Add a member")
        form.get_by_label("Name").fill("ben")
        form.get_by_label("Role").select_option("viewer")
        form.get_by_role("button", name="Add").click()
        members = page.get_by_role("region", name="Members")
        expect(members.get_by_label("Role of user ben")).to_have_value("viewer")
        members.get_by_role("button", name="Leave … user ada").click()
        page.get_by_role("dialog").get_by_role("button", name="Leave").click()
        expect(page.get_by_role("alert")).to_contain_text("ada is the last user who is an admin")
        sound(ada, "members")
        page.get_by_role("tab", name="Defaults").click()
        expect(page.locator("main")).to_contain_text("Only administrators of the cluster may set it.")
        sound(ada, "defaults")
        page.get_by_role("button", name="New project …").click()
        page.get_by_role("dialog").get_by_label("Name").fill("digits")
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        expect(page.locator("main h1")).to_have_text("digits")
        project = page.url

        # An experiment moves there, and the member sees it.
        ada.open(f"experiments/{made.id}")
        choose(page, f"More actions of experiment {made.id}", "Move")
        dialog = page.get_by_role("dialog", name=f"Move experiment {made.id}")
        dialog.get_by_label("Workspace").select_option(label="Vision")
        dialog.get_by_label("Project").select_option(label="digits")
        sound(ada, "move")
        dialog.get_by_role("button", name="Move").click()
        expect(page.locator("main")).to_contain_text("in Vision / digits")
        sound(ada, "experiment")
        ben.follow("Shared with me")
        region = other.get_by_role("region", name="Experiments of others")
        expect(region).to_contain_text("of the team", timeout=20_000)
        sound(ben, "shared")
        region.get_by_role("link", name="of the team").click()
        expect(other.locator("main h1")).to_have_text("of the team")
        expect(other.get_by_role("button", name="Kill")).to_have_attribute("aria-disabled", "true")

        # Two people edit one note.
        page.goto(project)
        page.get_by_role("button", name="Write notes").click()
        page.get_by_role("textbox", name="Notes").fill(HOSTILE)
        page.get_by_role("button", name="Save").click()
        notes = page.get_by_role("note", name="Notes")
        expect(notes.get_by_role("heading", name="Plan")).to_be_visible()
        assert page.evaluate("() => window.hurt") is None
        assert notes.locator("script, svg, a").count() == 0
        page.locator("main").get_by_role("link", name="ada/Vision").click()
        page.get_by_role("tab", name="Members").click()
        page.get_by_label("Role of user ben").select_option("editor")
        expect(page.get_by_label("Role of user ben")).to_have_value("editor")
        page.goto(project)
        other.goto(project)
        for tab in (page, other):
            tab.get_by_role("button", name="Edit notes").click()
        other.get_by_role("textbox", name="Notes").fill("of ben")
        other.get_by_role("button", name="Save").click()
        expect(other.get_by_role("note", name="Notes")).to_contain_text("of ben")
        page.get_by_role("textbox", name="Notes").fill("of ada")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("alert")).to_contain_text("of ben")
        sound(ada, "notes-changed")
        page.get_by_role("button", name="Go on from theirs").click()
        page.get_by_role("textbox", name="Notes").fill("of ben, and of ada")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("note", name="Notes")).to_contain_text("of ben, and of ada")
        sound(ada, "project")

        # The role is taken away while the other looks at it.
        other.goto(f"{cluster.service}experiments/{made.id}?tab=checkpoints")
        expect(other.get_by_role("tab", name="Checkpoints")).to_have_attribute("aria-selected", "true")
        page.locator("main").get_by_role("link", name="ada/Vision").click()
        page.get_by_role("tab", name="Members").click()
        page.get_by_role("button", name="Remove … user ben").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(other.locator("main h1")).to_have_text(f"You can no longer see experiment {made.id}", timeout=20_000)
        expect(other.locator("main")).not_to_contain_text("of the team")
        sound(ben, "gone")


def test_a_trial_has_its_place_in_the_address_and_times_in_the_chosen_zone(browser: Browser, cluster: Cluster) -> None:
    with lab_of(cluster, "cleo") as lab:
        made = lab.completed(lab.submit(single("toy.py", name="to look at", hparams={"steps": 3})))
        (trial,) = made.list_trials()
    with hub_tab(browser, cluster, "cleo", f"trials/{trial.id}?tab=logs") as tab:
        page = tab.page
        log = page.get_by_role("log")
        expect(log).to_contain_text("TOY")
        page.get_by_role("tab", name="Metrics").click()
        expect(page).to_have_url(re.compile(r"\?tab=metrics$"))
        page.get_by_role("tab", name="Logs").click()
        page.get_by_role("button", name=".*", exact=True).click()
        page.get_by_label("Search in the logs").fill(r"^TOY \w+ [0-9.]+")
        page.get_by_role("button", name="Time, context").click()
        page.get_by_label("Context").select_option("1")
        expect(log).to_contain_text("TOY")
        page.get_by_role("button", name="Times").click()
        page.get_by_role("button", name="UTC").click()
        expect(log).to_contain_text(" UTC")
        sound(tab, "logs")
        page.get_by_label("Search in the logs").fill("(")
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Search in the logs").fill("")
        expect(page.get_by_role("alert")).to_have_count(0)
        page.get_by_role("button", name="Wrap").click()
        with page.expect_download() as saved:
            page.get_by_role("button", name="More actions of the logs").click()
            page.get_by_role("menuitem", name="Download these lines as text").click()
        assert "TOY" in saved.value.path().read_text()
        page.get_by_role("button", name="First error").click()
        expect(page.locator("body")).to_contain_text("No line of the output tells of an error.")
        sound(tab, "logs-wrapped")
        page.get_by_role("link", name="Settings").click()
        page.get_by_role("radio", name="UTC").check()
        page.get_by_role("radio", name="Dark").check()
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        sound(tab, "settings")
        page.get_by_role("radio", name="As the system").check()
        tab.open(f"experiments/{made.id}")
        expect(page.get_by_role("list", name="Legend")).to_contain_text(f"trial {trial.id}")
        page.get_by_role("tab", name="Events").click()
        expect(page.get_by_role("grid")).to_contain_text(" UTC")
        sound(tab, "events")


def test_what_was_canceled_is_continued_from_its_page(browser: Browser, cluster: Cluster) -> None:
    with lab_of(cluster, "cleo") as lab:
        made = lab.submit(single("toy.py", name="cut short", hparams={"steps": 100_000, "save_every": 1, "pause": 0.2}))
        lab.at_step(lab.first_trial(made), 2)
        made.cancel()
        lab.finish(made)
        with hub_tab(browser, cluster, "cleo", f"experiments/{made.id}") as tab:
            page = tab.page
            expect(page.locator("main")).to_contain_text("canceled")
            choose(page, f"More actions of experiment {made.id}", "Continue")
            sound(tab, "continue")
            page.get_by_role("dialog").get_by_role("button", name="Continue").click()
            expect(page.locator("main .det-head-block, main header").first).to_contain_text("running", timeout=20_000)
            assert lab.at_step(lab.first_trial(made), 4).view.state == "ACTIVE"
            made.kill()
