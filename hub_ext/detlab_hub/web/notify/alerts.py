"""Routes of alerts and their rules."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.notify.alerts import (
    AlertList,
    AlertRuleList,
    AlertRuleView,
    ReadAlerts,
    SetAlertRule,
    UnreadAlerts,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.alerts.alerts import Alerts as AlertsService
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class AlertsQuery(Wire):
    """Which alerts."""

    unread: bool = False
    """Only those that the caller has not read."""
    all_channels: bool = False
    """With those of rules without the bell, which were sent by webhook or e-mail alone."""
    limit: int = Field(100, ge=1, le=1000)
    before: RowId | None = None
    """`next` of the page before."""


class AlertRulesQuery(Wire):
    """Which rules."""

    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`next` of the page before."""


@route("alerts", relayed=True)
class Alerts(Guarded):
    """What the caller was told."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: AlertsQuery) -> AlertList:
        """List the caller's alerts, the newest first, without those of what they may not read any more."""
        return await self.services[AlertsService].list(self.person, **query.model_dump())


@route("alerts/read", relayed=True)
class AlertsRead(Guarded):
    """Alerts that the caller has read."""

    @needs("write", cross_site="xsrf", action=Action.ALERT_READ)
    async def post(self, body: ReadAlerts) -> UnreadAlerts:
        """Mark alerts of the caller as read: some, or all up to one."""
        return await self.services[AlertsService].read(self.person, body)


@route("alerts/rules", relayed=True)
class AlertRules(Guarded):
    """The rules by which the caller is told."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: AlertRulesQuery) -> AlertRuleList:
        """List the caller's rules, the oldest first."""
        return await self.services[AlertsService].rules(self.person, **query.model_dump())

    @needs("write", cross_site="xsrf", action=Action.ALERT_RULE_SET)
    async def post(self, body: SetAlertRule) -> AlertRuleView:
        """Make a rule about the caller's own experiments, or about one, a project or a workspace they may read."""
        return await self.services[AlertsService].set_rule(self.person, body)


@route("alerts/rules/{alert_rule}", relayed=True)
class OneAlertRule(Guarded):
    """One rule."""

    @needs("write", cross_site="xsrf", action=Action.ALERT_RULE_REMOVE)
    async def delete(self, alert_rule: int) -> AlertRuleView:
        """Remove a rule; return it as it was."""
        return await self.services[AlertsService].remove_rule(self.person, alert_rule)
