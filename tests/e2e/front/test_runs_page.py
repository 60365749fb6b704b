"""Runs from anywhere on the hub page, in a real browser: the table, one run with hostile names, its images, its end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from testbed.cluster import Cluster
from testbed.front.hub_page import faultless_tab, hub_tab
from testbed.front.lab import chromium

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

SCRIPT = """
import sys
import detlab as det

HOSTILE = "<img src=x onerror=window.hurt=1>"
det.init(project="digits", name=HOSTILE, config={"lr": 0.1, "remark": HOSTILE}, notes=f"{HOSTILE} **bold**", group="g")
for step in range(30):
    det.log({"loss": 1 / (step + 1)})
det.log({"samples": [det.Image([[0, 255], [255, 0]], caption=HOSTILE)]}, step=3)
print(HOSTILE)
sys.exit("out of luck")
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def picture(name: str, page: object) -> None:
    """Keep a picture for whoever wants to look: DETLAB_PICTURES names the folder."""
    if folder := os.environ.get("DETLAB_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)  # type: ignore[attr-defined]


def test_a_run_from_a_laptop_is_found_read_and_deleted(browser: Browser, cluster: Cluster, tmp_path: Path) -> None:
    with faultless_tab(browser, cluster) as tab:
        tab.open("runs")
        expect(tab.page.get_by_text("No run from anywhere yet.")).to_be_visible(timeout=30_000)
        picture("runs-empty", tab.page)
    (tmp_path / "train.py").write_text(SCRIPT)
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DET_URL": cluster.url, "DET_TOKEN": cluster.token}
    ended = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=variables, timeout=120, check=False, capture_output=True
    )
    assert b"the master has all of it" in ended.stderr, ended.stderr
    with hub_tab(browser, cluster, cluster.user) as tab:
        page = tab.page
        tab.open("runs")
        page.get_by_role("grid", name="Runs").get_by_role("link", name=re.compile("onerror")).click()
        expect(page.get_by_text("Why it ended")).to_be_visible(timeout=30_000)
        expect(page.get_by_role("region", name="loss").locator("canvas").first).to_be_visible()
        picture("run", page)
        page.get_by_role("tab", name="Media").click()
        image = page.get_by_role("region", name="samples").locator("img").first
        expect(image).to_have_js_property("naturalWidth", 2)
        assert "tab=media" in page.url, "a link leads to it"
        page.get_by_role("tab", name="Logs").click()
        expect(page.get_by_text("<img src=x onerror=window.hurt=1>").last).to_be_visible()
        page.get_by_role("tab", name="Code").click()
        expect(page.get_by_text("det.init(project=").first).to_be_visible()
        picture("run-code", page)
        page.get_by_role("tab", name="Config").click()
        expect(page.get_by_role("rowheader", name="lr")).to_be_visible()
        assert page.evaluate("window.hurt") is None
        assert tab.foreign == []
        page.get_by_role("button", name="More actions of the run").click()
        page.get_by_role("menuitem", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        expect(page.get_by_text("No run from anywhere yet.")).to_be_visible()


LOGS = """
import sys
import detlab as det

HOSTILE = "<img src=x onerror=window.hurt=1>"
for rate in (0.1, 0.2):
    with det.init(project="digits", name=f"rate {rate}", config={"lr": rate}) as run:
        for step in range(5):
            det.log({"loss": rate / (step + 1)})
        if rate > 0.1:
            run.use_artifact("cats:latest")
        cats = det.Artifact("cats", type="dataset", description=HOSTILE)
        cats.add_dir(sys.argv[1])
        run.log_artifact(cats)
        det.alert(f"rate {rate} is done {HOSTILE}", "the loss is low")
        open(sys.argv[1] + "/more.txt", "w").write(HOSTILE)
"""


def test_what_two_runs_made_and_told_is_on_the_pages_and_the_runs_are_compared(
    browser: Browser, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "labels.csv").write_text("cat,1\n")
    (tmp_path / "logs.py").write_text(LOGS)
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DET_URL": cluster.url, "DET_TOKEN": cluster.token}
    command = [sys.executable, "logs.py", str(tmp_path / "cats")]
    ended = subprocess.run(command, cwd=tmp_path, env=variables, timeout=120, check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
    with faultless_tab(browser, cluster) as tab:
        page = tab.page
        tab.open("artifacts")
        page.get_by_role("region", name="Artifacts").get_by_role("link", name="cats").click()
        versions = page.get_by_role("region", name="Versions of cats")
        expect(versions.get_by_role("row")).to_have_count(3, timeout=30_000)
        picture("artifact", page)
        versions.get_by_role("link", name="v1" if versions.get_by_text("v2").count() else "v0").click()
        expect(page.get_by_text("labels.csv").first).to_be_visible(timeout=30_000)
        assert tab.findings() == []
        page.get_by_role("tab", name="Lineage").click()
        expect(page.get_by_role("img", name=re.compile("Lineage graph"))).to_be_visible(timeout=30_000)
        picture("artifact-lineage", page)
        page.get_by_role("tab", name="Runs").click()
        page.get_by_role("link", name=re.compile("^Run ")).first.click()
        expect(page.locator("main h1")).to_contain_text("rate 0.", timeout=30_000)
        page.get_by_role("tab", name="Artifacts").click()
        expect(page.get_by_role("link", name=re.compile("^cats:v")).first).to_be_visible(timeout=30_000)

        page.get_by_role("button", name=re.compile(r"Alerts: \d+ unread")).click()
        alerts = page.get_by_role("list", name="Alerts")
        expect(alerts).to_contain_text("rate 0.2 is done <img src=x onerror=window.hurt=1>")
        assert tab.findings() == []
        picture("alerts", page)
        alerts.get_by_role("link", name=re.compile("rate 0.1 is done")).click()
        expect(page.locator("main h1")).to_contain_text("rate 0.1", timeout=30_000)
        page.get_by_role("button", name="Alerts: 1 unread").click()
        page.get_by_role("button", name="Mark all as read").click()
        expect(page.get_by_role("button", name="Alerts", exact=True)).to_be_visible(timeout=30_000)

        tab.open("runs")
        for name in ("rate 0.1", "rate 0.2"):
            page.get_by_role("checkbox", name=f"Choose {name}").check()
        page.get_by_role("button", name="Compare").or_(page.get_by_role("link", name="Compare")).click()
        expect(page.locator("main h1")).to_contain_text("Compare", timeout=30_000)
        page.get_by_role("tab", name=re.compile("^Hyperparameters")).click()
        expect(page.get_by_role("rowheader", name="lr")).to_be_visible(timeout=30_000)
        picture("comparison", page)
        assert page.evaluate("window.hurt") is None
        assert tab.foreign == []
