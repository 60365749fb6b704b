"""The holder of trials' allocations: what an allocation's progress, its end and its node's drain do to a trial."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select

from detlab.schemas.wire import AllocationState, FailureView, Launch, TrialState
from detlab_hub.core.lifecycle import allocation as allocations
from detlab_hub.core.lifecycle import experiment as experiments
from detlab_hub.core.lifecycle import trial as trials
from detlab_hub.core.lifecycle.table import is_stopping
from detlab_hub.core.searchers import TrialPlaced
from detlab_hub.services.base.unit_of_work import GpusAtZero, LaunchSeat, UnitOfWork
from detlab_hub.services.failures import cards
from detlab_hub.services.failures.diagnosis import (
    is_denied,
    is_denied_storage,
    is_governance,
    is_lasting,
    is_missing_command,
    is_refused_job,
)
from detlab_hub.services.lifecycle import accounting, log_policies, missing_checkpoints, no_progress
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation
from detlab_hub.services.lifecycle.launching import is_launched, launch_of_trial
from detlab_hub.services.lifecycle.rows import graces_of
from detlab_hub.services.lifecycle.transitions import apply_experiment, apply_trial, finish_turn, tell_search
from detlab_hub.store.queries import parts
from detlab_hub.store.queries.metrics.idle import GPUS_IDLE
from detlab_hub.store.tables import AgentRow, AllocationRow, ExperimentRow, TrialRow

_AT_ONCE = allocations.Graces(preemption=0.0, stop=0.0, stop_acked=0.0)
_KILLED_BY_SIGNAL = frozenset({None, -signal.SIGKILL, -signal.SIGTERM})
"""Exit codes of tasks that others ended; unknown, when even the launcher died."""
_OWN_FAILURES = frozenset({"oom", "setup", cards.TIME_LIMIT})
"""Reasons for such a code that are the task's own: its memory limit, code or files that could not be made ready."""
_LEFT = frozenset({allocations.EndKind.PREEMPTED, allocations.EndKind.KILLED})
"""Ends of attempts that were asked to leave: for a pause, a drain, a task of higher priority."""
_COMES_BACK = frozenset({TrialState.ACTIVE, TrialState.PAUSED})
PAUSED_IDLE = "paused: its GPUs were at 0 %"
"""How the warning begins that an experiment has while it is paused for that."""
_ANEW = "it begins anew, since its code saves nothing when it is asked to leave"


class TrialHolder:
    """The effects of trials' allocations on their trials."""

    def ready(self, unit: UnitOfWork, row: AllocationRow) -> bool:
        """Have its point drawn if it has none yet: it is launched once it has; or without, where it asks by itself."""
        trial = unit.trial(row.trial_id or 0)
        if trial.point_due and not _asks(unit, row):
            tell_search(unit, unit.experiment(trial.experiment_id), TrialPlaced(trial.request_id))
            return False
        return True

    def waits(self, unit: UnitOfWork, row: AllocationRow) -> bool:
        """Whether it was not launched, as it has no point yet; one that asks for its point by itself was."""
        return unit.trial(row.trial_id or 0).point_due and not is_launched(unit, row)

    def launch(self, unit: UnitOfWork, row: AllocationRow, seat: LaunchSeat) -> Launch | None:
        """Start it from its newest checkpoint, or its source."""
        return launch_of_trial(unit, row, unit.trial(row.trial_id or 0), seat)

    def payer(self, unit: UnitOfWork, row: AllocationRow) -> tuple[str, str]:
        """Count its slots to the owner of its experiment."""
        return row.owner or unit.experiment(row.experiment_id or 0).owner, accounting.TRIAL

    def allocation_changed(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Tell readers that the trial changed."""
        unit.changed_trial(unit.trial(row.trial_id or 0))

    def allocation_moved(self, unit: UnitOfWork, row: AllocationRow, state: AllocationState) -> None:
        """Tell readers that the experiment's count of running trials changed; note when it and the trial first ran."""
        trial = unit.trial(row.trial_id or 0)
        unit.changed_experiment(trial.experiment_id)
        if state is not AllocationState.RUNNING:
            return
        experiment = unit.experiment(trial.experiment_id)
        if trial.started_at is None:
            trial.started_at = unit.now
        if experiment.started_at is None:
            experiment.started_at = unit.now

    def attempt_ended(self, unit: UnitOfWork, row: AllocationRow, kind: allocations.EndKind) -> None:
        """Let the trial continue, restart or end."""
        _end_attempt(unit, row, kind)

    def stage_reported(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Do nothing: views of trials do not show stages."""

    def secured(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Do nothing: trials have no service."""

    def time_is_up(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Ask the trial to save and end."""
        apply_trial(unit, unit.trial(row.trial_id or 0), trials.TimeUp())

    def slots_gone(self, unit: UnitOfWork, row: AllocationRow, message: str) -> None:
        """Let it run again elsewhere, uncounted."""
        apply_allocation(unit, row, _leave(unit, allocations.PreemptReason.DEVICE, _AT_ONCE))

    def gpus_idle(self, unit: UnitOfWork, row: AllocationRow, gpus: GpusAtZero) -> str:
        """Warn of it, once: an earlier master may have done so."""
        trial = unit.trial(row.trial_id or 0)
        mark = f"{GPUS_IDLE} in attempt {row.run}"
        if not gpus.told or any(one.startswith(mark) for one in trial.warnings):
            return ""
        ends = "" if gpus.release_at is None else f" They are released in {gpus.left(unit.now)} unless it uses them."
        text = (
            f"{mark}: {gpus.held}. It may wait for data or hang: det trial logs {trial.id};"
            f" det experiment pause {trial.experiment_id} releases them.{ends}"
        )
        trial.warnings = [*_without_idle(trial), text]
        unit.changed_trial(trial)
        return text

    def gpus_in_use(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Take the warning back."""
        trial = unit.trial(row.trial_id or 0)
        trial.warnings = _without_idle(trial)
        unit.changed_trial(trial)

    def release_gpus(self, unit: UnitOfWork, row: AllocationRow, gpus: GpusAtZero) -> str:
        """Pause its experiment; beside others that are in use it alone saves, leaves and starts again."""
        trial = unit.trial(row.trial_id or 0)
        if trial.state != TrialState.ACTIVE:
            return ""
        self.gpus_in_use(unit, row)
        if gpus.alone:
            self.ask_to_leave(unit, row, None)
            return f"trial {trial.id}: {gpus.held}. It saves, leaves and starts again, as the pool {gpus.pool} says"
        text = f"{PAUSED_IDLE}: trial {trial.id}: {gpus.held}. Then: det experiment activate {trial.experiment_id}"
        experiment = unit.experiment(trial.experiment_id)
        experiment.warnings = [*without_idle_pause(experiment.warnings), text]
        apply_experiment(unit, experiment, experiments.ExperimentPauseRequested())
        unit.changed_experiment(experiment.id)
        finish_turn(unit)
        return text

    def drain_began(self, unit: UnitOfWork, row: AllocationRow, agent: AgentRow) -> None:
        """Do nothing: a trial leaves when it is asked to."""

    def ask_to_leave(self, unit: UnitOfWork, row: AllocationRow, until: float | None) -> None:
        """Preempt it: it saves, leaves and runs again elsewhere."""
        graces = graces_of(unit.experiment(row.experiment_id or 0).config, unit.settings)
        if until is not None:
            graces = replace(graces, preemption=min(graces.preemption, max(0.0, until - unit.now)))
        apply_allocation(unit, row, _leave(unit, allocations.PreemptReason.DRAIN, graces))

    def time_limit_comes(self, unit: UnitOfWork, row: AllocationRow) -> None:
        """Preempt it: it saves, leaves and runs again by a new job."""
        graces = graces_of(unit.experiment(row.experiment_id or 0).config, unit.settings)
        apply_allocation(unit, row, _leave(unit, allocations.PreemptReason.TIME_LIMIT, graces))

    def drain_is_over(self, unit: UnitOfWork, row: AllocationRow, agent_id: str) -> None:
        """Preempt it, though it was to run to its end."""
        self.ask_to_leave(unit, row, unit.now + unit.settings.stop_acked_grace)

    def cluster_drains(self, unit: UnitOfWork, row: AllocationRow, timeout: float) -> None:
        """Preempt it, unless it is being killed."""
        if row.state != AllocationState.TERMINATING:
            graces = allocations.Graces(preemption=timeout, stop=timeout, stop_acked=timeout)
            apply_allocation(unit, row, _leave(unit, allocations.PreemptReason.DRAIN, graces))


def _asks(unit: UnitOfWork, row: AllocationRow) -> bool:
    """Whether it asks for its point when it runs, on each of its nodes: it may wait for long after its launch."""
    return all(unit.asks_point(part.agent_id) for part in parts.of_allocation(unit.session, row))


def without_idle_pause(warnings: Sequence[str]) -> list[str]:
    """Return the warnings of an experiment that goes on: without that it was paused for GPUs that did nothing."""
    return [one for one in warnings if not one.startswith(PAUSED_IDLE)]


def _without_idle(trial: TrialRow) -> list[str]:
    return [one for one in trial.warnings if not one.startswith(GPUS_IDLE)]


def _leave(
    unit: UnitOfWork, reason: allocations.PreemptReason, graces: allocations.Graces
) -> allocations.LeaveRequested:
    return allocations.LeaveRequested(reason, unit.now, graces)


def _end_attempt(unit: UnitOfWork, row: AllocationRow, kind: allocations.EndKind) -> None:
    trial = unit.trial(row.trial_id or 0)
    unit.outbox.wake_logs.add(trial.id)
    condemned = trial.state == TrialState.STOPPING_ERROR
    retry = trials.Retry.COUNTED
    exit_report = unit.exits.get(row.id)
    own = exit_report is not None and exit_report.reason in _OWN_FAILURES
    killed = kind is allocations.EndKind.FAILED and row.exit_code in _KILLED_BY_SIGNAL and not own
    if kind is allocations.EndKind.FAILED and not condemned and not (killed and is_stopping(trial.state)):
        experiment = unit.experiment(trial.experiment_id)
        card = cards.of_exit(
            unit.session,
            experiment,
            trial,
            row,
            rank=None if exit_report is None else exit_report.rank,
            reason="" if exit_report is None else exit_report.reason,
            message="" if exit_report is None else exit_report.message,
        )
        # A trial that has reported could import its code before: then a restart may help.
        retry, card = _after_attempt(unit, experiment, trial, row, card)
        trial.failure = card.model_dump()
    elif (given_up := no_progress.given_up(unit, trial, row, kind)) is not None:
        kind, retry, trial.failure = allocations.EndKind.FAILED, trials.Retry.NEVER, given_up.model_dump()
    apply_trial(unit, trial, trials.TrialAttemptEnded(kind, retry, killed))
    if kind in _LEFT and trial.state in _COMES_BACK:
        _warn_nothing_saved(unit, trial)


def _warn_nothing_saved(unit: UnitOfWork, trial: TrialRow) -> None:
    """Warn once that a trial left without a checkpoint, and will do again what it had done."""
    if trial.latest_checkpoint is not None or not trial.steps_completed:
        return
    if any(_ANEW in said for said in trial.warnings):
        return
    warning = f"left at step {trial.steps_completed} without a checkpoint: {_ANEW}"
    experiment = unit.experiment(trial.experiment_id)
    trial.warnings = [*trial.warnings, warning]
    experiment.warnings = cards.with_warning(experiment.warnings, f"trial {trial.id} {warning}")
    unit.changed_trial(trial)
    unit.changed_experiment(experiment.id)


def _could_run_elsewhere(unit: UnitOfWork, experiment: ExperimentRow, row: AllocationRow) -> bool:
    """Whether the pool has another agent: a folder may be missing, or closed, on one node alone."""
    others = select(AgentRow.id).where(AgentRow.pool == experiment.resource_pool, AgentRow.id != row.agent_id)
    return unit.session.scalar(others.where(AgentRow.enabled).limit(1)) is not None


def _after_attempt(
    unit: UnitOfWork, experiment: ExperimentRow, trial: TrialRow, row: AllocationRow, card: FailureView
) -> tuple[trials.Retry, FailureView]:
    """Return the effect of a failure on the next attempt, and its card with a note of it."""
    # A trial that has reported could import its code before: then a restart may help.
    if trial.steps_completed == 0 and trial.latest_validation is None and is_lasting(card.message):
        return trials.Retry.NEVER, cards.without_restart(card)
    if is_governance(card.message) and row.preempt_reason == allocations.PreemptReason.PAUSE:
        # It was starting as a source was withdrawn, which has paused it, and asked too late whether it may.
        return trials.Retry.FREE, card
    if is_refused_job(card.message) or is_governance(card.message):
        return trials.Retry.NEVER, cards.without_restart(card)
    missing = is_denied(card.message) or is_missing_command(card.message)
    denied = is_denied_storage(card.message) or (missing and not trial.steps_completed)
    if denied and trial.latest_checkpoint is None and not _could_run_elsewhere(unit, experiment, row):
        return trials.Retry.NEVER, cards.without_restart(card)
    if (found := missing_checkpoints.check(unit, experiment, trial, row, card)) is not None:
        return found
    if (why := log_policies.canceled_retries(trial)) is not None:
        return trials.Retry.NEVER, log_policies.without_retries(card, why)
    return trials.Retry.COUNTED, card
