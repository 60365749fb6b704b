"""A token of JupyterHub for a user name and a password, where the Hub's authenticator takes passwords.

The password is sent once, in the body of one request, and kept nowhere: never again after a refusal, and never where a
redirect leads. It gives a token of some minutes, and that one gives the user's: the Hub may allow less than `LIFETIME`,
and is asked again then. What comes back is an ordinary token: the Hub has its hash alone, and lists it on its page.
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
FIRST = 600
"""Seconds that the token is good for which the password gives."""
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
    here = socket.gethostname()
    auth = {"username": user, "password": password}
    try:
        verify = tls_context(hub, address.certificate) or system_trust(hub)
        with httpx.Client(verify=verify, timeout=TIMEOUT, follow_redirects=False, trust_env=address.proxied) as client:
            first = client.post(url, json={"auth": auth, "note": f"det login, begun on {here}", "expires_in": FIRST})
            given = {"Authorization": f"token {_token_in(first, hub)}"}
            wanted: dict[str, Any] = {"note": f"det login on {here}", "expires_in": LIFETIME}
            reply = client.post(url, json=wanted, headers=given)
            if reply.status_code == HTTPStatus.BAD_REQUEST and "must not exceed" in reply.text:
                reply = client.post(url, json={**wanted, "expires_in": None}, headers=given)  # the Hub's own limit
            token = _token_in(reply, hub)
            client.delete(f"{url}/{quote(str(first.json().get('id')), safe='')}", headers=given)  # else it expires
    except httpx.HTTPError as error:
        raise DetlabError(
            f"no answer from the Hub at {hub}: {error}", hint="Check the address and that the Hub runs"
        ) from error
    return token


def _token_in(reply: Any, hub: str) -> str:
    status = reply.status_code
    if reply.is_redirect:
        there = urlsplit(str(reply.headers.get("Location", "")))
        where = f" ({there.scheme}://{there.hostname})" if there.hostname else ""
        raise DetlabError(
            f"the Hub at {hub} answers with a redirect{where}, which a password does not follow",
            hint="Give the Hub's own address, as a browser shows it in the end",
        )
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
