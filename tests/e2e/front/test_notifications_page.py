"""Notifications and schedules on the page of a real cluster: made, seen with hostile names, and removed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from testbed.cluster import Cluster
from testbed.front.hub_page import faultless_tab, pictures
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

HOSTILE = "<img src=x onerror=window.hurt=1>"
CELL: dict[str, object] = {
    "cell_type": "code",
    "id": "a",
    "source": "print(1)",
    "metadata": {},
    "outputs": [],
    "execution_count": None,
}
NOTEBOOK = {
    "cells": [CELL],
    "metadata": {"kernelspec": {"name": "python3", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def test_rules_address_and_webhooks_of_a_user(browser: Browser, cluster: Cluster) -> None:
    with faultless_tab(browser, cluster) as tab:
        page = tab.page
        page.get_by_role("button", name=re.compile("^Alerts")).click()
        page.get_by_role("link", name="Settings of notifications").click()
        expect(page.locator("main h1")).to_have_text("Notifications")
        expect(page.get_by_text("This cluster sends no e-mail.")).to_be_visible(timeout=30_000)

        page.get_by_role("button", name="New webhook …").click()
        dialog = page.get_by_role("dialog", name="New webhook")
        dialog.get_by_label("Name").fill(HOSTILE)
        dialog.get_by_label("Address").fill("http://127.0.0.1/secret-path")
        dialog.get_by_role("button", name="Create").click()
        expect(dialog.get_by_role("alert")).to_be_visible(timeout=30_000)  # no public address
        dialog.get_by_label("Address").fill("https://1.1.1.1/secret-path")
        dialog.get_by_role("button", name="Create").click()
        expect(page.get_by_text("is not shown again")).to_be_visible(timeout=30_000)
        page.get_by_role("button", name="Done").click()
        hooks = page.get_by_role("region", name="Webhooks")
        expect(hooks.get_by_text(HOSTILE).first).to_be_visible(timeout=30_000)
        assert "secret-path" not in page.locator("main").inner_text()

        form = page.get_by_role("form", name="Add a rule")
        form.get_by_role("combobox", name="When").select_option("waiting")
        form.get_by_label("Amount in minutes").fill("90")
        form.get_by_role("combobox", name="Of", exact=True).select_option("experiment")
        form.get_by_label("Id of the experiment").fill("999999")
        form.get_by_role("button", name="Add the rule").click()
        expect(form.get_by_role("alert")).to_contain_text("999999", timeout=30_000)
        form.get_by_role("combobox", name="Of", exact=True).select_option("owner")
        form.get_by_role("combobox", name="webhook").select_option(label=HOSTILE)
        form.get_by_role("button", name="Add the rule").click()
        rules = page.get_by_role("region", name="Rules")
        expect(rules).to_contain_text("Waiting for 90 minutes", timeout=30_000)
        assert tab.findings() == []
        pictures("notifications", browser, tab)

        rules.get_by_role("button", name=re.compile("Waiting for")).click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("Waiting for 90 minutes")).to_have_count(0, timeout=30_000)
        hooks.get_by_role("button", name=re.compile("^Delete")).click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("No webhooks yet.")).to_be_visible(timeout=30_000)
        assert page.evaluate("window.hurt") is None


def test_a_schedule_is_seen_paused_resumed_and_deleted(browser: Browser, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "nightly.ipynb").write_text(json.dumps(NOTEBOOK))
    with faultless_tab(browser, cluster) as tab:
        page = tab.page
        tab.follow("Schedules")
        expect(page.get_by_text("No schedules yet.")).to_be_visible(timeout=30_000)
        times = ("--cron", "0 6 * * 1-5", "--timezone", "Europe/Berlin")
        cluster.det("notebook", "run", str(tmp_path / "nightly.ipynb"), "--name", HOSTILE, *times, check=True)
        tab.open("schedules")
        table = page.get_by_role("region", name="Schedules")
        expect(table).to_contain_text("Monday to Friday at 06:00", timeout=30_000)
        expect(table.get_by_text(HOSTILE).first).to_be_visible()
        assert tab.findings() == []
        pictures("schedules", browser, tab)
        for action, word in (("Pause", "paused"), ("Resume", "active")):
            page.get_by_role("button", name=re.compile("^Actions of schedule")).click()
            page.get_by_role("menuitem", name=action).click()
            expect(table).to_contain_text(word, timeout=30_000)
        page.get_by_role("button", name=re.compile("^Actions of schedule")).click()
        page.get_by_role("menuitem", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("No schedules yet.")).to_be_visible(timeout=30_000)
        assert page.evaluate("window.hurt") is None
