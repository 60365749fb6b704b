"""Cards of ends and waits that are not failures: a lost node, a preemption, a stop, a non-finite or missing metric.

They are made from rows when one trial or one experiment is read; a failure's own card is stored with it.
"""

from __future__ import annotations

import math

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.pasted import word
from detlab.schemas.wire import AllocationState, EndReason, ExperimentState, FailureView, TrialState
from detlab_hub.core.lifecycle.allocation import EndKind, PreemptReason
from detlab_hub.store.queries import audit, parts, trials
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TrialRow

_NAMED_METRICS = 5
_WORDS = 300
"""Characters of an agent's words on a card."""
_STOPS = {"experiment.kill": "killed", "experiment.cancel": "canceled", "trial.kill": "killed"}
_GOES_ON = ("experiment.continue", "search.retry")
_ASKED_TRIALS = 16
"""Trials that are asked who killed them: an experiment that ends with a killed trial has one, or few."""
_EVICTIONS = {
    PreemptReason.PREEMPT.value: "its slots were given to work that goes before it",
    PreemptReason.DRAIN.value: "its node, or the cluster, is being drained",
    PreemptReason.TIME_LIMIT.value: "the time limit of its batch job came near",
}


def of_experiment(s: Session, row: ExperimentRow) -> FailureView | None:
    """Return the card of an experiment that failed or that a user stopped, else of its trial that failed first."""
    if row.state == ExperimentState.CANCELED:
        return _stopped_experiment(s, row)
    if row.failure is not None:
        return FailureView.model_validate(row.failure)
    first = trials.first_failed(s, row.id)
    card = None if first is None else _failure(first)
    return None if first is None or card is None else card.model_copy(update={"trial_id": first.id})


def of_trial(s: Session, row: TrialRow, current: AllocationRow | None) -> FailureView | None:
    """Return the card of how a trial's newest finished attempt ended; None if it ended well or as the search decided.

    Args:
        s: A session.
        row: The trial.
        current: Its newest allocation, None before the first.
    """
    match TrialState(row.state):
        case TrialState.COMPLETED:
            return _completed(s, row)
        case TrialState.CANCELED:
            return _stopped_trial(s, row)
        case TrialState.ERROR:
            return _failure(row)
        case _:
            return _interrupted(s, row, current) or _failure(row)


def _failure(row: TrialRow) -> FailureView | None:
    if row.failure is not None:
        return FailureView.model_validate(row.failure)
    if row.state != TrialState.ERROR:
        return None
    return FailureView(
        kind="exception",
        message="its code reported that it ended with an error",
        trial_id=row.id,
        hint=f"its output: det trial logs {row.id}",
        command=f"det trial logs {row.id}",
    )


def _completed(s: Session, row: TrialRow) -> FailureView | None:
    if row.end_reason == EndReason.MAX_TIME:
        return _timed_out(s, row)
    experiment = s.get(ExperimentRow, row.experiment_id)
    metric = "" if experiment is None else experiment.metric
    if row.latest_validation is not None and not math.isfinite(row.latest_validation):
        command = f"det trial metrics {row.id} --group validation"
        return FailureView(
            kind="nan",
            message=f"it completed, but the last value of the searcher metric {metric!r} is {row.latest_validation}",
            trial_id=row.id,
            hint=f"where it began: {command}; a smaller learning rate, or gradient clipping, may help",
            command=command,
        )
    if metric and not row.searcher_metric_seen and row.end_reason == EndReason.COMPLETED:
        return FailureView(
            kind="no_metrics",
            message=f"it completed without ever reporting the searcher metric {metric!r}",
            trial_id=row.id,
            hint=f"report {metric!r} with report_validation_metrics, or correct searcher.metric",
            command=f"det trial metrics {row.id}",
        )
    return _others_without_number(s, row)


def _others_without_number(s: Session, row: TrialRow) -> FailureView | None:
    """Return the card of a trial other metrics of which ended with NaN or infinity; None if none did."""
    found = curves.last_without_number(s, row.id, _NAMED_METRICS + 1)
    if not found:
        return None
    names = ", ".join(f"{name[:60]!r} ({group[:60]})" for group, name in found[:_NAMED_METRICS])
    several, more = len(found) > 1, ", …" if len(found) > _NAMED_METRICS else ""
    command = f"det trial metrics {row.id} --group {word(found[0][0])}"
    return FailureView(
        kind="nan",
        message=f"it completed, but the last value{'s' if several else ''} of {names}{more}"
        f" {'are' if several else 'is'} NaN or infinite",
        trial_id=row.id,
        hint=f"where it began: {command}",
        command=command,
    )


def _timed_out(s: Session, row: TrialRow) -> FailureView:
    """Return the card of a trial whose last attempt reached its maximum time."""
    query = select(AllocationRow.max_time, AllocationRow.exit_reason)
    found = s.execute(query.where(AllocationRow.trial_id == row.id, AllocationRow.run == row.run)).first()
    most = "" if found is None or found.max_time is None else f" of {found.max_time:g} s"
    killed = found is not None and found.exit_reason == EndKind.KILLED
    how = "it was killed, as it did not stop in time" if killed else "it stopped when requested"
    left = f"its last checkpoint: det trial download {row.id}" if row.latest_checkpoint else "it left no checkpoint"
    return FailureView(
        kind="max_time",
        message=f"max time reached: attempt {row.run} ran for its resources.max_time{most}; {how}",
        trial_id=row.id,
        hint=f"{left}; to train longer, raise resources.max_time",
        command=f"det trial logs {row.id}",
    )


def _stopped_trial(s: Session, row: TrialRow) -> FailureView:
    action = _recorded_action(s, f"trial {row.id}") or _recorded_action(s, f"experiment {row.experiment_id}")
    card = _stopped(f"trial {row.id}", action, f"det trial logs {row.id}")
    return card.model_copy(update={"trial_id": row.id})


def _stopped_experiment(s: Session, row: ExperimentRow) -> FailureView:
    """Return who stopped an experiment; or, if nobody did since it last went on, who killed a trial of it."""
    subject, logs = f"experiment {row.id}", f"det experiment logs {row.id}"
    last = audit.newest_act(s, subject, [*_STOPS, *_GOES_ON])
    if last is not None and last[0] in _STOPS:
        return _stopped(subject, (_STOPS[last[0]], last[1]), logs)
    for trial in trials.first_ids(s, row.id, _ASKED_TRIALS):
        if (action := _recorded_action(s, f"trial {trial}")) is not None:
            return _stopped(f"trial {trial} of {subject}", action, logs)
    return _stopped(subject, None, logs)


def _stopped(what: str, action: tuple[str, str] | None, command: str) -> FailureView:
    how = "stopped" if action is None else f"{action[0]} by {action[1]}"
    return FailureView(
        kind="user_stop",
        message=f"{what} was {how}",
        hint=f"nothing failed; what it did until then: {command}",
        command=command,
    )


def _recorded_action(s: Session, subject: str) -> tuple[str, str] | None:
    """Return how something was stopped, and by whom; None if that is not recorded (any more)."""
    found = audit.newest_act(s, subject, [*_STOPS])
    return None if found is None else (_STOPS[found[0]], found[1])


def _interrupted(s: Session, row: TrialRow, current: AllocationRow | None) -> FailureView | None:
    """Return the card of an attempt that lost its slots, if that is the newest finished one."""
    if current is None:
        return None
    over = current
    if current.state != AllocationState.TERMINATED:
        query = select(AllocationRow).where(AllocationRow.trial_id == row.id, AllocationRow.run == current.run - 1)
        before = s.scalar(query)
        if before is None:
            return None
        over = before
    resumes = "from its last checkpoint" if row.latest_checkpoint else "from its beginning"
    told = f"it continues {resumes}, and this does not count as a restart"
    if over.exit_reason == EndKind.LOST:
        return FailureView(
            kind="lost",
            message=f"attempt {over.run} was lost with agent {_lost_agent(s, over)}{_told_of(s, over)}",
            trial_id=row.id,
            hint=f"{told}; the agents: det agent list",
            command="det agent list",
        )
    if over.preempt_reason == PreemptReason.DEVICE and over.exit_reason in {EndKind.PREEMPTED, EndKind.KILLED}:
        return FailureView(
            kind="lost",
            message=f"attempt {over.run} was ended: agent {over.agent_id} came back without all the slots that it had"
            f" ({', '.join(over.slots)})",
            trial_id=row.id,
            hint=f"{told}; what the agent has now: det slot list",
            command="det slot list",
        )
    evicted = _EVICTIONS.get(over.preempt_reason or "")
    if evicted is None or over.exit_reason not in {EndKind.PREEMPTED, EndKind.KILLED}:
        return None
    how = "" if over.exit_reason == EndKind.PREEMPTED else ", and was killed, as it did not stop in time"
    return FailureView(
        kind="preempted",
        message=f"attempt {over.run} was preempted: {evicted}{how}",
        trial_id=row.id,
        hint=f"{told}; its position: det queue",
        command="det queue",
    )


def _told_of(s: Session, over: AllocationRow) -> str:
    """Return what the agent has said of an attempt that it lost, such as on which node and why; "" if nothing."""
    told = [part.heard for part in parts.of_allocation(s, over) if part.end == EndKind.LOST and part.heard]
    words = str(told[0].get("message") or "") if told else ""
    return f": {words[:_WORDS]}" if words else ""


def _lost_agent(s: Session, over: AllocationRow) -> str | None:
    """Return the agent with which an attempt was lost: the first of its agents that was."""
    lost = [part for part in parts.of_allocation(s, over) if part.end == EndKind.LOST]
    return min(lost, key=lambda part: part.ended_at or 0.0).agent_id if lost else over.agent_id
