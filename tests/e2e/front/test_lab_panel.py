"""The JupyterLab panel and form in a real chromium, against a real JupyterLab, cluster and running search."""

import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

from detlab.client.operations.jobs import jobs
from testbed.front.panel import SEARCH, SECONDS, TRAIN, built, opened

pytestmark = [pytest.mark.hub, pytest.mark.browser]
ONE_AT_A_TIME = {**SEARCH["searcher"], "max_concurrent_trials": 1}
AXE = Path(__file__).parents[3] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
HOSTILE = "<img src=x onerror=window.hurt=1>"
TELLS = """
import detlab as det

with det.init(project="digits") as run:
    cats = det.Artifact("cats", type="dataset")
    cats.add_file("tells.py")
    run.log_artifact(cats)
    det.alert("it is done <b>", "the loss is low")
"""
QUIET = 6_000
"""Longer than any rhythm in which a page might ask anew, and than a heartbeat of a stream."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with built(tmp_path_factory.mktemp("panel")) as found:
        yield found


@pytest.fixture(scope="module")
def running(stage):
    """A search that goes on, on one of the two slots."""
    return stage.search("long search", searcher=ONE_AT_A_TIME).id


def test_a_running_search_is_shown_paused_activated_and_killed_from_the_panel(stage):
    exp = stage.search("steered").id
    with opened(stage) as lab:
        expect(lab.badge(exp)).to_contain_text("running", timeout=SECONDS)
        expect(lab.item(exp)).to_contain_text(re.compile(r"best 0?\.\d+|best \d"), timeout=SECONDS)
        expect(lab.page.locator("#detlab-panel [data-slot=mine]").first).to_be_visible()
        lab.pause(exp)
        expect(lab.badge(exp)).to_contain_text("paused", timeout=SECONDS)
        assert stage.state(exp) == "PAUSED"
        lab.act(exp, "Activate")
        expect(lab.badge(exp)).to_contain_text(re.compile("running|queued"), timeout=SECONDS)
        lab.act(exp, "Kill")
        lab.page.locator(".jp-Dialog").get_by_role("button", name="Cancel").click()
        assert stage.state(exp) == "ACTIVE"
        lab.act(exp, "Kill")
        lab.page.locator(".jp-Dialog").get_by_role("button", name="Kill").click()
        expect(lab.badge(exp)).to_contain_text("canceled", timeout=SECONDS)
        assert len(lab.streams) == 1


def test_what_waits_says_its_place_and_reason(stage, running):
    waiting = stage.search("patient", resources={"slots_per_trial": 2}).id
    with opened(stage) as lab:
        queue = lab.page.get_by_role("list", name="Queue")
        entry = queue.locator(".det-item", has_text="patient")
        expect(entry).to_contain_text("slot", timeout=SECONDS)
        expect(entry.locator(".det-place")).to_have_text(re.compile(r"\d"))
        assert entry.locator(".det-reason").inner_text()
        entry.locator(".det-reason").click()
        expect(entry).to_contain_text(re.compile(r"Starts\s*unknown"), timeout=SECONDS)
        expect(entry.get_by_role("list", name="Changes that would start it now")).to_contain_text("slot")
        entry.get_by_label("Priority").fill("7")
        entry.get_by_role("button", name="Set", exact=True).click()
        expect(entry.locator(".det-facts")).to_contain_text("priority 7", timeout=SECONDS)
    (job,) = [job for job in stage.client.session.run(jobs(mine=True)) if job.id == str(waiting)]
    assert job.priority == 7
    stage.client.get_experiment(waiting).kill()


@pytest.mark.soak
def test_the_experiments_view_opens_from_the_panel_and_is_there_after_a_reload(stage, running):
    with opened(stage) as lab:
        lab.item(running).get_by_role("button", name="long search").click()
        view = lab.page.locator(f"[id='detlab-experiment:{running}']")
        expect(view).to_contain_text("long search", timeout=SECONDS)
        lab.page.wait_for_timeout(1500)  # JupyterLab saves its layout a second after a change
        lab.page.goto(f"{stage.server.url}lab")
        expect(view).to_contain_text("long search", timeout=2 * SECONDS)


@pytest.mark.soak
def test_a_tab_that_was_closed_is_reopened_mid_run_and_its_view_goes_on(stage, running):
    def best_step(view):
        said = view.get_by_text(re.compile(r"best loss .* step \d+")).first
        expect(said).to_be_visible(timeout=2 * SECONDS)
        return int(re.search(r"step (\d+)", said.inner_text().replace(",", "")).group(1))

    with opened(stage) as lab:
        lab.item(running).get_by_role("button", name="long search").click()
        view = lab.page.locator(f"[id='detlab-experiment:{running}']")
        seen = best_step(view)
        lab.page.wait_for_timeout(1500)  # JupyterLab saves its layout a second after a change
        context = lab.page.context
        lab.page.close()
        page = context.new_page()
        page.goto(f"{stage.server.url}lab")
        view = page.locator(f"[id='detlab-experiment:{running}']")
        again = best_step(view)
        assert again > seen, "what was reported while no tab was open is there"
        page.wait_for_function("([v, n]) => Number(/step ([\\d,]+)/.exec(v.innerText)[1].replace(',', '')) > n",
                               arg=[view.element_handle(), again], timeout=SECONDS)  # fmt: skip


def test_panel_two_experiments_and_a_trial_live_on_one_stream_its_logs_on_a_second_and_nothing_is_polled(
    stage, running
):
    other = stage.search("another search", searcher=ONE_AT_A_TIME).id
    with opened(stage) as lab:
        for number in (running, other):
            expect(lab.item(number)).to_contain_text("best", timeout=SECONDS)
            lab.command("detlab:open", kind="experiment", id=number)
            view = lab.page.locator(f"[id='detlab-experiment:{number}']")
            expect(view.locator(".det-curve-host")).to_be_visible(timeout=SECONDS)
        trial = stage.client.get_experiment(other).list_trials()[0].id
        lab.command("detlab:open", kind="trial", id=trial, experiment=other, tab="logs")
        shown = lab.page.locator(f"[id='detlab-trial:{trial}']")
        expect(shown.locator("[role=log]")).to_contain_text("step", timeout=SECONDS)
        follow = re.compile(rf'"experiment":{other},"trial":{trial}')
        while not follow.search(unquote(lab.streams[-1])):  # bounded by the test's own limit
            lab.page.wait_for_timeout(50)
        assert f'"experiment":{running},"group":"validation","name":"loss"' in unquote(lab.streams[-1])
        kinds = sorted("logs" if "/logs/" in request.url else "events" for request in lab.connected)
        assert kinds == ["events", "logs"], [request.url for request in lab.connected]
        assert len(lab.streams) <= 4, "the panel's, and one opening for each view"
        last = shown.locator(".det-log-line").last.inner_text()
        expect(shown.locator(".det-log-line").last).not_to_have_text(last, timeout=SECONDS)
        for number in (running, other):
            lab.pause(number)
            expect(lab.badge(number)).to_contain_text("paused", timeout=SECONDS)
        lab.command("detlab:open", kind="experiment", id=other)
        expect(lab.page.locator(f"[id='detlab-experiment:{other}'] .det-badge").first).to_contain_text("paused")
        expect(lab.page.locator(".det-status").first).to_contain_text("2/2 slots free", timeout=SECONDS)
        lab.settled()
        before = len(lab.asked)
        lab.page.wait_for_timeout(QUIET)
        assert lab.asked[before:] == [], "nothing changes: the open stream is all there is"
        assert ["/logs/" in request.url for request in lab.connected] == [False], "logs out of sight are not followed"
        stage.client.get_experiment(running).activate()
        expect(lab.badge(running)).to_contain_text("running", timeout=SECONDS)
    stage.client.get_experiment(other).kill()


def test_a_running_search_is_steered_from_its_search_tab(stage):
    item = stage.search("to steer", searcher={**ONE_AT_A_TIME, "max_trials": 1})
    first = item.await_first_trial(60).id
    with opened(stage) as lab:
        lab.command("detlab:open", kind="experiment", id=item.id)
        view = lab.page.locator(f"[id='detlab-experiment:{item.id}']")
        view.get_by_role("tab", name="Search").click(timeout=SECONDS)
        view.get_by_role("button", name="Extend…").press("Enter")
        view.get_by_label("Further trials").fill("2")
        view.get_by_label("Further trials").press("Enter")
        acts = view.get_by_role("list", name="Acts on the search")
        expect(acts).to_contain_text(f"{stage.cluster.user} extended it by 2 further trials", timeout=SECONDS)
        expect(view.get_by_role("list", name="Budgets")).to_contain_text("2 of 3 left")
        view.get_by_role("button", name="Edit bounds…").click()
        block = view.get_by_label("The whole hyperparameters block (YAML)")
        block.fill("lr: {type: double, minval: 2, maxval: 1}")
        view.get_by_role("button", name="Save").click()
        expect(view.get_by_role("alert")).to_contain_text("minval", timeout=SECONDS)
        block.fill("lr: {type: double, minval: 0.2, maxval: 0.3}")
        view.get_by_role("button", name="Save").click()
        expect(acts).to_contain_text("edited the bounds of lr", timeout=SECONDS)
        view.get_by_role("tab", name="Trials").click()
        view.get_by_role("button", name=f"Actions of trial {first}").click()
        lab.page.get_by_role("menuitem", name="Stop").click()
        lab.page.locator(".jp-Dialog").get_by_role("button", name="Stop").click()
        expect(view.get_by_text(re.compile("1/3 trials done"))).to_be_visible(timeout=SECONDS)
    told = item.search_journal(acts=True)
    assert [one.event["type"] for one in told] == ["extended", "space_edited", "stop_requested"]
    second = max(item.list_trials(), key=lambda trial: trial.id)
    assert second.id != first
    assert 0.2 <= second.hparams["lr"] <= 0.3
    item.kill()


def test_all_trials_are_found_in_a_tab_whose_keys_leave_labs_own_alone(stage, running):
    with opened(stage) as lab:
        page = lab.page
        themed(lab, "JupyterLab Dark")
        page.locator("#detlab-panel").get_by_role("button", name="trials", exact=True).click(timeout=SECONDS)
        tab = page.locator("[id='detlab-runs:trials']")
        first = tab.get_by_role("rowgroup").get_by_role("row").first
        expect(first).to_be_visible(timeout=SECONDS)
        tab.get_by_role("grid").focus()
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(first).to_have_attribute("aria-selected", "true")
        assert serious(lab, "[id='detlab-runs:trials']") == []
        page.keyboard.press("/")
        page.keyboard.type("state = running")
        page.keyboard.press("Enter")
        expect(tab.get_by_role("link", name="Compare")).to_have_count(0)
        page.locator("#detlab-panel").get_by_role("searchbox").focus()
        page.keyboard.press("x")
        expect(page.locator("#detlab-panel").get_by_role("searchbox")).to_have_value("x")
        expect(tab.get_by_role("row", selected=True)).to_have_count(0)


def test_logs_code_and_id_are_one_choice_away(stage, running):
    with opened(stage, path="lab/tree/notes.ipynb") as lab:
        lab.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=SECONDS)
        lab.act(running, "Insert code into the notebook")
        expect(lab.page.locator(".jp-Notebook")).to_contain_text(f"%det_watch {running}", timeout=SECONDS)
        lab.act(running, "Copy id")
        lab.page.wait_for_function(f"async () => (await navigator.clipboard.readText()) === '{running}'")
        expect(lab.item(running)).to_contain_text("best", timeout=SECONDS)
        lab.act(running, "Logs of the best or first trial")
        expect(lab.page.locator("[id^='detlab-trial:']")).to_contain_text("step", timeout=SECONDS)


def test_a_whole_checkpoint_comes_down_as_one_archive(stage, running):
    with opened(stage) as lab:
        lab.command("detlab:open", kind="experiment", id=running)
        view = lab.page.locator(f"[id='detlab-experiment:{running}']")
        view.get_by_role("tab", name="Checkpoints").click(timeout=SECONDS)
        with lab.page.expect_download(timeout=SECONDS) as started:
            view.get_by_role("link", name="Download all files of the checkpoint at step 1").first.click(timeout=SECONDS)
        uuid = re.fullmatch(r"checkpoint-([0-9a-f-]{36})\.tar", started.value.suggested_filename)[1]
        with tarfile.open(started.value.path()) as tar:
            assert tar.extractfile(f"{uuid}/weights.txt").read() == b"1.5"


def test_the_form_shows_every_mistake_at_its_field_and_submits_when_they_are_gone(stage):
    with opened(stage) as lab:
        lab.command("detlab:run-as-experiment", path="train.py")
        form = lab.page.locator(".det-form")
        expect(form.get_by_text("no errors")).to_be_visible(timeout=SECONDS)
        form.locator("[data-path='resources.slots_per_trial']").fill("many")
        form.locator("[data-path='resources.priority']").fill("400")
        form.locator("[data-path='searcher.name']").select_option("random")
        form.locator("[data-path='searcher.max_trials']").fill("0")
        expect(form.get_by_role("status").filter(has_text="3 errors")).to_be_visible(timeout=SECONDS)
        for path in ("resources.slots_per_trial", "resources.priority", "searcher.max_trials"):
            expect(form.locator(f"[data-path='{path}']")).to_have_attribute("aria-invalid", "true")
        submit = form.get_by_role("button", name="Submit")
        expect(submit).to_have_attribute("aria-disabled", "true")
        yaml = form.get_by_label("YAML")
        good = yaml.input_value()
        yaml.fill("name: [")
        expect(form.get_by_role("alert")).to_contain_text("line 1")
        yaml.fill(good)
        form.locator("[data-path='name']").fill(HOSTILE)
        form.locator("[data-path='resources.slots_per_trial']").fill("1")
        form.locator("[data-path='resources.priority']").fill("")
        form.locator("[data-path='searcher.max_trials']").fill("1")
        form.locator("[data-path='entrypoint']").fill("python3 absent.py")
        expect(form.locator("[data-path='entrypoint']")).to_have_attribute("aria-invalid", "true", timeout=SECONDS)
        form.locator("[data-path='entrypoint']").fill("python3 train.py")
        expect(form.locator(".det-verdict")).to_have_text(re.compile("no errors|warning"), timeout=SECONDS)
        submit.click()
        expect(lab.page.locator("[id^='detlab-experiment:']")).to_contain_text(HOSTILE, timeout=SECONDS)
        expect(form).to_have_count(0)
        assert lab.page.evaluate("() => window.hurt") is None
    made = stage.client.list_experiments(limit=1)[0]
    assert made.view.name == HOSTILE
    made.kill()


def test_the_head_of_the_form_stays_in_sight_while_its_fields_are_scrolled(stage):
    """Hints for screen readers, deep among the fields, made the page around them longer: its top went out of sight."""
    with opened(stage) as lab:
        lab.command("detlab:run-as-experiment", path="train.py")
        form = lab.page.locator(".det-form")
        expect(form.get_by_text("no errors")).to_be_visible(timeout=SECONDS)
        yaml = form.get_by_label("YAML")
        yaml.fill(yaml.input_value() + "\nhyperparameters: {a: 1, b: 2, c: 3, d: 4}\n")
        expect(form.get_by_text("no errors")).to_be_visible(timeout=SECONDS)
        form.locator(".det-form-section:not([open]) summary").evaluate_all("all => all.forEach(one => one.click())")
        hidden = form.locator(".det-form-fields .det-hidden")
        expect(hidden.last).to_be_attached(timeout=SECONDS)
        hidden.last.evaluate("hint => hint.parentElement.scrollIntoView({ block: 'center' })")
        assert form.locator(".det-form-fields").evaluate("box => box.scrollTop") > 0
        expect(form.locator("h1")).to_be_in_viewport(ratio=1)
        assert form.evaluate("form => form.parentElement.scrollTop") == 0


def test_a_hidden_tab_closes_the_stream_and_a_shown_one_opens_it_where_it_was(stage, running):
    with opened(stage) as lab:
        expect(lab.item(running)).to_be_visible(timeout=SECONDS)
        hide = (
            "s => { Object.defineProperty(document, 'visibilityState', { value: s, configurable: true });"
            " document.dispatchEvent(new Event('visibilitychange')); }"
        )
        with lab.page.expect_event("requestfailed", lambda r: "/detlab/api/stream" in r.url, timeout=SECONDS):
            lab.page.evaluate(hide, "hidden")
        added = stage.search("while hidden", resources={"slots_per_trial": 2}).id
        expect(lab.item(added)).to_have_count(0)
        with lab.page.expect_request(lambda r: "/detlab/api/stream?after=" in r.url, timeout=SECONDS):
            lab.page.evaluate(hide, "visible")
        expect(lab.item(added)).to_be_visible(timeout=SECONDS)
        assert len(lab.streams) == 2
    stage.client.get_experiment(added).kill()


@pytest.mark.soak
def test_a_lost_stream_is_said_and_found_again(stage, running):
    with opened(stage) as lab:
        expect(lab.item(running)).to_be_visible(timeout=SECONDS)
        os.kill(stage.cluster.pid("master"), signal.SIGKILL)
        expect(lab.page.locator("#detlab-panel")).to_contain_text("Connection lost", timeout=2 * SECONDS)
        expect(lab.item(running)).to_be_visible()
        expect(lab.page.locator("#detlab-panel")).not_to_contain_text("Connection lost", timeout=2 * SECONDS)


def test_a_narrow_panel_clips_nothing_and_both_themes_are_readable(stage, running):
    with opened(stage, width=760) as lab:
        expect(lab.item(running)).to_be_visible(timeout=SECONDS)
        wide = "() => [...document.querySelectorAll('#detlab-panel *')].filter(e => { const p ="
        wide += " document.querySelector('#detlab-panel').getBoundingClientRect(), r = e.getBoundingClientRect();"
        wide += " return r.width > 1 && (r.right > p.right + 1 || r.left < p.left - 1); }).map(e => e.outerHTML)"
        assert lab.page.evaluate(wide) == []
        inks = {}
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            lab.page.evaluate("t => window.jupyterapp.commands.execute('apputils:change-theme', { theme: t })", theme)
            dark = str("Light" in theme).lower()
            lab.page.wait_for_selector(f"body[data-jp-theme-light='{dark}']", state="attached", timeout=SECONDS)
            style = "() => { const s = getComputedStyle(document.querySelector('.det-panel'));"
            inks[theme] = lab.page.evaluate(style + " return [s.color, s.backgroundColor]; }")
        assert inks["JupyterLab Light"] != inks["JupyterLab Dark"]


def test_by_keyboard_alone(stage):
    exp = stage.search("by keyboard").id
    with opened(stage) as lab:
        expect(lab.item(exp)).to_be_visible(timeout=SECONDS)
        page = lab.page
        lab.launched()
        search = page.get_by_role("searchbox", name="Filter", exact=True)
        search.focus()
        page.keyboard.type(f"#{exp}")
        expect(search).to_have_value(f"#{exp}", timeout=SECONDS)
        expect(page.get_by_role("list", name="My work").locator(".det-item")).to_have_count(1, timeout=SECONDS)
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("() => document.activeElement.getAttribute('aria-haspopup')") == "menu":
                break
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        expect(page.locator(":focus")).to_have_text("Pause", timeout=SECONDS)
        page.keyboard.press("Enter")
        expect(lab.badge(exp)).to_contain_text("paused", timeout=SECONDS)
    stage.client.get_experiment(exp).kill()


def themed(lab, theme):
    lab.page.evaluate("t => window.jupyterapp.commands.execute('apputils:change-theme', { theme: t })", theme)
    lab.page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached", timeout=SECONDS)
    lab.page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=SECONDS)
    lab.page.add_script_tag(path=str(AXE))
    # JupyterLab's body is 0 px high and hides what is outside of it; axe takes that for all of the page.
    lab.page.add_style_tag(content="body { height: 100vh !important }")


def serious(lab, part):
    found = lab.page.evaluate("part => axe.run(part)", part)
    assert "color-contrast" in {one["id"] for one in found["passes"]}, "axe saw text"
    return [
        (one["id"], [node["html"] for node in one["nodes"]][:3])
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]


@pytest.mark.soak
@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_serious_in_the_panel_and_the_form(stage, running, theme):
    with opened(stage) as lab:
        themed(lab, theme)
        lab.command("detlab:run-as-experiment", path="train.py")
        lab.page.locator(".det-form [data-path='resources.priority']").fill("400")
        expect(lab.page.locator(".det-form")).to_contain_text("1 error", timeout=SECONDS)
        for part in ("#detlab-panel", ".det-form"):
            assert serious(lab, part) == []


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_serious_in_any_tab_of_the_views_in_jupyterlabs_own_colours(stage, running, theme):
    """The views' own tests see them on a page of their own, which has none of JupyterLab's colours."""
    trial = stage.client.get_experiment(running).list_trials()[0].id
    config = {"entrypoint": "echo an ERROR here; sleep 600", "resources": {"slots": 0}}
    task = stage.client.create_task("command", config, name="for axe").id
    with opened(stage) as lab:
        themed(lab, theme)
        for kind, number, count in (("experiment", running, 8), ("trial", trial, 6), ("task", task, 3)):
            lab.command("detlab:open", kind=kind, id=number, **({"experiment": running} if kind == "trial" else {}))
            view = lab.page.locator(f"[id='detlab-{kind}:{number}']")
            tabs = view.get_by_role("tab")
            expect(tabs).to_have_count(count, timeout=SECONDS)
            for tab in tabs.all():
                tab.click()
                expect(view.locator(".det-tab-panel")).not_to_contain_text("Loading", timeout=SECONDS)
                assert serious(lab, f"[id='detlab-{kind}:{number}']") == [], (kind, tab.inner_text())
    stage.client.get_task(task).kill()


def test_the_bell_and_the_artifacts_of_a_run_are_in_the_panel(stage, tmp_path):
    (tmp_path / "tells.py").write_text(TELLS)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DET_URL": stage.cluster.url}
    subprocess.run(
        [sys.executable, "tells.py"], cwd=tmp_path, env={**env, "DET_TOKEN": stage.cluster.token}, check=True
    )
    with opened(stage) as lab:
        themed(lab, "JupyterLab Dark")
        panel = lab.page.locator("#detlab-panel")
        panel.get_by_role("button", name="Alerts: 1 unread").click(timeout=SECONDS)
        alerts = panel.get_by_role("list", name="Alerts")
        expect(alerts).to_contain_text("it is done <b>")
        room, box = panel.bounding_box(), panel.locator(".det-bell-list").bounding_box()
        assert room["x"] <= box["x"]
        assert box["x"] + box["width"] <= room["x"] + room["width"]
        assert serious(lab, "#detlab-panel") == []
        if "FACES_SHOTS" in os.environ:
            lab.page.screenshot(path=f"{os.environ['FACES_SHOTS']}/lab-bell.png")
        panel.get_by_role("button", name="Mark all as read").click()
        expect(panel.get_by_role("button", name="Alerts", exact=True)).to_be_visible(timeout=SECONDS)
        lab.page.keyboard.press("Escape")
        panel.get_by_role("button", name="cats", exact=True).or_(panel.get_by_role("link", name="cats")).click()
        versions = lab.page.get_by_role("region", name="Versions of cats")
        expect(versions).to_contain_text("latest", timeout=SECONDS)
        versions.get_by_text("v1", exact=True).click()
        expect(lab.page.get_by_text("tells.py").last).to_be_visible(timeout=SECONDS)
        if "FACES_SHOTS" in os.environ:
            lab.page.screenshot(path=f"{os.environ['FACES_SHOTS']}/lab-artifact.png")


def test_versions_are_shown_and_a_mismatch_says_what_to_do(stage):
    with opened(stage) as lab:
        expect(lab.page.locator(".det-panel-foot")).to_contain_text(re.compile(r"panel .* server \d.* cluster \d"))
    context = stage.browser.new_context()
    page = context.new_page()
    page.route(
        re.compile(r"/detlab/version(\?.*)?$"),
        lambda route: route.fulfill(
            json={"server": "9.0.0", "cluster": None, "hub": None, "error": None, "hint": None}
        ),
    )
    page.goto(f"{stage.server.url}lab?token={stage.server.token}&reset")
    page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('detlab:show-panel')", timeout=2 * SECONDS)
    page.evaluate("() => window.jupyterapp.restored")  # what is opened earlier gives way to the restored layout
    page.evaluate("() => { window.jupyterapp.commands.execute('detlab:show-panel') }")
    expect(page.locator("#detlab-panel [role=alert]")).to_contain_text("9.0.0", timeout=SECONDS)
    expect(page.locator("#detlab-panel [role=alert]")).to_contain_text("Reload the page")
    context.close()


def test_the_status_bar_tells_of_free_slots_and_my_work(stage, running):
    with opened(stage) as lab:
        expect(lab.page.locator("[id='detlab-status'], .det-status").first).to_contain_text(
            re.compile(r"\d/2 slots free · \d+ active"), timeout=SECONDS
        )


def test_the_launcher_and_a_click_on_a_script_lead_to_the_form(stage):
    with opened(stage) as lab:
        card = lab.page.locator(".jp-LauncherCard", has_text="New experiment").first
        expect(card).to_be_in_viewport(ratio=1, timeout=SECONDS)  # before anything scrolls to it
        card.click()
        expect(lab.page.locator(".det-form h1")).to_have_text("New experiment", timeout=SECONDS)
        form = lab.run_as_experiment("train.py")
        expect(form.locator("h1")).to_have_text("Run train.py as an experiment", timeout=SECONDS)
        expect(form.get_by_label("YAML")).to_have_value(re.compile("entrypoint: python3 train.py"))
        expect(form.get_by_text("no errors")).to_be_visible(timeout=SECONDS)


def test_a_click_on_a_notebook_runs_it_on_the_cluster_and_keeps_what_it_printed(stage):
    with opened(stage) as lab:
        lab.launched()
        form = lab.run_as_experiment("notes.ipynb")
        expect(form.locator("h1")).to_have_text("Run notes.ipynb on the cluster", timeout=SECONDS)
        form.get_by_label("Notebook parameters").fill("lrr = 2")
        expect(form.get_by_text("lrr: the notebook has no such parameter").first).to_be_visible(timeout=SECONDS)
        form.get_by_label("Notebook parameters").fill("lr = 0.25")
        expect(form.get_by_text("no errors")).to_be_visible(timeout=SECONDS)
        form.get_by_role("button", name="Run", exact=True).click()
        task = lab.page.locator("[id^='detlab-task:']")
        expect(task.locator("h1")).to_contain_text("notes.ipynb", timeout=SECONDS)
        expect(task).to_contain_text("with 0.25", timeout=2 * SECONDS)
        expect(task.locator(".det-badge").first).to_contain_text("completed", timeout=2 * SECONDS)
        task.get_by_role("tab", name="Outputs").click()
        with lab.page.expect_download(timeout=SECONDS) as started:
            task.get_by_role("link", name="executed.ipynb").click()
        assert "with 0.25" in Path(started.value.path()).read_text()


def test_a_trial_that_really_fails_shows_its_card_in_its_experiment_and_by_itself(stage):
    code = TRAIN.replace("        if core.preempt", "        broken(step)\n        if core.preempt")
    code = f"def broken(step):\n    raise ValueError(f'no such step: {{step}}')\n\n\n{code}"
    searcher = {"name": "single", "metric": "loss"}
    failed = stage.search("raises", code=code, searcher=searcher, hyperparameters={}, max_restarts=0)
    with opened(stage) as lab:
        expect(lab.badge(failed.id)).to_contain_text("failed", timeout=2 * SECONDS)
        expect(lab.item(failed.id)).to_contain_text("no such step: 1")
        lab.item(failed.id).get_by_role("button", name="raises").click()
        view = lab.page.locator(f"[id='detlab-experiment:{failed.id}']")
        card = view.get_by_role("region", name="Failure: The code raised an exception")
        for said in ("ValueError: no such step: 1", re.compile(r"Where\s*train\.py, line 2"), "What to do:"):
            expect(card).to_contain_text(said, timeout=SECONDS)
        card.get_by_role("button", name="Logs of the trial").click()
        trial = lab.page.locator("[id^='detlab-trial:']")
        expect(trial.get_by_role("region", name="Failure: The code raised an exception")).to_be_visible(timeout=SECONDS)
        expect(trial.get_by_role("log")).to_contain_text("ValueError: no such step: 1", timeout=SECONDS)
        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            themed(lab, theme)
            assert serious(lab, "[id^='detlab-trial:']") == [], theme


def test_the_palette_leads_to_the_panel_and_the_form_by_keyboard_alone(stage):
    with opened(stage) as lab:
        keyboard = lab.page.keyboard
        lab.launched()
        lab.command("filebrowser:activate")
        expect(lab.page.locator("#detlab-panel")).to_be_hidden(timeout=SECONDS)
        for words, there in (("Show the detlab Panel", "#detlab-panel"), ("New Experiment", ".det-form h1")):
            keyboard.press("Control+Shift+C")
            expect(lab.page.locator(".lm-CommandPalette-input")).to_be_focused(timeout=SECONDS)
            keyboard.type(words)
            expect(lab.page.locator(".lm-CommandPalette-item.lm-mod-active")).to_contain_text(words, timeout=SECONDS)
            keyboard.press("Enter")
            expect(lab.page.locator(there)).to_be_visible(timeout=SECONDS)
