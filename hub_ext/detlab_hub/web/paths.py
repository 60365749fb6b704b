"""The paths that a handler serves, declared at its class; `routes` makes the table of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tornado.web import RequestHandler

from detlab_hub.web.scopes import PEOPLE, Scope, operation_of

H = TypeVar("H", bound=type[RequestHandler])
_RELAYED = PEOPLE | {Scope.TASK}
"""Scopes of verbs that are relayed, always with a user's token: trials log by the same routes as people."""


@dataclass(frozen=True)
class Route:
    """One path of a handler."""

    path: str
    """Below the API's prefix, that of a page below the service's; parts in braces are arguments of the verbs."""
    page: bool = False
    protocol: bool = False
    """Whether it is of a protocol of other makers: below the service's prefix, and no page."""
    relayed: bool = False
    """Whether the Jupyter Server extension passes it on for the front ends in JupyterLab."""
    often: bool = False
    """Whether running tasks ask for it all the time: it is tried first, and has no part in braces."""


def route(path: str, *, relayed: bool = False, often: bool = False) -> Callable[[H], H]:
    """Serve a path of the API by a class.

    Args:
        path: Below the API's prefix, such as `experiments/{experiment_id}/trials`.
        relayed: Whether the Jupyter Server extension passes it on, with its user's token. Nothing else makes it do so.
        often: Whether running tasks ask for it all the time.

    Raises:
        ValueError: A path with parts in braces cannot be tried before others; or it is to be relayed, and a verb is not
            for people, or also for programs other than trials, which log as their owners do (at import).
    """
    if often and "{" in path:
        raise ValueError(f"{path}: only a whole path can be tried before all others")

    def declare(cls: H) -> H:
        if relayed:
            for verb in cls.SUPPORTED_METHODS:
                operation = operation_of(cls, verb)
                if operation is not None and not (operation.scopes & PEOPLE and operation.scopes <= _RELAYED):
                    raise ValueError(f"{path} cannot be relayed: {cls.__name__}.{verb.lower()} is not for people")
        _declare(cls, Route(path, relayed=relayed, often=often))
        return cls

    return declare


def page(*paths: str) -> Callable[[H], H]:
    """Serve paths below the service's prefix, outside of the API, by a class."""

    def declare(cls: H) -> H:
        _declare(cls, *(Route(path, page=True) for path in paths))
        return cls

    return declare


def protocol(*paths: str) -> Callable[[H], H]:
    """Serve paths below the service's prefix by a class, for clients of other makers."""

    def declare(cls: H) -> H:
        _declare(cls, *(Route(path, page=True, protocol=True) for path in paths))
        return cls

    return declare


def routes_of(cls: type) -> tuple[Route, ...]:
    """Return what a class declares for itself; what its bases declare is theirs."""
    found: tuple[Route, ...] = cls.__dict__.get("routes", ())
    return found


def _declare(cls: type[RequestHandler], *routes: Route) -> None:
    cls.routes = (*routes_of(cls), *routes)  # type: ignore[attr-defined]  # for routes_of
