"""The table of routes, made from what the handlers declare, and the application made from it."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tornado.web import Application

from detlab.schemas.wire import API_PREFIX, SERVICE_PREFIX
from detlab.schemas.wire.cluster.master import MasterSetting
from detlab_hub import web as package
from detlab_hub.services import Services
from detlab_hub.services.base.threads import Tickets
from detlab_hub.web import auth, pages
from detlab_hub.web.base import REPLIES, REPLIES_PER_USER, Guarded, access_log
from detlab_hub.web.bodies import BodyLimits
from detlab_hub.web.openapi import describe
from detlab_hub.web.openstreams import Streams
from detlab_hub.web.paths import Route, routes_of


def handlers() -> Iterator[type[Guarded]]:
    """Yield the classes of handlers in all modules of this package."""
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for cls in vars(importlib.import_module(info.name)).values():
            if isinstance(cls, type) and issubclass(cls, Guarded) and cls.__module__ == info.name:
                yield cls


def declared(classes: Iterable[type[Guarded]]) -> list[tuple[Route, type[Guarded]]]:
    """Return what handlers declare, in the order in which it is tried.

    Raises:
        ValueError: Two of them declare the same path.
    """
    found: dict[tuple[bool, str], tuple[Route, type[Guarded]]] = {}
    for cls in classes:
        for route in routes_of(cls):
            _, other = found.setdefault((route.page, re.sub(r"\{\w+\}", "{}", route.path)), (route, cls))
            if other is not cls:
                raise ValueError(f"{route.path} is served by {other.__qualname__} and by {cls.__qualname__}")
    return sorted(found.values(), key=lambda one: _order(one[0]))


def _order(route: Route) -> tuple[bool, list[tuple[bool, str]]]:
    """Words before parts in braces, which would fit them too; first of all what running tasks ask for all the time."""
    return not route.often, [(part.startswith("{"), part) for part in route.path.split("/")]


_DECLARED = declared(handlers())
API: list[tuple[str, type[Guarded]]] = [(route.path, cls) for route, cls in _DECLARED if not route.page]
"""Path below `/services/detlab/api/v1/` and its handler."""
PAGES: list[tuple[str, type[Guarded]]] = [
    (route.path, cls) for route, cls in _DECLARED if route.page and not route.protocol
]
"""Path below `/services/detlab/` and its handler."""
PROTOCOLS: list[tuple[str, type[Guarded]]] = [(route.path, cls) for route, cls in _DECLARED if route.protocol]
"""The same for protocols of other makers, which have errors of their own."""
RELAYED: list[str] = [route.path for route, _ in _DECLARED if route.relayed]
"""The paths of the API that the Jupyter Server extension passes on."""

_PATTERNS = {
    "experiment_id": r"[0-9]{1,18}",
    "trial_id": r"[0-9]{1,18}",
    "media_id": r"[0-9]{1,18}",
    "object_id": r"[0-9]{1,18}",
    "alert_rule": r"[0-9]{1,18}",
    "schedule": r"[0-9]{1,18}",
    "artifact_path": r".+",
    "anything": r".*",
}


def pattern_of(path: str) -> str:
    """Return the regular expression of a route; ids are digits, else one segment, but for paths of files."""
    parts = re.split(r"\{(\w+)\}", path)
    literal = [re.escape(part) for part in parts[::2]]
    groups = [f"(?P<{name}>{_PATTERNS.get(name, '[^/]+')})" for name in parts[1::2]]
    return "".join(text + group for text, group in zip(literal, [*groups, ""], strict=True))


def rules(prefix: str = SERVICE_PREFIX) -> list[tuple[str, type[Guarded]]]:
    """Return the router's rules: full patterns and handlers, the API first."""
    found = [(re.escape(prefix + API_PREFIX) + pattern_of(path), cls) for path, cls in API]
    return found + [(re.escape(prefix) + pattern_of(path), cls) for path, cls in PAGES + PROTOCOLS]


@dataclass(frozen=True)
class WebSettings:
    """The web layer's settings, besides the services."""

    cookie_secret: bytes
    hub_public_url: str
    """Public prefix of the Hub for links, such as `/hub/`."""
    background: Callable[[Coroutine[Any, Any, None]], object]
    """Runs a coroutine that outlives its request, and keeps it referenced."""
    prefix: str = SERVICE_PREFIX
    shown_settings: Callable[[], list[MasterSetting]] = list
    """How the master is set up, with secrets masked."""


def make_application(services: Services, identifier: auth.Identifier, settings: WebSettings) -> Application:
    """Return the tornado application of the master."""
    told = services.settings
    return Application(
        [(pattern + "$", cls) for pattern, cls in rules(settings.prefix)],
        default_handler_class=pages.Nowhere,
        log_function=access_log,
        services=services,
        identifier=identifier,
        streams=Streams(told.limits, told.stream_bytes_per_user, told.stream_slow_limit),
        bodies=BodyLimits(),
        replies=Tickets("bytes of replies", REPLIES_PER_USER, REPLIES),
        background=settings.background,
        hub_public_url=settings.hub_public_url,
        prefix=settings.prefix,
        shown_settings=settings.shown_settings,
        templates={cls: path for path, cls in [*reversed(PROTOCOLS), *reversed(PAGES), *reversed(API)]},
        openapi=cache(lambda: describe([(settings.prefix + API_PREFIX + path, cls) for path, cls in API])),
        cookie_secret=settings.cookie_secret,
        xsrf_cookie_kwargs=dict(auth.COOKIES),
        websocket_ping_interval=20,
        websocket_ping_timeout=20,
        websocket_max_message_size=AGENT_MESSAGE_LIMIT,
    )


AGENT_MESSAGE_LIMIT = 2 * 1024 * 1024
"""Bytes of one message of an agent; one with more ends the connection."""


class Background:
    """Coroutines that outlive the request which started them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine and keep it referenced until it is done."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until all of them are done."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
