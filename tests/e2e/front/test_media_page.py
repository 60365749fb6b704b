"""Media on the hub page, in a real browser: images, tables, plots over steps, and what hostile ones cannot do."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from detlab.client import Client
from testbed.cluster import Cluster
from testbed.front.hub_page import faultless_tab, hub_tab
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

TRAIN = '''
import sys
import detlab as det

HOSTILE = """<h1 id=title style="color: red">own style</h1><img src=x onerror="document.title='hurt'">
<script>document.getElementById("title").textContent = "script ran";
try { parent.document.title = "hurt"; parent.hurt = 1 } catch (refused) { document.body.append("parent refused") }
try { localStorage.x = 1 } catch (refused) { document.body.append(" storage refused") }
fetch("../../../../../api/v1/overview").catch(() => document.body.append(" fetch refused"))</script>"""
SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40" onload="top.hurt = 1">
<script>top.hurt = 1</script><rect width="80" height="40" fill="teal"/></svg>"""

with det.core.init() as core:
    for step in (1, 2, 3):
        pixels = [[(x * step) % 256 for x in range(64)] for _ in range(48)]
        core.train.report_media(step, {
            "samples": [det.Image(pixels, caption=f"digit {place} at {step}") for place in range(6)],
            "predictions": det.Table([{"true": n, "predicted": n * step, "said": "<b>bold</b>"} for n in range(40)]),
            "answer": f"What the model said at step {step}.",
            "<img src=x onerror=hurt=1>/../x": det.Image(SVG.encode()),
        })
    core.train.report_media(3, {
        "page": det.Html(HOSTILE),
        "weights": det.Histogram([n * n / 100 for n in range(100)], bins=20),
        "confusion": det.ConfusionMatrix([0, 1, 2, 2, 1], [0, 1, 2, 1, 1], ["cat", "dog", "cow"]),
        "roc": det.ROCCurve([0, 1, 1, 0, 1], [0.1, 0.9, 0.4, 0.5, 0.8]),
        "sound": det.Audio([0.0, 0.5, -0.5] * 3000, 8000),
        "cloud": det.Points3D([[n % 7, n % 11, n % 13, 20 * (n % 7), 90, 200] for n in range(500)]),
    })
    core.train.report_validation_metrics(3, {"x": float(sys.argv[1]) if len(sys.argv) > 1 else 1.0})
'''
CONFIG = {
    "name": "media",
    "entrypoint": [sys.executable, "train.py"],
    "searcher": {"name": "random", "metric": "x", "max_trials": 2, "max_length": 3},
    "max_restarts": 0,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def trials(cluster: Cluster) -> list[int]:
    """Two trials that have logged one of each."""
    with Client(cluster.url, cluster.token) as client:
        experiment = client.create_experiment(CONFIG, files={"train.py": TRAIN})
        assert experiment.wait(120) == "COMPLETED", cluster.logs()
        return [one.id for one in experiment.list_trials()]


def picture(name: str, page: object) -> None:
    """Keep a picture for whoever wants to look: DETLAB_PICTURES names the folder."""
    if folder := os.environ.get("DETLAB_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)  # type: ignore[attr-defined]


def test_a_trials_media_are_shown_over_its_steps_and_nothing_of_them_reaches_the_page(
    browser: Browser, cluster: Cluster, trials: list[int]
) -> None:
    with hub_tab(browser, cluster, cluster.user) as tab:
        page = tab.page
        tab.open(f"trials/{trials[0]}")
        page.get_by_role("tab", name="Media").click()
        samples = page.get_by_role("region", name="samples")
        expect(samples.get_by_text("digit 5 at 3")).to_be_visible(timeout=30_000)
        image = samples.locator("img").first
        expect(image).to_have_js_property("naturalWidth", 64)
        drawing = page.get_by_role("region", name=re.compile("onerror")).locator("img")
        expect(drawing).to_have_js_property("naturalWidth", 80)
        expect(
            page.get_by_role("region", name="predictions").get_by_role("cell", name="<b>bold</b>").first
        ).to_be_visible()
        expect(page.get_by_role("region", name="answer")).to_contain_text("What the model said at step 3.")
        expect(page.get_by_role("region", name="weights").locator(".js-plotly-plot")).to_be_visible(timeout=30_000)
        expect(page.get_by_role("region", name="roc").locator(".js-plotly-plot")).to_be_visible()
        expect(page.get_by_role("region", name="confusion").get_by_role("row")).to_have_count(4)
        frame = page.frame_locator("iframe[title^=page]")
        expect(frame.locator("#title")).to_have_text("own style")
        expect(frame.locator("#title")).to_have_css("color", "rgb(255, 0, 0)")
        picture("media", page)
        assert tab.findings(part="main") == []
        page.get_by_role("button", name="Run its scripts").click()
        expect(frame.locator("#title")).to_have_text("script ran")
        expect(frame.locator("body")).to_contain_text("parent refused")
        expect(frame.locator("body")).to_contain_text("storage refused")
        expect(frame.locator("body")).to_contain_text("fetch refused")
        assert page.evaluate("[window.hurt, document.title === 'hurt']") == [None, False]
        slider = page.get_by_role("slider")
        slider.focus()
        page.keyboard.press("ArrowLeft")
        expect(samples.get_by_text("digit 5 at 2")).to_be_visible()
        page.keyboard.press("Home")
        expect(samples.get_by_text("digit 5 at 1")).to_be_visible()
        expect(page.get_by_role("region", name="page")).to_contain_text("Nothing up to this step.")
        assert tab.foreign == []
        assert page.evaluate("window.__violations") == [], "of the page's own policy; the document's are its own"


def test_media_of_two_trials_stand_side_by_side_and_fit_a_narrow_dark_page(
    browser: Browser, cluster: Cluster, trials: list[int]
) -> None:
    with hub_tab(browser, cluster, cluster.user) as tab:
        page = tab.page
        tab.open(f"compare?trials={trials[0]},{trials[1]}&tab=media")
        samples = page.get_by_role("region", name="samples")
        expect(samples.get_by_text("digit 0 at 3")).to_have_count(2, timeout=30_000)
        expect(samples.get_by_text(f"trial {trials[1]}")).to_be_visible()
        picture("media-compare", page)
    with hub_tab(browser, cluster, cluster.user, size=(390, 800), dark=True) as tab:
        tab.open(f"trials/{trials[0]}?tab=media")
        tab.page.get_by_role("tab", name="Media").click()
        expect(tab.page.get_by_role("region", name="cloud").locator("canvas")).to_be_visible(timeout=30_000)
        picture("media-narrow-dark", tab.page)
        assert tab.overflow() <= 0


def test_a_trial_without_media_says_how_to_log_some(browser: Browser, cluster: Cluster) -> None:
    code = (
        'import detlab as det\nwith det.core.init() as core:\n    core.train.report_validation_metrics(1, {"x": 1.0})\n'
    )
    config = {**CONFIG, "searcher": {"name": "single", "metric": "x", "max_length": 1}}
    with Client(cluster.url, cluster.token) as client:
        experiment = client.create_experiment(config, files={"train.py": code})
        assert experiment.wait(60) == "COMPLETED", cluster.logs()
        (trial,) = experiment.list_trials()
    with faultless_tab(browser, cluster) as tab:
        tab.open(f"trials/{trial.id}")
        tab.page.get_by_role("tab", name="Media").click()
        expect(tab.page.get_by_text("This trial has logged no media.")).to_be_visible()
        expect(tab.page.get_by_text(re.compile(r"core_context\.train\.report_media"))).to_be_visible()
        picture("media-empty", tab.page)
