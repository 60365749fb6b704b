"""Ask and tell: the trials of unmanaged experiments, which users evaluate themselves.

The search is like any other: journaled, steered, replayed. Its trials never request an allocation; each waits until a
user asks for it, and ends when its value is told. Whatever was acknowledged is in the database: after a crash of the
master or of the notebook, the same trials are still open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from detlab.errors import ConfigError, Conflict, NotFound, Problem, StaleAttempt
from detlab.schemas.expconf.checks.suggestions import closest
from detlab.schemas.wire import (
    Asked,
    AskedTrial,
    AskTrial,
    EndReason,
    ExperimentState,
    FailureView,
    MetricsRecord,
    TellTrial,
    Told,
    TrialState,
)
from detlab_hub.core.lifecycle import trial as lifecycle
from detlab_hub.core.lifecycle.allocation import EndKind
from detlab_hub.core.lifecycle.table import is_stopping
from detlab_hub.core.rights import Action
from detlab_hub.core.searchers import ConcurrencySet, SearcherInputError, SteeringRefused, TrialPlaced
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.rules import rules_of
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.searches import SearchLostError
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.services.ingest import records, scoring
from detlab_hub.services.lifecycle.rows import TERMINAL_TRIALS, is_unmanaged
from detlab_hub.services.lifecycle.transitions import apply_trial, finish_turn, tell_search
from detlab_hub.store import BadReport
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import ExperimentRow, TrialRow
from detlab_hub.store.values import as_scalar

_MOST_NAMES = 8
"""Metrics that an error names."""
_OWN_ENDS = frozenset({EndReason.COMPLETED.value, EndReason.INVALID_HP.value, EndReason.ERROR.value})
"""Ends that a told result causes; a trial with another one was stopped by a user, a policy or a budget."""


class ByHand(Service):
    """Use cases of trials that users evaluate. All raise NotFound for an experiment that the caller may not see."""

    async def ask(self, caller: Caller, experiment_id: int, wanted: AskTrial) -> Asked:
        """Hand out a trial, or return why there is none; wait for one as long as the caller allows.

        Raises:
            Conflict: The experiment is not unmanaged, or is paused; or no open trial can be handed out again.
            Forbidden: The caller may read the experiment but not change it.
        """
        loop_time = self._context.wakeups
        with loop_time.listen(("search", experiment_id)) as news:
            asked = await self._context.write(lambda unit: _ask(unit, caller, experiment_id, wanted, more=True))
            if wanted.timeout <= 0 or _answered(asked):
                return asked
            if not await wait_until(news, wanted.timeout):
                return asked
        return await self._context.write(lambda unit: _ask(unit, caller, experiment_id, wanted, more=False))

    async def tell(self, caller: Caller, experiment_id: int, told: TellTrial) -> Told:
        """Record the result of a trial. Telling the same result again changes nothing.

        Raises:
            ConfigError: A metric of the search is missing, or is not a number.
            Conflict: The trial was not asked for, has ended, or another value was told for this step.
            Forbidden: The caller may read the experiment but not change it.
            NotFound: The experiment has no such trial.
            StaleAttempt: The trial was handed out again.
        """
        return await self._context.write(lambda unit: _tell(unit, caller, experiment_id, told))


def _answered(asked: Asked) -> bool:
    return asked.trial is not None or asked.over


def _unmanaged(unit: UnitOfWork, caller: Caller, experiment_id: int, action: Action) -> ExperimentRow:
    row = experiment_for(unit.session, caller, experiment_id, action)
    if not is_unmanaged(row):
        hint = "Only trials of an experiment with `unmanaged: true` are evaluated by hand."
        raise Conflict(
            f"the cluster runs the trials of experiment {row.id}: there is nothing to ask or tell", hint=hint
        )
    return row


# --- ask


def _ask(unit: UnitOfWork, caller: Caller, experiment_id: int, wanted: AskTrial, *, more: bool) -> Asked:
    """Hand out a trial.

    Args:
        unit: The transaction.
        caller: The user who asks.
        experiment_id: The experiment.
        wanted: The request.
        more: Whether the search may make another trial if none is waiting.
    """
    row = _unmanaged(unit, caller, experiment_id, Action.SEARCH_ASK)
    state = ExperimentState(row.state)
    if state.terminal or is_stopping(state) or state is ExperimentState.DELETING:
        return Asked(over=True, why=f"experiment {row.id} is {state}")
    living = _living(unit, row)
    theirs = [one for one in living if one.asked_by == caller.name]
    known = [one for one in theirs if wanted.idempotency_key and one.asked_key == wanted.idempotency_key]
    if known:
        return Asked(trial=_asked_trial(known[0]))
    _refuse_paused(row, state)
    if wanted.again:
        chosen = _open_one(row, living, wanted.trial_id)
        audit.note(
            unit, caller, "search.again", f"trial {chosen.id}", f"experiment {row.id}, asked by {chosen.asked_by}"
        )
        return _hand_out(unit, row, chosen, caller, wanted)
    waiting = _waiting(living)
    if not waiting and more:
        waiting = _drawn(unit, row, living)
    if not waiting and more:
        _make_room(unit, row, caller, living)
        living = _living(unit, row)
        waiting = _waiting(living) or _drawn(unit, row, living)
    if not waiting:
        return _none(unit, row, living)
    return _hand_out(unit, row, min(waiting, key=_turn_of), caller, wanted)


def _living(unit: UnitOfWork, row: ExperimentRow) -> Sequence[TrialRow]:
    unit.session.flush()
    here = TrialRow.experiment_id == row.id, TrialRow.state.not_in(TERMINAL_TRIALS)
    return unit.session.scalars(select(TrialRow).where(*here).order_by(TrialRow.idx)).all()


def _waiting(living: Sequence[TrialRow]) -> list[TrialRow]:
    return [one for one in _unasked(living) if not one.point_due]


def _unasked(living: Sequence[TrialRow]) -> list[TrialRow]:
    return [one for one in living if one.state == TrialState.ACTIVE and one.asked_at is None]


def _drawn(unit: UnitOfWork, row: ExperimentRow, living: Sequence[TrialRow]) -> list[TrialRow]:
    """Have the point of the next trial drawn that has none; return those that may be handed out now."""
    due = [one for one in _unasked(living) if one.point_due]
    try:
        if not due or unit.searches.get(unit.session, row).questions():
            return []
        tell_search(unit, row, TrialPlaced(min(due, key=_turn_of).request_id))
    except SearchLostError as error:
        raise Conflict(f"experiment {row.id}: {error}") from error
    return _waiting(living)


def _turn_of(row: TrialRow) -> tuple[bool, bool, int]:
    """Users' points go first, then trials that the search has promoted, then all others in their order."""
    return not row.enqueued_by, row.steps_completed == 0, row.idx


def _refuse_paused(row: ExperimentRow, state: ExperimentState) -> None:
    if state is ExperimentState.PAUSED:
        why = (row.failure or {}).get("message")
        told = f"experiment {row.id} is paused{f': {why}' if why else ''}; it hands out no trials"
        raise Conflict(told, hint=f"Activate it: det experiment activate {row.id}")


def _open_one(row: ExperimentRow, living: Sequence[TrialRow], trial_id: int | None) -> TrialRow:
    open_ones = [one for one in living if one.asked_at is not None and trial_id in (None, one.id)]
    if not open_ones:
        which = "no trial" if trial_id is None else f"no trial {trial_id}"
        raise Conflict(f"experiment {row.id} has {which} that is being evaluated", hint="Ask for a new trial.")
    return min(open_ones, key=lambda one: (one.asked_at, one.idx))


def _make_room(unit: UnitOfWork, row: ExperimentRow, caller: Caller, living: Sequence[TrialRow]) -> None:
    """Let the search have one more trial at a time: users decide how many they evaluate, by asking.

    Where a config policy decides it, asking does not.
    """
    if rules_of(unit.session, row).fixes("searcher.max_concurrent_trials"):
        return
    seeds = int((row.config.get("searcher") or {}).get("seeds") or 1)
    try:
        search = unit.searches.get(unit.session, row)
        if search.questions() or search.trials_requested - search.trials_invalid >= search.trials_total:
            return
        open_ones = sum(one.asked_at is not None for one in living)
        tell_search(unit, row, ConcurrencySet(open_ones + seeds, caller.name))
    except SteeringRefused:  # a method of a fixed number, or one that needs more at a time
        return
    except SearchLostError as error:
        raise Conflict(f"experiment {row.id}: {error}") from error


def _hand_out(unit: UnitOfWork, row: ExperimentRow, trial: TrialRow, caller: Caller, wanted: AskTrial) -> Asked:
    trial.run += 1
    trial.asked_by, trial.asked_at, trial.asked_key = caller.name, unit.now, wanted.idempotency_key or ""
    if trial.started_at is None:
        trial.started_at = unit.now
    if row.started_at is None:
        row.started_at = unit.now
    unit.changed_trial(trial)
    unit.changed_experiment(row.id)
    return Asked(trial=_asked_trial(trial))


def _asked_trial(row: TrialRow) -> AskedTrial:
    return AskedTrial(
        id=row.id,
        number=row.idx,
        hyperparameters=row.hparams,
        seed=row.seed,
        run=row.run,
        steps_completed=row.steps_completed,
    )


def _none(unit: UnitOfWork, row: ExperimentRow, living: Sequence[TrialRow]) -> Asked:
    if unit.searches.get(unit.session, row).questions():
        return Asked(why="the search is still computing its next point")
    open_ones = [one for one in living if one.asked_at is not None]
    first = min(open_ones, key=lambda one: (one.asked_at, one.idx), default=None)
    if first is None or first.asked_at is None:
        return Asked(why="the search has no trial to hand out now")
    minutes = (unit.now - first.asked_at) / 60
    others = f" and {len(open_ones) - 1} more" if len(open_ones) > 1 else ""
    who = f"trial {first.id}{others}, which {first.asked_by} asked for {minutes:.0f} min ago"
    why = f"the search makes no other trial until it knows the value of {who}"
    return Asked(why=why, waits_for=[one.id for one in open_ones])


# --- tell


def _tell(unit: UnitOfWork, caller: Caller, experiment_id: int, told: TellTrial) -> Told:
    experiment = _unmanaged(unit, caller, experiment_id, Action.SEARCH_TELL)
    row = unit.session.get(TrialRow, told.trial_id)
    if row is None or row.experiment_id != experiment.id:
        raise NotFound(f"experiment {experiment.id} has no trial {told.trial_id}")
    if told.run is not None and told.run != row.run:
        who = f" to {row.asked_by}" if row.asked_by else ""
        raise StaleAttempt(f"trial {row.id} was handed out again{who}: results of earlier evaluations are refused")
    if TrialState(row.state).terminal or row.hold == lifecycle.Hold.SEARCH:
        return _told_late(unit, experiment, row, told)
    if row.asked_at is None:
        hint = "Ask first: the search decides the order of its trials."
        raise Conflict(f"trial {row.id} has not been asked for", hint=hint)
    if told.metrics:
        _report(unit, experiment, row, told)
    if told.state != "running" and not _given_back(row):
        _end(experiment, row, told)
        apply_trial(unit, row, _end_of(unit, row, told))
    finish_turn(unit)
    return _reply(unit, row)


def _given_back(row: TrialRow) -> bool:
    return TrialState(row.state).terminal or row.hold == lifecycle.Hold.SEARCH


def _reply(unit: UnitOfWork, row: TrialRow) -> Told:
    why = row.stop_evidence
    if row.hold == lifecycle.Hold.SEARCH:
        why = "paused at a rung: it is handed out again if the search promotes it"
    return Told(stop=_given_back(row), state=TrialState(row.state), why=why)


def _end(experiment: ExperimentRow, row: TrialRow, told: TellTrial) -> None:
    """Refuse an end without a value; keep why a trial failed."""
    if told.state == "completed" and not row.searcher_metric_seen:
        hint = "Tell its value, or how else it ended: failed, or invalid."
        raise ConfigError([Problem("metrics", f"lacks {experiment.metric!r}", hint)], _headline(row))
    if told.state == "failed":
        why = told.message or "reported as failed, without a message"
        row.failure = FailureView(kind="exception", message=why, trial_id=row.id, hint="").model_dump()


def _end_of(unit: UnitOfWork, row: TrialRow, told: TellTrial) -> lifecycle.TrialAttemptEnded:
    if told.state == "failed":
        return lifecycle.TrialAttemptEnded(EndKind.FAILED, lifecycle.Retry.NEVER)
    if told.state == "invalid":
        apply_trial(unit, row, lifecycle.EarlyExitReported(lifecycle.INVALID_HP))
    return lifecycle.TrialAttemptEnded(EndKind.FINISHED)


def _report(unit: UnitOfWork, experiment: ExperimentRow, row: TrialRow, told: TellTrial) -> None:
    metrics, step = _with_time(experiment, told), told.steps_completed
    value = _value_of(experiment, row, metrics)
    fresh = row.metrics_run < row.run  # no result since it was handed out
    if not fresh:
        at = row.steps_completed if step is None else step
        if _is_known(unit, row, at, metrics) and (step is not None or told.state != "running"):
            return
        if step is not None:
            _check_step(unit, row, step)
    if step is None:
        step = row.steps_completed + 1
    record = MetricsRecord(seq=1, time=unit.now, group=records.VALIDATION, steps_completed=step, metrics=metrics)
    try:
        records.take_by_hand(unit, row, record, value)
    except BadReport as error:
        raise ConfigError([Problem("metrics", error.message)], _headline(row)) from error
    except SearcherInputError as error:
        told_why = str(error).replace(row.request_id, str(row.id))  # the search knows no ids of trials
        hint = "tell the step, too: how far it has trained" if "time_metric" in told_why else None
        raise ConfigError([Problem("metrics", told_why, hint)], _headline(row)) from error


def _headline(row: TrialRow) -> str:
    return f"trial {row.id} cannot take this result"


def _with_time(experiment: ExperimentRow, told: TellTrial) -> dict[str, Any]:
    """Return the metrics with the searcher's time metric, which is the step unless the metrics contain it."""
    name = (experiment.config.get("searcher") or {}).get("time_metric")
    if name is None or told.steps_completed is None or name in told.metrics:
        return told.metrics
    return {**told.metrics, name: told.steps_completed}


def _value_of(experiment: ExperimentRow, row: TrialRow, metrics: dict[str, Any]) -> float:
    """Return the searcher metric; every metric of the search must be present and a number."""
    expected = list(dict.fromkeys([experiment.metric, *scoring.metrics_of(experiment)]))
    named = ", ".join(name[:80] for name in sorted(metrics)[:_MOST_NAMES])
    problems = []
    for name in expected:
        if name not in metrics:
            near = closest(next((one for one in metrics if closest(one, [name])), ""), [name])
            hint = f"is one of them a misspelt {name!r}?" if near else f"expected: {', '.join(expected)}"
            problems.append(Problem("metrics", f"lacks {name!r}; it has {named or 'nothing'}", hint))
        elif as_scalar(metrics[name]) is None:
            problems.append(Problem(f"metrics.{name[:80]}", f"must be a number, not a {type(metrics[name]).__name__}"))
    if problems:
        raise ConfigError(problems, _headline(row))
    value = as_scalar(metrics[experiment.metric])
    return math.nan if value is None else value


def _is_known(unit: UnitOfWork, row: TrialRow, step: int, metrics: dict[str, Any]) -> bool:
    """Whether exactly these values were told for a step."""
    unit.session.flush()
    known = {one.name: one.values[0] for one in curves.at_step(unit.session, row.id, step, records.VALIDATION, 10_000)}
    told = {name: number for name, value in metrics.items() if (number := as_scalar(value)) is not None}
    return bool(told) and all(name in known and _same(known[name], value) for name, value in told.items())


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _check_step(unit: UnitOfWork, row: TrialRow, step: int) -> None:
    known = curves.at_step(unit.session, row.id, step, records.VALIDATION, _MOST_NAMES)
    if known:
        values = ", ".join(f"{one.name[:80]}={one.values[0]:g}" for one in known)
        raise Conflict(f"trial {row.id} already has other values for step {step}: {values}")
    if step < row.steps_completed:
        hint = "Steps must increase. After a crash, ask with again=True: the trial may then start at any step."
        raise Conflict(f"trial {row.id} is at step {row.steps_completed} and cannot go back to step {step}", hint=hint)


def _told_late(unit: UnitOfWork, experiment: ExperimentRow, row: TrialRow, told: TellTrial) -> Told:
    """Reply for a trial that needs no more values: a repeated result, or a report after it was stopped."""
    reply = _reply(unit, row)
    own = row.end_reason in _OWN_ENDS
    if told.state == "running" and not own and row.hold != lifecycle.Hold.SEARCH:
        return reply.model_copy(update={"why": reply.why or f"it is {row.state}: {row.end_reason}"})
    outcomes = {"failed": EndReason.ERROR, "invalid": EndReason.INVALID_HP}
    if told.state in outcomes:
        same = row.end_reason == outcomes[told.state]
    else:
        known = not told.metrics or _is_known(
            unit,
            row,
            row.steps_completed if told.steps_completed is None else told.steps_completed,
            _with_time(experiment, told),
        )
        same = known and row.state != TrialState.ERROR
    if same:
        return reply
    how = "is paused by its search" if row.hold == lifecycle.Hold.SEARCH else f"has ended ({row.end_reason})"
    if row.latest_validation is not None:
        how += f" with {experiment.metric}={row.latest_validation:g}"
    raise Conflict(
        f"trial {row.id} {how}: this result is refused",
        hint=f"Only the same result can be told twice. See its values: det trial metrics {row.id}",
    )
