"""The pages at `/services/detlab/`: the shell of the hub page, its static files, and a page that needs no script.

The shell holds no user's data: a policy that allows no inline script or style, the names of its files, and the
token that its requests carry. Everything else is fetched by `hub.js` from the API.
"""

from __future__ import annotations

import importlib.resources
import time
from typing import Any
from urllib.parse import quote, urlsplit

from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado import template, web

import detlab
from detlab.errors import NotFound
from detlab.schemas.wire import API_PREFIX, ExperimentView, Wire
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.web.assets import Asset, asset
from detlab_hub.web.base import Guarded, NoSuchRoute, error_view, status_of
from detlab_hub.web.crosssite import is_local
from detlab_hub.web.paths import page
from detlab_hub.web.scopes import needs
from detlab_hub.web.visible import shown

_HERE = importlib.resources.files("detlab_hub.web") / "templates"
_SHELL = template.Template((_HERE / "shell.html").read_text(encoding="utf-8"), name="shell.html")
_PLAIN = template.Template((_HERE / "plain.html").read_text(encoding="utf-8"), name="plain.html", autoescape="shown")
_ERROR = template.Template((_HERE / "error.html").read_text(encoding="utf-8"), name="error.html", autoescape="shown")
# No template says {% raw %}. What people read is escaped by `shown`; what the script reads, in the shell, by tornado's
# own xhtml_escape: there a name has to stay the name that it is.

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self';"
    # Of attributes, those two that plotly.js sets by markup: none, and the small digits of a power of ten.
    " style-src-attr 'unsafe-hashes' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    " 'sha256-S+l+cz1wXqs2B0FcjqqT7NvjwGmhD1UjJswXjlSkj0s=';"
    " img-src 'self' data:; media-src 'self'; frame-src 'self'; font-src 'self';"
    " connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""The content policy of the hub page: its own files, and nothing inline but two styles, by their digests."""

VIEWS = (
    "new",
    "work",
    "experiments",
    "trials",
    "runs",
    "schedules",
    "queue",
    "cluster",
    "compare",
    "models",
    "artifacts",
    "storage",
    "workspaces",
    "shared",
    "templates",
    "notifications",
    "settings",
    "nodes",
    "everybody",
    "quotas",
    "usage",
    "tokens",
    "audit",
    "log",
    "service",
)
"""Views with an address of their own, beside those of one object; the script tells them apart."""

_RECENT = 20
_FOREVER = "public, max-age=31536000, immutable"


_TITLES = {403: "No permission", 404: "Not found", 405: "Not found", 503: "Not now"}


class BrowserRoute(Guarded):
    """Base of routes whose refusals are pages for browsers; programs get the API's `ErrorView`."""

    @property
    def wants_page(self) -> bool:
        """Whether a browser requests a page."""
        path = urlsplit(self.request.uri or "").path
        api = path.startswith(self.hub_auth.base_url + API_PREFIX)
        return not api and "text/html" in self.request.headers.get("Accept", "")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send a page that says what is wrong and links to the start page."""
        self.set_header("Vary", "Accept")
        if not self.wants_page:
            super().write_error(status_code, **kwargs)
            return
        error = kwargs.get("exc_info", (None, web.HTTPError(status_code), None))[1]
        status, view = status_of(error), error_view(error)
        self.set_status(status)
        page = _ERROR.generate(
            shown=shown,
            title=_TITLES.get(status, "Error"),
            message=view.message[:1].upper() + view.message[1:],
            hint=view.hint,
            status=status,
            home_url=self.hub_auth.base_url,
            hub_url=f"{self.settings['hub_public_url']}home",
            style_url=self.address("style.css"),
        )
        self.write_page(page)

    def address(self, name: str) -> str:
        """Return the address of an asset, "" if it was not built."""
        found = asset(name)
        return found.url(self.hub_auth.base_url) if found else ""

    def write_page(self, page: bytes) -> None:
        """Send a page."""
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.finish(page)


class Nowhere(BrowserRoute, NoSuchRoute):
    """Everything under the prefix that is no route."""

    @needs("public", cross_site="open")
    async def get(self) -> None:
        """Say that nothing is there; the prefix without its slash leads to the page."""
        path = urlsplit(self.request.uri or "").path
        if f"{path}/" == self.hub_auth.base_url:
            self.redirect(self.hub_auth.base_url)
        elif self.wants_page:
            raise NotFound(f"there is nothing at {path[:200]}", hint="The address may be mistyped.")
        else:
            await super().get()

    head = post = put = patch = delete = options = get


class Page(BrowserRoute):
    """Base of the pages that a browser opens."""

    login_redirect = True

    def shell(self) -> None:
        """Send the shell, or the way to the plain page where the script was not built."""
        if asset("hub.js") is None:
            self.redirect(f"{self.hub_auth.base_url}plain")
            return
        base, hub = self.hub_auth.base_url, self.settings["hub_public_url"]
        self.set_header("Content-Security-Policy", POLICY)
        page = _SHELL.generate(
            address=self.address,
            caller=self.person,
            metas={
                "base": base,
                "hub": hub,
                "xsrf": self.xsrf_token.decode("ascii"),
                "user": self.person.name,
                "version": detlab.__version__,
                "schema": self.address("experiment.schema.json"),
                "plotly": self.address("plotly.js"),
                "bundle-limit": str(self.services.settings.bundle_limit),
            },
            plain_url=f"{base}plain",
        )
        self.write_page(page)


@page("", *VIEWS)
class Shell(Page):
    """The hub page, at any of its views."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self) -> None:
        """Show the hub page."""
        self.shell()


@page("experiments/{experiment_id}")
class ExperimentPage(Page):
    """The hub page at an experiment."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, experiment_id: int) -> None:
        """Show the hub page; its script asks for the experiment and says so if there is none."""
        self.shell()


@page("trials/{trial_id}")
class TrialPage(Page):
    """The hub page at a trial."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, trial_id: int) -> None:
        """Show the hub page; its script asks for the trial and says so if there is none."""
        self.shell()


@page("runs/{run_id}")
class TrackedRunPage(Page):
    """The hub page at a run that no cluster started."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, run_id: str) -> None:
        """Show the hub page; its script asks for the run and says so if there is none."""
        self.shell()


@page("tasks/{task_id}")
class TaskPage(Page):
    """The hub page at a task."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, task_id: str) -> None:
        """Show the hub page; its script asks for the task and says so if there is none."""
        self.shell()


@page("models/{model}", "models/{model}/compare")
class ModelPage(Page):
    """The hub page at a registered model, or at the comparison of its versions."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, model: str) -> None:
        """Show the hub page; its script asks for the model and says so if there is none."""
        self.shell()


@page("models/{model}/versions/{version}")
class ModelVersionPage(Page):
    """The hub page at a version of a model."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, model: str, version: str) -> None:
        """Show the hub page; its script asks for the version and says so if there is none."""
        self.shell()


@page("artifacts/{artifact}")
class ArtifactPage(Page):
    """The hub page at an artifact."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, artifact: str) -> None:
        """Show the hub page; its script asks for the artifact and says so if there is none."""
        self.shell()


@page("artifacts/{artifact}/versions/{version}")
class ArtifactVersionPage(Page):
    """The hub page at a version of an artifact."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, artifact: str, version: str) -> None:
        """Show the hub page; its script asks for the version and says so if there is none."""
        self.shell()


@page("workspaces/{workspace}")
class WorkspacePage(Page):
    """The hub page at a workspace."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, workspace: str) -> None:
        """Show the hub page; its script asks for the workspace and says so if there is none."""
        self.shell()


@page("workspaces/{workspace}/projects/{project}")
class ProjectPage(Page):
    """The hub page at a project of a workspace."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self, workspace: str, project: str) -> None:
        """Show the hub page; its script asks for the project and says so if there is none."""
        self.shell()


@page("plain")
class Plain(Page):
    """The cluster at a glance, rendered here, without a script."""

    @needs("read", cross_site="page", media="text/html")
    async def get(self) -> None:
        """Show the cluster, its agents and the caller's recent experiments."""
        caller = self.person
        items, _ = await self.services[Experiments].list(
            caller, limit=_RECENT, before=None, state=None, owner=None, name=None
        )
        page = _PLAIN.generate(
            shown=shown,
            user=caller,
            cluster=await self.services[Cluster].view(caller),
            agents=await self.services[Agents].list(caller),
            experiments=[_row(item) for item in items],
            server_url=f"{self.settings['hub_public_url']}spawn/{quote(caller.name, safe='')}",
            home_url=f"{self.settings['hub_public_url']}home",
            page_url=self.hub_auth.base_url if asset("hub.js") else "",
            usage_url=f"{self.hub_auth.base_url}{API_PREFIX}usage?format=csv",
            style_url=self.address("style.css"),
            icon_url=self.address("icon.svg"),
        )
        self.write_page(page)


class VersionQuery(Wire):
    """Which version of an asset is meant."""

    v: str = ""


@page("static/{asset_name}")
class StaticFile(Guarded):
    """A file that pages load."""

    @needs("public", cross_site="open", media="application/octet-stream")
    async def get(self, asset_name: str, query: VersionQuery) -> None:
        """Return an asset: for ever under its version, else to be asked for again."""
        found = asset(asset_name)
        if found is None:
            raise NotFound(f"there is no file {asset_name!r} here", hint="Reload the page.")
        self.set_header("Content-Type", found.media)
        self.set_header("Cache-Control", _FOREVER if query.v == found.digest else "no-cache")
        self.set_header("ETag", found.etag)
        self.set_header("Vary", "Accept-Encoding")
        if found.digest in self.request.headers.get("If-None-Match", ""):
            self.set_status(304)
            self.finish()
        else:
            self.finish(self._coded(found))

    def _coded(self, found: Asset) -> bytes:
        if found.packed is None or "gzip" not in self.request.headers.get("Accept-Encoding", ""):
            return found.body
        self.set_header("Content-Encoding", "gzip")
        return found.packed


def _row(view: ExperimentView) -> dict[str, Any]:
    done = sum(view.trials.get(state, 0) for state in ("COMPLETED", "CANCELED", "ERROR"))
    total = view.trials_total
    percent = 100 if view.state.terminal and view.state == "COMPLETED" else round(100 * view.progress)
    return {
        "id": view.id,
        "name": view.name,
        "owner": view.owner,
        "state": view.state.value.replace("_", " ").lower(),
        "tone": _tone(view.state.value),
        "percent": max(0, min(100, percent)),
        "trials": f"{done} of {total} ended" if total else f"{done} ended",
        "running": f", {view.held}" if view.held else "",
        "metric": view.metric,
        "best": f"{view.best.value:.5g}" if view.best else "",
        "started": time.strftime("%Y-%m-%d %H:%M", time.localtime(view.created_at)),
        "note": view.pending_reason or "",
    }


def _tone(state: str) -> str:
    match state:
        case "ACTIVE":
            return "busy"
        case "COMPLETED":
            return "good"
        case "ERROR" | "STOPPING_ERROR":
            return "bad"
    return "calm"


@page("oauth_callback")
class OAuthCallback(Guarded, HubOAuthCallbackHandler):
    """Last step of a browser's login; the Hub sends it here."""

    @needs("public", cross_site="open", media="text/html")
    async def get(self) -> None:
        """Finish a browser's login and go back to the page it came from."""
        await HubOAuthCallbackHandler.get(self)

    def redirect(self, url: str, permanent: bool = False, status: int | None = None) -> None:
        """Redirect within this site only, whatever the login's state says."""
        super().redirect(url if is_local(url) else self.hub_auth.base_url, permanent, status)
