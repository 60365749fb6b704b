"""Conversion between rows and the states of the pure machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.schemas.wire import AllocationState, EndReason, TrialState
from detlab_hub.core.lifecycle.allocation import Allocation, EndKind, Graces, PreemptReason
from detlab_hub.core.lifecycle.trial import Attempt, Evaluator, Hold, MetricState, TrialStatus
from detlab_hub.core.searchers import needs_metric
from detlab_hub.services.base.settings import Settings
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TrialRow

DEFAULT_MAX_RESTARTS = 5

TERMINAL_TRIALS = tuple(state.value for state in TrialState if state.terminal)


def allocation_of(row: AllocationRow) -> Allocation:
    """Return the state of an allocation, from its row."""
    return Allocation(
        state=AllocationState(row.state),
        preempt_reason=None if row.preempt_reason is None else PreemptReason(row.preempt_reason),
        preempt_at=row.preempt_at,
        acked_at=row.preempt_acked_at,
        term_at=row.term_at,
        kill_sent_at=row.kill_sent_at,
        end=None if row.exit_reason is None else EndKind(row.exit_reason),
    )


def write_allocation(row: AllocationRow, state: Allocation) -> None:
    """Put the state of an allocation into its row."""
    row.state = state.state.value
    row.preempt_reason = None if state.preempt_reason is None else state.preempt_reason.value
    row.preempt_at = state.preempt_at
    row.preempt_acked_at = state.acked_at
    row.term_at = state.term_at
    row.kill_sent_at = state.kill_sent_at
    row.exit_reason = None if state.end is None else state.end.value


def trial_of(row: TrialRow, experiment: ExperimentRow, current: AllocationRow | None) -> TrialStatus:
    """Return the state of a trial, from its row and that of its newest allocation."""
    live = current is not None and current.state != AllocationState.TERMINATED
    if row.searcher_metric_seen or not experiment.metric:
        metric = MetricState.SEEN
    elif needs_metric(experiment.searcher_name):
        metric = MetricState.REQUIRED
    else:
        metric = MetricState.MISSED
    return TrialStatus(
        state=TrialState(row.state),
        attempt=Attempt.LIVE if live else Attempt.NONE,
        run=row.run,
        restarts=row.restarts,
        max_restarts=max_restarts(experiment.config),
        metric=metric,
        early_exit=row.early_exit,
        end_reason=None if row.end_reason is None else EndReason(row.end_reason),
        hold=Hold(row.hold),
        evaluator=Evaluator.USER if is_unmanaged(experiment) else Evaluator.CLUSTER,
    )


def write_trial(row: TrialRow, state: TrialStatus) -> None:
    """Put the state of a trial into its row."""
    row.state = state.state.value
    row.run = state.run
    row.restarts = state.restarts
    row.early_exit = state.early_exit
    row.hold = state.hold.value
    row.end_reason = None if state.end_reason is None else state.end_reason.value
    if state.state is TrialState.STOPPING_COMPLETED:
        row.searcher_stopped = True


def is_unmanaged(experiment: ExperimentRow) -> bool:
    """Whether users evaluate its trials by hand: the cluster runs none of them."""
    return bool(experiment.config.get("unmanaged"))


def max_restarts(config: dict[str, Any]) -> int:
    """Return how many failures restart a trial before it is given up."""
    value = config.get("max_restarts")
    return DEFAULT_MAX_RESTARTS if value is None else int(value)


def slots_per_trial(config: Mapping[str, Any]) -> int:
    """Return the number of slots that each trial needs."""
    value = (config.get("resources") or {}).get("slots_per_trial")
    return 1 if value is None else int(value)


def graces_of(config: dict[str, Any], settings: Settings) -> Graces:
    """Return the deadlines of an experiment's tasks."""
    preemption = config.get("preemption_timeout")
    return Graces(
        preemption=settings.preemption_timeout_default if preemption is None else float(preemption),
        stop=settings.stop_grace,
        stop_acked=settings.stop_acked_grace,
    )
