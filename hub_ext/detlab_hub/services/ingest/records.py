"""Reports of trials: metrics, progress, status, early exits and log lines, each stored exactly once (I4).

A batch is one transaction: the allocation's high-water mark, the rows, the search's journal and the events are written
together or not at all. A record seen before is skipped by its number, so a batch may be sent again at any time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from detlab.schemas.wire import (
    AlertRecord,
    CheckpointGoneRecord,
    EarlyExitRecord,
    LogRecord,
    MetricsRecord,
    ProgressRecord,
    Record,
    RecordAck,
    RecordBatch,
    RefusedRecord,
    ResumedRecord,
    StatusRecord,
    encode_floats,
)
from detlab_hub.core.lifecycle import trial as trials
from detlab_hub.core.searchers import ProgressReported, SearcherInputError
from detlab_hub.services.alerts.of_lines import LineFound, tell_of_lines
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.fencing import current_attempt, current_holder
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.failures import cards
from detlab_hub.services.ingest import scoring
from detlab_hub.services.lifecycle import gangs, log_policies, missing_checkpoints
from detlab_hub.services.lifecycle.log_policies import Finding
from detlab_hub.services.lifecycle.transitions import apply_trial, condemn_search, condemn_trial, tell_search
from detlab_hub.services.notify.telling import say_of_trial
from detlab_hub.store import BadReport
from detlab_hub.store.queries import trials as trials_of
from detlab_hub.store.queries.logs import lines as logs
from detlab_hub.store.queries.metrics import curves, reports
from detlab_hub.store.tables import AllocationRow, PartRow, TaskRow, TrialRow
from detlab_hub.store.values import as_scalar

V = TypeVar("V")
VALIDATION = "validation"
STATUS_CHARS = 1000
MAX_SEQ = 2**53
SURPLUS = "too many names of metrics"
"""Begins the warning of a trial some of whose metrics are left out."""
BACKWARDS = "steps of validations go backwards"
"""Begins the warning of a trial that reported a lower step after a higher one."""
MAX_RANK = 2**31


@dataclass
class _Taking:
    """One incoming batch."""

    unit: UnitOfWork
    row: AllocationRow
    trial: TrialRow
    refused: list[RefusedRecord] = field(default_factory=list)
    reports: list[curves.ReportedMetrics] = field(default_factory=list)
    """Reports to be stored at the end, in one call: much faster than one by one."""
    alerts: list[AlertRecord] = field(default_factory=list)
    """Likewise, and limited together."""


def take(
    unit: UnitOfWork,
    task: TaskCaller,
    batch: RecordBatch,
    node: int = 0,
    found: Sequence[Finding] = (),
    lines: Sequence[LineFound] = (),
) -> RecordAck:
    """Take a batch of records.

    Args:
        unit: The transaction.
        task: Who sends them.
        batch: The records.
        node: Which of the attempt's nodes, in their order; each counts its own records.
        found: What log policies have found in it.
        lines: What rules of alerts have found in it.

    Returns:
        The number of the last record that is stored with the transaction, and what was refused.

    Raises:
        StaleAttempt: The task may not write any more.
    """
    row, holder = current_holder(unit.session, task)
    # The task has reported, whether or not its agent has reported its start.
    counted = gangs.reported(unit, row, node) or row
    if isinstance(holder, TaskRow):
        return _take_of_task(unit, row, holder, batch, counted, None if row.nodes < 2 else node)
    trial = holder
    taking = _Taking(unit, row, trial)
    mark = counted.logs_seq if batch.stream == "logs" else counted.metrics_seq
    fresh: list[Record] = []
    for record in batch.records:
        if not 0 < record.seq <= MAX_SEQ:
            _refuse(taking, record.seq, "record.seq", f"record numbers go from 1 to {MAX_SEQ}")
        elif record.seq > mark:
            mark = record.seq
            fresh.append(_plain(record, unit.now))
    if batch.stream == "logs":
        counted.logs_seq = mark
        _take_logs(taking, fresh, None if row.nodes < 2 else node)
        log_policies.note(unit, trial, row.run, counted.agent_id, found)
        tell_of_lines(unit, trial, counted.agent_id, lines)
    else:
        counted.metrics_seq = mark
        for record in fresh:
            _take_one(taking, record)
        if taking.reports:
            curves.insert_reports(unit.session, trial.id, row.run, taking.reports, row.resume_step)
        if taking.alerts:
            say_of_trial(unit, trial, taking.alerts)
    return RecordAck(acked=mark, refused=taking.refused)


def begin(unit: UnitOfWork, task: TaskCaller) -> None:
    """Note that an attempt reports, before anything is looked up of its trial: what earlier ones reported goes.

    Raises:
        StaleAttempt: The attempt is over.
    """
    row, trial = current_attempt(unit.session, task)
    gangs.reported(unit, row, 0)
    if row.superseded_applied:
        return
    row.superseded_applied = True
    reports.begin_run(unit.session, trial, row.run, row.resume_step)
    if row.run > 1:
        _recount(unit, trial, row.resume_step or 0)


def take_reports(unit: UnitOfWork, task: TaskCaller, sent: Sequence[MetricsRecord]) -> list[RefusedRecord]:
    """Take reports of an attempt that have no numbers: whoever sends them knows what was stored. Returns the refused.

    Raises:
        StaleAttempt: The attempt is over.
    """
    row, trial = current_attempt(unit.session, task)
    taking = _Taking(unit, row, trial)
    for record in sent:
        _take_metrics(taking, record)
    if taking.reports:
        curves.insert_reports(unit.session, trial.id, row.run, taking.reports, row.resume_step)
    return taking.refused


def _take_of_task(
    unit: UnitOfWork,
    row: AllocationRow,
    task: TaskRow,
    batch: RecordBatch,
    counted: AllocationRow | PartRow,
    node: int | None,
) -> RecordAck:
    """Take what a user task reports: its output; all other records are of use to trials only."""
    mark = counted.logs_seq if batch.stream == "logs" else counted.metrics_seq
    lines, refused = [], []
    for record in batch.records:
        if not mark < record.seq <= MAX_SEQ:
            continue
        mark = record.seq
        if isinstance(record, LogRecord):
            lines.append(_plain(record, unit.now))
        else:
            refused.append(
                RefusedRecord(seq=record.seq, code="record.task", message=f"a {task.kind} reports no {record.kind}")
            )
    if batch.stream == "logs":
        counted.logs_seq = mark
    else:
        counted.metrics_seq = mark
    if lines:
        logs.append(unit.session, task.id, row.run, [line for line in lines if isinstance(line, LogRecord)], node)
        unit.outbox.wake_logs.add(task.id)
    return RecordAck(acked=mark, refused=refused)


def _plain(record: Record, now: float) -> Record:
    """Return a record whose numbers a database can hold: a finite time, a rank within its limit."""
    fixed: dict[str, object] = {}
    if not math.isfinite(record.time):
        fixed["time"] = now
    if isinstance(record, LogRecord) and record.rank is not None and not 0 <= record.rank < MAX_RANK:
        fixed["rank"] = None
    return record.model_copy(update=fixed) if fixed else record


def _take_logs(taking: _Taking, records: Sequence[Record], node: int | None) -> None:
    lines = []
    for record in records:
        if isinstance(record, LogRecord):
            lines.append(record)
        else:
            _refuse(taking, record.seq, "record.stream", f"a {record.kind} record is not a log line")
    if lines:
        logs.append(taking.unit.session, taking.trial.id, taking.row.run, lines, node)
        taking.unit.outbox.wake_logs.add(taking.trial.id)


def _take_one(taking: _Taking, record: Record) -> None:
    match record:
        case MetricsRecord():
            _take_metrics(taking, record)
        case ProgressRecord():
            _take_progress(taking, record)
        case StatusRecord():
            taking.trial.status = record.status[:STATUS_CHARS]
            taking.unit.changed_trial(taking.trial)
        case EarlyExitRecord():
            _take_early_exit(taking, record)
        case ResumedRecord():
            _take_resumed(taking, record)
        case CheckpointGoneRecord():
            missing_checkpoints.note(taking.unit, taking.trial, taking.row, record)
        case AlertRecord():
            taking.alerts.append(record)
        case LogRecord():
            _refuse(taking, record.seq, "record.stream", "a log line does not belong to the metrics stream")


def _refuse(taking: _Taking, seq: int, code: str, message: str) -> None:
    taking.refused.append(RefusedRecord(seq=seq, code=code, message=message))


def _take_progress(taking: _Taking, record: ProgressRecord) -> None:
    if math.isnan(record.progress):
        return
    unit, trial = taking.unit, taking.trial
    trial.progress = min(max(record.progress, 0.0), 1.0)
    unit.changed_trial(trial)
    experiment = unit.experiment(trial.experiment_id)
    tell_search(unit, experiment, ProgressReported(trial.request_id, trial.progress))


def _take_early_exit(taking: _Taking, record: EarlyExitRecord) -> None:
    if record.reason not in trials.EARLY_EXITS:
        known = ", ".join(trials.EARLY_EXITS)
        _refuse(taking, record.seq, "record.reason", f"{record.reason[:80]!r} is not one of {known}")
        return
    apply_trial(taking.unit, taking.trial, trials.EarlyExitReported(record.reason))


def _take_resumed(taking: _Taking, record: ResumedRecord) -> None:
    """Supersede from an earlier step than that of the checkpoint the attempt was given; never from a later one."""
    row, steps = taking.row, record.steps_completed
    if steps < 0:
        _refuse(taking, record.seq, "record.step", f"steps_completed {steps} is negative")
    elif row.resume_step is None or steps >= row.resume_step:
        return
    elif row.superseded_applied:
        message = f"this attempt has reported metrics as one that resumed at step {row.resume_step}"
        _refuse(taking, record.seq, "record.late", message)
    else:
        row.resume_step = steps


# --- metrics


def _take_metrics(taking: _Taking, record: MetricsRecord) -> None:
    unit, row, trial = taking.unit, taking.row, taking.trial
    try:
        numbers = curves.check_report(record.group, record.steps_completed, record.metrics)
    except BadReport as error:
        _refuse(taking, record.seq, error.code, error.message)
        return
    if beyond := _surplus(unit, trial, row.owner, record):
        record = record.model_copy(update={"metrics": _without(record.metrics, beyond)})
        numbers = _without(numbers, beyond)
    stored = curves.ReportedMetrics(record.group, record.steps_completed, record.time, record.metrics, numbers)
    newest = _newest_validation(taking, record)
    if row.superseded_applied:
        taking.reports.append(stored)
    else:
        # The first report of an attempt: what earlier ones reported beyond its checkpoint goes now.
        row.superseded_applied = True
        curves.insert_reports(unit.session, trial.id, row.run, [stored], row.resume_step)
        if row.run > 1:
            _recount(unit, trial, row.resume_step or 0)
    _note_report(unit, trial, row.run, record, numbers)
    if newest is not None and newest > record.steps_completed:
        _take_backwards(unit, trial, record, newest)
    elif record.group == VALIDATION:
        _take_validation(unit, trial, record)


def _newest_validation(taking: _Taking, record: MetricsRecord) -> int | None:
    """Return the newest step of a validation; looked up only for a report behind the trial's newest step."""
    unit, trial = taking.unit, taking.trial
    behind = record.steps_completed < trial.steps_completed
    if record.group != VALIDATION or not behind or not taking.row.superseded_applied:
        return None
    waiting = [one.steps_completed for one in taking.reports if one.group == VALIDATION]
    unit.session.flush()
    stored = curves.newest_step(unit.session, trial.id, VALIDATION)
    return max([*waiting, *(() if stored is None else (stored,))], default=None)


def _take_backwards(unit: UnitOfWork, trial: TrialRow, record: MetricsRecord, newest: int) -> None:
    """Keep a report from the search whose step is lower than that of an earlier one: it would count as progress."""
    experiment = unit.experiment(trial.experiment_id)
    if not any(BACKWARDS in said for said in trial.warnings):
        told = (
            f"{BACKWARDS}: a report of step {record.steps_completed} came after one of step {newest}. Such reports are"
            " stored, but the search does not use them. Count steps_completed upwards; an attempt that resumes"
            " continues to count from the step of its checkpoint"
        )
        trial.warnings = [*trial.warnings, told]
        experiment.warnings = cards.with_warning(experiment.warnings, f"trial {trial.id}: {told}")
        unit.changed_trial(trial)
        unit.changed_experiment(experiment.id)


def take_by_hand(unit: UnitOfWork, trial: TrialRow, record: MetricsRecord, value: float) -> None:
    """Take a validation report of a trial that a user evaluates by hand: all of it, or nothing.

    The first report after it was handed out again supersedes what earlier evaluations reported from that step on.

    Args:
        unit: The transaction, which is to be rolled back after an error.
        trial: The trial.
        record: The report.
        value: The searcher metric in it.

    Raises:
        BadReport: It can never be stored.
        SearcherInputError: The search cannot use it.
    """
    numbers = curves.check_report(record.group, record.steps_completed, record.metrics)
    owner = unit.experiment(trial.experiment_id).owner
    if beyond := _surplus(unit, trial, owner, record):
        record = record.model_copy(update={"metrics": _without(record.metrics, beyond)})
        numbers = _without(numbers, beyond)
    stored = curves.ReportedMetrics(record.group, record.steps_completed, record.time, record.metrics, numbers)
    again, before = 0 < trial.metrics_run < trial.run, record.steps_completed - 1
    curves.insert_reports(unit.session, trial.id, trial.run, [stored], before)
    if again:
        _recount(unit, trial, before)
    _note_report(unit, trial, trial.run, record, numbers)
    _judge(unit, trial, record, value)


def _note_report(unit: UnitOfWork, trial: TrialRow, run: int, record: MetricsRecord, numbers: dict[str, float]) -> None:
    trial.steps_completed = max(trial.steps_completed, record.steps_completed)
    plain = numbers if all(map(math.isfinite, numbers.values())) else encode_floats(numbers)
    data = {
        "group": record.group,
        "steps_completed": record.steps_completed,
        "run": run,
        "time": record.time,
        "metrics": plain,
    }
    unit.event("metrics", trial.experiment_id, trial.id, data)
    unit.changed_trial(trial)


def _surplus(unit: UnitOfWork, trial: TrialRow, owner: str, record: MetricsRecord) -> set[str]:
    """Return the names that are too many for one trial; a warning of the trial says so, once."""
    limits = unit.settings.limits
    if not limits.metric_names:
        return set()
    experiment = unit.experiment(trial.experiment_id)
    if not limits.binds(owner, experiment.owner_groups):
        return set()
    session, always = unit.session, set[str]()
    if record.group == VALIDATION:
        always = {experiment.metric, *scoring.metrics_of(experiment)}
    beyond = unit.metric_names.beyond(session, trial, record.group, record.metrics, limits.metric_names, always)
    if not beyond:
        return beyond
    unit.outbox.limit_hits.append((owner, "metric_names"))
    if not any(one.startswith(SURPLUS) for one in trial.warnings):
        told = (
            f"{SURPLUS}: a trial may report {limits.metric_names:,}, all groups together; others are left out, such"
            f" as {min(beyond)[:80]!r} of {record.group[:80]!r}. Report fewer names (an array counts as one), or ask an"
            " administrator to raise c.UserLimits.metric_names"
        )
        trial.warnings = [*trial.warnings, told]
        unit.changed_trial(trial)
    return beyond


def _without(values: dict[str, V], names: Collection[str]) -> dict[str, V]:
    return {name: value for name, value in values.items() if name not in names}


def _recount(unit: UnitOfWork, trial: TrialRow, resume_step: int) -> None:
    """Compute the best values anew: earlier attempts' points beyond the resumed step are gone and must not be best."""
    experiment = unit.experiment(trial.experiment_id)
    trial.steps_completed = resume_step
    unit.session.flush()
    if scoring.recount_feasible(unit, experiment, trial, VALIDATION):
        return
    name, smaller = experiment.metric, experiment.smaller_is_better
    own = curves.trial_best(unit.session, trial.id, VALIDATION, name, smaller)
    trial.best_step, trial.best_validation = own or (None, None)
    if experiment.best_trial_id != trial.id:
        return
    best = curves.experiment_best(unit.session, experiment.id, VALIDATION, name, smaller)
    experiment.best_trial_id, experiment.best_step, experiment.best_value = best or (None, None, None)
    unit.changed_experiment(experiment.id)


def _take_validation(unit: UnitOfWork, trial: TrialRow, record: MetricsRecord) -> None:
    experiment, seen = unit.experiment(trial.experiment_id), trial.searcher_metric_seen
    if experiment.metric not in record.metrics:
        _warn_without_metric(unit, trial, record)
        return
    value = as_scalar(record.metrics[experiment.metric])
    if value is None:
        got = type(record.metrics[experiment.metric]).__name__
        error = f"the searcher metric {experiment.metric!r} must be a number, the report has a {got}"
        condemn_trial(unit, trial, error, record.metrics)
        return
    try:
        _judge(unit, trial, record, value)
    except SearcherInputError as error:
        condemn_trial(unit, trial, error, record.metrics)
        lacks_time = (experiment.config.get("searcher") or {}).get("time_metric") not in record.metrics
        if lacks_time and not seen and not trials_of.any_judged(unit.session, experiment.id):
            condemn_search(unit, trial)


def _judge(unit: UnitOfWork, trial: TrialRow, record: MetricsRecord, value: float) -> None:
    """Keep a value of the searcher metric if it is the best, and tell the search.

    Raises:
        SearcherInputError: The search cannot use the report.
    """
    if not trial.searcher_metric_seen:
        _drop_warning(unit, trial)
    trial.searcher_metric_seen = True
    trial.latest_validation = value
    event, feasible = scoring.event_of(unit, trial, record, value)
    if feasible:
        _keep_best(unit, trial, record.steps_completed, value)
    tell_search(unit, unit.experiment(trial.experiment_id), event)


def _warn_without_metric(unit: UnitOfWork, trial: TrialRow, record: MetricsRecord) -> None:
    """Warn at the first validation, not at the end: until then a misspelt metric would cost a whole search."""
    experiment = unit.experiment(trial.experiment_id)
    if trial.searcher_metric_seen or experiment.best_trial_id is not None:
        return
    if not any(cards.NO_METRIC_YET in said for said in experiment.warnings):
        experiment.warnings = [*experiment.warnings, cards.without_metric(experiment, trial, record.metrics)]
        unit.changed_experiment(experiment.id)


def _drop_warning(unit: UnitOfWork, trial: TrialRow) -> None:
    experiment = unit.experiment(trial.experiment_id)
    if any(cards.NO_METRIC_YET in said for said in experiment.warnings):
        experiment.warnings = [said for said in experiment.warnings if cards.NO_METRIC_YET not in said]
        unit.changed_experiment(experiment.id)


def _keep_best(unit: UnitOfWork, trial: TrialRow, step: int, value: float) -> None:
    experiment = unit.experiment(trial.experiment_id)
    sign = 1.0 if experiment.smaller_is_better else -1.0
    if math.isnan(value) or sign * value == -math.inf:  # it has diverged: neither is better than a number
        return
    if trial.best_validation is None or sign * value < sign * trial.best_validation:
        trial.best_step, trial.best_validation = step, value
    if experiment.best_value is None or sign * value < sign * experiment.best_value:
        experiment.best_trial_id, experiment.best_step, experiment.best_value = trial.id, step, value
        unit.changed_experiment(experiment.id)
