"""Direct requests to a server of the Hub (a notebook's, a shell's), with the user's token."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from detlab import loopback
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.version import USER_AGENT
from detlab.errors import ClusterUnreachable
from detlab.trust import trust_for

if TYPE_CHECKING:
    import httpx

ANSWER_SECONDS = 15.0
READY_SECONDS = 90.0
LOOK_SECONDS = 0.25
STARTING = frozenset({424, 502, 503, 504})
"""What the Hub and its proxy answer in place of a server that starts."""


def headers(address: ClusterAddress) -> dict[str, str]:
    """Return the headers that authenticate the user, at the server as at the Hub."""
    return {"Authorization": f"token {address.token}", "User-Agent": USER_AGENT, "Accept": "application/json"}


def ask(address: ClusterAddress, method: str, url: str, **body: Any) -> httpx.Response:
    """Send one request to a server of the Hub and return the answer, of any status.

    Raises:
        ClusterGuessed: It could change something on a cluster that nobody named.
        ClusterUnreachable: There is no answer.
    """
    import httpx

    address.unchanged(method)
    try:
        with httpx.Client(
            headers=headers(address),
            timeout=ANSWER_SECONDS,
            follow_redirects=False,  # a redirect leads to a login page, and would carry the token along
            trust_env=address.proxied,
            verify=trust_for(url, address.certificate),
            event_hooks=loopback.hooks(url),
        ) as client:
            return client.request(method, url, **body)
    except httpx.TransportError as error:
        raise address.unreachable(str(error) or type(error).__name__) from error


def answers(address: ClusterAddress, server_url: str) -> bool:
    """Tell whether the server itself answers, and not yet the Hub in its place."""
    try:
        found = ask(address, "GET", f"{server_url}api")
    except ClusterUnreachable:
        return False
    return found.status_code not in STARTING and "/hub/" not in found.headers.get("location", "")


def await_answer(address: ClusterAddress, server_url: str, seconds: float = READY_SECONDS) -> bool:
    """Wait until the server itself answers; return whether it does by then.

    A task runs from its program's first moment, but a server needs seconds until it serves, and neither the Hub nor
    the server can say when without being asked.
    """
    deadline = time.monotonic() + seconds
    while not answers(address, server_url):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True
