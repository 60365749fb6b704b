"""Operations on alerts and their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.wire.notify.alerts import (
    AlertList,
    AlertRuleView,
    AlertView,
    ReadAlerts,
    SetAlertRule,
    UnreadAlerts,
)


def alerts(limit: int | None = None, *, unread: bool = False, all_channels: bool = False) -> Flow[list[AlertView]]:
    """List the caller's alerts, the newest first: those of the bell, or of all channels."""
    asked = {"unread": "true" if unread else None, "all_channels": "true" if all_channels else None}
    return pages("alerts", AlertView, "before", limit, asked)


def unread_alerts() -> Flow[AlertList]:
    """Count the alerts that the caller has not read, up to 100; the newest one comes with it."""
    return one(Call("GET", "alerts", params={"limit": 1}, parse=model(AlertList)))


def read_alerts(ids: Sequence[int] = (), upto: int | None = None) -> Flow[UnreadAlerts]:
    """Mark alerts as read: some, or all up to one."""
    with valid_request():
        body = ReadAlerts(ids=list(ids), upto=upto)
    return one(Call("POST", "alerts/read", json=body, parse=model(UnreadAlerts)))


def alert_rules() -> Flow[list[AlertRuleView]]:
    """List the caller's rules, the oldest first."""
    return pages("alerts/rules", AlertRuleView, "after", None)


def set_alert_rule(kind: Any, amount: float | None = None, **more: Any) -> Flow[AlertRuleView]:
    """Make a rule; `more` are the fields of `SetAlertRule`."""
    with valid_request():
        body = SetAlertRule(kind=kind, amount=amount, **more)
    return one(Call("POST", "alerts/rules", json=body, parse=model(AlertRuleView), again=False))


def remove_alert_rule(rule: int) -> Flow[AlertRuleView]:
    """Remove a rule; return it as it was."""
    return one(Call("DELETE", f"alerts/rules/{int(rule)}", parse=model(AlertRuleView), again=False))
