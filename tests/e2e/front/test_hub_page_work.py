"""Work on the hub page, in a real browser: submitted by the form, started by dialogs, and what is said when it fails.

It takes the cluster that most tests share; what kills parts of one is in test_hub_page.py.
"""

from __future__ import annotations

import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from spine_lab import Lab, single

from detlab.client import build_bundle
from testbed.cluster import Cluster
from testbed.front.hub_page import HubTab, end_from, faultless_tab, hub_tab, start_dialog
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "examples"
HOSTILE = "<img src=x onerror=alert(1)>"
HUBS_BUTTON = ".btn-jupyter"
"""White on JupyterHub's orange, on its own page: too little contrast for axe."""
CONFIG = "entrypoint: python3 toy.py\nsearcher: {name: single, metric: error}\n"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def admin(browser: Browser, cluster: Cluster) -> Iterator[HubTab]:
    with faultless_tab(browser, cluster) as opened:
        yield opened


def test_a_trial_that_really_fails_shows_its_card_in_its_experiment_and_by_itself(lab: Lab, admin: HubTab) -> None:
    failed = lab.run(single("fails_in_step_7.py", name="divides by zero"))
    trial = failed.list_trials()[0]
    page = admin.page
    admin.open(f"experiments/{failed.id}")
    card = page.get_by_role("region", name="Failure: The code raised an exception")
    for place in ("experiment", "trial"):
        expect(card).to_contain_text("ZeroDivisionError: float division by zero", timeout=30_000)
        expect(card).to_contain_text(re.compile(r"Where\s*fails_in_step_7\.py, line 8"))
        expect(card).to_contain_text("What to do:")
        expect(card).to_contain_text(f"det trial logs {trial.id}")
        assert admin.findings() == [], place
        if place == "experiment":
            card.get_by_role("button", name="Logs of the trial").click()
            expect(page.locator("main h1")).to_contain_text("Trial")
            expect(page.get_by_role("log")).to_contain_text("step 6", timeout=30_000)


def test_an_experiment_is_submitted_by_the_form_with_the_code_of_another(lab: Lab, admin: HubTab) -> None:
    known = lab.submit(single("toy.py", name="whose code is taken", hparams={"steps": 1}))
    page = admin.page
    admin.open("new")
    page.locator(".det-yaml").fill("name: from the page\nentrypoint: python3 toy.py\nsearcher: {name: nothing}\n")
    expect(page.get_by_role("button", name="Submit")).to_have_attribute("aria-disabled", "true")
    expect(page.get_by_role("list", name="Errors and warnings")).to_contain_text("searcher.name")
    page.get_by_label("Or use the code of an earlier experiment").select_option(str(known.id))
    page.locator(".det-yaml").fill(f"name: from the page\n{CONFIG}hyperparameters: {{steps: 2, x: 0.5}}\n")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("main h1")).to_contain_text("from the page")
    expect(page.locator("main")).to_contain_text("1/1 trial", timeout=60_000)


def test_a_search_is_submitted_with_a_folder_of_this_computer(admin: HubTab, cluster: Cluster, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES / "core_api", tmp_path / "core_api"))
    (folder / ".detignore").write_text("*.csv\n/data/\n")
    for name in ("notes.csv", "data/large.bin", "__pycache__/x.pyc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("stays at home")
    admin.open("new")
    page = admin.page
    choice = page.get_by_role("group", name="Code to upload")
    expect(choice).to_contain_text("At most 20,000 files and 95.0 MiB")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a folder").click()
    chooser.value.set_files(folder)
    expect(choice).to_contain_text("of the folder core_api", timeout=30_000)
    expect(choice).to_contain_text("3 files left out")
    choice.locator("summary").click()
    expect(choice.get_by_role("list", name="Files to upload")).to_contain_text("3_search.py")
    page.get_by_label("Start from").select_option("3_search.yaml")
    expect(page.locator("#det-config-of")).to_be_focused()
    text = page.locator(".det-yaml").input_value()
    page.locator(".det-yaml").fill(
        text.replace("max_time: 40", "max_time: 4").replace("max_trials: 8", "max_trials: 2")
    )
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("main h1")).to_contain_text("core-api-3-search", timeout=30_000)
    with cluster.client() as client:
        made = client.get(f"experiments/{page.url.rpartition('/')[2]}").json()
    if "ng" not in zlib.ZLIB_RUNTIME_VERSION:  # zlib-ng packs the same files to other bytes
        assert made["bundle"] == build_bundle(folder).digest, "the command line would send the same"
    page.get_by_role("tab", name="Code").click()
    expect(page.locator("main")).to_contain_text("tumours.py")
    expect(page.locator("main")).not_to_contain_text("notes.csv")
    expect(page.locator("main")).to_contain_text("2/2 trials", timeout=90_000)


def test_a_zip_and_dropped_files_travel_and_what_cannot_is_said(admin: HubTab, tmp_path: Path) -> None:
    admin.open("new")
    page = admin.page
    choice = page.get_by_role("group", name="Code to upload")
    files = page.get_by_label("Choose files or a .zip")
    bad = tmp_path / "bad.zip"
    bad.write_text("no archive")
    files.set_input_files(bad)
    expect(choice.get_by_role("alert")).to_contain_text("bad.zip is not a readable .zip")
    toy = (Path(__file__).parents[1] / "trials" / "toy.py").read_text()
    dropped = page.evaluate_handle(
        "text => { const data = new DataTransfer(); data.items.add(new File([text], 'dropped.py')); return data; }", toy
    )
    choice.locator(".det-hub-drop").dispatch_event("drop", {"dataTransfer": dropped})
    expect(choice).to_contain_text("1 file,", timeout=30_000)
    expect(page.locator(".det-yaml")).to_have_value(re.compile("entrypoint: python3 dropped.py"))
    choice.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("list", name="Errors and warnings")).to_contain_text("which is not in the code")
    with zipfile.ZipFile(tmp_path / "code.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("code/toy.py", toy)
        archive.writestr("code/toy.yaml", f"name: zipped\n{CONFIG}hyperparameters: {{steps: 2, x: 0.5}}\n")
    files.set_input_files(tmp_path / "code.zip")
    expect(choice).to_contain_text("of code of code.zip", timeout=30_000)
    page.get_by_label("Start from").select_option("toy.yaml")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("main h1")).to_contain_text("zipped", timeout=30_000)
    expect(page.locator("main")).to_contain_text("1/1 trial", timeout=60_000)


@pytest.mark.parametrize("dark", [False, True])
def test_our_fields_on_the_hubs_spawn_page_are_accessible_in_both_themes(
    browser: Browser, cluster: Cluster, dark: bool
) -> None:
    with hub_tab(browser, cluster, cluster.user, dark=dark) as tab:
        page = tab.page
        page.goto(f"{cluster.url}/hub/spawn/{cluster.user}/judged")
        for label in ("Start", "Slots", "Runtime", "Image", "Idle timeout"):
            expect(page.get_by_label(label, exact=True)).to_be_visible()
        assert page.locator("html").get_attribute("data-bs-theme") == ("dark" if dark else "light")
        assert tab.findings("#spawn_form", HUBS_BUTTON) == []
        page.get_by_label("Idle timeout").fill("soon")
        page.get_by_role("button", name="Start").click()
        told = page.get_by_role("alert")
        expect(told).to_contain_text("The options have 1 error:", timeout=30_000)
        assert page.locator("body").inner_text().count("The options have 1 error") == 1
        expect(page.get_by_label("Idle timeout")).to_have_value("soon")
        for part in ("[role=alert]", "#spawn_form"):
            assert tab.findings(part, HUBS_BUTTON) == [], part


def test_a_tensorboard_wants_an_experiment_then_opens_and_is_ended(lab: Lab, admin: HubTab) -> None:
    shown = lab.submit(single("toy.py", name="on the board", hparams={"steps": 1}))
    page = admin.page
    dialog = start_dialog(page, "TensorBoard")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("alert")).to_have_text("choose at least one experiment")
    dialog.get_by_role("checkbox", name="on the board").check()
    with page.expect_popup(timeout=90_000) as opened:
        dialog.get_by_role("button", name="Start").click()
    expect(opened.value).to_have_title("TensorBoard", timeout=90_000)
    opened.value.close()
    end_from(page, dialog)
    lab.finish(shown, 60)


def test_a_command_is_started_watched_and_ended_from_the_page(admin: HubTab) -> None:
    page = admin.page
    dialog = start_dialog(page, "command")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("alert").first).to_contain_text("is required")
    dialog.get_by_label("Command line").fill("echo said-by-the-command; sleep 600")
    dialog.get_by_label("Name").fill(HOSTILE)
    dialog.get_by_label("Slots").fill("many")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_label("Slots")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("Slots").fill("0")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_text("Running.")).to_be_visible(timeout=30_000)
    dialog.get_by_role("button", name="Details and logs").click()
    expect(page.locator("main")).to_contain_text("said-by-the-command", timeout=30_000)
    expect(page.locator("main h1")).to_contain_text(HOSTILE)
    page.get_by_role("button", name="Kill").click()
    page.get_by_role("dialog").get_by_role("button", name="Kill").click()
    expect(page.locator("main")).to_contain_text("killed", timeout=30_000)


def test_a_shell_is_started_from_the_page_and_opens_in_a_tab(admin: HubTab) -> None:
    page = admin.page
    dialog = start_dialog(page, "shell")
    with page.expect_popup(timeout=90_000) as opened:
        dialog.get_by_role("button", name="Start").click()
    terminal = opened.value
    expect(terminal.locator(".jp-Terminal, .xterm").first).to_be_visible(timeout=90_000)
    terminal.close()
    expect(dialog.get_by_role("link", name="Open")).to_be_visible()
    end_from(page, dialog)


def test_runs_are_found_selected_and_saved_as_a_file(lab: Lab, admin: HubTab) -> None:
    run = lab.run(single("toy.py", name="found by a filter", hparams={"steps": 2, "x": 0.5}))
    page = admin.page
    admin.open("trials")
    box = page.get_by_role("combobox", name="Filter trials")
    page.get_by_role("grid", name="Trials").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("name = 'found by a filter' and error >")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("^", timeout=30_000)
    page.keyboard.type(" -1")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 trial", exact=True)).to_be_visible(timeout=30_000)
    page.get_by_role("button", name=re.compile("Columns")).click()
    page.get_by_role("searchbox", name="Search columns").fill("hparams.x")
    page.get_by_role("checkbox", name="hparams.x").check()
    page.keyboard.press("Escape")
    expect(page.get_by_role("gridcell", name="0.5", exact=True)).to_be_visible(timeout=30_000)
    page.reload()
    expect(box).to_have_value("name = 'found by a filter' and error > -1", timeout=30_000)
    expect(page.get_by_role("gridcell", name="0.5", exact=True)).to_be_visible(timeout=30_000)
    assert admin.findings() == []
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="CSV").click()
    head, row = Path(download.value.path()).read_text().splitlines()
    assert head.split(",")[-1] == "hparams.x"
    assert (row.split(",")[1], row.split(",")[-1]) == (str(run.id), "0.5")
    admin.open("experiments?filter=name+%3D+%27found+by+a+filter%27")
    page.get_by_role("checkbox", name=f"Select {run.id}").check(timeout=30_000)
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(page.get_by_text("1 experiment archived")).to_be_visible(timeout=30_000)
    assert lab.client.get_experiment(run.id).view.archived_at is not None
