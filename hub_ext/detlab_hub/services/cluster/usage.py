"""Slot time by user: the sums of ended allocations, and the running ones."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.taskwire import UsageRow as UsageItem
from detlab.schemas.taskwire import UsageView, UserShareView
from detlab.visible import is_formula
from detlab_hub.backends.base import Node
from detlab_hub.core.rights import ObjectKind
from detlab_hub.core.scheduling.fair_share import capacity_of
from detlab_hub.core.scheduling.planner import Planner
from detlab_hub.core.scheduling.user_shares import user_shares
from detlab_hub.services.base.access import knows, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.lifecycle.accounting import TRIAL, day_of, split_by_day
from detlab_hub.services.placement import snapshots
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.services.views.idle_gpus import idle_now
from detlab_hub.store.queries import usage
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TaskRow

DEFAULT_DAYS = 30
"""Days that are shown by default."""
"""Characters that a spreadsheet may take for the beginning of a formula; the last four are the wide forms."""


class Usage(Service):
    """Slot time of users."""

    async def view(self, caller: Caller, first: date | None = None, last: date | None = None) -> UsageView:
        """Return slot hours by day, user and kind: of all users for an administrator, else the caller's own.

        Args:
            caller: Who asks.
            first: First day; by default 29 days before the last.
            last: Last day, included; by default today.
        """
        now = self._context.clock()
        end = last or day_of(now)
        begin = first or end - timedelta(days=DEFAULT_DAYS - 1)
        viewer = person(caller)
        settings, nodes, refusals = (
            self._context.settings,
            self._context.backend.nodes(now),
            dict(self._context.refusals),
        )

        def read(s: Session) -> UsageView:
            sums: defaultdict[tuple[str, str, str], float] = defaultdict(float)
            costs: defaultdict[tuple[str, str, str], float] = defaultdict(float)
            for row in usage.between(s, begin.isoformat(), end.isoformat(), viewer):
                sums[row.day, row.owner, row.kind] += row.slot_seconds
                costs[row.day, row.owner, row.kind] += row.cost
            for user, kind, slots, since, price in _running(s, caller):
                for day, seconds in split_by_day(since, now):
                    if begin <= day <= end:
                        sums[day.isoformat(), user, kind] += slots * seconds
                        costs[day.isoformat(), user, kind] += slots * seconds / 3600 * price
            items = [
                UsageItem(
                    day=key[0],
                    user=key[1],
                    kind=key[2],
                    slot_hours=round(seconds / 3600, 6),
                    cost=round(costs[key], 6),
                )
                for key, seconds in sorted(sums.items())
            ]
            shares = [
                one for one in _shares(s, nodes, refusals, now, settings) if knows(caller, ObjectKind.USER, one.user)
            ]
            idle = [
                one.view
                for one in idle_now(s, now, settings, self._context.gpus)
                if knows(caller, ObjectKind.USER, one.owner)
            ]
            view = UsageView(first=begin.isoformat(), last=end.isoformat(), items=items)
            return view.model_copy(update={"shares": shares, "idle": idle, "currency": settings.currency})

        return await self._context.look(caller.name, read)


def _shares(
    s: Session, nodes: Sequence[Node], refusals: snapshots.Refusals, now: float, settings: Settings
) -> list[UserShareView]:
    """Return the shares of all users in the pools that have them."""
    pools = [pool for pool in settings.pools.by_name.values() if pool.by_users]
    known = snapshots.snapshots(s, nodes, refusals, now, settings) if pools else {}
    found = []
    for pool in pools:
        planner = Planner(known[pool.name])
        for user, one in sorted(user_shares(planner).items()):
            found.append(
                UserShareView(
                    pool=pool.name,
                    user=user,
                    group=one.group,
                    held=one.held,
                    waiting=sum(task.slots for task in one.pending),
                    share=round(one.share, 3),
                    of=capacity_of(planner),
                    used=round(one.used / 3600, 3),
                    half_life=pool.rules.half_life,
                )
            )
    return found


def _running(s: Session, caller: Caller) -> list[tuple[str, str, int, float, float]]:
    """Return (owner, kind, slots, since, price) of the allocations with slots whose usage the caller may read."""
    query = (
        select(
            AllocationRow.owner,
            ExperimentRow.owner,
            TaskRow.owner,
            TaskRow.kind,
            AllocationRow.slots,
            AllocationRow.assigned_at,
            AllocationRow.price,
        )
        .outerjoin(ExperimentRow, ExperimentRow.id == AllocationRow.experiment_id)
        .outerjoin(TaskRow, TaskRow.id == AllocationRow.task_id)
        .where(AllocationRow.state.in_(PLACED))
    )
    found = []
    for named, of_experiment, of_task, kind, slots, since, price in s.execute(query):
        user = named or of_experiment or of_task or ""
        if since is not None and slots and knows(caller, ObjectKind.USER, user):
            found.append((user, kind or TRIAL, len(slots), since, price))
    return found


def to_csv(view: UsageView) -> str:
    """Return a table for spreadsheets: day, user, kind, slot hours, and cost if anything cost something."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    priced = any(item.cost for item in view.items)
    writer.writerow(["day", "user", "kind", "slot_hours", *(["cost"] if priced else [])])
    for item in view.items:
        cost = [f"{item.cost:.6f}"] if priced else []
        writer.writerow([item.day, safe_cell(item.user), safe_cell(item.kind), f"{item.slot_hours:.6f}", *cost])
    return out.getvalue()


def safe_cell(text: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: an apostrophe is put before anything that could be one."""
    return f"'{text}" if is_formula(text) else text
