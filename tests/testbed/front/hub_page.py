"""The hub page in a real browser: log in, open a view, and keep what the page complained about."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from playwright.sync_api import Browser, Locator, Page, expect

from testbed.cluster import Cluster

AXE = Path(__file__).parents[3] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
_WATCH = """
window.__violations = [];
document.addEventListener('securitypolicyviolation', event =>
  window.__violations.push(`${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
_JUDGE = """
async ([part, without]) => (await axe.run({ include: [[part]], exclude: [[without]] })).violations
"""
_known: WeakKeyDictionary[Browser, dict[tuple[str, str], Any]] = WeakKeyDictionary()
"""Cookies of users that have logged in with a browser, by the cluster's address and the user."""


@dataclass
class HubTab:
    """One page of the service, logged in."""

    cluster: Cluster
    page: Page
    console: list[str] = field(default_factory=list)
    """Errors that the page wrote or threw; the browser's own lines about refused requests are left out."""
    foreign: list[str] = field(default_factory=list)
    """Requests to other machines."""

    def open(self, view: str = "") -> None:
        """Go to a view by its address and wait until it has been drawn."""
        self.page.goto(self.cluster.service + view)
        self.page.wait_for_selector("main h1, main [role=alert]")

    def follow(self, name: str) -> None:
        """Go to a view by its link in the navigation."""
        self.page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
        self.page.wait_for_selector("main h1")

    def heading(self) -> str:
        """The heading of the view that is shown."""
        return self.page.locator("main h1").first.inner_text()

    def violations(self) -> list[str]:
        """What the page's policy forbade."""
        found: list[str] = self.page.evaluate("() => window.__violations")
        return found + [line for line in self.console if "Content Security Policy" in line]

    def findings(self, part: str = "html", without: str = "#none") -> list[str]:
        """Serious findings of axe on what is shown now, of a part of the page that CSS selects, without another."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: list[dict[str, Any]] = self.page.evaluate(_JUDGE, [part, without])
        return [
            f"{item['id']}: {json.dumps([node['html'] for node in item['nodes'][:3]])}"
            for item in found
            if item["impact"] in {"serious", "critical"}
        ]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth"))


def _password(cluster: Cluster, user: str) -> str:
    if user == cluster.user:
        return cluster.password
    return (cluster.folder / "secrets" / f"password-{user}").read_text().strip()


@contextmanager
def hub_tab(
    browser: Browser,
    cluster: Cluster,
    user: str,
    view: str = "",
    *,
    size: tuple[int, int] = (1280, 800),
    dark: bool = False,
    login: bool = False,
) -> Iterator[HubTab]:
    """Arrive at a view as a user, in a browser profile of its own.

    The first time that a browser does so for a user it is through the login form; later profiles get the cookies of
    that session, but with `login`, which makes a session of its own.
    """
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
    )
    context.add_init_script(_WATCH)
    known, session = _known.setdefault(browser, {}), (cluster.url, user)
    by_form = login or session not in known
    if not by_form:
        context.add_cookies(known[session])
    page = context.new_page()
    opened = HubTab(cluster, page)
    page.on("console", lambda message: _note(opened, message.type, message.text))
    page.on("pageerror", lambda error: opened.console.append(f"{error}\n{error.stack}"))
    page.on("request", lambda request: _foreign(opened, request.url))
    page.goto(cluster.service + view)
    if by_form:
        page.fill("#username_input", user)
        page.fill("#password_input", _password(cluster, user))
        page.click("#login_submit")
    page.wait_for_selector("main h1, main [role=alert]")
    if not login:
        known.setdefault(session, context.cookies())
    yield opened
    context.close()


@contextmanager
def faultless_tab(browser: Browser, cluster: Cluster, *, login: bool = False) -> Iterator[HubTab]:
    """The operator's page; what was done with it broke no rule of its policy, threw nothing and asked nobody else."""
    with hub_tab(browser, cluster, cluster.user, login=login) as opened:
        yield opened
        assert opened.violations() == []
        assert opened.console == []
        assert opened.foreign == []


def pictures(name: str, browser: Browser, tab: HubTab) -> None:
    """Keep pictures of a view in light, dark and narrow: DETLAB_PICTURES names the folder."""
    folder = os.environ.get("DETLAB_PICTURES")
    for shape in ("light", "dark", "narrow") if folder else ("narrow",):
        size = (400, 800) if shape == "narrow" else (1280, 800)
        with hub_tab(browser, tab.cluster, tab.cluster.user, name, size=size, dark=shape == "dark") as shown:
            expect(shown.page.locator("main").get_by_text("Loading")).to_have_count(0)
            assert shown.overflow() <= 0
            assert shown.findings() == []
            if folder:
                shown.page.screenshot(path=Path(folder) / f"{name}-{shape}.png", full_page=True)


def start_dialog(page: Page, kind: str) -> Locator:
    """Open the dialog that starts a task of a kind, such as "notebook"."""
    page.get_by_role("button", name="Notebook, shell").click()
    page.get_by_role("menuitem", name=f"New {kind}").click()
    return page.get_by_role("dialog", name=f"New {kind}")


def end_from(page: Page, dialog: Locator) -> None:
    """Go from a start dialog to the task, and kill it there."""
    dialog.get_by_role("button", name="Details and logs").click()
    page.get_by_role("button", name="Kill").click()
    page.get_by_role("dialog").get_by_role("button", name="Kill").click()
    expect(page.locator("main")).to_contain_text("killed", timeout=30_000)


def _note(opened: HubTab, kind: str, text: str) -> None:
    if kind == "error" and not text.startswith("Failed to load resource"):
        opened.console.append(text)


def _foreign(opened: HubTab, url: str) -> None:
    if not url.startswith((opened.cluster.url, "data:", "blob:", "about:")):
        opened.foreign.append(url)
