"""From rows of user tasks to views for callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.runtimes import PROCESS, takes_image
from detlab.schemas.taskwire import TaskEnd, TaskKind, TaskView
from detlab.schemas.wire import AllocationState, FailureView, TrialState
from detlab_hub.core.rights import right_of
from detlab_hub.services.base.access import may_open_task, person, task_states
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.views.experiment_views import CHUNK, Reasons, display_state, waiting_for, waits_elsewhere
from detlab_hub.services.views.pages import brief
from detlab_hub.store.queries import workspaces
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
    names = workspaces.labels(s, {row.project_id for row in rows if row.project_id is not None})
    views = [_view(row, current.get((row.id, row.run)), reasons, names, full=full) for row in rows]
    return views if full else list(map(brief, views))


def views_for(
    s: Session, caller: Caller, rows: Sequence[TaskRow], reasons: Reasons, *, full: bool = False
) -> list[TaskView]:
    """Make the views that a caller gets: of tasks that they may not open, their state alone.

    They must have the right to see each of them.
    """
    things = task_states(s, caller, rows)
    found = []
    for row, view in zip(rows, task_views(s, rows, reasons, full=full), strict=True):
        shown = view if may_open_task(caller, row) else TaskView.model_validate(state_of(view.model_dump(mode="json")))
        found.append(shown.model_copy(update={"may": right_of(person(caller), things[row.id]).wire}))
    return found


def view_for(s: Session, caller: Caller, row: TaskRow, reasons: Reasons) -> TaskView:
    """Make the view that a caller gets of one task, with its config."""
    return views_for(s, caller, [row], reasons, full=True)[0]


_STATE = (
    "id", "kind", "name", "owner", "workspace", "workspace_id", "project", "project_id", "may", "state",
    "allocation_state", "display_state", "end_reason", "slots_needed", "resource_pool", "runtime", "priority",
    "created_at", "started_at", "ended_at", "place", "pending_reason", "shortened",
)  # fmt: skip
"""Fields of a task that members of its workspace see. Everything else is its owner's: its address, what is said of its
start and its end (which repeats output), where it runs, when it was used, what a TensorBoard shows."""
_RESOURCES = ("slots", "priority", "resource_pool", "shm_size", "memory", "cpus", "max_time")
_EMPTY = TaskView(id="", kind=TaskKind.COMMAND, name="", owner="", state=TrialState.ACTIVE).model_dump(mode="json")


def state_of(view: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a view, as JSON, that is for members of its workspace who may not open it."""
    found = {**_EMPTY, **{key: view[key] for key in _STATE}, "opens": False}
    if view.get("config") is None:
        return found if "config" in view else {key: value for key, value in found.items() if key != "config"}
    return {**found, "config": _config_for_members(view["config"])}


def _config_for_members(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what members may read of a config: no command line, variable, mount or option could hold a secret."""
    resources, environment = config.get("resources") or {}, config.get("environment") or {}
    return {
        "runtime": config.get("runtime"),
        "resources": {key: resources[key] for key in _RESOURCES if key in resources},
        "environment": {"image": environment.get("image")},
    }


def _view(
    row: TaskRow,
    current: AllocationRow | None,
    reasons: Reasons,
    names: Mapping[int, tuple[str, str, str]],
    *,
    full: bool,
) -> TaskView:
    kind, state = TaskKind(row.kind), TrialState(row.state)
    pending = current is not None and current.state == AllocationState.PENDING
    up = current is not None and current.state == AllocationState.RUNNING
    resources = row.config.get("resources") or {}
    idle = (row.source.get(TaskNote.IDLE_GPUS) or {}) if up and state is TrialState.ACTIVE else {}
    maker, workspace, project = names.get(row.project_id or 0, (row.owner, "", ""))
    return TaskView(
        id=row.id,
        kind=kind,
        name=row.name,
        owner=row.owner,
        workspace=workspace if maker == row.owner else f"{maker}/{workspace}",
        workspace_id=row.workspace_id,
        project=project,
        project_id=row.project_id,
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
        gpus_idle_since=idle.get("since"),
        gpus_released_at=idle.get("release_at"),
        experiment_ids=row.experiment_ids,
        trial_ids=row.trial_ids,
        schedule_id=row.source.get(TaskNote.SCHEDULE),
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
