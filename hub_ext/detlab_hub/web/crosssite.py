"""Requests that other sites' pages can make with a user's browser: the rule that every verb declares.

Browsers send a session's cookie with every request, from the page of any site. So a session counts only where a verb's
rule permits it, and tokens in the `Authorization` header, which no foreign page can send, count independent of the
rule.
"""

from __future__ import annotations

import hmac
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest

from detlab.errors import AuthError, Forbidden

XSRF_HEADER = "X-XSRFToken"
READING = frozenset({"GET", "HEAD"})
_TOLD = 200
"""Characters of a header in a refusal."""
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class CrossSite(StrEnum):
    """When a browser's session counts."""

    OPEN = "open"
    """It is ignored: all callers get the same reply."""
    TOKEN = "token"  # noqa: S105 - a rule's name
    """Never: the callers are programs, which send a token."""
    BEARER = "bearer"
    """Never, though people may call it: by programs of other makers, which send a token of theirs."""
    PAGE = "page"
    """On navigation from any site. Only for verbs that change nothing, with replies that no other site can read."""
    LINK = "link"
    """When a page of this site, or the person, leads there: files to save. Scripts send the XSRF token."""
    XSRF = "xsrf"
    """For scripts of this site's own pages, which send the XSRF token; for reading and for writing."""

    @property
    def sessions(self) -> bool:
        """Whether a session ever counts."""
        return self not in {CrossSite.OPEN, CrossSite.TOKEN, CrossSite.BEARER}


class Handler(Protocol):
    """The checked attributes of a handler."""

    request: HTTPServerRequest

    @property
    def xsrf_token(self) -> bytes:
        """The token that the Hub gave this session's pages."""


def check_session(handler: Handler, rule: CrossSite) -> None:
    """Check whether a session may be used, before it counts.

    Raises:
        Forbidden: Another site's page asks.
        AuthError: The rule asks for the XSRF token, and it is missing or wrong.
    """
    headers = handler.request.headers
    mode = headers.get("Sec-Fetch-Mode")
    if rule is CrossSite.PAGE and mode in {None, "navigate"}:
        return
    if not from_own_page(handler.request):
        raise _refusal(handler.request, rule)
    if rule is CrossSite.LINK and _led_here(handler.request):
        return
    given = headers.get(XSRF_HEADER, "")
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), handler.xsrf_token):
        raise AuthError(
            f"a browser's session counts here only with the page's XSRF token in {XSRF_HEADER}",
            hint="Reload the page; a program sends 'Authorization: Bearer TOKEN' instead.",
        )


def _refusal(request: HTTPServerRequest, rule: CrossSite) -> Forbidden:
    """Make the reply to a request that another site's page seems to have made."""
    if rule is CrossSite.LINK and request.headers.get("Sec-Fetch-Mode") == "navigate":
        return Forbidden(
            "a link on a page of another site leads to a file here, which only this site's own links may save",
            hint="Copy its address into the browser's address bar, or save the file from the cluster's hub page.",
        )
    hint = "Use the hub page of this cluster, or send a token in the Authorization header."
    origin = request.headers.get("Origin")
    if origin is not None and not _is_own(origin, request):
        host = request.host[:_TOLD]
        hint += (
            f" The page's Origin is {origin[:_TOLD]!r}, and the request came here with the Host {host!r}. If both are"
            " this cluster, the server in front must leave Host as the browser sent it (nginx:"
            " proxy_set_header Host $http_host)."
        )
    return Forbidden("a page of another site may not use your session here", hint=hint)


def from_own_page(request: HTTPServerRequest) -> bool:
    """Whether nothing in the request says that another site's page made it."""
    if request.headers.get("Sec-Fetch-Site") not in {None, "same-origin", "none"}:
        return False
    origin = request.headers.get("Origin")
    return origin is None or _is_own(origin, request)


def _led_here(request: HTTPServerRequest) -> bool:
    """Whether this site's page led to a file, or the person did; old browsers say it by `Referer` only."""
    site, mode = (request.headers.get(f"Sec-Fetch-{name}") for name in ("Site", "Mode"))
    if site is None:
        return mode is None and _is_own(request.headers.get("Referer", ""), request)
    return site in {"same-origin", "none"} and mode in {"navigate", "no-cors"}


def _is_own(address: str, request: HTTPServerRequest) -> bool:
    """Whether an address is of the site that this request came to; servers in front leave `Host` as it is."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    port = _DEFAULT_PORTS.get(parts.scheme)
    return port is not None and _name(parts.netloc, port) == _name(request.host, port)


def _name(netloc: str, port: str) -> str:
    return netloc.lower().removesuffix(port)


def misdeclared(rule: CrossSite, verb: str, *, public: bool, people: bool) -> str | None:
    """Say why a verb cannot keep its rule, or None.

    Args:
        rule: What it declares.
        verb: Its HTTP method.
        public: Whether everybody may call it.
        people: Whether people may.
    """
    if (rule is CrossSite.OPEN) != public:
        return "what is public is open to all sites, and nothing else is"
    if (not people) if rule is CrossSite.BEARER else rule.sessions != people:
        return "sessions are people's: a verb for people says when theirs counts, one for programs takes none"
    if rule in {CrossSite.PAGE, CrossSite.LINK} and verb not in READING:
        return f"a {verb} asks for the XSRF token"
    return None


def is_local(url: Any) -> bool:
    """Whether a browser sent there stays on this site: a path, written so that no browser reads a host out of it."""
    text = str(url)
    return text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
