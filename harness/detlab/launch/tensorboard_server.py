"""TensorBoard as a server of the Hub: its pages behind the Hub's login, in one process, on one port.

TensorBoard itself has no login, and a user who can open its port sees everything; so it gets no port. Its WSGI
application runs in threads of this process, behind a handler that authenticates the caller at the Hub.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyterhub import __version__ as hub_version
from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from tensorboard import default, program
from tornado import web, wsgi
from tornado.httpserver import HTTPServer

from detlab.launch.servers.idle_watch import REQUEST_MARK

THREADS = 8
RELOAD_SECONDS = 5
FEED_AGAIN_SECONDS = 5.0
OWN_PAGES = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Policy of what does not come from TensorBoard: refusals and redirects."""
FRAMES = "frame-ancestors 'self'"
"""Added to TensorBoard's own policy, which lets every page of the world put it into a frame."""
BEGUN_SECONDS = 15.0
"""How long the server waits for the first event files: a page that is loaded before them says that there is no data."""
AUTO_RELOAD = b"""// TensorBoard's page fetches new data by itself, unless its user has chosen otherwise.
for (const name of ['_tb_global_settings', '_tb_global_settings.timeseries']) {
  if (localStorage.getItem(name)) throw 'chosen';
}
localStorage.setItem('_tb_global_settings', JSON.stringify({autoReload: true, autoReloadPeriodInMs: 30001}));
"""
AUTO_RELOAD_NAME = "detlab-auto-reload.js"


class Mark:
    """Notes when the last request came, for the watcher beside this process.

    Args:
        path: File whose time is the note.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._touched = 0.0

    def touch(self) -> None:
        """Note a request; at most once a second."""
        now = time.monotonic()
        if now - self._touched >= 1.0:
            self._touched = now
            self._path.touch()


class Guarded(web.RequestHandler):
    """Base of the answers that are ours."""

    def set_default_headers(self) -> None:
        """Forbid all that a page could do: none of these is one."""
        self.set_header("Content-Security-Policy", OWN_PAGES)
        self.set_header("X-Content-Type-Options", "nosniff")


class TensorBoardFront(HubOAuthenticated, Guarded):
    """Lets the owner (and whom the Hub allows) through to TensorBoard."""

    SUPPORTED_METHODS = ("GET", "HEAD", "POST")

    def check_xsrf_cookie(self) -> None:
        """Take requests of pages of this site: TensorBoard's own scripts cannot send the Hub's token.

        Browsers say `Sec-Fetch-Site` over TLS and on the same machine only, `Origin` with every POST.

        Raises:
            HTTPError: 403, if the request comes from another site.
        """
        site, origin = (self.request.headers.get(name) for name in ("Sec-Fetch-Site", "Origin"))
        if site is None and origin is None:
            raise web.HTTPError(403, "a request with a cookie that does not say which page it comes from")
        elsewhere = origin is not None and origin.partition("://")[2].lower() != self.request.host.lower()
        if elsewhere or site not in {None, "same-origin", "none"}:
            raise web.HTTPError(403, "cross-site request")

    async def prepare(self) -> None:
        """Check the login with the Hub, then pass the request to TensorBoard.

        Raises:
            HTTPError: 403, for a request other than GET or HEAD without a login; those are sent to the login page.
        """
        await self.hub_auth.get_user(self, sync=False)
        if self.current_user is None:
            if self.request.method not in {"GET", "HEAD"}:
                raise web.HTTPError(403)
            self.redirect(self.get_login_url())
            return
        self.settings["mark"].touch()
        self.settings["tensorboard"](self.request)
        self._finished = True
        self.on_finish()


class Alive(Guarded):
    """The page by which the Hub checks whether the server is up; it reveals nothing else."""

    def get(self) -> None:
        """Answer."""
        self.set_header("X-JupyterHub-Version", hub_version)
        self.finish({"version": hub_version})


class Callback(Guarded, HubOAuthCallbackHandler):
    """The last step of a browser's login."""


def framed(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application whose pages only pages of this site may put into a frame."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            name = "content-security-policy"
            policies = [value for key, value in headers if key.lower() == name]
            kept = [(key, value) for key, value in headers if key.lower() != name]
            return start_response(status, [*kept, (name, "; ".join([*policies, FRAMES]))], *more)

        return app(environ, start)

    return guarded


def reloading(app: Callable[..., Iterable[bytes]], prefix: str) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application whose first page turns its automatic reload on.

    Args:
        app: TensorBoard's.
        prefix: Of its paths, with a slash at its end.
    """

    def extended(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == f"{prefix}{AUTO_RELOAD_NAME}":
            start_response("200 OK", [("Content-Type", "text/javascript"), ("Content-Length", str(len(AUTO_RELOAD)))])
            return [AUTO_RELOAD]
        if path not in {prefix, f"{prefix}index.html"} or environ.get("REQUEST_METHOD") != "GET":
            return app(environ, start_response)
        said: list[Any] = []
        plain = {key: value for key, value in environ.items() if key != "HTTP_ACCEPT_ENCODING"}
        page = b"".join(app(plain, lambda *answer: said.extend(answer)))
        page = page.replace(b"<script", f'<script src="{AUTO_RELOAD_NAME}"></script><script'.encode(), 1)
        headers = [(key, value) for key, value in said[1] if key.lower() != "content-length"]
        start_response(said[0], [*headers, ("Content-Length", str(len(page)))])
        return [page]

    return extended


def make_application(tensorboard: Any, prefix: str, mark: Mark) -> web.Application:
    """Return the application: TensorBoard's own, behind the Hub's login."""
    workers = ThreadPoolExecutor(THREADS, thread_name_prefix="tensorboard")
    container = wsgi.WSGIContainer(framed(reloading(tensorboard, prefix)), workers)
    return web.Application(
        [(f"{prefix}api", Alive), (f"{prefix}oauth_callback", Callback), (r".*", TensorBoardFront)],
        cookie_secret=os.urandom(32),
        tensorboard=container,
        mark=mark,
    )


class HubServer(program.TensorBoardServer):
    """Serves TensorBoard's application; what `tensorboard.program` asks of a server."""

    def __init__(self, wsgi_app: Any, flags: Any) -> None:
        self._app = wsgi_app
        self._url = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])

    def get_url(self) -> str:
        """Return where it listens."""
        return self._url.geturl()

    def serve_forever(self) -> None:
        """Serve until the process ends."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        mark = Mark(Path(os.environ["DET_TASK_DIR"]) / REQUEST_MARK)
        server = HTTPServer(make_application(self._app, self._url.path, mark), xheaders=True)
        server.listen(self._url.port or 80, address=self._url.hostname)
        await asyncio.Event().wait()


def await_first_files(logs: Path) -> None:
    """Wait until the event files of what has been reported so far exist, for a limited time."""
    pause, deadline = threading.Event(), time.monotonic() + BEGUN_SECONDS
    while not (logs / "begun").exists() and time.monotonic() < deadline:
        pause.wait(0.05)


def keep_feeding(logs: Path) -> None:
    """Have the event files written beside this process, again when that fails."""
    command = [sys.executable, "-m", "detlab.run.tensorboard", "--dir", str(logs)]
    pause = threading.Event()
    while subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        pause.wait(FEED_AGAIN_SECONDS)


def main() -> int:
    """Fetch the event files and serve them."""
    logs = Path(os.environ["DET_TASK_DIR"]) / "tensorboard"
    logs.mkdir(mode=0o700, exist_ok=True)
    threading.Thread(target=keep_feeding, args=(logs,), name="event files", daemon=True).start()
    prefix = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]).path.rstrip("/")
    await_first_files(logs)
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=HubServer)
    board.configure(
        argv=[
            "tensorboard",
            *("--logdir", str(logs)),
            *("--path_prefix", prefix),
            # the data server would be a second process with an open port
            *("--load_fast", "false"),
            *("--reload_interval", str(RELOAD_SECONDS)),
        ]
    )
    return int(board.main() or 0)


if __name__ == "__main__":
    sys.exit(main())
