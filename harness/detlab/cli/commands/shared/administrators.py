"""What `det user` says and does about administrators: of the Hub, and of detlab."""

from __future__ import annotations

from detlab.cli.output.printing import clean
from detlab.client.transport.hub import HubAccounts, administers
from detlab.errors import DetlabError, Forbidden, NotFound
from detlab.pasted import word
from detlab.schemas.wire import ADMIN_GROUP, ADMIN_ROLE

TAKES_EFFECT = {
    True: "They administer the Hub and detlab: tokens with all their permissions within half a minute, a browser once "
    "they have logged out and in. A token that was made for certain permissions gets no more.",
    False: "What tokens and browsers of theirs could do as an administrator's ends within half a minute.",
}
"""When somebody is an administrator, or no longer one."""


def administered(hub: bool, detlab: bool | None) -> str:
    """Return what somebody administers; `detlab` is None where the Hub does not show it."""
    match hub, detlab:
        case True, True:
            return "yes"
        case True, False:
            return "of the Hub alone"
        case True, None:
            return "of the Hub"
        case False, True:
            return "of detlab alone"
    return ""


def make_administrator(hub: HubAccounts, name: str) -> None:
    """Make an administrator of the Hub one of detlab too.

    Raises:
        DetlabError: The Hub does not do it; they are an administrator of the Hub all the same.
    """
    again = f"det user edit {word(name)} --admin"
    half = f"{clean(name)} is an administrator of the Hub now, but not of detlab"
    try:
        hub.make_administrator(name)
    except NotFound as error:
        raise NotFound(
            f"{half}: {error.message}",
            hint=f"Bind the group {ADMIN_GROUP} to the role {ADMIN_ROLE} in jupyterhub_config.py, as the how-to "
            f'"Use a Hub of your own" shows, and start the Hub again; then: {again}',
        ) from error
    except DetlabError as error:
        raise DetlabError(f"{half}: {error.message}", hint=f"Try again: {again}") from error


def still_administers(hub: HubAccounts, name: str) -> bool:
    """Return whether somebody administers detlab all the same; no if the caller may not see that any more."""
    try:
        return bool(administers(hub.user(name), hub.admin_groups()))
    except (Forbidden, NotFound):
        return False
