"""The page at `/services/detlab/`: the cluster at a glance, rendered here, without a script."""

from __future__ import annotations

import importlib.resources
import time
from typing import Any
from urllib.parse import quote

from tornado import template

from detlab.schemas.wire import ExperimentView
from detlab_hub.web.base import Guarded
from detlab_hub.web.scopes import needs

_HERE = importlib.resources.files("detlab_hub.web")
_STYLE = (_HERE / "static" / "style.css").read_bytes()
_LANDING = template.Template((_HERE / "templates" / "landing.html").read_text(encoding="utf-8"), name="landing.html")
# autoescape is tornado's default (xhtml_escape); the template never says {% raw %}

_RECENT = 20


class Landing(Guarded):
    """The page."""

    login_redirect = True

    @needs("read", media="text/html")
    async def get(self) -> None:
        """Show the cluster, its agents and the caller's recent experiments."""
        caller = self.person
        items, _ = await self.services.experiments.list(
            caller, limit=_RECENT, before=None, state=None, owner=None, name=None
        )
        page = _LANDING.generate(
            user=caller,
            cluster=await self.services.cluster.view(caller),
            agents=await self.services.agents.list(caller),
            experiments=[_row(item) for item in items],
            server_url=f"{self.settings['hub_public_url']}spawn/{quote(caller.name, safe='')}",
            home_url=f"{self.settings['hub_public_url']}home",
            style_url=f"{self.hub_auth.base_url}static/style.css",
        )
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.finish(page)


class StyleSheet(Guarded):
    """The page's style."""

    @needs("public", media="text/css")
    async def get(self) -> None:
        """Return the style sheet."""
        self.set_header("Content-Type", "text/css; charset=UTF-8")
        self.set_header("Cache-Control", "max-age=300")
        self.finish(_STYLE)


def _row(view: ExperimentView) -> dict[str, Any]:
    done = sum(view.trials.get(state, 0) for state in ("COMPLETED", "CANCELED", "ERROR"))
    total, running = view.trials_total, view.trials.get("RUNNING", 0)
    percent = 100 if view.state.terminal and view.state == "COMPLETED" else round(100 * view.progress)
    return {
        "id": view.id,
        "name": view.name,
        "owner": view.owner,
        "state": view.state.value.replace("_", " ").lower(),
        "tone": _tone(view.state.value),
        "percent": max(0, min(100, percent)),
        "trials": f"{done} of {total} ended" if total else f"{done} ended",
        "running": f", {running} running" if running else "",
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
