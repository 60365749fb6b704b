"""The main-area views in a real Chromium: every one in light, dark and narrow, under the hub page's own policy.

The page is the harness (labextension/src/harness): the components that ship, fed with made-up data.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from detlab_hub.web.pages import POLICY
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FRONT = Path(__file__).parents[3] / "labextension"
AXE = FRONT / "node_modules" / "axe-core" / "axe.min.js"
COLUMNS = (
    "column=id&column=name&column=state&column=label&column=accuracy&column=hparams.lr&column=created"
    "&heat=accuracy&pin=name&sort=-accuracy&sort=created"
)
VIEWS = {
    "curves": "view=experiment&tab=curves",
    "trials": "view=experiment&tab=trials",
    "parallel": "view=experiment&tab=parallel",
    "checkpoints": "view=experiment&tab=checkpoints",
    "events": "view=experiment&tab=events",
    "config": "view=experiment&tab=config",
    "code": "view=experiment&tab=code",
    "failed": "view=experiment&tab=curves&case=failed",
    "empty": "view=experiment&tab=trials&case=empty",
    "missing": "view=experiment&case=missing",
    "hostile": "view=experiment&tab=trials&case=hostile",
    "metrics": "view=trial&tab=metrics",
    "logs": "view=trial&tab=logs&id=109",
    "hparams": "view=trial&tab=hparams",
    "governance": "view=trial&tab=governance&case=governed",
    "hostile governance": "view=trial&tab=governance&case=hostile",
    "media": "view=trial&tab=media",
    "hostile media": "view=trial&tab=media&case=hostile",
    "runs' media": "view=comparison&tab=media",
    "task": "view=task",
    "queued": "view=task&id=queued",
    "notebook": "view=notebook",
    "models": "view=models",
    "first model": "view=models&case=empty",
    "hostile models": "view=models&case=hostile",
    "model": "view=model",
    "hostile model": "view=model&case=hostile",
    "version": "view=version",
    "hostile version": "view=version&case=hostile",
    "compare": "view=compare",
    "hostile comparison": "view=compare&case=hostile",
    "comparison of runs": "view=comparison&experiments=4,901",
    "runs' metrics": "view=comparison&tab=metrics&case=compared",
    "runs' settings": "view=comparison&tab=hyperparameters&all=1",
    "runs' config": "view=comparison&tab=config",
    "runs' code": "view=comparison&tab=code",
    "runs' plots": "view=comparison&tab=plots&case=compared",
    "hostile runs": "view=comparison&tab=hyperparameters&all=1&case=hostile",
    "storage": "view=storage",
    "nothing stored": "view=storage&case=empty",
    "few curves": "view=experiment&tab=curves&case=three",
    "with notes": "view=experiment&tab=curves&case=done",
    "workspaces": "view=workspaces",
    "first workspace": "view=workspaces&case=empty",
    "hostile workspaces": "view=workspaces&case=hostile",
    "workspace": "view=workspace",
    "its experiments": "view=workspace&tab=experiments",
    "its tasks": "view=workspace&tab=tasks",
    "hostile tasks": "view=workspace&tab=tasks&case=hostile",
    "no tasks": "view=workspace&tab=tasks&case=empty",
    "members": "view=workspace&tab=members",
    "hostile members": "view=workspace&tab=members&case=hostile",
    "defaults": "view=workspace&tab=defaults",
    "project": "view=project",
    "hostile project": "view=project&case=hostile",
    "shared": "view=shared",
    "nothing shared": "view=shared&case=empty",
    "settings": "view=settings",
    "schedules": "view=schedules",
    "no schedules": "view=schedules&case=empty",
    "hostile schedules": "view=schedules&case=hostile",
    "templates": "view=templates",
    "no templates": "view=templates&case=empty",
    "hostile templates": "view=templates&case=hostile",
    "notifications": "view=notifications",
    "no notifications": "view=notifications&case=empty",
    "hostile notifications": "view=notifications&case=hostile",
    "all trials": f"view=runs&tab=trials&{COLUMNS}",
    "all experiments": "view=runs&tab=experiments",
    "no trials": "view=runs&tab=trials&case=empty",
    "column that is gone": "view=runs&tab=trials&column=id&column=gone",
    "artifacts": "view=artifacts",
    "no artifacts": "view=artifacts&case=empty",
    "hostile artifacts": "view=artifacts&case=hostile",
    "artifact": "view=artifact",
    "artifact version": "view=artifactversion",
    "hostile artifact version": "view=artifactversion&case=hostile",
    "runs from anywhere": "view=tracked",
    "no runs": "view=tracked&case=empty",
    "hostile runs from anywhere": "view=tracked&case=hostile",
    "run": "view=run",
    "failed run": f"view=run&id={'a' * 31}3&tab=logs",
    "run's media": "view=run&tab=media",
    "run's config": "view=run&tab=config",
    "run's machine": "view=run&tab=system",
    "run's code": "view=run&tab=code",
    "run's files": "view=run&tab=files",
    "empty run": "view=run&case=empty",
    "hostile run": "view=run&case=hostile",
    "hostile run's code": "view=run&case=hostile&tab=code",
    "hostile trials": f"view=runs&tab=trials&case=hostile&{COLUMNS}",
}
SHAPES = {"light": (1200, 800, "light"), "dark": (1200, 800, "dark"), "narrow": (360, 740, "light")}
READY = (
    ".det-adm table, .det-model table, .det-settings, .det-runs-grid [role=rowgroup] > [role=row], .det-empty-title,"
    " .det-tracked [role=rowgroup] > [role=row],"
    " .det-bell, .det-tab-panel, .det-banner[role=alert], .det-live-plot"
)


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The harness page, built from the sources and served on a free port."""
    if not AXE.exists():
        pytest.skip("npm ci in labextension/ first")
    folder = tmp_path_factory.mktemp("harness")
    subprocess.run(["node", str(FRONT / "harness.mjs"), str(folder)], check=True, timeout=120)
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


def until(page: Any, expression: str, seconds: float = 20.0) -> None:
    """Wait until a script's value is true; asked by the debugger, since the page's policy lets nothing else ask."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never came true: {expression}"
        page.wait_for_timeout(50)


@pytest.fixture(scope="module")
def profiles(browser: Any) -> dict[str, Any]:
    """A browser profile for each shape; the harness keeps nothing there."""
    return {
        shape: browser.new_context(viewport={"width": width, "height": height}, bypass_csp=False)
        for shape, (width, height, _) in SHAPES.items()
    }


class Shown:
    """A page with one view, and what went wrong on it."""

    def __init__(self, profiles: dict[str, Any], address: str, query: str, shape: str) -> None:
        theme = SHAPES[shape][2]
        self.page = profiles[shape].new_page()
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type == "error" else None)
        self.page.goto(f"{address}?{query}&theme={theme}")
        self.page.wait_for_selector(READY)
        until(self.page, "!document.body.innerText.includes('Loading')")

    def asked(self) -> list[str]:
        return list(self.page.evaluate("window.detlab.api.asked"))

    def done(self) -> list[str]:
        return list(self.page.evaluate("window.detlab.done"))

    def say(self, path: str, line: dict[str, Any]) -> None:
        self.page.evaluate("([path, line]) => window.detlab.api.say(path, line)", [path, line])


@pytest.fixture
def opened(profiles: dict[str, Any], address: str) -> Iterator[Any]:
    """Opens views; at the end of the test nothing may have gone wrong on any of them."""
    pages: list[Shown] = []

    def make(query: str, shape: str = "light") -> Shown:
        pages.append(Shown(profiles, address, query, shape))
        return pages[-1]

    yield make
    for shown in pages:
        shown.page.close()
        assert shown.wrong == []


def by_turns() -> list[Any]:
    """Each view in one shape, the next view in the next one; `make soak` has every view in all of them."""
    shapes = list(SHAPES)
    return [
        pytest.param(view, shape, marks=() if (at + number) % len(shapes) == 0 else pytest.mark.soak)
        for at, view in enumerate(VIEWS)
        for number, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize(("view", "shape"), by_turns())
def test_every_view_in_light_dark_and_narrow_and_by_axe(opened: Any, view: str, shape: str) -> None:
    page = opened(VIEWS[view], shape).page
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0, f"the page itself scrolls sideways by {wider} px"
    clipped = page.evaluate(
        """() => [...document.querySelectorAll('button, .det-tab, h1, h2, dt')]
            .filter(e => e.offsetParent && e.clientWidth && !e.closest('.det-tabs, [role=grid]'))
            .filter(e => e.scrollWidth > e.clientWidth + 1)
            .map(e => e.textContent)"""
    )
    assert clipped == []
    assert page.locator(READY).first.inner_text().strip()
    if shape != "narrow":
        assert serious(page) == {}
    if "FACES_SHOTS" in os.environ:
        page.screenshot(path=f"{os.environ['FACES_SHOTS']}/{view}-{shape}.png")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", ["header", "panel"])
@pytest.mark.parametrize("case", ["search", "hostile"])
def test_the_list_of_alerts_lies_on_the_page(opened: Any, place: str, case: str, shape: str) -> None:
    page = opened(f"view={place}&case={case}", shape).page
    page.get_by_role("button", name="Alerts: 2 unread").click()
    box = page.locator(".det-bell-list").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= page.viewport_size["width"]
    assert box["y"] + box["height"] <= page.viewport_size["height"]
    inside = "(() => { const e = document.querySelector('.det-bell-list'); return e.scrollWidth - e.clientWidth; })()"
    assert page.evaluate(inside) <= 0, "it scrolls sideways"
    assert page.evaluate("window.hacked") is None
    if shape != "narrow":
        assert serious(page) == {}
    if "FACES_SHOTS" in os.environ:
        page.screenshot(path=f"{os.environ['FACES_SHOTS']}/alerts {place} {case}-{shape}.png")


def serious(page: Any) -> dict[str, list[str]]:
    """What axe finds that keeps people out: rule to the first elements that break it."""
    page.evaluate(AXE.read_text(encoding="utf-8"))  # by the debugger: the page's policy allows no such script
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return {
        v["id"]: [f"{node['html'][:160]} | {node['failureSummary'][:300]}" for node in v["nodes"][:3]]
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    }


def test_hostile_names_stay_text_in_every_tab(opened: Any) -> None:
    for query, tabs in (
        ("view=experiment&case=hostile", 7),
        ("view=trial&id=103&case=hostile", 4),
        ("view=task&case=hostile", 3),
        ("view=run&case=hostile", 7),
    ):
        page = opened(query).page
        for i in range(tabs):
            page.locator("[role=tab]").nth(i).click()
            until(page, "!document.body.innerText.includes('Loading')")
            assert page.evaluate("window.hacked") is None
            assert page.locator("#root img:not(.det-media-picture > img), #root script").count() == 0
            shown = page.locator("body").inner_text()
            assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u001b\u0000\u0008")
    assert "⟨U+202E⟩" in page.locator("h1").inner_text()


def test_curves_take_what_the_stream_says_and_answer_the_pointer(opened: Any) -> None:
    shown = opened("view=experiment&tab=curves")
    page = shown.page
    box = page.locator(".u-over").bounding_box()
    ink = "document.querySelector('.det-curve-layer').toDataURL().length"
    before = page.evaluate(ink)
    assert before > 5000
    for k, value in enumerate((0.2, 0.18, 0.16)):
        event = page.evaluate(
            "([id, step, value]) => window.detlab.metricsEvent(id, 132, step, value)", [20 + k, 600 + 100 * k, value]
        )
        shown.say("stream", event)
    until(page, f"{ink} !== {before}")
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.75)
    until(page, "/^trial \\d+ · step/.test(document.querySelector('.det-curve-hint').textContent)")
    page.mouse.click(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.75)
    assert json.loads(shown.done()[-1].removeprefix("navigate "))["kind"] == "trial"


WATCH_TEXTS = """() => {
  window.texts = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
    if (this.textAlign === 'right') window.texts.push([text, x - this.measureText(text).width]);
    return write.call(this, text, x, y, ...more);
  };
}"""


@pytest.mark.parametrize("values", [(-2.01e10, -2.02e10), (104523.2, 104493.2), (1e-4, 1.0001e-4), (2e36, 2e37)])
def test_no_label_of_an_axis_is_cut(opened: Any, values: tuple[float, float]) -> None:
    """A label without its first characters is another number."""
    shown = opened("view=experiment&tab=curves")
    page = shown.page
    page.evaluate(WATCH_TEXTS)
    for k, value in enumerate(values):
        event = page.evaluate(
            "([id, step, value]) => window.detlab.metricsEvent(id, 132, step, value)", [20 + k, 600 + 100 * k, value]
        )
        shown.say("stream", event)
    page.get_by_role("button", name="Log scale").click()
    page.get_by_role("button", name="Log scale").click()
    until(page, "window.texts.length > 3")
    assert [text for text, left in page.evaluate("window.texts") if left < 0] == []


def test_curves_on_every_axis(opened: Any) -> None:
    page = opened("view=experiment&tab=curves").page
    for name in ("Log scale", "Best so far", "Log scale"):
        page.get_by_role("button", name=name).click()
    page.get_by_label("over").select_option("time")
    page.get_by_label("Smoothing").select_option("0.9")
    page.get_by_role("button", name="Log scale").click()
    page.wait_for_timeout(50)
    assert page.evaluate("document.querySelector('.det-curve-layer').toDataURL().length") > 5000


@pytest.mark.parametrize("view", ["curves", "few curves", "parallel", "metrics", "runs' plots", "comparison of runs"])
def test_a_figure_is_saved_as_png_and_svg(opened: Any, view: str, tmp_path: Path) -> None:
    page = opened(VIEWS[view], "dark").page
    for kind in ("PNG", "SVG"):
        page.get_by_role("button", name="Image of").first.click()
        with page.expect_download() as saved:
            page.get_by_role("menuitem", name=f"Save as {kind}").click()
        assert saved.value.suggested_filename.endswith(f".{kind.lower()}")
        file = Path(os.environ.get("FACES_SHOTS", tmp_path), f"saved-{view}.{kind.lower()}")
        saved.value.save_as(file)
        if kind == "PNG":
            with Image.open(file) as picture:
                assert picture.width >= 400
                assert picture.convert("RGB").getpixel((1, 1)) == (255, 255, 255), (
                    "on white, whatever the page's theme is"
                )
                assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 20, "something is drawn"
        else:
            drawn = ElementTree.parse(file).getroot()
            assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
            assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) >= 1


def test_brushes_keep_part_of_the_trials_also_by_keys(opened: Any) -> None:
    page = opened("view=experiment&tab=parallel").page
    status = page.locator(".det-parallel [role=status]")
    axis = page.get_by_role("slider", name="Range of lr")
    box = axis.bounding_box()
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    until(page, "/^\\d+ of 36 trials inside/.test(document.querySelector('.det-parallel [role=status]').textContent)")
    first = status.inner_text()
    page.get_by_role("slider", name="Range of width").press("ArrowUp")
    until(page, f"document.querySelector('.det-parallel [role=status]').textContent !== {json.dumps(first)}")
    page.get_by_role("button", name="Clear brushes").click()
    until(page, "document.querySelector('.det-parallel [role=status]').textContent.startsWith('36 trials.')")


def test_ten_thousand_trials_by_keyboard(opened: Any) -> None:
    shown = opened("view=experiment&tab=trials&case=large")
    page = shown.page
    page.wait_for_selector("[role=grid][aria-rowcount='10001']")
    assert page.locator("[role=row]").count() < 120
    page.locator("[role=grid]").focus()
    page.keyboard.press("End")
    page.wait_for_selector(".det-tr.det-active")
    page.keyboard.press("Enter")
    assert shown.done()[-1].startswith("navigate ")
    box = page.get_by_role("combobox", name="Filter trials")
    box.fill("adam")
    box.press("Enter")
    until(page, "/^\\d+ of 10000 trials/.test(document.querySelector('.det-controls [role=status]').textContent)")


def test_logs_follow_and_let_go(opened: Any) -> None:
    shown = opened("view=trial&tab=logs&id=133")
    page = shown.page
    box = page.locator(".det-log-box")
    at_end = """(() => {
        const e = document.querySelector('.det-log-box');
        return e.scrollHeight - e.scrollTop - e.clientHeight < 30;
    })()"""
    until(page, at_end)
    line = {"id": 5000, "text": "one more line", "rank": 1, "level": None, "stdtype": "stdout", "time": 1.0, "run": 1}
    shown.say("trials/133/logs/stream", line)
    page.get_by_text("one more line").wait_for()
    box.evaluate("e => { e.scrollTop = 0 }")
    page.wait_for_selector("button[aria-pressed=false]:text('Follow')")
    shown.say("trials/133/logs/stream", {**line, "id": 5001, "text": "unseen line"})
    page.wait_for_timeout(100)
    assert not page.evaluate(at_end)
    page.get_by_role("button", name="Follow").click()
    page.get_by_text("unseen line").wait_for()


def test_an_action_that_loses_work_is_asked_for_twice(opened: Any) -> None:
    shown = opened("view=experiment")
    page = shown.page
    page.get_by_role("button", name="Kill").click()
    page.keyboard.press("Escape")
    assert not [path for path in shown.asked() if path.startswith("POST")]
    page.get_by_role("button", name="Kill").click()
    page.locator("dialog").get_by_role("button", name="Kill").click()
    page.locator(".det-badge", has_text="being killed").wait_for()
    assert "POST experiments/12/kill" in shown.asked()
    activate = page.get_by_role("button", name="Activate")
    assert activate.get_attribute("title") == "Activate: The experiment is being killed."


def test_a_table_of_trials_by_keys_alone(opened: Any) -> None:
    shown = opened(f"view=runs&tab=trials&{COLUMNS}")
    page = shown.page
    page.keyboard.press("/")
    page.keyboard.type("lab")
    page.get_by_role("option", name="label").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.type("= paper")
    page.keyboard.press("Enter")
    until(page, "window.detlab.api.asked.some(one => one.includes('filter=label+%3D+paper'))")
    page.get_by_role("combobox").blur()
    for key in "jjjxkx":
        page.keyboard.press(key)
    page.get_by_text("2 trials selected").wait_for()
    link = page.get_by_role("link", name="Compare")
    assert json.loads(str(link.get_attribute("href")).removeprefix("#"))["trials"] == [34, 35]
    assert serious(page) == {}
    page.keyboard.press("Enter")
    assert shown.done()[-1] == 'navigate {"kind":"trial","id":35,"experiment":12}'
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    assert serious(page) == {}


def test_pinned_columns_stay_while_others_scroll(opened: Any) -> None:
    page = opened(
        f"view=runs&tab=trials&case=large&{COLUMNS}&column=val/loss&column=val/f1&column=owner&column=steps"
    ).page
    left = """name => [...document.querySelectorAll('[role=grid] [role=columnheader], [role=grid] [role=gridcell]')]
        .filter(one => one.textContent.startsWith(name)).map(one => Math.round(one.getBoundingClientRect().left))"""
    before = page.evaluate(left, "digits")[0], page.evaluate(left, "state")[0]
    page.evaluate("Object.assign(document.querySelector('[role=grid]'), { scrollLeft: 9999, scrollTop: 2000 })")
    page.wait_for_timeout(300)
    names = page.evaluate(left, "digits")
    assert len(names) > 10
    assert len(set(names)) == 1
    assert page.evaluate(left, "name") == names[:1] == [before[0]]
    assert page.evaluate(left, "state")[0] < before[1]


def test_a_file_of_a_table_is_saved(opened: Any) -> None:
    shown = opened("view=runs&tab=trials&column=id&column=accuracy")
    page = shown.page
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="CSV").click()
    assert download.value.suggested_filename == "trials.csv"
