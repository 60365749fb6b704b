"""Webhooks of users: addresses that are told what their owner has rules for."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from detlab.schemas.script_names import normal
from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.notify.alerts import AlertRuleView
from detlab.schemas.wire.workspaces import Reference

WebhookFormat = Literal["default", "slack", "teams", "apprise"]
HookTrigger = Literal["completed", "failed", "improved", "plateau", "waiting", "budget", "alert"]
"""Kinds of rules that are made with a webhook: those that need nothing said but their kind."""
URL_CHARS = 2000


def webhook_url(text: str) -> str:
    """Return an address that a webhook may have.

    Raises:
        ValueError: It is none.
    """
    problem = "a webhook's address begins with https:// or http://, with a host and without a password"
    if any(not " " < char < "\x7f" for char in text):
        raise ValueError("a webhook's address has no spaces, line ends and characters beyond ASCII")
    try:
        parts = urlsplit(text)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
        _ = parts.port
    except ValueError:
        raise ValueError(problem) from None
    if not fine:
        raise ValueError(problem)
    return text


def webhook_name(text: str) -> str:
    """Return the name of a webhook as it is kept.

    Raises:
        ValueError: Nothing is left, or it is a number, which would be an id.
    """
    name = normal(text).strip()
    if not name or name.isdigit():
        raise ValueError("a webhook has a name that is not empty and no number")
    return name


class CreateWebhook(PersonRequest):
    """POST webhooks: makes a webhook of the caller's."""

    name: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(webhook_name)]
    url: Annotated[str, Field(min_length=1, max_length=URL_CHARS), AfterValidator(webhook_url)]
    format: WebhookFormat = "default"
    triggers: list[HookTrigger] = Field(default_factory=list, max_length=20)
    """Rules that are made with it, with their usual amounts; further ones: POST alerts/rules."""
    workspace: Reference = ""
    project: Reference = ""
    """Where these rules look; both empty: at all experiments of the caller's own."""


class WebhookView(Wire):
    """A webhook."""

    id: int
    name: str
    url: str = ""
    """To its owner; administrators see the host alone."""
    format: WebhookFormat = "default"
    owner: str = ""
    rules: list[AlertRuleView] = []
    secret: str = Field("", repr=False)
    """By which its calls are signed: in the reply to its creation alone."""
    delivered: int = 0
    """Calls that went through."""
    delivered_at: float | None = None
    waiting: int = 0
    """Calls that are to be sent, or sent again."""
    failed: int = 0
    """Calls that were given up, and are kept for a week."""
    error: str = ""
    """Of the last call, if it failed."""
    created_at: float = 0.0


class WebhookList(Wire):
    """The webhooks of the caller, or of everybody to administrators, the oldest first."""

    items: list[WebhookView]
    next: int | None = None
    """`after` of the next page; null: this is the last one."""


class WebhookCallView(Wire):
    """A call that is still to be sent, or was given up."""

    id: int
    event: str = ""
    title: str = ""
    created_at: float = 0.0
    due_at: float | None = None
    """When it is sent, or sent again; null: it was given up."""
    attempts: int = 0
    error: str = ""
    """Of the last attempt."""


class WebhookCallList(Wire):
    """The calls of a webhook, the newest first."""

    items: list[WebhookCallView]
    next: int | None = None
    """`before` of the next page; null: this is the last one."""
