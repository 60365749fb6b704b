"""The master's client of its Hub: start, stop and list named servers. Authentication stays with the Hub."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from detlab import loopback
from detlab.errors import Conflict, DetlabError, Forbidden, NotFound, Unavailable
from detlab.trust import system_trust

_log = logging.getLogger(__name__)
CALL_SECONDS = 30.0
"""The Hub holds a start for ten seconds before it replies that it is in progress."""
PAGE = 200
_UNKNOWN = frozenset({401, 403})
_PAGED = {"Accept": "application/jupyterhub-pagination+json"}


@dataclass(frozen=True, slots=True)
class ServerOfHub:
    """One server that the Hub has, running or on its way."""

    owner: str
    name: str


class HubServers:
    """Calls of the Hub's REST API by the token of the service `detlab` (scopes servers, read:users, list:users).

    Args:
        url: Ends with `/hub/api`.
        token: The service's.
    """

    def __init__(self, url: str, token: str) -> None:
        self._client = httpx.AsyncClient(
            base_url=url,
            event_hooks=loopback.async_hooks(url),
            headers={"Authorization": f"token {token}"},
            timeout=CALL_SECONDS,
            trust_env=False,
            verify=system_trust(url),  # without TLS, reading certificates (50 ms) has no use
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def start(self, owner: str, name: str, options: dict[str, Any], display_name: str = "") -> None:
        """Start a named server; returns when the Hub has accepted it, whether it is up or not.

        Raises:
            Unavailable: The Hub does not answer, or is overloaded.
            DetlabError: It refuses.
        """
        body: dict[str, Any] = {"user_options": options}
        if display_name:
            body["display_name"] = display_name
        await self._call("POST", _path(owner, name), json=body)

    async def stop(self, owner: str, name: str, *, remove: bool = False) -> None:
        """Stop a server, and forget its name if `remove`; one that is not there is no error.

        Raises:
            Unavailable: The Hub does not answer.
            DetlabError: It refuses.
        """
        try:
            await self._call("DELETE", _path(owner, name), json={"remove": True} if remove and name else None)
        except NotFound:
            return

    async def running(self) -> set[ServerOfHub]:
        """Return all servers that run or are being started.

        Raises:
            Unavailable: The Hub does not answer.
        """
        found: set[ServerOfHub] = set()
        offset: int | None = 0
        while offset is not None:
            params = {"state": "active", "offset": offset, "limit": PAGE}
            reply = await self._call("GET", "/users", params=params, headers=_PAGED)
            page = reply.json()
            users = page["items"] if isinstance(page, dict) else page
            found |= {ServerOfHub(user["name"], name) for user in users for name in user.get("servers") or {}}
            following = (page.get("_pagination") or {}).get("next") if isinstance(page, dict) else None
            offset = int(following["offset"]) if following else None
        return found

    async def groups_of(self, user: str) -> frozenset[str] | None:
        """Return the groups that a user is in now; None: the Hub has no such user.

        Raises:
            Unavailable: The Hub does not answer.
            DetlabError: It refuses.
        """
        try:
            found = (await self._call("GET", f"/users/{quote(user, safe='')}")).json()
        except NotFound:
            if not await self._known():  # what answers there is no Hub
                raise Unavailable("the Hub does not know the master's own token", hint="det status") from None
            return None
        return frozenset(str(group) for group in found.get("groups") or [])

    async def _call(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            reply = await self._client.request(method, path, **more)
        except httpx.HTTPError as error:
            raise Unavailable(
                f"the Hub does not answer: {str(error) or type(error).__name__}", hint="det status"
            ) from error
        if reply.is_success:
            return reply
        if reply.status_code in _UNKNOWN and not await self._known():
            raise Unavailable(
                "the Hub does not know the master's own token",
                hint="If this has worked before, it cannot write its database: see its log (a full disk, perhaps)."
                " Else it has another token for the service 'detlab'.",
            )
        raise _refusal(reply)

    async def _known(self) -> bool:
        """Tell whether the Hub knows the master's token; while it cannot note the use of tokens, it knows none."""
        try:
            return (await self._client.get("/user")).status_code not in {*_UNKNOWN, 404}
        except httpx.HTTPError:
            return False


def _path(owner: str, name: str) -> str:
    user = quote(owner, safe="")
    return f"/users/{user}/servers/{quote(name, safe='')}" if name else f"/users/{user}/server"


def _refusal(reply: httpx.Response) -> DetlabError:
    try:
        text = str(reply.json().get("message") or "")
    except (ValueError, AttributeError):
        text = ""
    message = f"the Hub says: {text or f'HTTP status {reply.status_code}'}"
    match reply.status_code:
        case 404:
            return NotFound(message)
        case 401 | 403:
            return Forbidden(
                message, hint="The service 'detlab' of the Hub needs the scopes servers, read:users and list:users."
            )
        case 429 | 502 | 503 | 504:
            return Unavailable(message)
        case status if status >= 500:
            return Unavailable(message, hint="See the Hub's log.")
    return Conflict(message)
