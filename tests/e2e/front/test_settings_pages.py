"""Settings, templates, policies, quotas and the master's log on the page of a real cluster: each one's main action."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from testbed.cluster import Cluster
from testbed.front.hub_page import faultless_tab, hub_tab, pictures
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

HOSTILE = "<img src=x onerror=window.hurt=1>"
PATIENCE = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def test_settings_are_the_same_in_another_browser(browser: Browser, cluster: Cluster) -> None:
    try:
        with faultless_tab(browser, cluster) as tab:
            page = tab.page
            page.get_by_role("link", name="Settings", exact=True).click()
            expect(page.locator("main h1")).to_have_text("Settings")
            page.get_by_role("radio", name="Another time zone").check()
            zone = page.get_by_role("combobox", name="Time zone")
            zone.fill("Mars/Olympus")
            expect(page.get_by_role("alert")).to_have_text("This browser knows no such time zone.")
            zone.fill("Asia/Tokyo")
            expect(page.get_by_text(re.compile(r"Now it is .* GMT\+9"))).to_be_visible(timeout=PATIENCE)
            page.get_by_role("radio", name="Dark").check()
            expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
            page.get_by_label("E-mail, by rules that say so").uncheck()
            expect(page.get_by_text("Nothing is sent by e-mail")).to_be_visible(timeout=PATIENCE)
            assert tab.findings() == []
            assert tab.overflow() <= 0
            pictures("settings", browser, tab)
        with hub_tab(browser, cluster, cluster.user, "settings", login=True) as other:
            expect(other.page.locator("html")).to_have_attribute("data-bs-theme", "dark", timeout=PATIENCE)
            expect(other.page.get_by_role("combobox", name="Time zone")).to_have_value("Asia/Tokyo", timeout=PATIENCE)
            expect(other.page.get_by_label("E-mail, by rules that say so")).not_to_be_checked()
            other.open("audit")
            expect(other.page.get_by_role("region", name="Audit log")).to_contain_text("GMT+9", timeout=PATIENCE)
        assert "Asia/Tokyo" in cluster.det("user", "settings", "get", check=True).stdout
    finally:
        cluster.det("user", "settings", "reset", check=True)


def test_a_template_and_a_policy_are_made_changed_and_deleted(browser: Browser, cluster: Cluster) -> None:
    with faultless_tab(browser, cluster) as tab:
        page = tab.page
        tab.follow("Templates")
        expect(page.get_by_role("heading", name="Config policies")).to_be_visible(timeout=PATIENCE)
        page.get_by_role("button", name="New template …").click()
        dialog = page.get_by_role("dialog", name="New template")
        dialog.get_by_label("Name").fill("small")
        dialog.get_by_label("Workspace").fill("cluster")
        dialog.get_by_label("Description").fill(HOSTILE)
        dialog.get_by_label("A part of a config, as YAML").fill("resources: {slots_per_trial: [}")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog.get_by_role("alert")).to_be_visible(timeout=PATIENCE)
        dialog.get_by_label("A part of a config, as YAML").fill("resources:\n  slots_per_trial: 1\n")
        dialog.get_by_role("button", name="Save").click()
        row = page.get_by_role("row", name=re.compile("cluster:small"))
        expect(row.get_by_text(HOSTILE)).to_be_visible(timeout=PATIENCE)
        row.get_by_role("button", name=re.compile("^Show")).click()
        expect(page.get_by_label("YAML of cluster:small")).to_have_text("resources:\n  slots_per_trial: 1\n")

        page.get_by_role("button", name=re.compile("^Set … ?for experiments")).click()
        form = page.get_by_role("form", name="Policy for experiments of the cluster")
        form.get_by_role("textbox").fill("constraints:\n  resources: {max_slots: 64}\n")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0, timeout=PATIENCE)
        expect(page.get_by_label("Policy for experiments of the cluster")).to_contain_text("max_slots: 64")
        assert tab.findings() == []
        pictures("templates", browser, tab)
        page.get_by_role("button", name=re.compile("^Delete ….*that for experiments")).click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("No policy is set.")).to_have_count(2, timeout=PATIENCE)
        page.get_by_role("button", name=re.compile("^Delete … ?cluster:small")).click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("cluster:small")).to_have_count(0, timeout=PATIENCE)
        assert page.evaluate("window.hurt") is None


def test_a_quota_is_set_and_removed(browser: Browser, cluster: Cluster) -> None:
    cluster.det("quota", "set", "--user", "grace", "--cost", "12.5", check=True)
    try:
        with faultless_tab(browser, cluster) as tab:
            page = tab.page
            tab.follow("Quotas")
            form = page.get_by_role("form", name="Set a quota")
            form.get_by_label("Name").fill("grace")
            form.get_by_label("Slots").fill("-1")
            expect(form.get_by_role("button", name="Set quota")).to_have_attribute("aria-disabled", "true")
            form.get_by_label("Slots").fill("3")
            form.get_by_role("button", name="Set quota").click()
            table = page.get_by_role("region", name="Quotas")
            expect(table.get_by_role("row", name=re.compile("grace"))).to_contain_text("3", timeout=PATIENCE)
            expect(page.get_by_role("region", name="Caps of cost")).to_contain_text("12.50")
            assert tab.findings() == []
            pictures("quotas", browser, tab)
            table.get_by_role("button", name=re.compile("^Remove.*grace")).click()
            page.get_by_role("dialog").get_by_role("button", name="Remove").click()
            expect(table.get_by_role("row", name=re.compile("grace"))).to_have_count(0, timeout=PATIENCE)
            expect(page.get_by_role("region", name="Caps of cost")).to_contain_text("grace")  # it is another thing
    finally:
        cluster.det("quota", "remove", "--user", "grace", "--cost", check=True)


def test_the_masters_log_is_read_searched_and_followed(browser: Browser, cluster: Cluster) -> None:
    with faultless_tab(browser, cluster) as tab:
        page = tab.page
        tab.follow("Master log")
        log = page.get_by_role("log", name="The master's log")
        expect(log).to_contain_text("INFO", timeout=PATIENCE)
        assert tab.findings() == []
        pictures("log", browser, tab)
        search = page.get_by_role("searchbox")
        search.fill("no line has this text")
        expect(page.get_by_text("No line fits.")).to_be_visible(timeout=PATIENCE)
        search.fill("")
        page.get_by_role("combobox", name="Level").select_option("debug")
        expect(log).to_be_visible(timeout=PATIENCE)
        follow = page.get_by_role("button", name="Follow")
        # Follow was off after the first of them: the browser's own scroll event counted as the reader's.
        for width, height, box in ((1280, 420, 280), (1280, 900, 640), (420, 700, 440), (1280, 420, 280)):
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_timeout(500)
            # It has a height of its own: without one it could not stay at its newest line.
            assert log.evaluate("it => it.offsetHeight") == box
            assert log.evaluate("it => it.scrollHeight - it.scrollTop - it.clientHeight") < 3
            expect(follow).to_have_attribute("aria-pressed", "true")
        log.evaluate("it => { it.scrollTop = 0 }")
        expect(follow).to_have_attribute("aria-pressed", "false")
        follow.click()
        page.wait_for_timeout(500)
        assert log.evaluate("it => it.scrollHeight - it.scrollTop - it.clientHeight") < 3
        before = cluster.det("master", "logs", "-n", "1", check=True).stdout
        assert before.strip()
