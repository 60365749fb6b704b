"""A report in a real browser, from a file and without a network: what it shows, sorts and never does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from detlab.reports import write_report
from testbed.front.lab import chromium
from testbed.reports import hostile, project

pytestmark = [pytest.mark.browser, pytest.mark.slow]
WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', event => window.violations.push(event.effectiveDirective));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def opened(browser: Browser, path: Path, scheme: str) -> Page:
    """The file in a browser that has no network, with what it complained about in `page.faults`."""
    context = browser.new_context(offline=True, color_scheme=scheme, viewport={"width": 1200, "height": 900})  # type: ignore[arg-type]
    page = context.new_page()
    page.add_init_script(WATCH)
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: faults.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None)
    faults: list[str] = []
    page.goto(path.as_uri())
    page.evaluate("Promise.all([...document.images].map(one => one.decode()))")
    assert faults == []
    assert page.evaluate("window.violations") == []
    return page


def keep(page: Page, name: str) -> None:
    """Keep a picture for whoever wants to look: DETLAB_PICTURES names the folder."""
    if folder := os.environ.get("DETLAB_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_a_network_and_sorts(browser: Browser, tmp_path: Path, scheme: str) -> None:
    page = opened(browser, write_report(project(), tmp_path / "report.html").path, scheme)
    expect(page.get_by_role("heading", name="Experiment 7: digits, wide")).to_be_visible()
    expect(page.get_by_alt_text("loss of experiment 7")).to_be_visible()
    table = page.locator("section", has=page.get_by_role("heading", name="Experiments", exact=True)).get_by_role(
        "table"
    )
    ids = table.locator("tbody td:first-child")
    expect(ids).to_have_text(["7", "9"])
    table.get_by_role("button", name="ID", exact=True).click()
    table.get_by_role("button", name="ID", exact=True).click()
    expect(ids).to_have_text(["9", "7"])
    expect(table.get_by_role("columnheader", name="ID", exact=True)).to_have_attribute("aria-sort", "descending")
    table.get_by_role("button", name="Best", exact=True).click()  # what has no value comes last
    expect(ids).to_have_text(["7", "9"])
    page.locator("summary", has_text="Config").first.click()
    expect(page.get_by_text("name: adaptive_asha")).to_be_visible()
    keep(page, f"report-{scheme}")


def test_hostile_texts_do_nothing(browser: Browser, tmp_path: Path) -> None:
    text = '"\'></title></style></script><img src=x onerror="window.hurt=1"><script>window.hurt=1</script>'
    page = opened(browser, write_report(hostile(project(), text), tmp_path / "report.html").path, "light")
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("document.scripts.length") == 1
    keep(page, "report-hostile")


def test_a_phone_scrolls_tables_not_the_page(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, write_report(project(), tmp_path / "report.html").path, "light")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    keep(page, "report-phone")
