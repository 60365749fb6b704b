"""Webhooks: what happened is posted to addresses of the operator's, signed, as often as it takes.

A call is written in the transaction of what it tells (`enqueue`), and sent after it: what is committed is told at least
once, and what is not is never told. A receiver sees a call twice after a crash; its `id` tells. The body is JSON; the
header `X-Detlab-Signature: sha256=<hex>` is its HMAC under the hook's secret.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.outgoing import Allowed, Outgoing, OutgoingError
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.store.tables import WebhookRow

TIMEOUT = 20.0
"""Seconds that a receiver may take, with its name and the connection."""
FIRST_RETRY, LAST_RETRY = 5.0, 3600.0
"""Seconds until a call that failed is tried again: doubled from the first to the last."""
GIVEN_UP_AFTER = 3 * 86400.0
"""Seconds after which a call that never went through is dropped."""
BATCH = 50
LOOK_AGAIN = 5.0
"""Seconds between two looks for calls that are due."""
ERROR_CHARS = 500
_log = logging.getLogger(__name__)


def enqueue(unit: UnitOfWork, event: str, body: dict[str, Any]) -> None:
    """Note what happened for the webhooks that ask for it; written and committed with the unit of work.

    Args:
        unit: The unit of work of what happened.
        event: Its name, such as `model.label`.
        body: Plain data, without secrets.
    """
    for hook in unit.settings.webhooks:
        if hook.wants(event):
            unit.session.add(WebhookRow(url=hook.url, event=event, body=body, created_at=unit.now, due_at=unit.now))
            unit.outbox.wake_streams = True


def signature(secret: str, body: bytes) -> str:
    """Return the value of the header that signs a body."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def message(row: WebhookRow) -> bytes:
    """Return the body of a call."""
    told = {"id": row.id, "event": row.event, "time": row.created_at, "data": row.body}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def allowed_of(settings: Settings) -> Allowed:
    """Return what webhooks may call: an address that the operator has configured is the operator's word."""
    return Allowed(settings.outgoing_allowed, [urlsplit(hook.url).hostname or "" for hook in settings.webhooks])


@dataclass(frozen=True)
class _Sent:
    """How a call went."""

    row: WebhookRow
    error: str = ""


class Webhooks(Service):
    """Sends the calls that are due.

    Args:
        context: Reads and writes.
        outgoing: Replaces the client (for a test).
    """

    def __init__(self, context: ServiceContext, outgoing: Outgoing | None = None) -> None:
        super().__init__(context)
        self._outgoing = outgoing or Outgoing(allowed_of(context.settings), seconds=TIMEOUT)
        self._hooks = {hook.url: hook for hook in context.settings.webhooks}

    async def run(self) -> None:
        """Send until the master stops."""
        with self._context.wakeups.listen("streams") as news:
            while not self._context.stopped:
                news.clear()
                if not await self.step():
                    await wait_until(news, LOOK_AGAIN)

    async def step(self) -> int:
        """Send the calls that are due now, once; return how many there were."""
        now = self._context.clock()

        def due(s: Session) -> list[WebhookRow]:
            # What comes after a call that waits for its next attempt waits, too: else a receiver would hear of the last
            # move of a label before the one before it, and the calls to one that is away would fill each batch.
            waiting = select(WebhookRow.url, func.min(WebhookRow.id).label("first"))
            held = waiting.where(WebhookRow.due_at > now).group_by(WebhookRow.url).subquery()
            query = select(WebhookRow).outerjoin(held, held.c.url == WebhookRow.url)
            query = query.where(WebhookRow.due_at <= now, or_(held.c.first.is_(None), WebhookRow.id < held.c.first))
            return list(s.scalars(query.order_by(WebhookRow.id).limit(BATCH)))

        rows = await self._context.read(due)
        if not rows:
            return 0
        by_url: dict[str, list[WebhookRow]] = {}
        for row in rows:
            by_url.setdefault(row.url, []).append(row)
        await asyncio.gather(*(self._send_all(some) for some in by_url.values()))
        return len(rows)

    async def _send_all(self, rows: list[WebhookRow]) -> None:
        """Send the calls of one receiver in their order, up to the first that fails: the others would, too."""
        for row in rows:
            sent = await self._send(row)
            await self._context.write(partial(_note, sent=sent))
            if sent.error:
                break

    async def _send(self, row: WebhookRow) -> _Sent:
        hook = self._hooks.get(row.url)
        if hook is None:
            return _Sent(row)  # no longer in the settings
        body = message(row)
        headers = {"Content-Type": "application/json", "X-Detlab-Event": row.event, "User-Agent": "detlab"}
        if hook.secret:
            headers["X-Detlab-Signature"] = signature(hook.secret, body)
        try:
            answer = await self._outgoing.call("POST", row.url, body=body, headers=headers)
        except OutgoingError as error:
            return _Sent(row, error.message[:ERROR_CHARS])
        return _Sent(row, "" if answer.fine else f"the receiver answered {answer.status}")


def _note(unit: UnitOfWork, sent: _Sent) -> None:
    """Drop a call that went through or is too old; else say when it is tried again."""
    row = unit.session.get(WebhookRow, sent.row.id)
    if row is None:
        return
    host = urlsplit(row.url).hostname or "?"
    if not sent.error:
        unit.session.delete(row)
        return
    row.attempts, row.error = row.attempts + 1, sent.error
    if unit.now - row.created_at > GIVEN_UP_AFTER:
        _log.error("webhook %s: call %d (%s) is given up: %s", host, row.id, row.event, sent.error)
        unit.session.delete(row)
        return
    pause = min(FIRST_RETRY * 2.0 ** min(row.attempts - 1, 30), LAST_RETRY)
    row.due_at = unit.now + pause
    _log.warning("webhook %s: call %d: %s; again in %g s", host, row.id, sent.error, pause)
