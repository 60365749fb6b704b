"""The outbox of webhooks: what happened is posted to the operator's addresses and to users', as often as it takes.

A call is written in the transaction of what it tells (`enqueue`), and sent after it: what is committed is told at least
once, and what is not is never told. A receiver sees a call twice after a crash; its `id` tells. Calls of the operator
are JSON with the header `X-Detlab-Signature: sha256=<hex>`, their HMAC under the hook's secret; those of users have
Determined's payloads and signature, or Slack's or Teams' form.

A call of a user's webhook is sent with its owner's rights of that moment: what they may no longer read is dropped. They
may name any public address, and no other, unless the operator allows it. E-mail is in `mails`, and how calls of
either kind are sent in `sending`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.orm import Session

from detlab_hub.core.alerts.payloads import render, signed
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.outgoing import Allowed, Outgoing, OutgoingError
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.sending import (
    ERROR_CHARS,
    MOST_WAITING,
    CallSender,
    Receiver,
    SentCall,
    link_of,
    may_tell,
)
from detlab_hub.store.queries.notify import webhooks
from detlab_hub.store.queries.notify.webhooks import DueCall
from detlab_hub.store.tables import HookRow, WebhookRow

TIMEOUT = 20.0
"""Seconds that a receiver may take, with its name and the connection."""


def enqueue(unit: UnitOfWork, event: str, body: dict[str, Any]) -> None:
    """Note what happened for the operator's webhooks that ask for it; committed with the unit of work.

    Args:
        unit: The unit of work of what happened.
        event: Its name, such as `model.label`.
        body: Plain data, without secrets.
    """
    for hook in unit.settings.webhooks:
        if hook.wants(event):
            unit.session.add(WebhookRow(url=hook.url, event=event, body=body, created_at=unit.now, due_at=unit.now))
            unit.outbox.wake_streams = True


def enqueue_for(unit: UnitOfWork, hook: HookRow, event: str, told: dict[str, Any], experiment_id: int | None) -> None:
    """Note what happened for the webhook of a user; committed with the unit of work.

    Args:
        unit: The unit of work of what happened.
        hook: The webhook.
        event: The kind of the alert.
        told: As `core.alerts.payloads.render` takes it.
        experiment_id: What it tells of.
    """
    target = webhooks.target_of(hook.id)
    if webhooks.waiting(unit.session, target, MOST_WAITING) >= MOST_WAITING:
        hook.error = f"{MOST_WAITING:,} calls wait already: later ones are dropped"
        return
    unit.session.add(
        WebhookRow(
            url=target,
            event=event,
            body=told,
            created_at=unit.now,
            due_at=unit.now,
            owner=hook.owner,
            experiment_id=experiment_id,
        )
    )
    unit.outbox.wake_streams = True


def signature(secret: str, body: bytes) -> str:
    """Return the value of the header that signs a body of the operator's webhooks."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def message(row: WebhookRow) -> bytes:
    """Return the body of a call of the operator's webhooks."""
    told = {"id": row.id, "event": row.event, "time": row.created_at, "data": row.body}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def allowed_of(settings: Settings) -> Allowed:
    """Return what the operator's webhooks may call: an address that they have configured is their word."""
    return Allowed(settings.outgoing_allowed, [urlsplit(hook.url).hostname or "" for hook in settings.webhooks])


def outgoing_for_users(context: ServiceContext) -> Outgoing:
    """Return the client for addresses of users: the hosts of the operator's webhooks are not allowed to them."""
    return Outgoing(Allowed(context.settings.outgoing_allowed), context.workers.names, seconds=TIMEOUT)


@dataclass(frozen=True)
class _Request:
    """A call, ready to be sent."""

    url: str
    body: bytes
    headers: dict[str, str]


class WebhookSender(CallSender):
    """Sends the calls of webhooks that are due.

    Args:
        context: Reads and writes.
        outgoing: Replaces the clients (for a test).
    """

    mails = False
    most_at_once = 40

    def __init__(self, context: ServiceContext, outgoing: Outgoing | None = None) -> None:
        super().__init__(context)
        self._outgoing = outgoing or Outgoing(allowed_of(context.settings), context.workers.names, seconds=TIMEOUT)
        self._for_users = outgoing or outgoing_for_users(context)
        self._hooks = {hook.url: hook for hook in context.settings.webhooks}

    def receiver(self, s: Session, row: WebhookRow) -> Receiver | None:
        """Return the webhook of a user; None: it is the operator's, or gone."""
        hook_id = webhooks.hook_of(row.url)
        return None if hook_id is None else s.get(HookRow, hook_id)

    def named(self, row: WebhookRow) -> str:
        """Return the host of an address."""
        return f"webhook {urlsplit(row.url).hostname or row.url}"

    async def send(self, call: DueCall) -> SentCall:
        """Call a receiver, once."""
        request = await self._context.read(partial(self._request, call=call))
        if request is None:
            return SentCall(call, dropped=True)
        client = self._outgoing if webhooks.hook_of(call.target) is None else self._for_users
        try:
            answer = await client.call(
                "POST", request.url, body=request.body, headers=request.headers, whose=call.owner
            )
        except OutgoingError as error:
            return SentCall(call, error.message[:ERROR_CHARS])
        return SentCall(call, "" if answer.fine else f"the receiver answered {answer.status}")

    def _request(self, s: Session, call: DueCall) -> _Request | None:
        """Return what is sent; None: nothing, for its webhook is gone, or its owner may not read that any more."""
        row = s.get(WebhookRow, call.id)
        if row is None:
            return None
        hook_id = webhooks.hook_of(row.url)
        if hook_id is not None:
            return self._of_user(s, row, s.get(HookRow, hook_id))
        hook = self._hooks.get(row.url)
        if hook is None:
            return None  # no longer in the settings
        body = message(row)
        headers = {"Content-Type": "application/json", "X-Detlab-Event": row.event, "User-Agent": "detlab"}
        if hook.secret:
            headers["X-Detlab-Signature"] = signature(hook.secret, body)
        return _Request(row.url, body, headers)

    def _of_user(self, s: Session, row: WebhookRow, hook: HookRow | None) -> _Request | None:
        settings = self._context.settings
        if settings.is_copy:
            return None  # the original tells its users
        if hook is None or hook.owner != row.owner or not may_tell(s, hook.owner, row):
            return None
        base = (settings.public_url or settings.service_url).rstrip("/")
        link = link_of(base, row)
        body = render(hook.format, f"{row.id}", row.created_at, row.body, link)
        headers = {"Content-Type": "application/json", "User-Agent": "detlab", "X-Detlab-Event": row.event}
        if hook.format == "default":
            headers |= signed(hook.secret, int(self._context.clock()), body)
        return _Request(hook.url, body, headers)
