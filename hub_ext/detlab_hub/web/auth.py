"""Authentication: Hub tokens and browser sessions by a request to the Hub, detlab's own tokens by the services."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from cachetools import TTLCache
from jupyterhub.httpclient import JupyterHubHTTPClient
from jupyterhub.services.auth import HubOAuth, HubOAuthenticated
from tornado import web

from detlab.errors import AuthError, Forbidden, Unavailable
from detlab_hub.services import Caller, Services
from detlab_hub.services.base.callers import ADMIN
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.web.crosssite import CrossSite, check_session
from detlab_hub.web.scopes import AnyCaller

OWN_PREFIXES = ("dttask_", "dtrun_", "dtagent_", "dtenrol_", "dthub_")
HUB_CACHE_SECONDS = 30
"""Seconds for which the Hub's answer about a token is valid; a revoked token works for at most this long."""

HUB_AWAY_SECONDS = 300
"""Seconds for which the Hub's last reply about a token stays valid while the Hub is down.

A restart of the Hub must interrupt no work. No token can be revoked meanwhile, as the Hub revokes them."""

CONFIRMED_TOKENS = 10_000
"""Most tokens whose last answer is kept."""

HUB_PATIENCE_SECONDS = 10

COOKIES = {"samesite": "Lax"}
"""Cookies are sent when a user follows a link to a page, and not with requests from another site's page."""

_HEADER = re.compile(r"\s*(?:token|bearer)\s+(\S+)\s*", re.IGNORECASE)


class HeaderOAuth(HubOAuth):
    """The Hub's OAuth client, which remembers whom it authenticated last while the Hub is down.

    It ignores tokens in URLs: those end up in logs and histories.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._confirmed: TTLCache[str, dict[str, Any]] = TTLCache(CONFIRMED_TOKENS, HUB_AWAY_SECONDS)
        self._asked: dict[str, asyncio.Task[dict[str, Any] | None]] = {}
        """What the Hub is being asked: requests of one token that come together wait for one answer, in their order."""

    def _get_token_url(self, handler: Any) -> str:
        return ""

    async def _check_hub_authorization(
        self, url: str, api_token: str, cache_key: str = "", use_cache: bool = True
    ) -> dict[str, Any] | None:
        if use_cache and cache_key in self.cache:
            cached: dict[str, Any] | None = self.cache[cache_key]
            return cached
        if not use_cache:
            return await self._ask_hub(url, api_token, cache_key)
        asked = self._asked.get(cache_key)
        if asked is None:
            asked = self._asked[cache_key] = asyncio.ensure_future(self._ask_hub(url, api_token, cache_key))
            asked.add_done_callback(lambda done: self._forget(cache_key, done))
        return await asyncio.shield(asked)

    def _forget(self, cache_key: str, done: asyncio.Task[dict[str, Any] | None]) -> None:
        del self._asked[cache_key]
        if not done.cancelled():
            done.exception()  # that is known to who waits, unless all of them have gone

    async def _ask_hub(self, url: str, api_token: str, cache_key: str) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(HUB_PATIENCE_SECONDS):
                model: dict[str, Any] | None = await super()._check_hub_authorization(url, api_token, use_cache=False)
                if (
                    model is None
                    and await super()._check_hub_authorization(url, self.api_token, use_cache=False) is None
                ):
                    # A Hub that cannot write to its database knows nobody: it notes each use of a token there.
                    raise web.HTTPError(502, "the Hub does not know the master's own token either")
        except (web.HTTPError, TimeoutError):
            model = self._confirmed.get(cache_key)
            if model is None:
                raise
        else:
            self._confirmed.pop(cache_key, None)
            if model is not None:
                self._confirmed[cache_key] = model
        self.cache[cache_key] = model  # of the last answer too: else each request would wait for the Hub again
        return model


def make_hub_auth(*, api_url: str, api_token: str, base_url: str, hub_prefix: str) -> HubOAuth:
    """Return the Hub's authenticator for the service `detlab`.

    Args:
        api_url: Where this process reaches the Hub's API, ends with `/hub/api`.
        api_token: The service's token for the Hub.
        base_url: The service's prefix, `/services/detlab/`.
        hub_prefix: The Hub's own public prefix, `/hub/`.
    """
    return HeaderOAuth(
        api_url=api_url,
        api_token=api_token,
        base_url=base_url,
        hub_prefix=hub_prefix,
        oauth_client_id="service-detlab",
        oauth_redirect_uri=f"{base_url}oauth_callback",
        cache_max_age=HUB_CACHE_SECONDS,
        allow_websocket_cookie_auth=False,
        cookie_options=COOKIES,
    )


async def close_hub_client() -> None:
    """Close this loop's connections to the Hub."""
    await JupyterHubHTTPClient.loop_instance().close()


class Recognized(HubOAuthenticated, web.RequestHandler):
    """A handler that the Hub's client can ask for its token or its session.

    Attributes:
        known_as: The user whose session came with the request, also when it is refused.
    """

    known_as: str | None = None


class Identifier:
    """Turns what came with a request into a caller.

    Args:
        hub: The Hub's authenticator.
        services: Resolves detlab's own tokens.
    """

    def __init__(self, hub: HubOAuth, services: Services) -> None:
        self.hub = hub
        self._services = services

    async def identify(self, handler: Recognized, rule: CrossSite) -> AnyCaller | None:
        """Return the caller, or None if the request carries no known credentials.

        An `Authorization` header decides alone: a wrong token is not rescued by a browser's cookie.

        Raises:
            AuthError: The header is malformed or its token unknown, or a session lacks the page's XSRF token.
            Forbidden: Another site's page uses a session.
            StaleAttempt: The attempt of a task token is over.
            Unavailable: The Hub, which knows its tokens, cannot be asked now.
        """
        header = handler.request.headers.get("Authorization")
        if header is None:
            return await self._by_cookie(handler, rule) if rule.sessions else None
        match = _HEADER.fullmatch(header)
        if match is None:
            raise AuthError("the Authorization header must be 'Bearer TOKEN' or 'token TOKEN'")
        bearer = match.group(1)
        caller = await self._by_token(bearer)
        if caller is None:
            raise AuthError(
                "the token is not known here: wrong, expired or revoked",
                hint="Check DET_TOKEN, or get a new one on the Hub's token page and run det login.",
            )
        handler._token_authenticated = True  # read by the Hub's XSRF code
        return caller

    async def _by_token(self, bearer: str) -> AnyCaller | None:
        if bearer.startswith(OWN_PREFIXES):
            return await self._services[Tokens].resolve(bearer)
        return self._person(await self._ask(self.hub.user_for_token(bearer, sync=False)))

    async def _by_cookie(self, handler: Recognized, rule: CrossSite) -> Caller | None:
        person = self._person(await self._ask(self.hub.get_user(handler, sync=False)))
        if person is not None:  # the Hub's client asks reading scripts for no XSRF token if they say no Sec-Fetch-Mode
            handler.known_as = person.name
            check_session(handler, rule)
        return person

    async def _ask(self, question: Any) -> dict[str, Any] | None:
        try:
            answer: dict[str, Any] | None = await question
        except (web.HTTPError, TimeoutError) as error:
            raise Unavailable(
                "the Hub cannot be asked about this token now",
                hint="Try again in a few seconds. If that does not help, see the Hub's log: a full disk, perhaps.",
            ) from error
        return answer

    def _person(self, model: dict[str, Any] | None) -> Caller | None:
        if model is None:
            return None
        if model.get("kind", "user") != "user":
            # a service named like a user must never pass for that user
            raise Forbidden(f"the Hub service {model['name']!r} is not a user", hint="Use a token of a user.")
        scopes = frozenset(str(scope) for scope in model.get("scopes", []))
        groups = frozenset(str(group) for group in model.get("groups") or [])
        return Caller(name=str(model["name"]), scopes=scopes, admin=ADMIN in scopes, groups=groups)
