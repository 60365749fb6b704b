"""Experiments that have ended and go on: the same trials from their checkpoints, or new ones at failed points.

The end of the experiment, of its trials and of its search are taken back in one transaction, with the event of the
search in its journal. A crash before the commit leaves the experiment ended; after it, it is one that runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, NotFound, Problem
from detlab.schemas import expconf
from detlab.schemas.expconf.blocks import searchers
from detlab.schemas.wire import EndReason, ExperimentState, ExperimentView, TrialState
from detlab.schemas.wire.continuing import ContinueExperiment
from detlab_hub.core.lifecycle import experiment as lifecycle
from detlab_hub.core.lifecycle import trial as trials
from detlab_hub.core.rights import Action
from detlab_hub.core.searchers import (
    Reopened,
    SearcherInputError,
    SearcherNotInstalled,
    TrialExited,
    TrialExitedEarly,
    method_class,
)
from detlab_hub.core.searchers.events import ExitReason
from detlab_hub.services.admission import cost_caps
from detlab_hub.services.admission.bundles import bundle_file
from detlab_hub.services.base import audit, references
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs import withdrawn
from detlab_hub.services.base.configs.rules import rules_of
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.limits.checks import check_queued
from detlab_hub.services.base.searches import SearchLostError
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle import trials_to_make, uids
from detlab_hub.services.lifecycle.rows import is_unmanaged
from detlab_hub.services.lifecycle.transitions import (
    apply_experiment,
    apply_trial,
    ask_open_questions,
    finish_turn,
    tell_search,
)
from detlab_hub.services.views import experiment_views
from detlab_hub.store.idempotency import known_experiment, note_experiment
from detlab_hub.store.queries import checkpoints, limits
from detlab_hub.store.queries import trials as trials_of
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, TrialRow

_log = logging.getLogger(__name__)
LENGTHS = ("searcher.max_length", "searcher.max_time")
CHANGEABLE = (*LENGTHS, "max_restarts")
"""Keys of a config that do not change what a trial does, only for how long."""
_SAID = 5
"""Trials that a refusal names."""
_EARLY: Mapping[str, ExitReason] = {TrialState.ERROR.value: "errored", TrialState.CANCELED.value: "user_canceled"}


class Continuing(Service):
    """Use cases of experiments that go on after their end."""

    async def go_on(self, caller: Caller, experiment_id: int, wanted: ContinueExperiment) -> ExperimentView:
        """Let trials of an experiment that has ended train on from their checkpoints; all of it or nothing.

        Raises:
            ConfigError: A key cannot be changed, or its value is wrong.
            Conflict: It has not ended, its method cannot continue, or what it needs is gone; all of that is named.
            Forbidden: The caller may read it, not change it.
            NotFound: There is no such experiment for the caller, or it has no such trial.
        """
        self._context.settings.check_not_a_copy()
        self._context.limiter.submission(caller.name, caller.groups)
        changes = _changes(wanted.config)
        code = await self._context.read(lambda s: experiment_for(s, caller, experiment_id).bundle)
        path = None if code is None else bundle_file(self._context.settings, code)
        gone = path is not None and not await self._context.workers.code.run(caller.name, path.exists)

        def go_on(unit: UnitOfWork) -> ExperimentView:
            row = experiment_for(unit.session, caller, experiment_id, Action.EXPERIMENT_CONTINUE)
            key = wanted.idempotency_key and f"continue {experiment_id} {wanted.idempotency_key}"
            if known_experiment(unit.session, caller.name, key) is None:
                check_ended(row)
                if gone:
                    raise Conflict(
                        f"the code of experiment {experiment_id} is gone, so that none of its trials can go on",
                        hint=f"with other code: det experiment fork {experiment_id} --code DIR",
                    )
                _go_on(unit, row, caller, changes, wanted)
                note_experiment(unit.session, caller.name, key, row.id, unit.now)
            return experiment_views.experiment_view(unit.session, row, caller, self._context.pending_reasons)

        return await self._context.write(go_on)


def _go_on(
    unit: UnitOfWork, row: ExperimentRow, caller: Caller, changes: dict[str, Any], wanted: ContinueExperiment
) -> None:
    longer = any(path in changes for path in LENGTHS)
    if longer and not _trains_on(row.searcher_name):
        raise _cannot(row, f"trials of a search by {row.searcher_name} cannot train on once they have ended")
    rules_of(unit.session, row).check_change(row.config, changes)
    row.config = _changed(row.config, changes)
    chosen = _chosen(unit.session, row, wanted.trial_ids, longer=longer)
    _check_checkpoints(unit.session, row, chosen, from_earlier=wanted.from_earlier)
    reopen(unit, row, caller, chosen)
    detail = ", ".join(f"{path}: {value}" for path, value in changes.items()) or f"{len(chosen)} trials"
    audit.note(unit, caller, Action.EXPERIMENT_CONTINUE.value, f"experiment {row.id}", detail)
    finish_turn(unit)


def _trains_on(name: str) -> bool:
    """Whether trials of a search method may train on for longer; those of one that is not installed may not."""
    try:
        return method_class(name).trains_on
    except SearcherNotInstalled:
        return False


def reopen(unit: UnitOfWork, row: ExperimentRow, caller: Caller, chosen: Sequence[TrialRow]) -> None:
    """Take back the end of an experiment and of some of its trials, and tell its search.

    Raises:
        ConfigError: It is beyond a config policy, or a source of it is withdrawn.
        Conflict: Its search cannot go on, or its owner has too many jobs.
    """
    s = unit.session
    uids.assign(unit, row.owner)
    rules_of(s, row).hold(s, row)
    withdrawn.check(s, row.config, row.workspace_id)
    cost_caps.check(s, caller, row.owner, unit.now, project=row.project_id, experiment=row.id)
    check_queued(unit.settings.limits, row.owner, frozenset(row.owner_groups), limits.live_jobs(s, row.owner))
    if row.started_at is not None and row.ended_at is not None:
        row.paused_seconds += max(0.0, unit.now - row.ended_at)
    row.ended_at = row.gc_at = row.failure = None
    apply_experiment(unit, row, lifecycle.ExperimentReopened())
    references.record(s, caller, "experiment", row.id, row.config)
    for trial in chosen:
        apply_trial(unit, trial, trials.TrialReopened())
        trial.ended_at = trial.failure = None
        trial.searcher_stopped, trial.stop_evidence = False, ""
    s.flush()
    try:
        tell_search(unit, row, Reopened(tuple(trial.request_id for trial in chosen), caller.name))
        _tell_what_it_missed(unit, row, {trial.id for trial in chosen})
        if unit.searches.get(s, row).uncreated():
            trials_to_make.note(s, row.id)
        ask_open_questions(unit, row)
    except (SearchLostError, SearcherInputError) as error:
        raise _cannot(row, _numbered(str(error), chosen)) from error
    unit.changed_experiment(row.id)
    _log.info("experiment %d: %s continues it with %d trials", row.id, caller.name, len(chosen))


def _cannot(row: ExperimentRow, why: str) -> Conflict:
    return Conflict(f"experiment {row.id} cannot go on: {why}", hint=another(row))


def another(row: ExperimentRow) -> str:
    """Return what begins another search like one that is over, with its results if its method can use them."""
    block = searchers.BUILT_IN.get(row.searcher_name)
    if block is not None and "warm_start" in block.model_fields:
        return f"begin another one with its results: det experiment fork {row.id} --warm-start"
    return f"begin another one: det experiment fork {row.id}"


def _tell_what_it_missed(unit: UnitOfWork, row: ExperimentRow, going_on: set[int]) -> None:
    """Tell the search of the ends that came while its experiment was being stopped; it knows the others."""
    for trial in trials_of.of_experiment(unit.session, row.id):
        if trial.id in going_on or not TrialState(trial.state).terminal:
            continue
        early = "invalid_hp" if trial.end_reason == EndReason.INVALID_HP else _EARLY.get(trial.state)
        if early is not None:
            tell_search(unit, row, TrialExitedEarly(trial.request_id, early))
        tell_search(unit, row, TrialExited(trial.request_id))


def _numbered(text: str, chosen: Sequence[TrialRow]) -> str:
    for trial in chosen:
        text = text.replace(trial.request_id, str(trial.id))
    return text


def check_ended(row: ExperimentRow) -> None:
    """Check that an experiment has ended and can go on.

    Raises:
        Conflict: It has not, or is archived, or nobody can go on with its search.
    """
    state = ExperimentState(row.state)
    if not state.terminal:
        hints = {
            ExperimentState.PAUSED: f"det experiment activate {row.id}",
            ExperimentState.ACTIVE: f"its search can be extended: det search extend {row.id}",
            ExperimentState.DELETING: None,
        }
        raise Conflict(
            f"experiment {row.id} is {state}: only one that has ended can be continued",
            hint=hints.get(state, f"when it has ended: det experiment wait {row.id}"),
        )
    if row.archived_at is not None:
        raise Conflict(f"experiment {row.id} is archived", hint=f"first: det experiment unarchive {row.id}")
    if is_unmanaged(row):
        raise Conflict(
            f"trials of experiment {row.id} are evaluated by hand, and the cluster has no checkpoints of them",
            hint=another(row),
        )
    if row.searcher_name == "custom":
        raise Conflict(
            f"the class of experiment {row.id}'s search has ended, and cannot decide on further trials",
            hint=f"begin another one: det experiment fork {row.id}",
        )


# --- what is changed


def _changes(config: dict[str, Any]) -> dict[str, Any]:
    """Return the changes by their paths.

    Raises:
        ConfigError: Something is to be changed that makes it another experiment.
    """
    found = dict(_leaves(config))
    wrong = [
        Problem(path, "cannot be changed when an experiment continues", f"of {', '.join(CHANGEABLE)} only; or fork it")
        for path in found
        if path not in CHANGEABLE
    ]
    if wrong:
        raise ConfigError(wrong)
    return found


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path not in CHANGEABLE:
            yield from _leaves(value, f"{path}.") if value else [(path, value)]
        else:
            yield path, value


def _changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a config with the changes, checked as at a submit.

    Raises:
        ConfigError: A value is wrong, or a length is no greater than before.
    """
    made = {**config, "searcher": dict(config.get("searcher") or {})}
    wrong = []
    for path, given in changes.items():
        block, _, key = path.rpartition(".")
        before, value = ((config.get(block) or {}) if block else config).get(key), given
        if path in LENGTHS:
            value = _with_unit(given, before)
            if value is None:
                wrong.append(Problem(path, "must be a length"))
            elif not _is_longer(value, before):
                wrong.append(Problem(path, f"is {_said(value)}, which is no more than before: {_said(before)}"))
        (made[block] if block else made)[key] = value
    raw = {"entrypoint": ["true"], "searcher": made["searcher"], "hyperparameters": made.get("hyperparameters") or {}}
    if "max_restarts" in changes:
        raw["max_restarts"] = made["max_restarts"]
    wrong = [one for one in expconf.errors_of(expconf.check(raw)) if one.path.startswith(tuple(changes))] or wrong
    if wrong:
        raise ConfigError(wrong)
    return made


def _with_unit(value: Any, before: Any) -> Any:
    """Return a length in the unit of the one before, if it is a plain number."""
    if isinstance(before, Mapping) and len(before) == 1 and isinstance(value, int) and not isinstance(value, bool):
        return {next(iter(before)): value}
    return value


def _is_longer(value: Any, before: Any) -> bool:
    """Whether a length is greater than before; lengths in other units, and wrong ones, are not compared."""
    if isinstance(value, Mapping) and isinstance(before, Mapping) and list(value) == list(before):
        return all(_is_longer(value[unit], before[unit]) for unit in value)
    if isinstance(value, int) and isinstance(before, int):
        return value > before
    return True


def _said(value: Any) -> str:
    return ", ".join(f"{count} {unit}" for unit, count in value.items()) if isinstance(value, Mapping) else str(value)


# --- which trials


def _chosen(s: Session, row: ExperimentRow, trial_ids: Sequence[int], *, longer: bool) -> list[TrialRow]:
    """Return the trials that are to go on.

    Raises:
        Conflict: There is none, or one that is named cannot.
        NotFound: The experiment has no such trial.
    """
    here = trials_of.of_experiment(s, row.id)
    if not trial_ids:
        chosen = [trial for trial in here if _is_unfinished(trial) or (longer and _is_finished(trial))]
        if not chosen:
            raise Conflict(
                f"no trial of experiment {row.id} is left to continue: they have trained to their end",
                hint=_to_go_on(row),
            )
        return chosen
    missing = sorted(set(trial_ids) - {trial.id for trial in here})
    if missing:
        raise NotFound(f"experiment {row.id} has no trial {missing[0]}")
    chosen = [trial for trial in here if trial.id in set(trial_ids)]
    refused = [one.id for one in chosen if one.end_reason == EndReason.INVALID_HP]
    refused += [one.id for one in chosen if not longer and _is_finished(one)]
    refused += [one.id for one in chosen if one.state in _EARLY and one.searcher_stopped]
    if refused:
        raise Conflict(
            f"trial {refused[0]} of experiment {row.id} cannot go on: it has trained to its end, its search had stopped"
            " it, or its hyperparameters are invalid",
            hint=_to_go_on(row),
        )
    return chosen


def _to_go_on(row: ExperimentRow) -> str:
    if _trains_on(row.searcher_name):
        return f"for longer: det experiment continue {row.id} --max-length N"
    return another(row)


def _is_finished(trial: TrialRow) -> bool:
    return trial.state == TrialState.COMPLETED and trial.end_reason == EndReason.COMPLETED


def _is_unfinished(trial: TrialRow) -> bool:
    """Whether something cut a trial short: not the search, which has judged it, nor the trial itself."""
    if trial.end_reason == EndReason.MAX_TIME:
        return True
    return trial.state in _EARLY and not (trial.end_reason == EndReason.INVALID_HP or trial.searcher_stopped)


def _check_checkpoints(s: Session, row: ExperimentRow, chosen: Sequence[TrialRow], *, from_earlier: bool) -> None:
    """Check that each trial has the checkpoint from which it is to go on.

    One that has never saved begins anew, as after a restart, unless it has trained to its end.

    Raises:
        Conflict: Checkpoints are gone; the first few are named, and what to do.
    """
    newest = checkpoints.newest_of_each(s, [trial.id for trial in chosen])
    wrong, hints = [], []
    for trial in chosen:
        last = newest.get(trial.id)
        if last is None and _is_finished(trial):
            wrong.append(f"trial {trial.id} has never saved a checkpoint")
            hints.append(f"train it anew: det experiment fork {row.id}")
        if last is None or last.state == "COMPLETED" or (from_earlier and trial.latest_checkpoint is not None):
            continue
        wrong.append(
            f"checkpoint {last.uuid} (step {last.steps_completed}) of trial {trial.id} was collected or deleted"
        )
        hints.append(_way_out(s, row, trial, last))
    if not wrong:
        return
    more = f"; and {len(wrong) - _SAID} more" if len(wrong) > _SAID else ""
    raise Conflict(f"experiment {row.id} cannot go on: {'; '.join(wrong[:_SAID])}{more}", hint=hints[0])


def _way_out(s: Session, row: ExperimentRow, trial: TrialRow, last: CheckpointRow) -> str:
    if checkpoints.in_trash(s, last.uuid):
        return f"restore it from the trash: det checkpoint undelete {last.uuid}"
    earlier = None if trial.latest_checkpoint is None else s.get(CheckpointRow, trial.latest_checkpoint)
    if earlier is not None:
        return (
            f"from checkpoint {earlier.uuid} (step {earlier.steps_completed}) instead: "
            f"det experiment continue {row.id} … --from-earlier"
        )
    return f"train it anew: det experiment fork {row.id}"
