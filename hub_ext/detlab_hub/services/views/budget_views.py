"""What is used of the budgets of searches: it follows from rows, whenever it is asked for."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from detlab.schemas.wire import BudgetView
from detlab_hub.store.queries import usage
from detlab_hub.store.tables import ExperimentRow

_HOUR = 3600.0


def used(s: Session, row: ExperimentRow, now: float, currency: str) -> dict[str, Any]:
    """Return what is used of an experiment's budgets, and its cost so far, as fields of its view."""
    cost = usage.cost_of_experiment(s, row.id, now)
    priced = {"cost": round(cost, 6), "currency": currency} if cost else {"cost": None}
    return {"budgets": views(s, row, now), **priced}


def views(s: Session, row: ExperimentRow, now: float) -> list[BudgetView]:
    """Return each budget of an experiment: its limit, and how much of it is used."""
    budget, found = row.budget or {}, []
    if (hours := budget.get("slot_hours")) is not None:
        used = usage.slot_seconds(s, row.id, now) / _HOUR
        found.append(BudgetView(name="slot_hours", limit=float(hours), used=used))
    if (seconds := budget.get("wall_clock")) is not None:
        found.append(BudgetView(name="wall_clock", limit=float(seconds), used=_seconds(row, now)))
    return found


def _seconds(row: ExperimentRow, now: float) -> float:
    if row.started_at is None:
        return 0.0
    until = min(one for one in (row.ended_at, row.paused_at, now) if one is not None)
    return max(0.0, until - row.started_at - row.paused_seconds)
