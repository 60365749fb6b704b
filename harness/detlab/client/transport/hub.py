"""JupyterHub's own API, with the caller's token: tokens of users, and users. The master has no right to either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from detlab.client.transport.discovery import SERVICE_PATH, ClusterAddress
from detlab.errors import AuthError, ClusterUnreachable, DetlabError, Forbidden, NotFound
from detlab.pasted import word
from detlab.schemas.wire import ADMIN_GROUP, ADMIN_ROLE

TIMEOUT = 30.0
PAGE = 200
"""Users of one request."""


class HubAccounts:
    """Calls of the Hub beside a master.

    Args:
        address: The master, with the token and the certificate that is pinned.
    """

    def __init__(self, address: ClusterAddress) -> None:
        import httpx

        from detlab.trust import system_trust, tls_context

        self.url = address.url.removesuffix(f"{SERVICE_PATH}/")
        if not address.token:
            raise AuthError("there is no token for the Hub", hint=f"det login {word(self.url)}")
        self._address = address
        self._http = httpx.Client(
            base_url=f"{self.url}/hub/api/",
            headers={"Authorization": f"token {address.token}"},
            verify=tls_context(self.url, address.certificate) or system_trust(self.url),
            timeout=TIMEOUT,
            follow_redirects=False,
            trust_env=address.proxied,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()

    def ask(self, method: str, path: str, *, body: Any = None, query: dict[str, Any] | None = None) -> Any:
        """Send a request; return the answer, None for an empty one.

        Raises:
            AuthError: The Hub does not know the token.
            ClusterUnreachable: No answer.
            DetlabError: The Hub refuses it for another reason; its own words are in the message.
            Forbidden: The token may not do that.
            NotFound: There is none.
        """
        import httpx

        self._address.unchanged(method)
        try:
            reply = self._http.request(method, path, json=body, params=query)
        except httpx.HTTPError as error:
            raise ClusterUnreachable(f"no answer from the Hub at {self.url}: {error}") from error
        if reply.is_success:
            return reply.json() if reply.content else None
        said, login = _message(reply), f"det login {word(self.url)} --user NAME"
        match reply.status_code:
            case HTTPStatus.UNAUTHORIZED:
                raise AuthError(
                    f"the Hub does not take this token: {said}", hint=f"det login {word(self.url)} --user NAME"
                )
            case HTTPStatus.FORBIDDEN:
                hint = f"A token with all your permissions may: {login}, or the page /hub/token"
                raise Forbidden(f"the Hub does not let this token do that: {said}", hint=hint)
            case HTTPStatus.NOT_FOUND:
                raise NotFound(f"the Hub has no such thing: {said}")
            case _:
                raise DetlabError(f"the Hub refuses that (HTTP {reply.status_code}): {said}")

    def name(self) -> str:
        """Return whose the token is."""
        return str(self.ask("GET", "user")["name"])

    # --- tokens

    def make_token(self, user: str, *, expires: float | None, note: str, scopes: list[str] | None) -> dict[str, Any]:
        """Make a token of a user; what comes back is the only time that it is shown.

        Args:
            user: Their name.
            expires: After so many seconds; None: as the Hub has it.
            note: For the Hub's page.
            scopes: What it may do; None: all that the user may.
        """
        body: dict[str, Any] = {"note": note, "expires_in": None if expires is None else int(expires)}
        if scopes is not None:
            body["scopes"] = scopes
        made: dict[str, Any] = self.ask("POST", f"users/{quote(user, safe='')}/tokens", body=body)
        return made

    def tokens(self, user: str) -> list[dict[str, Any]]:
        """Return the tokens of a user, without their secrets."""
        found = self.ask("GET", f"users/{quote(user, safe='')}/tokens")
        return list(found.get("api_tokens", []))

    def revoke_token(self, user: str, token_id: str) -> None:
        """Revoke a token of a user."""
        self.ask("DELETE", f"users/{quote(user, safe='')}/tokens/{quote(token_id, safe='')}")

    # --- users

    def users(self) -> list[dict[str, Any]]:
        """Return the users whom the token may see, by name."""
        return sorted(self._all("users"), key=lambda one: str(one["name"]))

    def user(self, name: str) -> dict[str, Any]:
        """Return one user."""
        return dict(self.ask("GET", f"users/{quote(name, safe='')}"))

    def _all(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(part := self.ask("GET", path, query={"offset": len(found), "limit": PAGE})) == PAGE:
            found += part
        return [*found, *part]

    def make_user(self, name: str, *, admin: bool) -> dict[str, Any]:
        """Add a user."""
        made: dict[str, Any] = self.ask("POST", f"users/{quote(name, safe='')}", body={"admin": admin})
        return made

    def edit_user(self, name: str, /, **changes: Any) -> dict[str, Any]:
        """Change a user: `name`, `admin`."""
        return dict(self.ask("PATCH", f"users/{quote(name, safe='')}", body=changes) or {})

    def remove_user(self, name: str) -> None:
        """Remove a user with their tokens; their server ends first."""
        self.ask("DELETE", f"users/{quote(name, safe='')}")

    # --- administrators of detlab

    def admin_groups(self) -> frozenset[str]:
        """Return the groups whose members administer detlab; none if the token may not see groups."""
        try:
            found = self._all("groups")
        except Forbidden:
            return frozenset()
        return frozenset(str(one["name"]) for one in found if ADMIN_ROLE in one.get("roles", ()))

    def make_administrator(self, name: str) -> None:
        """Put a user into the group of detlab's administrators.

        Raises:
            DetlabError: The Hub has no such group, has given it no role, or refuses that.
        """
        group = dict(self.ask("POST", f"groups/{ADMIN_GROUP}/users", body={"users": [name]}))
        if group.get("roles", True) == []:
            raise NotFound(f"this Hub's group {ADMIN_GROUP} has no role")

    def unmake_administrator(self, name: str) -> None:
        """Take a user out of the group of detlab's administrators, if the Hub has one."""
        groups = self.user(name).get("groups", [ADMIN_GROUP])
        if ADMIN_GROUP in groups:
            self.ask("DELETE", f"groups/{ADMIN_GROUP}/users", body={"users": [name]})


def administers(user: Mapping[str, Any], groups: Iterable[str]) -> bool | None:
    """Return whether one of the Hub's users administers detlab; None where the Hub does not show the roles of users.

    Args:
        user: The Hub's model of them.
        groups: Those whose members do.
    """
    if "roles" not in user:
        return None
    return ADMIN_ROLE in user["roles"] or not set(groups).isdisjoint(user.get("groups") or ())


def _message(reply: Any) -> str:
    try:
        said = reply.json()
        words = said["message"] if isinstance(said, dict) else said
    except (ValueError, KeyError, TypeError):
        words = None
    return str(words)[:300] if words else "it gives no reason; the token may have been revoked, or be too old"
