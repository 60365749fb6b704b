"""Views of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy.orm import Session

from detlab.schemas.wire import TrialState
from detlab.schemas.wire.notebooks.schedules import ScheduleState, ScheduleView
from detlab_hub.core.schedules import Cron, next_time
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.views.pages import brief
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.tasks import schedules
from detlab_hub.store.tables import ScheduleRow

TIMES_SHOWN = 3
_FURTHEST = 4e9
"""Later than what a page can show: nobody waits for it."""


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its IANA name.

    Raises:
        ValueError: There is none of that name here.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ValueError(f"there is no time zone {name!r}") from error


def next_of(row: ScheduleRow, now: float) -> float | None:
    """Return when a schedule by the clock is due after a time; None: never again, or it is not by the clock."""
    if not row.cron:
        return None
    found = next_time(Cron.parse(row.cron), now, zone_of(row.time_zone))
    return found if found < float("inf") else None


def schedule_views(s: Session, rows: Sequence[ScheduleRow], *, full: bool = False) -> list[ScheduleView]:
    """Make the views of schedules.

    Args:
        s: A session.
        rows: The schedules.
        full: Whether the (masked) config and the next times go with each, and no text is shortened.
    """
    places = workspaces.references(s, {row.workspace_id for row in rows if row.workspace_id is not None})
    labels = workspaces.labels(s, {row.project_id for row in rows if row.project_id is not None})
    states = schedules.states_of_runs(s, [row.last_task for row in rows if row.last_task is not None])
    views = []
    for row in rows:
        state = states.get(row.last_task or "")
        views.append(
            ScheduleView(
                id=row.id,
                name=row.name,
                owner=row.owner,
                state=ScheduleState(row.state),
                reason=row.reason,
                workspace=places.get(row.workspace_id or 0, ""),
                workspace_id=row.workspace_id,
                project=labels.get(row.project_id or 0, ("", "", ""))[2],
                project_id=row.project_id,
                cron=row.cron,
                time_zone=row.time_zone,
                after_experiment=row.after_experiment,
                after_task=row.after_task,
                next_at=row.next_at,
                next_times=_next_times(row) if full else [],
                runs=row.runs,
                skipped=row.skipped,
                last_task=row.last_task,
                last_task_state=None if state is None else TrialState(state),
                last_due_at=row.last_due_at,
                last_started_at=row.last_started_at,
                note=row.note,
                noted_at=row.noted_at,
                notebook=row.notebook,
                parameters=row.parameters,
                config=masked_config(row.config) if full else None,
                created_at=row.created_at,
            )
        )
    return views if full else list(map(brief, views))


def schedule_view(s: Session, row: ScheduleRow) -> ScheduleView:
    """Make the view of one schedule, with all that it has."""
    return schedule_views(s, [row], full=True)[0]


def _next_times(row: ScheduleRow) -> list[float]:
    at, found = row.next_at, list[float]()
    while row.state == ScheduleState.ACTIVE and at is not None and at < _FURTHEST and len(found) < TIMES_SHOWN:
        found.append(at)
        try:
            at = next_of(row, at)
        except ValueError:  # the time zone has gone
            break
    return found
