"""The live view as a person sees it: real JupyterLab, real kernel, real cluster, real browser."""

import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from testbed.cluster import running_cluster
from testbed.front.lab import chromium, jupyter, tab, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

HOSTILE = "<img src=x onerror=document.title='owned'>"
SEEN = "<svg onload=window.hurt=1>"
PAYLOAD = f"{SEEN} [go](javascript:window.hurt=1) **bold** $x$ \x1b[31mred\x1b]0;owned\x07 \u202egnp.exe\u2066"
"""Elements, markdown, a formula, what a terminal obeys, what reorders text."""
LOAD = "%load_ext detlab_magics"
TRAIN = """%%det_module lab_train
import time
from contextlib import contextmanager
import detlab as det

with det.core.init() as core:
    hp = det.get_cluster_info().trial.hparams
    for step in range(1, hp["steps"] + 1):
        core.train.report_validation_metrics(step, {{{metric!r}: hp["a"] / step}})
        time.sleep(0.1)
"""
SEARCH = """%%det_experiment --name "{name}"
entrypoint: python3 lab_train.py
max_restarts: 0
searcher: {{name: grid, metric: "{metric}"}}
hyperparameters: {{a: {{type: categorical, vals: [1, 2]}}, steps: {steps}}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("lab-cluster"), slots=2) as running:
        yield running


@pytest.fixture(scope="module")
def server(cluster, tmp_path_factory):
    env = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token}
    with jupyter(tmp_path_factory.mktemp("lab"), env) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def profile(browser):
    """The browser profile in which the notebooks are opened, one after the other."""
    return browser.new_context()


def points(page):
    label = page.locator(".det-live-plot").get_attribute("aria-label")
    return int(re.search(r"(\d+) points", label).group(1))


def own_errors(lab):
    """Errors of the page, but one of JupyterLab 4.6 itself: two quick changes of theme remove a style sheet twice."""
    return [text for text in lab.console if not ("removeChild" in text and "jlab_core" in text)]


def contrast(page, selector):
    """WCAG contrast of a text against the page's background."""
    return page.evaluate(
        """selector => {
          const numbers = text => text.match(/[\\d.]+/g).map(Number);
          const rgba = text => numbers(text).map((n, i) => (text.startsWith('color(srgb') && i < 3 ? 255 * n : n));
          const el = document.querySelector(selector);
          let back = [255, 255, 255];
          for (let up = el; up; up = up.parentElement) {
            const found = rgba(getComputedStyle(up).backgroundColor);
            if (found.length === 3 || found[3] === 1) { back = found; break; }
          }
          const [r, g, b, a = 1] = rgba(getComputedStyle(el).color);
          const fore = [r, g, b].map((c, i) => a * c + (1 - a) * back[i]);
          const light = c => { const s = c / 255; return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; };
          const lum = c => 0.2126 * light(c[0]) + 0.7152 * light(c[1]) + 0.0722 * light(c[2]);
          const [high, low] = [lum(fore), lum(back)].sort((x, y) => y - x);
          return (high + 0.05) / (low + 0.05);
        }""",
        selector,
    )


@contextmanager
def converted(browser, path):
    """The notebook as a page, by nbconvert's own template, opened on a machine without a network."""
    command = [sys.executable, "-m", "nbconvert", "--log-level", "WARN", "--to", "html", str(path)]
    subprocess.run(command, check=True, timeout=60)
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(path.with_suffix(".html").as_uri())
    yield page
    context.close()


def look_offline(browser, path):
    """The page shows the picture and the table."""
    with converted(browser, path) as page:
        assert page.evaluate("() => document.querySelector(\"img[alt='learning curves']\").naturalWidth") == 720
        assert "completed" in page.locator("table").last.inner_text()


def test_the_live_view_is_bounded_survives_a_reload_and_shows_hostile_names_as_text(server, profile):
    cells = [LOAD, TRAIN.format(metric=HOSTILE), SEARCH.format(name=HOSTILE, metric=HOSTILE, steps=150)]
    write_notebook(server.folder / "live.ipynb", cells)
    with tab(profile, server, "live.ipynb") as lab:
        frames = []
        lab.page.on("websocket", lambda ws: ws.on("framereceived", lambda data: frames.append((time.time(), data))))
        lab.page.reload()  # so that the kernel's socket is among those listened to
        lab.ready()
        for index in range(3):
            lab.run_cell(index)
        lab.page.wait_for_selector(".det-live", timeout=30_000)
        lab.page.wait_for_function("() => / [1-9]\\d* points/.test(document.querySelector('.det-live-plot').ariaLabel)")

        frames.clear()
        lab.page.wait_for_timeout(4000)  # the time over which updates are counted
        raw = [data if isinstance(data, bytes) else data.encode() for _, data in frames]
        updates = [len(data) for data in raw if b"comm_msg" in data]
        assert 3 <= len(updates) <= 9, "lives, at most twice a second"
        assert max(updates) < 8_000
        assert HOSTILE in lab.page.locator(".det-live-title").inner_text()
        assert lab.page.locator(".det-live img").count() == 0
        assert "owned" not in lab.page.title()

        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            lab.command("apputils:change-theme", theme=theme)
            lab.page.wait_for_function("t => document.body.dataset.jpThemeName === t", arg=theme)
            for selector in (
                ".det-live-title",
                ".det-live-line",
                ".det-curve-hint",
                ".det-live-best td",
                ".det-live-table tr:last-child td",
            ):
                assert contrast(lab.page, selector) > 4.0, (theme, selector)
        lab.page.get_by_role("button", name="Log scale").click()
        lab.page.get_by_role("button", name="Smooth").click()
        lab.command("application:toggle-left-area")
        lab.page.set_viewport_size({"width": 400, "height": 900})
        fits = "() => { const v = document.querySelector('.det-live'); return v.scrollWidth <= v.clientWidth + 1; }"
        lab.page.wait_for_function(f"() => innerWidth === 400 && ({fits})()")  # nothing sticks out of a narrow notebook
        lab.page.set_viewport_size({"width": 1200, "height": 1000})

        lab.command("docmanager:save")
        before = points(lab.page)
        lab.page.reload()
        lab.ready()
        lab.page.wait_for_selector(".det-live-plot[aria-label]", timeout=30_000)
        assert points(lab.page) >= before, "the page that came late has all that was there"
        # The kernel cannot replace the output of a page that was opened again: the widget hands the picture over.
        picture = lab.page.locator("img[alt='learning curves']")
        picture.wait_for(timeout=90_000)
        assert lab.page.locator(".det-live").count() == 0
        assert "2/2 trials · completed" in lab.page.locator(".jp-OutputArea").last.inner_text()

        # The file still has the view of the middle of the run, and its kernel is gone.
        lab.command("kernelmenu:shutdown")
        lab.page.reload()
        picture.wait_for(timeout=60_000)
        began = "As it was when this view began. Now: %det_watch"
        expect(lab.page.locator(".jp-OutputArea").last).to_contain_text(began)
        assert "model not found" not in lab.page.locator(".jp-Notebook").inner_text()
        assert not lab.foreign
        assert not own_errors(lab), lab.console


@pytest.mark.soak
def test_the_output_is_frozen_at_the_end_and_survives_saving_and_reopening(server, browser, profile):
    path = server.folder / "frozen.ipynb"
    write_notebook(path, [LOAD, TRAIN.format(metric="loss"), SEARCH.format(name="short", metric="loss", steps=20)])
    with tab(profile, server, "frozen.ipynb") as lab:
        for index in range(3):
            lab.run_cell(index)
        lab.page.wait_for_selector(".det-live", timeout=30_000)
        lab.page.locator(".det-live").wait_for(state="detached", timeout=60_000)
        picture = lab.page.locator("img[alt='learning curves']")
        picture.wait_for()
        assert "2/2 trials · completed · best loss 0.0500" in lab.page.locator(".jp-OutputArea").last.inner_text()
        lab.command("docmanager:save")
        saved = json.loads(path.read_text())["cells"][2]["outputs"]
        data = next(o["data"] for o in saved if "data" in o)
        assert set(data) == {"text/html", "image/svg+xml", "text/plain"}
        assert sum(len("".join(text)) for text in data.values()) < 100_000
        look_offline(browser, path)
        lab.command("kernelmenu:shutdown")
        lab.page.reload()
        lab.page.locator("img[alt='learning curves']").wait_for(timeout=30_000)
        assert lab.page.evaluate("() => document.querySelector(\"img[alt='learning curves']\").naturalWidth") == 720
        assert not lab.foreign
        assert not own_errors(lab), lab.console


FAILS = """%%det_module lab_fails
import pathlib, time
import detlab as det

text = TEXT
with det.core.init() as core:
    core.train.report_validation_metrics(1, {text: 0.5})
    print(text, flush=True)
    for _ in range(1200):
        if pathlib.Path(LOOKED).exists():
            break
        time.sleep(0.05)
    raise RuntimeError(text)
"""
BECAME = """() => [...document.querySelectorAll('.jp-OutputArea-output')].flatMap(output => [
  ...output.querySelectorAll('script, iframe, [onload], [onerror], mjx-container'),
  ...[...output.querySelectorAll('b, strong')].filter(element => element.textContent === 'bold'),
  // IPython's own colour of the error's name is none of the payload's
  ...[...output.querySelectorAll('[class*="ansi-"]')].filter(span => span.textContent !== 'ExperimentFailed'),
  ...[...output.querySelectorAll('a')].filter(link => /^\\s*javascript:/i.test(link.getAttribute('href'))),
  ...[...output.querySelectorAll('img')].filter(image => !image.src.startsWith('data:image/svg+xml'))
]).map(element => element.outerHTML.slice(0, 300))"""


def hostile_cells(looked):
    """A search whose every text is the payload, and that fails with it; then the lists and the log of it.

    It fails when there is a file: within half a second it would be over before a page has drawn it once.
    """
    config = {
        "name": PAYLOAD, "description": PAYLOAD, "labels": [PAYLOAD], "entrypoint": ["python3", "lab_fails.py"],
        "max_restarts": 0, "searcher": {"name": "single", "metric": PAYLOAD},
        "hyperparameters": {PAYLOAD: {"type": "categorical", "vals": [PAYLOAD]}},
    }  # fmt: skip
    search = f"%%det_experiment --out found --wait\n{json.dumps(config)}"
    fails = FAILS.replace("TEXT", repr(PAYLOAD)).replace("LOOKED", repr(str(looked)))
    return [LOAD, fails, search, "%det_list", "%det_logs 1 --tail 20", "found"]


def test_hostile_texts_of_every_kind_are_text_in_a_notebook_live_and_converted_and_no_secret_is_saved(
    cluster, server, browser, profile, meeting_place
):
    path, looked = server.folder / "hostile.ipynb", meeting_place / "looked"
    write_notebook(path, hostile_cells(looked))
    with tab(profile, server, path.name) as lab:
        for index in range(6):
            lab.run_cell(index)
            if index == 2:
                lab.page.wait_for_selector(".det-live", timeout=30_000)
                assert lab.page.evaluate(BECAME) == [], "live"
                looked.touch()
                lab.page.locator(".det-live").wait_for(state="detached", timeout=60_000)
            assert lab.page.evaluate(BECAME) == [], index
        lab.page.wait_for_timeout(2000)  # for what would load or run late
        assert lab.page.evaluate(BECAME) == []
        assert lab.page.evaluate("() => window.hurt") is None
        shown = "\n".join(lab.page.locator(".jp-OutputArea-output").all_inner_texts())
        assert shown.count(SEEN) >= 4
        assert not set(shown) & set("\x1b\x07\u202e\u2066"), shown
        lab.command("docmanager:save")
        assert not lab.foreign
        assert not own_errors(lab), lab.console
    saved = path.read_text()
    assert SEEN in json.dumps([cell.get("outputs") for cell in json.loads(saved)["cells"]])
    files = [file for file in (cluster.folder / "secrets").rglob("*") if file.is_file()]
    secrets = [text for file in files if len(text := file.read_text(errors="replace").strip()) >= 8]
    assert cluster.token in secrets
    assert [file.name for file in files if file.read_text(errors="replace").strip() in saved] == []
    assert server.token not in saved
    with converted(browser, path) as page:
        page.wait_for_timeout(1000)  # for what would load or run late
        assert page.evaluate(BECAME) == []
        assert page.evaluate("() => window.hurt") is None
        shown = "\n".join(page.locator(".jp-OutputArea-output").all_inner_texts())
        assert shown.count(SEEN) >= 4
        assert not set(shown) & set("\x1b\x07\u202e\u2066"), shown
