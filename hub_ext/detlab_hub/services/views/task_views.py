"""From rows of user tasks to views for callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.runtimes import PROCESS, takes_image
from detlab.schemas.taskwire import TaskEnd, TaskKind, TaskView
from detlab.schemas.wire import AllocationState, FailureView, TrialState
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.views.experiment_views import CHUNK, Reasons, display_state, waiting_for, waits_elsewhere
from detlab_hub.services.views.pages import brief
from detlab_hub.store.tables import AllocationRow, TaskNote, TaskRow

_PAGES = {TaskKind.NOTEBOOK: "lab", TaskKind.SHELL: "terminals/1", TaskKind.TENSORBOARD: ""}


def task_view(s: Session, row: TaskRow, reasons: Reasons, *, full: bool = False) -> TaskView:
    """Make the view of one user task."""
    return task_views(s, [row], reasons, full=full)[0]


def task_views(s: Session, rows: Sequence[TaskRow], reasons: Reasons, *, full: bool = False) -> list[TaskView]:
    """Make the views of many user tasks, each with its newest allocation.

    Args:
        s: A session.
        rows: The tasks.
        reasons: Why pending allocations wait, and their places.
        full: Whether the (masked) config goes with each, and no text is shortened.
    """
    s.flush()
    current: dict[tuple[str | None, int], AllocationRow] = {}
    ids = [row.id for row in rows]
    for start in range(0, len(ids), CHUNK):
        found = s.scalars(select(AllocationRow).where(AllocationRow.task_id.in_(ids[start : start + CHUNK])))
        current.update(((allocation.task_id, allocation.run), allocation) for allocation in found)
    views = [_view(row, current.get((row.id, row.run)), reasons, full=full) for row in rows]
    return views if full else list(map(brief, views))


def _view(row: TaskRow, current: AllocationRow | None, reasons: Reasons, *, full: bool) -> TaskView:
    kind, state = TaskKind(row.kind), TrialState(row.state)
    pending = current is not None and current.state == AllocationState.PENDING
    up = current is not None and current.state == AllocationState.RUNNING
    resources = row.config.get("resources") or {}
    return TaskView(
        id=row.id,
        kind=kind,
        name=row.name,
        owner=row.owner,
        state=state,
        allocation_state=None if current is None else AllocationState(current.state),
        display_state=_display(state, current),
        end_reason=None if row.end_reason is None else TaskEnd(row.end_reason),
        slots_needed=int(resources.get("slots") or 0),
        slots=[] if current is None else current.slots,
        agent_id=None if current is None else current.agent_id,
        resource_pool=resources.get("resource_pool") or "default",
        runtime=row.config.get("runtime") or PROCESS,
        image=_image(row.config),
        priority=row.priority,
        server_name=row.server_name,
        # what people say of the source of their tasks counts for nothing here: tokens are sent to this host
        server_host=str(row.source.get(TaskNote.SERVER_HOST, "")) if row.base_url and kind.served_by_hub else "",
        url=f"{row.base_url}{_PAGES[kind]}" if up and row.base_url and kind.served_by_hub else None,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        stage_message="" if current is None or state.terminal else current.stage_message,
        place=reasons.places.get(current.id) if current is not None and pending else None,
        pending_reason=waiting_for(current, reasons) if pending or waits_elsewhere(current) else None,
        last_activity=row.last_activity,
        idle_timeout=row.idle_timeout,
        cull_at=row.cull_at,
        experiment_ids=row.experiment_ids,
        trial_ids=row.trial_ids,
        failure=None if row.failure is None else FailureView.model_validate(row.failure),
        config=masked_config(row.config) if full else None,
    )


def _display(state: TrialState, current: AllocationRow | None) -> str:
    shown = display_state(state, current)
    if shown == "STARTING" and current is not None and current.state == AllocationState.PULLING:
        return "PULLING"
    return shown


def _image(config: dict[str, Any]) -> str | None:
    if not takes_image(config.get("runtime") or PROCESS):
        return None
    image = (config.get("environment") or {}).get("image")
    return (image.get("cuda") or image.get("cpu") or None) if isinstance(image, dict) else image
