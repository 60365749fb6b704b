"""Webhooks of users: made, listed, tried and deleted by the user whose they are."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import get_args
from urllib.parse import urlsplit

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, Problem
from detlab.schemas.wire.notify.alerts import SetAlertRule
from detlab.schemas.wire.notify.webhooks import (
    CreateWebhook,
    WebhookCallList,
    WebhookCallView,
    WebhookFormat,
    WebhookList,
    WebhookView,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.alerts.alerts import add_rule, rule_views
from detlab_hub.services.alerts.evaluation import AlertEvaluation
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_may_ask, has_secrets_of, person, webhook_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.outgoing import Outgoing, OutgoingError
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.outbox import enqueue_for, outgoing_for_users
from detlab_hub.services.notify.sending import KEPT_FOR
from detlab_hub.services.views import pages
from detlab_hub.store.queries.notify import alerts, webhooks
from detlab_hub.store.tables import HookRow, WebhookRow

MOST_WEBHOOKS = 50
"""Of one user."""
MOST_TESTS = 5
"""Calls that may wait when another is asked for as a test."""
SWEPT = 1000
_FORMATS: tuple[WebhookFormat, ...] = get_args(WebhookFormat)


class Webhooks(Service):
    """Use cases of the webhooks of users.

    Args:
        context: Reads and writes.
        evaluation: Hears of the rules that are made with them.
        outgoing: Replaces the client that checks addresses (for a test).
    """

    def __init__(self, context: ServiceContext, evaluation: AlertEvaluation, outgoing: Outgoing | None = None) -> None:
        super().__init__(context)
        self._evaluation = evaluation
        self._outgoing = outgoing or outgoing_for_users(context)

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Webhooks:
        """Make it with the evaluation, which has to hear of changed rules."""
        return cls(services.context, services[AlertEvaluation])

    async def list(self, caller: Caller, *, limit: int = 100, after: int | None = None) -> WebhookList:
        """Return one page of the webhooks that the caller has, the oldest first."""

        def look(s: Session) -> WebhookList:
            ids = webhooks.page(s, person(caller), limit + 1, after)
            items, last = pages.of_rows(s, HookRow, ids, limit, lambda rows: _views(s, caller, rows))
            return WebhookList(items=items, next=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def get(self, caller: Caller, name: str) -> WebhookView:
        """Return a webhook.

        Raises:
            NotFound: There is none for the caller.
        """
        return await self._context.read(lambda s: _views(s, caller, [webhook_for(s, caller, name)])[0])

    async def create(self, caller: Caller, wanted: CreateWebhook) -> WebhookView:
        """Make a webhook of the caller's, with its rules; the reply alone has the secret that signs its calls.

        Raises:
            ConfigError: The master does not call that address.
            Conflict: The caller has one of this name, or too many.
            NotFound: There is no such workspace or project for the caller.
        """
        check_may_ask(caller, Action.WEBHOOK_CREATE)
        await self._check(caller, wanted.url)

        def create(unit: UnitOfWork) -> WebhookView:
            s, owner = unit.session, person(caller).name
            if webhooks.named(s, owner, wanted.name) is not None:
                raise Conflict(f"you have a webhook {wanted.name!r}", hint="Choose another name: det webhook list")
            if webhooks.count(s, owner) >= MOST_WEBHOOKS:
                raise Conflict(f"you have {MOST_WEBHOOKS} webhooks", hint="Delete some: det webhook delete NAME")
            secret = secrets.token_urlsafe(32)
            row = HookRow(owner=owner, name=wanted.name, url=wanted.url, format=wanted.format, secret=secret)
            row.created_at = unit.now
            s.add(row)
            s.flush()
            for kind in dict.fromkeys(wanted.triggers):
                place = {"workspace": wanted.workspace, "project": wanted.project}
                add_rule(unit, caller, SetAlertRule(kind=kind, bell=False, webhook=row.id, **place))
            audit.note(unit, caller, "webhook.create", f"webhook {row.id}", urlsplit(row.url).hostname or "")
            return _views(s, caller, [row])[0].model_copy(update={"secret": secret})

        made = await self._context.write(create)
        self._evaluation.rules_changed()
        return made

    async def _check(self, caller: Caller, url: str) -> None:
        """Check that the master would call an address.

        Raises:
            ConfigError: It does not, or there is no such host: which of the two, others' networks do not tell.
        """
        try:
            await self._outgoing.check(url, caller.name)
        except OutgoingError as error:
            host = urlsplit(url).hostname or ""
            problem = f"the master does not call {host[:200]}: there is no such host, or its address is not public"
            hint = error.hint or "an operator names hosts and networks inside in c.DetHub.outgoing_allowed"
            raise ConfigError([Problem("url", problem, hint)], problem) from None

    async def delete(self, caller: Caller, name: str) -> WebhookView:
        """Delete a webhook with its rules and calls; return it as it was.

        Raises:
            NotFound: There is none for the caller.
        """

        def delete(unit: UnitOfWork) -> WebhookView:
            row = webhook_for(unit.session, caller, name, Action.WEBHOOK_DELETE)
            view = _views(unit.session, caller, [row])[0]
            for rule in webhooks.rules_of(unit.session, [row.id]).get(row.id, []):
                if rule.bell:
                    rule.hook_id = None
                else:
                    alerts.remove_rule(unit.session, rule.id)
            unit.session.flush()
            webhooks.remove(unit.session, row)
            audit.note(unit, caller, "webhook.delete", f"webhook {row.id}", row.name)
            return view

        gone = await self._context.write(delete)
        self._evaluation.rules_changed()
        return gone

    async def test(self, caller: Caller, name: str) -> WebhookView:
        """Have a call sent to a webhook; how it went, the webhook says soon.

        Raises:
            Conflict: Calls wait already.
            NotFound: There is none for the caller.
        """

        def test(unit: UnitOfWork) -> WebhookView:
            row = webhook_for(unit.session, caller, name, Action.WEBHOOK_TEST)
            if webhooks.waiting(unit.session, webhooks.target_of(row.id), MOST_TESTS) >= MOST_TESTS:
                raise Conflict(f"calls of webhook {row.id} wait already", hint=f"det webhook calls {row.id}")
            text = f"{person(caller).name} tries webhook {row.name}"
            told = {"kind": "test", "level": "info", "title": "detlab calls", "text": text, "experiment": None}
            enqueue_for(unit, row, "test", told, None)
            audit.note(unit, caller, "webhook.test", f"webhook {row.id}", row.name)
            return _views(unit.session, caller, [row])[0]

        return await self._context.write(test)

    async def calls(self, caller: Caller, name: str, *, limit: int = 100, before: int | None = None) -> WebhookCallList:
        """Return one page of the calls of a webhook that wait or were given up, the newest first.

        Raises:
            NotFound: There is none for the caller.
        """

        def look(s: Session) -> WebhookCallList:
            row = webhook_for(s, caller, name)
            ids = webhooks.calls_page(s, webhooks.target_of(row.id), limit + 1, before)
            make: Callable[[Sequence[WebhookRow]], list[WebhookCallView]] = (
                _calls if has_secrets_of(caller, row.owner) else _bare
            )
            items, last = pages.of_rows(s, WebhookRow, ids, limit, make)
            return WebhookCallList(items=items, next=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def sweep(self) -> None:
        """Remove calls that were given up a week ago."""
        before = self._context.clock() - KEPT_FOR
        while await self._context.write(lambda unit: webhooks.purge(unit.session, before, SWEPT)) == SWEPT:
            pass


def _views(s: Session, caller: Caller, rows: Sequence[HookRow]) -> list[WebhookView]:
    s.flush()
    ids = [row.id for row in rows]
    rules, calls = webhooks.rules_of(s, ids), webhooks.calls_of(s, ids)
    found = []
    for row in rows:
        waiting, failed = calls.get(row.id, (0, 0))
        mine = has_secrets_of(caller, row.owner)
        found.append(
            WebhookView(
                id=row.id,
                name=row.name,
                # The address of a chat is a secret: who has it can write there.
                url=row.url if mine else f"{urlsplit(row.url).scheme}://{urlsplit(row.url).hostname}/…",
                format=next((one for one in _FORMATS if one == row.format), "default"),
                owner=row.owner,
                rules=rule_views(s, caller, rules.get(row.id, [])),
                delivered=row.delivered,
                delivered_at=row.delivered_at,
                waiting=waiting,
                failed=failed,
                error=row.error,
                created_at=row.created_at,
            )
        )
    return found


def _calls(rows: Sequence[WebhookRow]) -> list[WebhookCallView]:
    return [
        one.model_copy(update={"title": str(row.body.get("title", ""))})
        for one, row in zip(_bare(rows), rows, strict=True)
    ]


def _bare(rows: Sequence[WebhookRow]) -> list[WebhookCallView]:
    return [
        WebhookCallView(
            id=row.id,
            event=row.event,
            created_at=row.created_at,
            due_at=row.due_at if row.failed_at is None else None,
            attempts=row.attempts,
            error=row.error,
        )
        for row in rows
    ]
