"""A real JupyterLab with a real browser: chromium, headless, that may not leave this machine."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import nbformat
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from detlab.testing.ports import free_port
from testbed import processes

BROWSERS = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")
CHROMIUM = next((path for path in BROWSERS if Path(path).exists()), BROWSERS[-1])
"""Debian's build without windows is the same engine, and needs two thirds of the processor time for a page."""
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Server:
    """A Jupyter server."""

    url: str
    token: str
    folder: Path


@contextmanager
def jupyter(
    folder: Path, env: Mapping[str, str], *, lab: bool = True, options: tuple[str, ...] = ()
) -> Iterator[Server]:
    """Start JupyterLab (or just a Jupyter server) in a folder, with a token, and stop it.

    Args:
        folder: Where its notebooks are; its log is `jupyter.log` there.
        env: Its environment.
        lab: With JupyterLab.
        options: Further command line.
    """
    port, token = free_port(), secrets.token_hex(8)
    settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    # What only builds of extensions need is asked of node and npm at each start, if they are there: for over a second.
    nobody = folder / "settings" / "bin"
    nobody.mkdir()
    for name in ("node", "npm"):
        (nobody / name).write_text("#!/bin/sh\nexit 1\n")
        (nobody / name).chmod(0o755)
    command = [
        *(sys.executable, "-m", "jupyterlab" if lab else "jupyter_server"),
        *("--no-browser", "--allow-root", f"--port={port}", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"),
        *options,
        *(("--LabApp.expose_app_in_browser=True",) if lab else ()),
    ]
    full = {
        **env,
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "PATH": os.pathsep.join([str(nobody), str(Path(sys.executable).parent), env.get("PATH", os.defpath)]),
    }
    with (folder / "jupyter.log").open("w") as log:
        process = subprocess.Popen(command, env=full, cwd=folder, stdout=log, stderr=log)
        server = Server(f"http://127.0.0.1:{port}/", token, folder)
        try:
            _await(server, process)
            yield server
        finally:
            processes.end(process, 15)


def _await(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            headers = {"Authorization": f"token {server.token}"}
            httpx.get(f"{server.url}api/status", headers=headers, trust_env=False).raise_for_status()
            return
        except httpx.HTTPError as problem:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((server.folder / "jupyter.log").read_text()) from problem
            time.sleep(0.1)


@dataclass
class Tab:
    """One page of JupyterLab with a notebook open."""

    page: Page
    console: list[str] = field(default_factory=list)
    """Errors that the page wrote."""
    foreign: list[str] = field(default_factory=list)
    """Requests to other machines."""

    def command(self, name: str, **arguments: Any) -> None:
        """Run a command of JupyterLab."""
        self.page.evaluate("([n, a]) => window.jupyterapp.commands.execute(n, a)", [name, arguments])

    def run_cell(self, index: int) -> None:
        """Run one cell, not waiting for it."""
        self.page.evaluate(
            "i => { const app = window.jupyterapp; app.shell.currentWidget.content.activeCellIndex = i;"
            " app.commands.execute('notebook:run-cell'); }",
            index,
        )

    def ready(self) -> None:
        """Wait until the notebook is there and its kernel idle."""
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        self.page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
            timeout=60_000,
        )


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """A browser, with further flags of its command line."""
    arguments = [*FLAGS, *flags]
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=arguments) as browser,
    ):
        yield browser


@contextmanager
def fresh_page(context: BrowserContext, server: Server, width: int, height: int) -> Iterator[Page]:
    """A page in a profile that keeps of earlier pages only what may be cached: JupyterLab's files, compiled.

    A new profile for each test costs most of the browser's time. At the end its pages are closed, also those that the
    test opened: an open stream takes one of the few connections of a profile.
    """
    context.clear_cookies()
    page = context.new_page()
    try:
        debugger = context.new_cdp_session(page)
        kept = {"origin": server.url.rstrip("/"), "storageTypes": "local_storage,indexeddb"}
        debugger.send("Storage.clearDataForOrigin", kept)
        debugger.detach()
        page.set_viewport_size({"width": width, "height": height})
        yield page
    finally:
        for left in context.pages:
            left.close()


@contextmanager
def tab(context: BrowserContext, server: Server, path: str, *, width: int = 1200, height: int = 1000) -> Iterator[Tab]:
    """Open a notebook."""
    with fresh_page(context, server, width, height) as page:
        opened = Tab(page)
        page.on("console", lambda message: opened.console.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: opened.console.append(f"{error}\n{error.stack}"))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((server.url, server.url.replace("http", "ws"), "data:", "blob:"))
                else opened.foreign.append(request.url)
            ),
        )
        page.goto(f"{server.url}lab/tree/{path}?token={server.token}&reset")
        opened.ready()
        yield opened


def write_notebook(path: Path, cells: list[str], *, parameters: bool = False) -> None:
    """Write a notebook of code cells; with `parameters` the first one holds them."""
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells], metadata=metadata)
    if parameters:
        book.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(book, path)
