"""The registry on the hub page, in a real browser: from a checkpoint of a search to a label that moves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from spine_lab import Lab, single

from testbed.cluster import Cluster
from testbed.front.hub_page import HubTab, faultless_tab
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def admin(browser: Browser, cluster: Cluster) -> Iterator[HubTab]:
    with faultless_tab(browser, cluster) as opened:
        yield opened


def seen(tab: HubTab, name: str) -> None:
    """What is shown now is sound for axe, and no wider than its window."""
    assert tab.findings() == [], name
    assert tab.overflow() <= 0, name
    if "FACES_SHOTS" in os.environ:
        tab.page.screenshot(path=f"{os.environ['FACES_SHOTS']}/real-{name}.png", full_page=True)


def test_from_a_checkpoint_to_production_and_back(lab: Lab, admin: HubTab) -> None:
    page = admin.page
    admin.follow("Models")
    expect(page.locator("main h1")).to_have_text("Models")
    saving = {"steps": 4, "pause": 0.01, "every": 2, "save_every": 4}
    config = single("toy.py", name="for the registry", hparams=saving)
    experiments = [lab.completed(lab.submit(config)) for _ in range(2)]
    for i, experiment in enumerate(experiments, 1):
        admin.open(f"experiments/{experiment.id}")
        page.get_by_role("tab", name="Checkpoints").click()
        page.get_by_role("button", name=re.compile("^Register …")).first.click()
        dialog = page.get_by_role("dialog", name="Register a checkpoint")
        dialog.get_by_label("Model", exact=True).fill("browser digits")
        if i == 1:
            expect(dialog).to_contain_text("it will be made, with this as its version 1")
            seen(admin, "register")
        dialog.get_by_role("button", name="Register").click()
        expect(page.locator("main h1")).to_have_text(f"browser digits version {i}")
    expect(page.get_by_role("region", name="How to load it")).to_contain_text('det.load_model("browser digits@2")')
    seen(admin, "version")
    page.get_by_role("tab", name="Lineage graph").click()
    trial = experiments[1].list_trials()[0].id
    expect(page.get_by_role("list", name="Lineage")).to_contain_text(f"saved by trial {trial}")
    seen(admin, "lineage")
    page.get_by_role("tab", name="Files").click()
    expect(page.get_by_role("region", name="Files").locator("tbody tr").first).to_contain_text("sha256:")

    page.locator("main").get_by_role("link", name="browser digits").click()
    page.get_by_role("button", name="Move a label …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Label", exact=True).fill("production")
    dialog.get_by_label("Version", exact=True).fill("1")
    dialog.get_by_label("Reason").fill("<b>first</b>")
    seen(admin, "move")
    # Somebody else is faster.
    lab.client.get_model("browser digits").move_label("production", 2, reason="hot fix")
    dialog.get_by_role("button", name="Move").click()
    expect(dialog).to_contain_text("“production” is at version 2 now")
    expect(dialog).to_contain_text("hot fix")
    dialog.get_by_role("button", name="Move anyway").click()
    expect(dialog).to_have_count(0)
    expect(page.locator(".det-model-chips")).to_contain_text("production → 1")
    page.get_by_role("tab", name="Label history").click()
    history = page.get_by_role("region", name="Label history")
    expect(history.locator("tbody tr").first).to_contain_text(re.compile(r"production2 → 1.*<b>first</b>"))
    seen(admin, "labels")

    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Notes").fill("# Why\n\nIt is **small**. <img src=x onerror=alert(1)>")
    page.get_by_role("button", name="Save").click()
    notes = page.get_by_role("note", name="Notes")
    expect(notes.get_by_role("heading", name="Why")).to_be_visible()
    expect(notes).to_contain_text("<img src=x onerror=alert(1)>")
    page.get_by_role("tab", name=re.compile("^Versions")).click()
    page.get_by_role("checkbox", name="Choose version 1").check()
    page.get_by_role("checkbox", name="Choose version 2").check()
    seen(admin, "model")
    page.get_by_role("button", name="Compare (2)").click()
    expect(page.get_by_role("table")).to_contain_text("Hyperparameters")
    expect(page.get_by_role("region", name="Code", exact=True)).to_contain_text("The code is the same.")
    seen(admin, "compare")
    page.set_viewport_size({"width": 400, "height": 800})
    seen(admin, "compare-narrow")
    page.set_viewport_size({"width": 1280, "height": 800})

    admin.follow("Models")
    page.get_by_role("searchbox", name="Search models").fill("browser")
    expect(page.get_by_role("region", name="Models").locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Find versions …").click()
    page.get_by_label("Best by metric").fill("error")
    page.get_by_label("Better is").select_option("smaller")
    page.get_by_label("Among").fill("name = 'browser digits' and")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be read at column")
    page.get_by_label("Among").fill("name = 'browser digits'")
    page.get_by_label("Among").press("Enter")
    found = page.get_by_role("region", name="Versions found").locator("tbody tr")
    expect(found).to_have_count(2)
    expect(found.last).to_contain_text("browser digits@1")
    seen(admin, "models")
    page.set_viewport_size({"width": 400, "height": 800})
    seen(admin, "models-narrow")
    page.set_viewport_size({"width": 1280, "height": 800})
    admin.open("models/browser%20digits")
    page.get_by_role("tab", name="Sharing").click()
    form = page.get_by_role("form", name="Share it")
    form.get_by_label("Kind").select_option("group")
    form.get_by_label("Name").fill("<i>vision")
    form.get_by_label("Right").select_option("write")
    form.get_by_role("button", name="Share", exact=True).click()
    shared = page.get_by_role("region", name="Shared with").locator("tbody tr")
    expect(shared).to_contain_text("group <i>visionread and change")
    seen(admin, "sharing")
    shared.get_by_role("button", name="Remove …").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("main")).to_contain_text("It is shared with nobody.")
    page.get_by_role("button", name="More actions of model browser digits").click()
    page.get_by_role("menuitem", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("main h1")).to_have_text("Models")
