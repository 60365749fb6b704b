"""Operations on the webhooks of users."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.wire.notify.webhooks import CreateWebhook, WebhookCallView, WebhookView


def _path(webhook: str | int, *rest: str) -> str:
    return "/".join(("webhooks", quote(str(webhook), safe=""), *rest))


def webhooks() -> Flow[list[WebhookView]]:
    """List the webhooks that the caller has, the oldest first."""
    return pages("webhooks", WebhookView, "after", None)


def webhook(name: str | int) -> Flow[WebhookView]:
    """Fetch a webhook, by its name or id."""
    return one(Call("GET", _path(name), parse=model(WebhookView)))


def create_webhook(name: str, url: str, **more: Any) -> Flow[WebhookView]:
    """Make a webhook; `more` are the fields of `CreateWebhook`. The reply alone has its secret."""
    with valid_request():
        body = CreateWebhook(name=name, url=url, **more)
    return one(Call("POST", "webhooks", json=body, parse=model(WebhookView), again=False))


def delete_webhook(name: str | int) -> Flow[WebhookView]:
    """Delete a webhook with its calls; return it as it was."""
    return one(Call("DELETE", _path(name), parse=model(WebhookView), again=False))


def test_webhook(name: str | int) -> Flow[WebhookView]:
    """Have a call sent to a webhook."""
    return one(Call("POST", _path(name, "test"), parse=model(WebhookView), again=False))


def webhook_calls(name: str | int, limit: int | None = None) -> Flow[list[WebhookCallView]]:
    """List the calls of a webhook that wait or were given up, the newest first."""
    return pages(_path(name, "calls"), WebhookCallView, "before", limit)
