"""The holder of user tasks' allocations: what an allocation's progress, its end and its node's drain do to a task."""

from __future__ import annotations

import logging

from detlab.schemas.taskwire import TaskEnd
from detlab.schemas.wire import AllocationState, FailureView, Launch, TrialState
from detlab_hub.core.lifecycle import allocation as allocations
from detlab_hub.core.lifecycle import usertask
from detlab_hub.services.base.unit_of_work import GpusAtZero, LaunchSeat, UnitOfWork
from detlab_hub.services.failures import cards
from detlab_hub.services.lifecycle import no_progress
from detlab_hub.services.lifecycle.launching import launch_of_task, note_certificate
from detlab_hub.services.lifecycle.task_transitions import apply_task, say
from detlab_hub.store.tables import AgentRow, AllocationRow, TaskNote, TaskRow

_log = logging.getLogger(__name__)


class TaskHolder:
    """The effects of user tasks' allocations on their tasks. Nothing in such a task listens for a preemption."""

    def ready(self, unit: UnitOfWork, row: AllocationRow) -> bool:
        """Be so at once."""
        return True

    def waits(self, unit: UnitOfWork, row: AllocationRow) -> bool:
        """Never do so."""
        return False

    def launch(self, unit: UnitOfWork, row: AllocationRow, seat: LaunchSeat) -> Launch | None:
        """Start it; a server of the Hub gets the environment that its spawner sent."""
        return launch_of_task(unit, row, unit.task(row.task_id or ""), seat)

    def payer(self, unit: UnitOfWork, row: AllocationRow) -> tuple[str, str]:
        """Count its slots to its owner, as those of its kind."""
        task = unit.session.get(TaskRow, row.task_id)
        return row.owner or ("" if task is None else task.owner), "" if task is None else task.kind

    def allocation_changed(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Do nothing: readers are notified when it moves."""

    def allocation_moved(self, unit: UnitOfWork, row: AllocationRow, state: AllocationState) -> None:
        """Note when the task first ran."""
        task = unit.task(row.task_id or "")
        if state is AllocationState.RUNNING and task.started_at is None:
            task.started_at = task.last_activity = unit.now
        unit.changed_task(task)

    def attempt_ended(self, unit: UnitOfWork, row: AllocationRow, kind: allocations.EndKind) -> None:
        """End the task, or let it run again."""
        task = unit.task(row.task_id or "")
        task.exit_code = row.exit_code
        if kind is allocations.EndKind.FAILED:
            exit_report = unit.exits.get(row.id)
            card = cards.of_task_exit(
                unit.session,
                task,
                row,
                rank=None if exit_report is None else exit_report.rank,
                reason="" if exit_report is None else exit_report.reason,
                message="" if exit_report is None else exit_report.message,
            )
            task.failure = card.model_dump()
        elif (given_up := no_progress.task_given_up(unit, task, row, kind)) is not None:
            kind, task.failure = allocations.EndKind.FAILED, given_up.model_dump()
        unit.outbox.wake_logs.add(task.id)
        apply_task(unit, task, usertask.UserTaskAttemptEnded(kind, ran=row.started_at is not None))

    def stage_reported(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Tell readers: the progress page of a server shows it."""
        unit.changed_task(unit.task(row.task_id or ""))

    def secured(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Have the Hub's proxy reach it by TLS: it gets its certificate now that its address is known."""
        if unit.settings.server_authority is not None:
            note_certificate(unit.task(row.task_id or ""), row.run)

    def time_is_up(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """End it."""
        task = unit.task(row.task_id or "")
        before = task.state
        apply_task(unit, task, usertask.EndRequested(TaskEnd.MAX_TIME))
        if task.state != before:
            _log.info("task %s has run for its max_time of %g s, ending it", task.id, row.max_time)
            say(unit, task, f"this {task.kind} has run for its resources.max_time of {row.max_time:g} s: it is ended")

    def slots_gone(self, unit: UnitOfWork, row: AllocationRow, message: str) -> None:
        """Say why it is killed: it does not run again."""
        hint = "what the agent has now: det slot list"
        card = FailureView(kind="lost", message=message, hint=hint, command="det slot list")
        unit.task(row.task_id or "").failure = card.model_dump()

    def gpus_idle(self, unit: UnitOfWork, row: AllocationRow, gpus: GpusAtZero) -> str:
        """Note it for the page and the log."""
        task = unit.task(row.task_id or "")
        note = {"since": gpus.since, "release_at": gpus.release_at}
        task.source = {**task.source, TaskNote.IDLE_GPUS.value: note}
        unit.changed_task(task)
        if not gpus.told:
            return ""
        ends = "" if gpus.release_at is None else f" It is ended in {gpus.left(unit.now)} unless it uses them."
        text = f"{gpus.held}.{ends} It may wait, or nobody may need it any more: det task kill {task.id}"
        say(unit, task, text)
        return text

    def gpus_in_use(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Forget the note; say so if it was to be ended."""
        task = unit.task(row.task_id or "")
        note = task.source.get(TaskNote.IDLE_GPUS) or {}
        task.source = {key: value for key, value in task.source.items() if key != TaskNote.IDLE_GPUS}
        if note.get("release_at") is not None:
            say(unit, task, "its GPUs are in use again, or not measured: it is not ended for them")
        unit.changed_task(task)

    def release_gpus(self, unit: UnitOfWork, row: AllocationRow, gpus: GpusAtZero) -> str:
        """End it: it cannot save."""
        task = unit.task(row.task_id or "")
        if task.state != TrialState.ACTIVE:
            return ""
        text = f"{gpus.held}: it is ended, as the pool {gpus.pool} says"
        say(unit, task, text)
        apply_task(unit, task, usertask.EndRequested(TaskEnd.IDLE))
        return text

    def drain_began(self, unit: UnitOfWork, row: AllocationRow, agent: AgentRow) -> None:
        """Tell its user, who may end it in time."""
        task = unit.task(row.task_id or "")
        when = "" if agent.drain_until is None else f": it is ended in {agent.drain_until - unit.now:.0f} s"
        say(unit, task, f"its node {agent.id} is being drained{when or '; please end it when you can'}")
        unit.changed_task(task)

    def ask_to_leave(self, unit: UnitOfWork, row: AllocationRow, until: float | None) -> None:
        """Do nothing: it cannot save, and runs until the drain is over."""

    def time_limit_comes(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Do nothing: it cannot save."""

    def drain_is_over(self, unit: UnitOfWork, row: AllocationRow, agent_id: str) -> None:
        """End it, and tell its user."""
        task = unit.task(row.task_id or "")
        say(unit, task, f"its node {agent_id} is being drained, and the time for that is over: it is ended")
        apply_task(unit, task, usertask.EndRequested(TaskEnd.KILLED))

    def cluster_drains(self, unit: UnitOfWork, row: AllocationRow, timeout: float) -> None:
        """End it now."""
        apply_task(unit, unit.task(row.task_id or ""), usertask.EndRequested(TaskEnd.KILLED))
