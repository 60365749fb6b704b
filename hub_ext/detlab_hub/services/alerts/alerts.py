"""Alerts and their rules: read and changed by the user whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, NotFound, Problem
from detlab.schemas.patterns import BadPattern, check_pattern
from detlab.schemas.wire.notify.alerts import (
    DEFAULT_AMOUNTS,
    AlertKind,
    AlertLevel,
    AlertList,
    AlertRuleList,
    AlertRuleView,
    AlertView,
    ReadAlerts,
    RuleKind,
    SetAlertRule,
    UnreadAlerts,
)
from detlab_hub.core.alerts import RuleScope
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.destinations import searched
from detlab_hub.services.alerts.emails import check_has_address
from detlab_hub.services.alerts.evaluation import CURSOR, WithAlertRules
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import (
    alert_rule_for,
    check_may_ask,
    experiment_for,
    may_read,
    owns,
    person,
    webhook_for,
)
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.views import pages
from detlab_hub.store.queries import consumers, workspaces
from detlab_hub.store.queries.notify import alerts, user_settings
from detlab_hub.store.queries.workspaces import visible_projects
from detlab_hub.store.tables import AlertRow, AlertRuleRow, ExperimentRow, HookRow, clean_text

MOST_RULES = 200
"""Of one user."""
KEPT_DAYS = 90.0
SWEPT = 2000
_KINDS: tuple[AlertKind, ...] = get_args(AlertKind)
_RULE_KINDS: tuple[RuleKind, ...] = get_args(RuleKind)
_LEVELS: tuple[AlertLevel, ...] = get_args(AlertLevel)


class Alerts(WithAlertRules):
    """Use cases of alerts and rules. What a user may not read any more, no list of theirs shows."""

    async def list(
        self,
        caller: Caller,
        *,
        limit: int = 100,
        before: int | None = None,
        unread: bool = False,
        all_channels: bool = False,
    ) -> AlertList:
        """Return one page of the caller's alerts, the newest first: those of the bell, or of all channels.

        Who wants no bell has all of them: nothing is new there, and nothing is left out.
        """

        def look(s: Session) -> AlertList:
            viewer = person(caller)
            every = all_channels or not user_settings.settings_of(s, viewer.name).bell
            ids = alerts.page(s, viewer.name, viewer, limit + 1, before, unread=unread, all_channels=every)
            items, last = pages.of_rows(s, AlertRow, ids, limit, _views)
            new = alerts.unread(s, viewer.name, viewer)
            return AlertList(items=items, unread=new, next=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def read(self, caller: Caller, wanted: ReadAlerts) -> UnreadAlerts:
        """Mark some of the caller's alerts as read; those of others are left alone without a word."""
        check_may_ask(caller, Action.ALERT_READ)

        def read(unit: UnitOfWork) -> UnreadAlerts:
            alerts.mark_read(unit.session, person(caller).name, wanted.ids, wanted.upto, unit.now)
            return UnreadAlerts(unread=alerts.unread(unit.session, person(caller).name, person(caller)))

        return await self._context.write(read)

    async def rules(self, caller: Caller, *, limit: int = 100, after: int | None = None) -> AlertRuleList:
        """Return one page of the rules that the caller has, the oldest first."""

        def look(s: Session) -> AlertRuleList:
            ids = alerts.rules_page(s, person(caller).name, limit + 1, after)
            items, last = pages.of_rows(s, AlertRuleRow, ids, limit, lambda rows: rule_views(s, caller, rows))
            return AlertRuleList(items=items, next=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def set_rule(self, caller: Caller, wanted: SetAlertRule) -> AlertRuleView:
        """Make a rule of the caller's.

        Raises:
            ConfigError: Its pattern is no regular expression of RE2.
            Conflict: The caller has too many, or no confirmed address to be sent e-mail to.
            NotFound: There is no such experiment, project, workspace or webhook for the caller.
        """

        def make(unit: UnitOfWork) -> AlertRuleView:
            check_may_ask(caller, Action.ALERT_RULE_SET)
            if wanted.webhook is not None:
                own_webhook(unit.session, caller, wanted.webhook)
            _check_pattern(wanted)
            if wanted.email:
                check_has_address(unit, caller)
            row = add_rule(unit, caller, wanted)
            return rule_views(unit.session, caller, [row])[0]

        made = await self._context.write(make)
        self._evaluation.rules_changed()
        return made

    async def remove_rule(self, caller: Caller, rule_id: int) -> AlertRuleView:
        """Remove a rule; return it as it was.

        Raises:
            NotFound: There is none for the caller.
        """

        def remove(unit: UnitOfWork) -> AlertRuleView:
            row = alert_rule_for(unit.session, caller, rule_id, Action.ALERT_RULE_REMOVE)
            view = rule_views(unit.session, caller, [row])[0]
            alerts.remove_rule(unit.session, row.id)
            audit.note(unit, caller, "alert_rule.remove", f"alert rule {row.id}", row.kind)
            return view

        gone = await self._context.write(remove)
        self._evaluation.rules_changed()
        return gone

    async def sweep(self) -> None:
        """Remove alerts that are older than 90 days."""
        before = self._context.clock() - KEPT_DAYS * 86400.0
        while await self._context.write(lambda unit: alerts.purge(unit.session, before, SWEPT)) == SWEPT:
            pass


def own_webhook(s: Session, caller: Caller, hook_id: int) -> HookRow:
    """Load a webhook of the caller's own: an administrator has no alerts sent to those of others.

    Raises:
        NotFound: It is none of theirs.
    """
    row = webhook_for(s, caller, str(hook_id))
    if not owns(caller, row.owner):
        raise NotFound(f"you have no webhook {hook_id}", hint="det webhook list")
    return row


def add_rule(unit: UnitOfWork, caller: Caller, wanted: SetAlertRule) -> AlertRuleRow:
    """Make a rule, in this transaction.

    Raises:
        Conflict: The caller has too many.
        NotFound: There is no such experiment, project or workspace for the caller.
    """
    s = unit.session
    if alerts.rules_of(s, person(caller).name) >= MOST_RULES:
        raise Conflict(f"you have {MOST_RULES} rules for alerts", hint="Remove some: det alert rules")
    scope, key = _scope(s, caller, wanted)
    amount = wanted.amount if wanted.amount is not None else DEFAULT_AMOUNTS.get(wanted.kind, 0.0)
    row = AlertRuleRow(
        owner=person(caller).name,
        owner_groups=sorted(caller.groups),
        kind=wanted.kind,
        amount=amount,
        scope=scope.value,
        key=key,
        bell=wanted.bell,
        hook_id=wanted.webhook,
        email=wanted.email,
        created_at=unit.now,
    )
    s.add(row)
    s.flush()
    if wanted.pattern:
        alerts.set_pattern(s, row.id, wanted.pattern)
    # In this transaction: what happens from now on is evaluated.
    consumers.register(s, CURSOR, unit.now)
    about = f"{scope.value} {key}" if key else "all of their own"
    audit.note(unit, caller, "alert_rule.set", f"alert rule {row.id}", f"{row.kind} of {about}")
    return row


def _check_pattern(wanted: SetAlertRule) -> None:
    try:
        check_pattern(wanted.pattern)
    except BadPattern as error:
        raise ConfigError([Problem("pattern", str(error), error.hint)], f"the pattern {error}") from error


def _scope(s: Session, caller: Caller, wanted: SetAlertRule) -> tuple[RuleScope, int]:
    if wanted.experiment_id is not None:
        return RuleScope.EXPERIMENT, experiment_for(s, caller, wanted.experiment_id).id
    if not wanted.workspace and not wanted.project:
        return RuleScope.OWNER, 0
    place, project = searched(s, caller, wanted.workspace or None, wanted.project or None)
    if project is not None:
        return RuleScope.PROJECT, project
    if place is None or place < 0:
        raise NotFound("nothing lies in your personal workspace yet", hint="det workspace list")
    return RuleScope.WORKSPACE, place


def _views(rows: Sequence[AlertRow]) -> list[AlertView]:
    return [
        AlertView(
            id=row.id,
            kind=next((one for one in _KINDS if one == row.kind), "alert"),
            level=next((one for one in _LEVELS if one == row.level), "info"),
            title=row.title,
            text=row.text,
            experiment_id=row.experiment_id,
            trial_id=row.trial_id,
            run_id=row.run_id,
            held_back=row.held_back,
            created_at=row.created_at,
            read=row.read_at is not None,
        )
        for row in rows
    ]


def rule_views(s: Session, caller: Caller, rows: Sequence[AlertRuleRow]) -> list[AlertRuleView]:
    """Make views of rules; what the caller may not read any more is not named."""
    looked_for = alerts.patterns(s, [row.id for row in rows if row.kind == "log"])
    return [
        AlertRuleView(
            id=row.id,
            kind=next(one for one in _RULE_KINDS if one == row.kind),
            amount=row.amount or None,
            pattern=looked_for.get(row.id, ""),
            scope=RuleScope(row.scope).value,
            scope_id=row.key or None,
            scope_name=_name(s, caller, row),
            bell=row.bell,
            webhook=row.hook_id,
            email=row.email,
            owner=row.owner,
            created_at=row.created_at,
        )
        for row in rows
    ]


def _name(s: Session, caller: Caller, row: AlertRuleRow) -> str:
    match RuleScope(row.scope):
        case RuleScope.OWNER:
            return ""
        case RuleScope.EXPERIMENT:
            found = s.get(ExperimentRow, row.key) if may_read(s, caller, row.key) else None
            return "" if found is None else clean_text(found.name)
        case RuleScope.PROJECT:
            if not visible_projects(s, person(caller), [row.key]):
                return ""
            owner, workspace, project = workspaces.labels(s, [row.key])[row.key]
            return f"{owner}/{workspace}/{project}"
        case RuleScope.WORKSPACE:
            return workspaces.visible_references(s, person(caller), [row.key]).get(row.key, "")
