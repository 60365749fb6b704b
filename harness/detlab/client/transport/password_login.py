"""A token of JupyterHub for a user name and a password, where the Hub's authenticator takes passwords.

The password is sent once, in the body of one request, and kept nowhere. What comes back is an ordinary token of the
user's: the Hub has its hash alone, lists it on its page for tokens, and forgets it after `LIFETIME`.
"""

from __future__ import annotations

import ipaddress
import socket
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

from detlab.client.transport.discovery import SERVICE_PATH, ClusterAddress
from detlab.errors import DetlabError

LIFETIME = 7 * 86400
"""Seconds that such a token is good for; less where the Hub allows less."""
TIMEOUT = 30.0
_PAGE = "/hub/token"
"""Where people make tokens by hand."""


def token_by_password(address: ClusterAddress, user: str, password: str) -> str:
    """Return a new token of a user.

    Args:
        address: The service, with the certificate that it has to show, if one is pinned; its token is not used.
        user: The name at the Hub.
        password: As the Hub's login page would take it.

    Raises:
        DetlabError: The Hub refuses them or takes no passwords, cannot be reached, or would be sent them in the clear.
    """
    import httpx

    from detlab.trust import system_trust, tls_context

    hub = address.url.removesuffix(f"{SERVICE_PATH}/")
    if not _is_this_machine(hub) and not hub.startswith("https:"):
        raise DetlabError(
            f"{hub} is plain http: the password would be readable on the way",
            hint=f"Give its https address, or make a token at {hub}{_PAGE}",
        )
    url = f"{hub}/hub/api/users/{quote(user, safe='')}/tokens"
    body: dict[str, Any] = {
        "auth": {"username": user, "password": password},
        "note": f"det login on {socket.gethostname()}",
        "expires_in": LIFETIME,
    }
    try:
        verify = tls_context(hub, address.certificate) or system_trust(hub)
        with httpx.Client(verify=verify, timeout=TIMEOUT, follow_redirects=False, trust_env=address.proxied) as client:
            reply = client.post(url, json=body)
            if reply.status_code == HTTPStatus.BAD_REQUEST and "must not exceed" in reply.text:
                reply = client.post(url, json={**body, "expires_in": None})  # the Hub's own, shorter limit
    except httpx.HTTPError as error:
        raise DetlabError(
            f"no answer from the Hub at {hub}: {error}", hint="Check the address and that the Hub runs"
        ) from error
    return _token_in(reply.status_code, reply, hub)


def _token_in(status: int, reply: Any, hub: str) -> str:
    if status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
        raise DetlabError(
            "the Hub refuses this user name and password, or takes no passwords (as with OAuth)",
            hint=f"Make a token at {hub}{_PAGE} and give it to det login without --user",
        )
    try:
        token = reply.json()["token"] if status in (HTTPStatus.OK, HTTPStatus.CREATED) else None
    except (ValueError, KeyError, TypeError):
        token = None
    if not isinstance(token, str) or not token:
        raise DetlabError(f"the Hub at {hub} made no token (HTTP {status})", hint=f"Make one at {hub}{_PAGE} instead")
    return token


def _is_this_machine(hub: str) -> bool:
    host = urlsplit(hub).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
