"""An extension of Jupyter's server for the census: tells which routes the running server has and what they declare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tornado import web, websocket
from tornado.routing import Router, RuleRouter

from detlab_server.guard import RULE, GuardedHandler, Rule, rule_of


class Undeclared(web.RequestHandler):
    """Planted: a route of detlab's that declares nothing."""

    def get(self) -> None:
        """Answer."""


class UndeclaredSocket(websocket.WebSocketHandler):
    """Planted: a WebSocket of detlab's that declares nothing."""

    def on_message(self, message: str | bytes) -> None:
        """Hear."""


def handlers(router: Router) -> Iterator[tuple[str, type[web.RequestHandler]]]:
    """Yield (pattern, handler) of every rule below a router."""
    assert isinstance(router, RuleRouter)
    for rule in router.rules:
        if isinstance(rule.target, Router):
            yield from handlers(rule.target)
        elif isinstance(rule.target, type):
            pattern = getattr(getattr(rule.matcher, "regex", None), "pattern", "")
            yield pattern, rule.target


def is_ours(pattern: str, handler: type[web.RequestHandler]) -> bool:
    """Whether a rule is detlab's, by its path or by where it is made."""
    return "detlab" in pattern or handler.__module__.partition(".")[0].startswith("detlab")


def routes(router: Router) -> list[dict[str, Any]]:
    """Return every verb of every route of detlab's: pattern, handler, verb, rule or None, socket or not."""
    found = []
    for pattern, handler in handlers(router):
        for verb in handler.SUPPORTED_METHODS if is_ours(pattern, handler) else ():
            method = getattr(handler, verb.lower())
            socket = issubclass(handler, websocket.WebSocketHandler)
            if method is getattr(web.RequestHandler, verb.lower()) or verb == "OPTIONS":
                continue
            rule: Rule | None = rule_of(handler, verb)
            if socket and method is websocket.WebSocketHandler.get:
                rule = None
            guarded = issubclass(handler, GuardedHandler)
            found.append(
                {
                    "pattern": pattern,
                    "handler": handler.__name__,
                    "verb": verb,
                    "socket": socket,
                    "rule": asdict(rule) if rule is not None and guarded else None,
                }
            )
    return found


class WalkHandler(web.RequestHandler):
    """GET walk: all of the above, of this very server."""

    def get(self) -> None:
        """Answer."""
        self.finish(json.dumps(routes(self.application.default_router)))

    get.__dict__["__allow_unauthenticated"] = True
    get.__dict__[RULE] = None


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "lab_router_walk"}]


def _load_jupyter_server_extension(server: Any) -> None:
    planted = server.web_app.settings["base_url"] + "planted"
    server.web_app.add_handlers(
        ".*$",
        [
            (planted + "/walk", WalkHandler),
            (planted + "/detlab/nothing", Undeclared),
            (planted + "/detlab/socket", UndeclaredSocket),
        ],
    )
