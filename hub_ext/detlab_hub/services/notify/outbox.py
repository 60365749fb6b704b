"""The outbox of webhooks: what happened is posted to the operator's addresses and to users', as often as it takes.

A call is written in the transaction of what it tells (`enqueue`), and sent after it: what is committed is told at least
once, and what is not is never told. A receiver sees a call twice after a crash; its `id` tells. Calls of the operator
are JSON with the header `X-Detlab-Signature: sha256=<hex>`, their HMAC under the hook's secret; those of users have
Determined's payloads and signature, or Slack's or Teams' form.

A call of a user's webhook is sent with its owner's rights of that moment: what they may no longer read is dropped. They
may name any public address, and no other, unless the operator allows it. Receivers are called side by side, those of
each owner in turn, so that nobody waits for a stranger's receiver.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.orm import Session

from detlab_hub.core.alerts.payloads import render, signed
from detlab_hub.core.rights import Right, right_of
from detlab_hub.services.base.access import may_read, person, tracked_thing
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.outgoing import Allowed, Outgoing, OutgoingError
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.store.queries.notify import webhooks
from detlab_hub.store.queries.notify.webhooks import DueCall
from detlab_hub.store.tables import HookRow, TrackedRunRow, WebhookRow

TIMEOUT = 20.0
"""Seconds that a receiver may take, with its name and the connection."""
FIRST_RETRY, LAST_RETRY = 5.0, 3600.0
"""Seconds until a call that failed is tried again: doubled from the first to the last."""
GIVEN_UP_AFTER = 3 * 86400.0
"""Seconds after which a call that never went through is given up."""
KEPT_FOR = 7 * 86400.0
"""Seconds for which a user's call that was given up is kept and shown."""
BATCH = 50
MOST_AT_ONCE, MOST_OF_OWNER = 40, 4
"""Receivers that are called side by side, and those of one owner."""
MOST_WAITING = 1000
"""Calls of a user's webhook that wait; further ones are dropped, and the webhook says so."""
PAUSE = 0.5
"""Seconds between two looks for calls that are due, of which the first has found none."""
LOOK_AGAIN = 5.0
"""Seconds after which there is a look without news."""
ERROR_CHARS = 500
_log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class _Sent:
    """How a call went; `dropped`: it was not to be sent."""

    call: DueCall
    error: str = ""
    dropped: bool = False


class WebhookSender(Service):
    """Sends the calls that are due.

    Args:
        context: Reads and writes.
        outgoing: Replaces the clients (for a test).
    """

    def __init__(self, context: ServiceContext, outgoing: Outgoing | None = None) -> None:
        super().__init__(context)
        self._outgoing = outgoing or Outgoing(allowed_of(context.settings), context.workers.names, seconds=TIMEOUT)
        self._for_users = outgoing or outgoing_for_users(context)
        self._hooks = {hook.url: hook for hook in context.settings.webhooks}
        self._busy: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """The receivers that are called now: target -> (owner, task)."""

    async def run(self) -> None:
        """Send until the master stops."""
        try:
            with self._context.wakeups.listen("streams") as news:
                while not self._context.stopped:
                    news.clear()
                    begun = await self._begin(news)
                    if not begun:
                        await wait_until(news, LOOK_AGAIN)
                        await asyncio.sleep(PAUSE)  # any commit is news
        finally:
            tasks = [task for _, task in self._busy.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def step(self) -> int:
        """Send the calls that are due now, once; return how many there were."""
        found = await self._due()
        begun = self._by_target(found)
        await asyncio.gather(*(self._send_all(calls) for calls in begun.values()))
        return len(found)

    async def _begin(self, news: asyncio.Event) -> int:
        """Begin to call receivers that have calls due and are not called yet; return how many."""
        of_owner = Counter(owner for owner, _ in self._busy.values())
        begun = 0
        for target, calls in self._by_target(await self._due()).items():
            owner = calls[0].owner
            if len(self._busy) >= MOST_AT_ONCE or (owner and of_owner[owner] >= MOST_OF_OWNER):
                continue
            of_owner[owner] += 1
            begun += 1
            self._busy[target] = owner, asyncio.create_task(self._serve(target, calls, news))
        return begun

    async def _serve(self, target: str, calls: list[DueCall], news: asyncio.Event) -> None:
        try:
            await self._send_all(calls)
        except Exception:  # the database is away: the calls are still due
            _log.exception("webhook calls could not be sent")
            await asyncio.sleep(LOOK_AGAIN)
        finally:
            self._busy.pop(target, None)
            news.set()

    async def _due(self) -> list[DueCall]:
        now, busy = self._context.clock(), list(self._busy)
        full = {owner for owner, n in Counter(owner for owner, _ in self._busy.values()).items() if n >= MOST_OF_OWNER}
        return await self._context.read(
            lambda s: [one for one in webhooks.due(s, now, BATCH, busy) if not one.owner or one.owner not in full]
        )

    @staticmethod
    def _by_target(calls: list[DueCall]) -> dict[str, list[DueCall]]:
        found: dict[str, list[DueCall]] = {}
        for call in sorted(calls, key=lambda one: one.id):
            found.setdefault(call.target, []).append(call)
        return found

    async def _send_all(self, calls: list[DueCall]) -> None:
        """Send the calls of one receiver in their order, up to the first that fails: the others would, too."""
        for call in calls:
            sent = await self._send(call)
            await self._context.write(partial(_note, sent=sent))
            if sent.error:
                break

    async def _send(self, call: DueCall) -> _Sent:
        request = await self._context.read(partial(self._request, call=call))
        if request is None:
            return _Sent(call, dropped=True)
        client = self._outgoing if webhooks.hook_of(call.target) is None else self._for_users
        try:
            answer = await client.call(
                "POST", request.url, body=request.body, headers=request.headers, whose=call.owner
            )
        except OutgoingError as error:
            return _Sent(call, error.message[:ERROR_CHARS])
        return _Sent(call, "" if answer.fine else f"the receiver answered {answer.status}")

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
        if hook is None or hook.owner != row.owner or not _may_tell(s, hook.owner, row):
            return None
        base = (settings.public_url or settings.service_url).rstrip("/")
        link = "" if row.experiment_id is None else f"{base}/experiments/{row.experiment_id}"
        body = render(hook.format, f"{row.id}", row.created_at, row.body, link)
        headers = {"Content-Type": "application/json", "User-Agent": "detlab", "X-Detlab-Event": row.event}
        if hook.format == "default":
            headers |= signed(hook.secret, int(self._context.clock()), body)
        return _Request(hook.url, body, headers)


def _may_tell(s: Session, owner: str, row: WebhookRow) -> bool:
    """Whether the owner of a webhook may read, now, what a call tells of.

    Nobody is logged in, so that the groups of the Hub of the owner are not known: a right by a group alone does not
    count here.
    """
    caller = Caller(owner)
    if row.experiment_id is not None:
        return may_read(s, caller, row.experiment_id)
    if (run_id := row.body.get("run_id")) is not None:
        run = s.get(TrackedRunRow, run_id)
        return run is not None and right_of(person(caller), tracked_thing(s, caller, run)) >= Right.READ
    return True


def _note(unit: UnitOfWork, sent: _Sent) -> None:
    """Drop a call that went through; of one that did not, say when it is tried again, or that it is given up."""
    row = unit.session.get(WebhookRow, sent.call.id)
    if row is None:
        return
    hook_id = webhooks.hook_of(row.url)
    hook = None if hook_id is None else unit.session.get(HookRow, hook_id)
    if not sent.error:
        unit.session.delete(row)
        if hook is not None and not sent.dropped:
            hook.delivered, hook.delivered_at, hook.error = hook.delivered + 1, unit.now, ""
        return
    host = urlsplit(row.url).hostname or row.url
    row.attempts, row.error = row.attempts + 1, sent.error
    if hook is not None:
        hook.error = sent.error
    if unit.now - row.created_at > GIVEN_UP_AFTER:
        _log.error("webhook %s: call %d (%s) is given up: %s", host, row.id, row.event, sent.error)
        if hook is None:
            unit.session.delete(row)
        else:
            row.failed_at = unit.now
        return
    pause = min(FIRST_RETRY * 2.0 ** min(row.attempts - 1, 30), LAST_RETRY)
    row.due_at = unit.now + pause
    _log.warning("webhook %s: call %d: %s; again in %g s", host, row.id, sent.error, pause)
