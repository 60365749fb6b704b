"""Trials, their searches and experiments: load a row, step its machine, write it back, carry out the actions.

All in one `UnitOfWork`: changes of the database happen here; effects outside go to its outbox. The machines
call each other through their actions: an allocation's end is an event of its trial, a trial's end one of the searcher,
the searcher's decisions are events of trials and of the experiment.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, assert_never

from sqlalchemy import Table, bindparam, func, select

from detlab.errors import Conflict
from detlab.schemas.taskwire import TaskEnd
from detlab.schemas.wire import AllocationState, EndReason, ExperimentState, FailureView, TrialState
from detlab_hub.core.lifecycle import allocation as allocations
from detlab_hub.core.lifecycle import experiment as experiments
from detlab_hub.core.lifecycle import trial as trials
from detlab_hub.core.lifecycle import usertask
from detlab_hub.core.lifecycle.table import is_stopping
from detlab_hub.core.searchers import (
    RULES,
    CheckpointCommitted,
    Continued,
    CreateTrial,
    Decision,
    Extended,
    PauseSearch,
    PauseTrial,
    PointsAdded,
    ResumeTrial,
    Searcher,
    SearcherInputError,
    SearcherNotInstalled,
    SetPoint,
    Shutdown,
    Started,
    StopTrial,
    Suggest,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    TrialPaused,
    TrialsRetried,
    ValidationReported,
    WouldStop,
    method_class,
)
from detlab_hub.core.searchers import (
    Event as SearchEvent,
)
from detlab_hub.services.base import references
from detlab_hub.services.base.searches import FirstStep, SearchFailed, SearchLostError, SearchMismatch
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.failures import cards, diverging
from detlab_hub.services.lifecycle import trials_to_make
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation, send_launch
from detlab_hub.services.lifecycle.queue_fields import request_fields
from detlab_hub.services.lifecycle.rows import (
    TERMINAL_TRIALS,
    graces_of,
    slots_per_trial,
    trial_of,
    write_trial,
)
from detlab_hub.services.lifecycle.task_transitions import apply_task
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.session import insert_row
from detlab_hub.store.tables import AllocationRow, CheckpointRow, ExperimentRow, TaskRow, TrialRow

_log = logging.getLogger(__name__)

_ORDERS: dict[experiments.OrderToTrials, trials.Event] = {
    experiments.OrderToTrials.PAUSE: trials.TrialPauseRequested(),
    experiments.OrderToTrials.ACTIVATE: trials.TrialActivateRequested(),
    experiments.OrderToTrials.CANCEL: trials.TrialCancelRequested(),
    experiments.OrderToTrials.KILL: trials.TrialKillRequested(),
    experiments.OrderToTrials.CONDEMN: trials.Condemned(),
}

_FORCED = frozenset(
    {
        ExperimentState.PAUSED,
        ExperimentState.STOPPING_CANCELED,
        ExperimentState.STOPPING_KILLED,
        ExperimentState.CANCELED,
    }
)
"""States in which nobody needs an answer of the class of a custom search."""

_TRIALS: Table = TrialRow.__table__
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MEND = (
    "The experiment is paused and nothing is lost. Send the mended code, then activate it: det search code {} FOLDER"
)
_ENDED_INSTEAD = "It was ended without being mended. Submit it again, mended; what its trials reported is kept."
_TAIL = 12
"""Lines of a traceback that the card of a paused search shows."""
_BY_REQUEST = PreparedStatement(
    select(_TRIALS.c.id).where(
        _TRIALS.c.experiment_id == bindparam("experiment"), _TRIALS.c.request_id == bindparam("request")
    )
)
"""By statements of Core, which do not write what has been changed so far: rows are written once, when it ends."""
_LIVING = PreparedStatement(
    select(func.count())
    .select_from(_TRIALS)
    .where(_TRIALS.c.experiment_id == bindparam("experiment"), *(_TRIALS.c.state != end for end in TERMINAL_TRIALS))
)
"""How many trials of an experiment have not ended."""
_MEASURED = PreparedStatement(
    select(_TRIALS.c.id)
    .where(_TRIALS.c.experiment_id == bindparam("experiment"), _TRIALS.c.searcher_metric_seen.is_(True))
    .limit(1)
)
"""A trial that has reported its search's metric."""
_OF_TRIAL = select(AllocationRow).where(
    AllocationRow.trial_id == bindparam("trial"), AllocationRow.run == bindparam("run")
)


def current_allocation(unit: UnitOfWork, row: TrialRow) -> AllocationRow | None:
    """Return the newest allocation of a trial, None before the first."""
    if row.run == 0:
        return None
    found = unit.allocation(_allocation_id(row, row.run))
    if found is None:  # made by other means than ours
        found = unit.session.scalar(_OF_TRIAL, {"trial": row.id, "run": row.run})
    return found


def _allocation_id(row: TrialRow, run: int) -> str:
    return f"{row.experiment_id}.{row.request_id}.{run}"


def apply_trial(unit: UnitOfWork, row: TrialRow, event: trials.Event) -> None:  # noqa: C901 - a case for each action
    """Apply an event to a trial."""
    experiment = unit.experiment(row.experiment_id)
    current = current_allocation(unit, row)
    old = _with_metric(unit, experiment, trial_of(row, experiment, current), event)
    step = trials.step(old, event)
    if step.state == old and not step.actions:
        return
    write_trial(row, step.state)
    unit.changed_trial(row)
    if old.state is not step.state.state:
        _log.info("trial %d: %s", row.id, step.state.state)
        unit.state_changed("trial", row.id, old.state.value, step.state.state.value)
        unit.outbox.wake_searches.add(experiment.id)
    unit.changed_experiment(experiment.id)
    for action in step.actions:
        match action:
            case trials.RequestTrialAllocation(run):
                _request_allocation(unit, experiment, row, run)
            case trials.AskToLeave(reason):
                if current is not None:
                    ask_to_leave(unit, experiment, current, reason)
            case trials.KillTrialAttempt():
                if current is not None:
                    apply_allocation(unit, current, allocations.AllocationKillRequested(unit.now))
            case trials.TellSearcherEarly(reason):
                tell_search(unit, experiment, TrialExitedEarly(row.request_id, reason))
            case trials.TellSearcherPaused():
                row.asked_at = None  # whoever evaluates it by hand is done with it, too
                tell_search(unit, experiment, TrialPaused(row.request_id))
            case trials.WarnNeverReported():
                _warn_never_reported(unit, experiment, row)
            case trials.PauseWithoutMetric():
                _pause_without_metric(unit, experiment, row)
            case trials.CloseTrial():
                _close_trial(unit, experiment, row)
            case _:
                assert_never(action)


def _request_allocation(unit: UnitOfWork, experiment: ExperimentRow, row: TrialRow, run: int) -> None:
    request = AllocationRow(
        id=_allocation_id(row, run),
        trial_id=row.id,
        experiment_id=experiment.id,
        owner=experiment.owner,
        runtime=experiment.config.get("runtime") or unit.settings.default_runtime,
        run=run,
        state=AllocationState.PENDING.value,
        slots_needed=slots_per_trial(experiment.config),
        priority=experiment.priority,
        requested_at=unit.now,
        **request_fields(experiment.config, unit.settings.governed_mounts),
    )
    insert_row(unit.session, request)
    unit.changed_cluster()
    unit.outbox.kick_scheduler = True


def ask_to_leave(
    unit: UnitOfWork, experiment: ExperimentRow, row: AllocationRow, reason: allocations.PreemptReason
) -> None:
    """Preempt an allocation, with the experiment's deadlines."""
    graces = graces_of(experiment.config, unit.settings)
    apply_allocation(unit, row, allocations.LeaveRequested(reason, unit.now, graces))


def _warn_never_reported(unit: UnitOfWork, experiment: ExperimentRow, row: TrialRow) -> None:
    warning = cards.never_reported(unit.session, experiment, row)
    row.warnings = [*row.warnings, warning]
    # The names once: a search of thousands of trials with a mistyped metric has one warning of each in one row.
    brief = f"never reported {experiment.metric!r}"
    known = any(brief in said for said in experiment.warnings)
    experiment.warnings = [said for said in experiment.warnings if cards.NO_METRIC_YET not in said]
    experiment.warnings = cards.with_warning(experiment.warnings, f"trial {row.id} {brief if known else warning}")


def _with_metric(
    unit: UnitOfWork, experiment: ExperimentRow, trial: trials.TrialStatus, event: trials.Event
) -> trials.TrialStatus:
    """Note at the end of an attempt that no trial of a search that requires its metric has reported it, if so."""
    if trial.metric is not trials.MetricState.REQUIRED or not isinstance(event, trials.TrialAttemptEnded):
        return trial
    unit.session.flush()
    if experiment.best_trial_id is not None or _MEASURED.scalar(unit.session, {"experiment": experiment.id}):
        return trial
    return replace(trial, metric=trials.MetricState.UNKNOWN)


def _pause_without_metric(unit: UnitOfWork, experiment: ExperimentRow, row: TrialRow) -> None:
    """Pause a search none of whose trials has its metric: the trial begins anew, since the search needs all reports."""
    row.first_run, row.latest_checkpoint, row.progress = row.run + 1, None, 0.0
    unit.changed_trial(row)
    experiment.warnings = [said for said in experiment.warnings if cards.NO_METRIC_YET not in said]
    if experiment.failure is None:
        told = cards.no_metrics(unit.session, experiment, row)
        _pause_for(unit, experiment, f"trial {row.id}: {told.message}", hint=cards.MEND_METRIC.format(experiment.id))


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _close_trial(unit: UnitOfWork, experiment: ExperimentRow, row: TrialRow) -> None:
    row.ended_at = unit.now
    if row.state == TrialState.COMPLETED:
        row.failure = None
        if row.end_reason == EndReason.COMPLETED:
            row.progress = 1.0
        if row.searcher_metric_seen and not _finite(row.best_validation):
            row.warnings = [*row.warnings, cards.without_value(experiment, row)]
    elif row.end_reason == EndReason.NO_METRICS:
        row.failure = cards.no_metrics(unit.session, experiment, row).model_dump()
    unit.outbox.wake_logs.add(row.id)
    unit.closed.add(experiment.id)
    tell_search(unit, experiment, TrialExited(row.request_id))


# --- the search


def tell_search(unit: UnitOfWork, experiment: ExperimentRow, *events: SearchEvent) -> None:
    """Give the search an event, or several that it cannot refuse, and carry out what it decides.

    Events that arise while decisions are carried out wait for their turn, so that the journal has each
    decision before its consequences.

    Raises:
        SearcherInputError: If the search cannot use this event; nothing is changed.
    """
    busy = bool(unit.search_queue)
    unit.search_queue.extend((experiment, event) for event in events)
    if not busy:
        _decide_queued(unit)


def _decide_queued(unit: UnitOfWork) -> None:
    """Give searches the events that wait, and carry out what they decide, until none waits."""
    stepped: dict[int, tuple[ExperimentRow, Searcher]] = {}
    while unit.search_queue:
        owner, first = unit.search_queue[0]
        try:
            decisions = _step_search(unit, owner, first, stepped)
            for decision in decisions:
                _carry_out(unit, owner, decision)
        finally:
            unit.search_queue.popleft()
    for owner, search in stepped.values():  # once, not after each of the thousand trials that it may have made
        progress = search.progress()
        if progress != owner.progress and not ExperimentState(owner.state).terminal:  # at its end it was set for good
            owner.progress = progress
            unit.changed_experiment(owner.id)
        if (ahead := search.points_ahead()) is not None:
            unit.outbox.ahead.append((owner.owner, ahead))


def _step_search(
    unit: UnitOfWork, experiment: ExperimentRow, event: SearchEvent, stepped: dict[int, tuple[ExperimentRow, Searcher]]
) -> list[Decision]:
    """Give a search one event, and note that it has taken a step; what it cannot do pauses or ends its experiment."""
    state = ExperimentState(experiment.state)
    if state.terminal or is_stopping(state) or state is ExperimentState.DELETING:
        # The search is over for this experiment: it must not create further trials.
        return []
    try:
        decisions = unit.searches.step(unit.session, experiment, event, unit.now)
    except SearchMismatch as error:
        _pause_search(unit, experiment, error)
        return []
    except SearchLostError as error:
        _log.exception("experiment %d", experiment.id)
        experiment.failure = FailureView(kind="searcher", message=str(error)).model_dump()
        apply_experiment(unit, experiment, experiments.SearchBroke())
        return []
    search = unit.searches.get(unit.session, experiment)
    if new := [said for said in search.drawing_notes if said not in experiment.warnings]:
        experiment.warnings = [*experiment.warnings, *new]
        unit.changed_experiment(experiment.id)
    if experiment.search_task is not None and search.waits_for is not None:
        task = unit.session.get(TaskRow, experiment.search_task)
        if task is not None:
            unit.outbox.wake_allocations.add(f"{task.id}.{task.run}")
    if isinstance(event, Extended):
        experiment.units_added += event.units
    if isinstance(event, Extended | PointsAdded | TrialsRetried):
        experiment.trials_planned = search.trials_total
        unit.changed_experiment(experiment.id)
    stepped[experiment.id] = experiment, search
    return decisions


def tell_checkpoint(unit: UnitOfWork, experiment: ExperimentRow, trial: TrialRow, row: CheckpointRow) -> None:
    """Tell the search of a committed checkpoint, if its method wants to know."""
    try:
        wanted = method_class(experiment.searcher_name).wants_checkpoints
    except SearcherNotInstalled:  # noticed, and reported, when the search is next needed
        return
    if wanted:
        tell_search(unit, experiment, CheckpointCommitted(trial.request_id, row.uuid, row.steps_completed))


def ask_open_questions(unit: UnitOfWork, experiment: ExperimentRow) -> None:
    """Repeat the search's unanswered questions."""
    try:
        asked = unit.searches.get(unit.session, experiment).questions()
    except SearchMismatch as error:
        _pause_search(unit, experiment, error)
    except SearchLostError:
        _log.exception("experiment %d", experiment.id)  # reported when the search is next needed
    else:
        unit.outbox.questions += [(experiment.id, experiment.searcher_name, question) for question in asked]


def _pause_search(unit: UnitOfWork, experiment: ExperimentRow, error: SearchMismatch) -> None:
    """Pause an experiment whose search failed, or was decided by another version of its algorithm (I8).

    Nothing is lost: events are journaled, and decided once it continues.
    """
    _log.error("experiment %d: %s", experiment.id, error)
    if experiment.failure is None:
        message = f"this version of detlab decides differently from the journal of the search: {error}"
        mend = "It continues under the version that began it: install that, then activate it"
        if isinstance(error, SearchFailed):
            message = f"{experiment.searcher_name}: {error}"
            mend = "Mend the method if it is yours, or report this error; then activate it"
        experiment.failure = FailureView(
            kind="searcher",
            message=message,
            hint=f"It is paused, and what its trials report is kept. {mend}; or kill it and submit it again.",
            command=f"det experiment activate {experiment.id}",
        ).model_dump()
        unit.changed_experiment(experiment.id)
    apply_experiment(unit, experiment, experiments.ExperimentPauseRequested())


def resume_search(unit: UnitOfWork, experiment: ExperimentRow, author: str) -> None:
    """Let a search continue that had to pause its experiment; call it before the experiment is activated.

    What came while it could not be replayed is decided first.

    Raises:
        Conflict: It still cannot be replayed.
    """
    if (experiment.failure or {}).get("kind") != "searcher" or ExperimentState(experiment.state).terminal:
        return
    try:
        caught = unit.searches.catch_up(unit.session, experiment)
    except SearchFailed as error:
        hint = f"Mend the method, or kill the experiment: det experiment kill {experiment.id}"
        raise Conflict(f"experiment {experiment.id}: its search cannot continue yet: {error}", hint=hint) from error
    except SearchLostError as error:
        raise Conflict(
            f"experiment {experiment.id}: its search cannot continue under this version of detlab: {error}",
            hint=f"Install the version that began it, or kill it: det experiment kill {experiment.id}",
        ) from error
    experiment.failure = None
    unit.changed_experiment(experiment.id)
    # Before the decisions are carried out: what arises meanwhile waits until all of them are, as in `tell_search`.
    unit.search_queue.append((experiment, Continued(author)))
    for event, decided in caught:
        if isinstance(decided, SearcherInputError):
            if isinstance(event, ValidationReported):
                condemn_trial(unit, _trial_of(unit, experiment, event.request_id), decided, ())
            continue
        for decision in decided:
            _carry_out(unit, experiment, decision)
    _decide_queued(unit)


def _trial_of(unit: UnitOfWork, experiment: ExperimentRow, request_id: str) -> TrialRow:
    """Load a trial of a search; one that was left to be made is made."""
    found = _BY_REQUEST.scalar(unit.session, {"experiment": experiment.id, "request": request_id})
    if found is not None:
        return unit.trial(found)
    left = unit.searches.get(unit.session, experiment).uncreated()
    return _create_trials(unit, experiment, [one for one in left if one.request_id == request_id])[0]


def start_search(unit: UnitOfWork, experiment: ExperimentRow, begun: FirstStep | None = None) -> None:
    """Ask a new experiment's search for its first trials; `begun`: what it decides, if that is known already."""
    if begun is not None:
        unit.searches.adopt(experiment, begun)
    tell_search(unit, experiment, Started(RULES))


def _carry_out(unit: UnitOfWork, experiment: ExperimentRow, decision: Decision) -> None:
    match decision:
        case CreateTrial():
            if unit.made[experiment.id] < trials_to_make.PART:
                unit.made[experiment.id] += 1
                _create_trials(unit, experiment, [decision])
            else:
                trials_to_make.note(unit.session, experiment.id)
        case SetPoint(request_id, hparams):
            _set_point(unit, experiment, _trial_of(unit, experiment, request_id), hparams)
        case StopTrial(request_id, finished, evidence):
            row = _trial_of(unit, experiment, request_id)
            row.stop_evidence = evidence or ("" if finished else _explained(unit, experiment, request_id))
            apply_trial(unit, row, trials.StopDecided(finished))
        case PauseTrial(request_id):
            apply_trial(unit, _trial_of(unit, experiment, request_id), trials.HoldDecided())
        case ResumeTrial(request_id):
            paused = experiment.state == ExperimentState.PAUSED
            apply_trial(unit, _trial_of(unit, experiment, request_id), trials.ReleaseDecided(paused))
        case WouldStop(request_id, evidence):
            row = _trial_of(unit, experiment, request_id)
            row.would_stop = [*row.would_stop, evidence]
            unit.changed_trial(row)
        case PauseSearch(reason, hint):
            _pause_for(unit, experiment, reason, hint)
        case Suggest(ticket):
            question = unit.searches.get(unit.session, experiment).question(ticket)
            unit.outbox.questions.append((experiment.id, experiment.searcher_name, question))
        case Shutdown(cancel, failure):
            _tell_of_invalid(unit, experiment)
            apply_experiment(unit, experiment, experiments.SearchEnded(cancel=cancel, failure=failure))
        case _:
            assert_never(decision)


def _tell_of_invalid(unit: UnitOfWork, experiment: ExperimentRow) -> None:
    """Give a search that ends without one valid point its card: each of its trials alone says why."""
    search = unit.searches.get(unit.session, experiment)
    made = search.trials_requested
    if experiment.failure is not None or not 0 < made == search.trials_invalid:
        return
    points = "its one point was" if made == 1 else f"all {made:,} points were"
    experiment.failure = FailureView(
        kind="searcher",
        message=f"nothing was trained: {points} invalid (InvalidHP)",
        hint="See why in the log of a trial, change hyperparameters, or what the code accepts, and submit it again.",
        command=f"det trial list {experiment.id}",
    ).model_dump()
    unit.changed_experiment(experiment.id)


def _explained(unit: UnitOfWork, experiment: ExperimentRow, request_id: str) -> str:
    return unit.searches.get(unit.session, experiment).explain(request_id)


def _pause_for(unit: UnitOfWork, experiment: ExperimentRow, reason: str, hint: str = "") -> None:
    """Pause an experiment whose search cannot go on until a user has mended something."""
    first, *more = _named(unit, experiment, reason).splitlines() or [""]
    experiment.failure = FailureView(
        kind="searcher",
        message=first,
        log_tail=more[-_TAIL:],
        hint=(hint or _MEND).replace("{}", str(experiment.id)),
        command=f"det experiment activate {experiment.id}",
    ).model_dump()
    unit.changed_experiment(experiment.id)
    apply_experiment(unit, experiment, experiments.ExperimentPauseRequested())


def _named(unit: UnitOfWork, experiment: ExperimentRow, text: str) -> str:
    """Return a text in which the request ids of trials are their numbers."""

    def number(found: re.Match[str]) -> str:
        known = _BY_REQUEST.scalar(unit.session, {"experiment": experiment.id, "request": found[0]})
        return found[0] if known is None else str(known)

    return _UUID.sub(number, text)


def make_left_trials(unit: UnitOfWork, experiment_id: int) -> None:
    """Make the next part of the trials of a search that were too many for one transaction."""
    if experiment_id not in trials_to_make.due(unit.session):
        return
    experiment = unit.experiment(experiment_id)
    try:
        left = unit.searches.get(unit.session, experiment).uncreated()
    except SearchMismatch as error:
        _pause_search(unit, experiment, error)
        return
    except SearchLostError:  # reported when the search is next needed
        trials_to_make.forget(unit.session, experiment_id)
        return
    if len(left) <= trials_to_make.PART:
        trials_to_make.forget(unit.session, experiment_id)
    _create_trials(unit, experiment, left[: trials_to_make.PART])


def _create_trials(unit: UnitOfWork, experiment: ExperimentRow, decisions: Sequence[CreateTrial]) -> list[TrialRow]:
    made = [_create_trial(unit, experiment, decision) for decision in decisions]
    tell_search(unit, experiment, *(TrialCreated(row.request_id) for row in made))
    return made


def _create_trial(unit: UnitOfWork, experiment: ExperimentRow, decision: CreateTrial) -> TrialRow:
    paused = experiment.state == ExperimentState.PAUSED
    row = TrialRow(
        experiment_id=experiment.id,
        idx=decision.index,
        request_id=decision.request_id,
        state=(TrialState.PAUSED if paused else TrialState.ACTIVE).value,
        hparams=decision.hparams,
        point_due=decision.later,
        seed=decision.trial_seed,
        parent_checkpoint=decision.parent,
        created_at=unit.now,
    )
    insert_row(unit.session, row)
    unit.changed_trial(row)
    unit.changed_experiment(experiment.id)
    unit.outbox.wake_searches.add(experiment.id)
    apply_trial(unit, row, trials.TrialRowCreated())
    return row


def _set_point(unit: UnitOfWork, experiment: ExperimentRow, row: TrialRow, hparams: dict[str, Any]) -> None:
    """Give a trial its hyperparameters; launch it if it has resources now, and answer it if it runs and asks."""
    row.hparams, row.point_due = hparams, False
    unit.changed_trial(row)
    unit.changed_experiment(experiment.id)
    unit.outbox.wake_searches.add(experiment.id)
    current = current_allocation(unit, row)
    if current is None:
        return
    unit.outbox.wake_allocations.add(current.id)
    if current.state == AllocationState.ASSIGNED:  # where it was launched without, an agent launches nothing twice
        send_launch(unit, current)


def condemn_trial(unit: UnitOfWork, row: TrialRow, error: SearcherInputError | str, report: Iterable[str]) -> None:
    """End a trial whose report the search cannot use; the failure card says what the report contained."""
    experiment = unit.experiment(row.experiment_id)
    row.failure = cards.of_search(experiment, row, str(error), report).model_dump()
    apply_trial(unit, row, trials.Condemned())


def condemn_search(unit: UnitOfWork, row: TrialRow) -> None:
    """End a search with its first trial that was condemned: the others report the same names."""
    experiment, card = unit.experiment(row.experiment_id), row.failure or {}
    hint = f"{card.get('hint')} (the search ends: its other trials would fail in the same way)"
    experiment.failure = {**card, "hint": hint}
    unit.changed_experiment(experiment.id)
    apply_experiment(unit, experiment, experiments.SearchBroke())


# --- experiments


def apply_experiment(unit: UnitOfWork, row: ExperimentRow, event: experiments.Event) -> None:
    """Apply an event to an experiment.

    Raises:
        RequestRefusedError: If its state does not allow what a user asks for.
    """
    old = ExperimentState(row.state)
    step = experiments.step(old, event)
    if step.state is old and not step.actions:
        return
    row.state = step.state.value
    unit.changed_experiment(row.id)
    if old is not step.state:
        _count_pause(row, old, unit.now)
        _log.info("experiment %d: %s", row.id, step.state)
        unit.state_changed("experiment", row.id, old.value, step.state.value)
        if row.search_task is not None:
            _release_search_task(unit, row)
        unit.outbox.wake_searches.add(row.id)
    for action in step.actions:
        match action:
            case experiments.OrderTrials(order):
                _order_trials(unit, row, _ORDERS[order])
            case experiments.FinishExperiment():
                _finish(unit, row)
            case _:
                assert_never(action)


def _release_search_task(unit: UnitOfWork, row: ExperimentRow) -> None:
    """End the task of a custom search that is paused or ended by force; one whose search is over ends by itself."""
    task = unit.session.get(TaskRow, row.search_task)
    if task is None or TrialState(task.state).terminal:
        return
    unit.outbox.wake_allocations.add(f"{task.id}.{task.run}")
    if row.state in _FORCED:
        apply_task(unit, task, usertask.EndRequested(TaskEnd.CANCELED if task.failure is None else TaskEnd.FAILED))


def _count_pause(row: ExperimentRow, old: ExperimentState, now: float) -> None:
    """Note when a pause begins; when it ends, add how much of it came after the start of the first trial."""
    if old is ExperimentState.PAUSED:
        if row.paused_at is not None and row.started_at is not None:
            row.paused_seconds += max(0.0, now - max(row.paused_at, row.started_at))
        row.paused_at = None
    if row.state == ExperimentState.PAUSED:
        row.paused_at = now


def _order_trials(unit: UnitOfWork, row: ExperimentRow, event: trials.Event) -> None:
    living = unit.session.scalars(
        select(TrialRow)
        .where(TrialRow.experiment_id == row.id, TrialRow.state.not_in(TERMINAL_TRIALS))
        .order_by(TrialRow.idx)
    ).all()
    for trial in living:
        apply_trial(unit, trial, event)
    unit.closed.add(row.id)


def _finish(unit: UnitOfWork, row: ExperimentRow) -> None:
    row.ended_at = unit.now
    references.drop(unit.session, "experiment", row.id)
    trials_to_make.forget(unit.session, row.id)
    row.gc_at = unit.now + unit.settings.gc_delay
    if row.state == ExperimentState.COMPLETED:
        row.progress = 1.0
        _warn_of_values(unit, row)
    if row.state == ExperimentState.CANCELED and (row.failure or {}).get("kind") == "searcher":
        # It was paused to be mended, and was ended instead: it cannot be activated any more.
        row.failure = {**(row.failure or {}), "hint": _ENDED_INSTEAD, "command": f"det search show {row.id}"}
    if row.state == ExperimentState.ERROR:
        # The search counts a failed trial as closed; what its trials had done is what was done.
        done = unit.session.scalar(select(func.avg(TrialRow.progress)).where(TrialRow.experiment_id == row.id))
        row.progress = min(row.progress, float(done or 0.0))
    if row.state == ExperimentState.ERROR and row.failure is None:
        failed = unit.session.scalar(
            select(TrialRow)
            .where(TrialRow.experiment_id == row.id, TrialRow.failure.is_not(None))
            .order_by(TrialRow.idx)
            .limit(1)
        )
        row.failure = None if failed is None else failed.failure
    unit.searches.forget(row.id)


def _warn_of_values(unit: UnitOfWork, row: ExperimentRow) -> None:
    """Note on a completed search that its metric never was a number, or at the end was none any more."""
    unit.session.flush()
    if _finite(row.best_value):
        said = diverging.warning_of(unit.session, row)
    else:
        measured = _MEASURED.scalar(unit.session, {"experiment": row.id})
        said = cards.without_value(row) if measured else None
    before = [one for one in row.warnings if diverging.SIGN not in one]  # it may end a second time, after more trials
    row.warnings = before if said is None else [said, *before]


def finish_turn(unit: UnitOfWork) -> None:
    """End the stopping experiments whose last trial ended in this unit of work; write its events. Call it last."""
    unit.session.flush()
    for experiment_id in sorted(unit.closed):
        row = unit.experiment(experiment_id)
        if not is_stopping(row.state):
            continue
        unit.session.flush()
        if _LIVING.scalar(unit.session, {"experiment": experiment_id}) == 0:
            apply_experiment(unit, row, experiments.LastTrialClosed())
    unit.write_events()
