"""What every route of the extension declares: the scope that it asks for and its rule against other sites' pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

RESOURCE = "detlab"
"""What the server's authorizer is asked about."""
RULE = "detlab_rule"
HANDLES = TypeVar("HANDLES", bound=Callable[..., Awaitable[None]])


@dataclass(frozen=True, slots=True)
class Rule:
    """The requirements of a route's verb on its caller."""

    scope: Literal["read", "write"]
    """The action that the server's authorizer must allow on `RESOURCE`."""
    cross_site: Literal["origin", "xsrf"]
    """`origin`: a session counts on pages of this server only. `xsrf`: and only with the XSRF token."""


def reads(method: HANDLES) -> HANDLES:
    """Guard a verb that changes nothing."""
    return _guard(method, Rule("read", "origin"))


def writes(method: HANDLES) -> HANDLES:
    """Guard a verb that changes something."""
    return _guard(method, Rule("write", "xsrf"))


def _guard(method: HANDLES, rule: Rule) -> HANDLES:
    guarded: Any = web.authenticated(authorized(rule.scope, RESOURCE)(method))
    setattr(guarded, RULE, rule)
    kept: HANDLES = guarded
    return kept


def rule_of(handler: type[web.RequestHandler], verb: str) -> Rule | None:
    """Return the rule of a handler's verb, or None if it declares none."""
    found = getattr(getattr(handler, verb.lower(), None), RULE, None)
    return found if isinstance(found, Rule) else None


class GuardedHandler(APIHandler):
    """Base of all routes: one whose verbs declare no rule cannot be defined.

    Jupyter's base checks the origin of every session and, for what is not a GET, the XSRF token; so a GET that
    writes cannot be defined either.
    """

    auth_resource = RESOURCE

    def __init_subclass__(cls, **more: Any) -> None:
        """Check the verbs.

        Raises:
            TypeError: A verb declares no rule, or one that its method cannot keep.
        """
        super().__init_subclass__(**more)
        for verb in cls.SUPPORTED_METHODS:
            name = verb.lower()
            if verb == "OPTIONS" or getattr(cls, name, None) is getattr(APIHandler, name, None):
                continue  # inherited ones count as much: a verb may come from a mixin
            rule = rule_of(cls, verb)
            if rule is None:
                raise TypeError(f"{cls.__name__}.{verb.lower()} declares neither @reads nor @writes")
            if (rule.scope == "read") != (verb in {"GET", "HEAD"}):
                raise TypeError(
                    f"{cls.__name__}.{verb.lower()} may not {rule.scope}: a GET is not checked for an XSRF token"
                )
