"""The JupyterLab panel in a browser: a stage for the tests of one file, and the page as they use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, expect

from detlab.client import Client, build_bundle
from detlab.client.resources import Experiment
from testbed.cluster import Cluster, running_cluster
from testbed.front.lab import Server, chromium, fresh_page, jupyter, write_notebook

TRAIN = """import time
import detlab as det

with det.core.init() as core:
    hp = det.get_cluster_info().trial.hparams
    for step in range(1, 100_000):
        core.train.report_validation_metrics(step, {"loss": hp.get("lr", 0.5) + 1 / step})
        print("step", step, flush=True)
        if step == 1:
            with core.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "weights.txt").write_text("1.5")
        if core.preempt.should_preempt():
            break
        time.sleep(0.25)
"""
SEARCH = {
    "entrypoint": "python3 train.py",
    "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    "searcher": {"name": "random", "metric": "loss", "max_trials": 3},
}
SECONDS = 30_000
SETTLED = 3_500
"""Longer than the 3 s after which pools, jobs and quotas are asked for again if something changed meanwhile."""


@dataclass
class Stage:
    """A cluster, JupyterLab and a browser."""

    cluster: Cluster
    server: Server
    browser: Browser
    context: BrowserContext
    """The browser profile in which the pages of a file are opened, one after the other."""
    client: Client

    def search(self, name: str, code: str = TRAIN, **over: Any) -> Experiment:
        """Start a search."""
        bundle = build_bundle(files={"train.py": code})
        return self.client.submit({**SEARCH, "name": name, **over}, bundle=bundle).experiment

    def state(self, number: int) -> str:
        """The state of an experiment."""
        return self.client.get_experiment(number).state.value


@dataclass
class Lab:
    """A page of JupyterLab with the panel open."""

    page: Page
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    """Paths of the streams of events that were opened."""
    connected: set[Request] = field(default_factory=set)
    """Streams of any kind that are open now."""
    asked: list[str] = field(default_factory=list)
    """Addresses of all requests to the cluster."""

    def watch(self) -> None:
        """Count what the page opens and closes."""

        def opened(request: Request) -> None:
            if "/detlab/api/" in request.url:
                self.asked.append(request.url)
            if re.search(r"/detlab/api/.*stream(\?|$)", request.url):
                self.connected.add(request)
                if "/logs/" not in request.url:
                    self.streams.append(request.url)

        def closed(request: Request) -> None:
            self.connected.discard(request)

        self.page.on("request", opened)
        self.page.on("requestfailed", closed)
        self.page.on("requestfinished", closed)

    def settled(self) -> None:
        """Wait until what changed last has been asked for: a moment without a request."""
        seen = -1
        while seen != len(self.asked):  # bounded by the test's own limit
            seen = len(self.asked)
            self.page.wait_for_timeout(SETTLED)

    def command(self, name: str, **arguments: Any) -> None:
        """Run a command of JupyterLab, not waiting for it."""
        self.page.evaluate("([n, a]) => { window.jupyterapp.commands.execute(n, a) }", [name, arguments])

    def launched(self) -> None:
        """JupyterLab fills its empty main area late, and its launcher then takes the focus from whoever has it."""
        self.page.wait_for_selector(".jp-Launcher .jp-LauncherCard", timeout=SECONDS)
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")

    def item(self, number: int) -> Locator:
        """The panel's entry of an experiment."""
        return self.page.locator("#detlab-panel .det-item", has=self.page.get_by_text(f"#{number}", exact=True))

    def badge(self, number: int) -> Locator:
        """The state of an experiment in the panel."""
        return self.item(number).locator(".det-badge")

    def run_as_experiment(self, file: str) -> Locator:
        """Choose from the file browser's menu of a file; returns the form of the tab that opens."""
        self.command("filebrowser:activate")
        self.page.locator(".jp-DirListing-item", has_text=file).click(button="right")
        label = "Run Notebook on the Cluster" if file.endswith(".ipynb") else "Run as Experiment"
        self.page.get_by_role("menuitem", name=label).click()
        return self.page.locator(".det-form", has=self.page.get_by_role("heading", name=file))

    def act(self, number: int, label: str) -> None:
        """Choose from the menu of an experiment."""
        self.page.get_by_role("button", name=f"Actions of experiment {number}", exact=True).click()
        self.page.get_by_role("menuitem", name=label, exact=True).click()

    def pause(self, number: int) -> None:
        """Pause an experiment; the panel asks first while a trial that has just started has no checkpoint."""
        self.act(number, "Pause")
        question = self.page.locator(".jp-Dialog", has_text="no checkpoint yet")
        paused = self.badge(number).filter(has_text="paused")
        expect(question.or_(paused).first).to_be_visible(timeout=SECONDS)
        if question.is_visible():
            question.get_by_role("button", name="Pause").click()


@contextmanager
def built(folder: Path) -> Iterator[Stage]:
    """Start a cluster of two slots, JupyterLab in a home with a script and a notebook, and a browser."""
    (folder / "cluster").mkdir()
    home = folder / "home"
    home.mkdir()
    (home / "train.py").write_text(TRAIN)
    write_notebook(home / "notes.ipynb", ["lr = 0.5", "print('with', lr)"], parameters=True)
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(folder / "cluster", slots=2))
        env = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token}
        server = stack.enter_context(jupyter(home, env))
        client = stack.enter_context(Client(cluster.url, cluster.token))
        browser = stack.enter_context(chromium())
        context = browser.new_context()
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url.rstrip("/"))
        yield Stage(cluster, server, browser, context, client)


@contextmanager
def opened(stage: Stage, width: int = 1200, height: int = 900, path: str = "lab") -> Iterator[Lab]:
    """Open JupyterLab with the panel; nothing of ours may go wrong on the page, and it may ask nobody else."""
    with fresh_page(stage.context, stage.server, width, height) as page:
        lab = Lab(page)
        ours = re.compile(r"labextensions/@detlab")
        page.on("pageerror", lambda e: lab.errors.append(f"{e}\n{e.stack}") if ours.search(e.stack or "") else None)
        own = (stage.server.url, stage.server.url.replace("http", "ws"), "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(own) else lab.foreign.append(r.url))
        lab.watch()
        page.goto(f"{stage.server.url}{path}?token={stage.server.token}&reset", timeout=2 * SECONDS)
        page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('detlab:show-panel')", timeout=2 * SECONDS)
        page.evaluate("() => window.jupyterapp.restored")
        lab.command("detlab:show-panel")
        page.wait_for_selector("#detlab-panel .det-sections", timeout=SECONDS)
        yield lab
        assert lab.errors == [], lab.errors
        assert lab.foreign == [], lab.foreign
