"""From rows to views for callers. Lists take a few queries, whatever their length."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire import (
    AllocationState,
    AttemptSpan,
    AttemptView,
    BestView,
    CheckpointFile,
    CheckpointView,
    EndReason,
    ExperimentState,
    ExperimentView,
    FailureView,
    ParentView,
    PolicyMatch,
    TrialState,
    TrialView,
)
from detlab.schemas.wire.storage import DeletionView
from detlab_hub.core.rights import Right
from detlab_hub.core.searchers import SearcherConfigError
from detlab_hub.core.searchers.hyperparameters import SpaceGrid
from detlab_hub.services.base.access import may_read, rights_to
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.masking import masked_config, masked_storage
from detlab_hub.services.base.pending import PendingReasons
from detlab_hub.services.failures import endings
from detlab_hub.services.views.deletions import deletion_views
from detlab_hub.services.views.pages import brief
from detlab_hub.store.queries import checkpoints, experiments, trials, workspaces
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.queries.storage import collection
from detlab_hub.store.tables import (
    AllocationRow,
    CheckpointRow,
    ExperimentRow,
    TrialRow,
)

Reasons = PendingReasons
CHUNK = 500
"""Ids per statement: SQLite takes no more than 999 parameters on old builds."""
NAMES_SHOWN = 5000
"""Most metrics of one trial in one reply."""


# --- experiments


def experiment_views(
    s: Session, rows: Sequence[ExperimentRow], caller: Caller, reasons: Reasons, *, full: bool = False
) -> list[ExperimentView]:
    """Make the views of many experiments.

    Args:
        s: A session.
        rows: The experiments.
        caller: Who gets the views: each says what they may do.
        reasons: Why pending allocations wait, by allocation id.
        full: Whether the (masked) config goes with each, and no text is shortened.
    """
    counts = _trial_counts(s, rows)
    bests = _bests(s, rows)
    names = workspaces.labels(s, {row.project_id for row in rows if row.project_id is not None})
    waiting = {row.id: reasons.of_experiments.get(row.id) or _search_waits(row, reasons) for row in rows}
    active = [row.id for row in rows if row.state == ExperimentState.ACTIVE]
    waiting |= experiments.waiting_elsewhere(s, active)  # the trials that will start first
    rights = rights_to(s, caller, rows)
    views = [
        _experiment_view(row, rights[row.id], counts[row.id], bests.get(row.id), names, waiting.get(row.id), full=full)
        for row in rows
    ]
    asked = [row.id for row in rows if full or row.state == ExperimentState.DELETING]
    left = deletion_views(s, asked) if asked else {}
    views = [_with_left(view, left[view.id]) if view.id in left else view for view in views]
    return views if full else list(map(brief, views))


def _with_left(view: ExperimentView, left: DeletionView) -> ExperimentView:
    """Add what is left of a deletion, or of a collection that has failed; what only waits in the trash is no news."""
    if view.state is ExperimentState.DELETING:
        return view.model_copy(update={"deletion": left, "pending_reason": left.said})
    return view.model_copy(update={"deletion": left}) if left.failure or left.event_files else view


def _search_waits(row: ExperimentRow, reasons: Reasons) -> str | None:
    """Say why the task of a custom search, without which there are no trials, waits for a place."""
    reason = None if row.search_task is None else reasons.of_tasks.get(row.search_task)
    return None if reason is None else f"the task of its search, {row.search_task}, waits: {reason}"


def experiment_view(
    s: Session, row: ExperimentRow, caller: Caller, reasons: Reasons, *, full: bool = True
) -> ExperimentView:
    """Make the view that a caller gets of one experiment, by default with its config."""
    view = experiment_views(s, [row], caller, reasons, full=full)[0]
    if not full:
        return view
    return view.model_copy(update={"card": endings.of_experiment(s, row), "forked_from": _forked_from(s, row, caller)})


def _forked_from(s: Session, row: ExperimentRow, caller: Caller) -> int | None:
    """Return what an experiment is a fork of, if the caller may know of that one; its owner does, as long as it is."""
    found = row.source.get("forked_from")
    return found if isinstance(found, int) and may_read(s, caller, found) else None


def _experiment_view(
    row: ExperimentRow,
    right: Right,
    counts: dict[str, int],
    best: BestView | None,
    names: Mapping[int, tuple[str, str, str]],
    reason: str | None,
    *,
    full: bool,
) -> ExperimentView:
    searcher = row.config.get("searcher") or {}
    state = ExperimentState(row.state)
    owner, workspace, project = names.get(row.project_id or 0, (row.owner, "", ""))
    return ExperimentView(
        id=row.id,
        name=row.name,
        description=row.description,
        labels=row.labels,
        notes=row.notes if full else None,
        owner=row.owner,
        may=right.wire,
        workspace=workspace if owner == row.owner else f"{owner}/{workspace}",
        workspace_id=row.workspace_id,
        project=project,
        project_id=row.project_id,
        state=state,
        searcher=row.searcher_name,
        metric=row.metric,
        smaller_is_better=row.smaller_is_better,
        time_metric=searcher.get("time_metric"),
        max_time=row.max_time,
        progress=row.progress,
        trials_total=_at_least(row.trials_planned or trials_total(row.config), counts),
        trials=counts,
        best=best,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        paused_at=row.paused_at,
        paused_seconds=row.paused_seconds,
        edited_at=row.edited_at,
        archived_at=row.archived_at,
        pending_reason=reason if state is ExperimentState.ACTIVE else None,
        warnings=row.warnings,
        bundle=row.bundle,
        search_task=row.search_task,
        config=masked_config(row.config) if full else None,
        failure=None if row.failure is None else FailureView.model_validate(row.failure),
        log_retention_days=row.log_retention_days,
        source={key: value for key, value in row.source.items() if key != "forked_from"},
        unmanaged=bool(row.config.get("unmanaged")),
        governed=bool(row.config.get("governance")),
    )


def trials_total(config: dict[str, Any]) -> int | None:
    """Return how many trials a search makes at most; None if its config is not understood any more."""
    searcher = config.get("searcher") or {}
    seeds = searcher.get("seeds") or 1
    if searcher.get("name") != "grid":
        total = 1 if searcher.get("name") == "single" else searcher.get("max_trials")
        return None if total is None else total * seeds
    size = _grid_size(json.dumps(config.get("hyperparameters") or {}), tuple(searcher.get("require") or ()))
    return None if size is None else size * int(seeds)


@lru_cache(maxsize=256)
def _grid_size(hyperparameters: str, require: tuple[str, ...]) -> int | None:
    """Return the points of a grid; with conditions or relations they are counted one by one, so not for each view."""
    try:
        return SpaceGrid(json.loads(hyperparameters), require).size
    except SearcherConfigError:
        return None


def _at_least(planned: int | None, counts: Mapping[str, int]) -> int | None:
    """Return the planned number of trials, or how many exist: replaced ones (InvalidHP) come on top of the plan."""
    known = sum(number for state, number in counts.items() if state != "RUNNING")
    return None if planned is None else max(planned, known)


def _trial_counts(s: Session, rows: Sequence[ExperimentRow]) -> dict[int, dict[str, int]]:
    ids = [row.id for row in rows]
    counts = experiments.trial_counts(s, ids)
    running = experiments.running_counts(s, ids, (AllocationState.RUNNING, AllocationState.TERMINATING))
    running |= experiments.asked_counts(s, [row.id for row in rows if row.config.get("unmanaged")])
    for experiment_id, number in running.items():
        if number:
            counts[experiment_id]["RUNNING"] = number
    return counts


def _bests(s: Session, rows: Sequence[ExperimentRow]) -> dict[int, BestView]:
    leaders = [row for row in rows if row.best_trial_id is not None]
    trial_ids = [row.best_trial_id for row in leaders]
    index: dict[int, int] = {}
    failed: set[int] = set()
    saved: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for part in _parts(trial_ids):
        for key, place, state in s.execute(
            select(TrialRow.id, TrialRow.idx, TrialRow.state).where(TrialRow.id.in_(part))
        ):
            index[key] = place
            failed |= {key} if state == TrialState.ERROR else set()
        for trial_id, steps, uuid in s.execute(
            select(CheckpointRow.trial_id, CheckpointRow.steps_completed, CheckpointRow.uuid)
            .where(CheckpointRow.trial_id.in_(part), CheckpointRow.state == "COMPLETED")
            .order_by(CheckpointRow.steps_completed, CheckpointRow.created_at)
        ):
            saved[trial_id].append((steps, uuid))
    bests = {}
    for row in leaders:
        if row.best_trial_id is None or row.best_step is None or row.best_value is None:
            continue
        bests[row.id] = BestView(
            trial_id=row.best_trial_id,
            trial_index=index.get(row.best_trial_id, 0),
            steps_completed=row.best_step,
            value=row.best_value,
            checkpoint=best_checkpoint(saved[row.best_trial_id], row.best_step),
            failed=row.best_trial_id in failed,
        )
    return bests


def best_of(s: Session, row: ExperimentRow) -> BestView | None:
    """Return the best validation of an experiment, with its checkpoint; None: there is none yet."""
    return _bests(s, [row]).get(row.id)


def best_checkpoint(saved: Sequence[tuple[int, str]], step: int) -> str | None:
    """Return the checkpoint that belongs to a trial's best validation at `step`.

    One saved at that very step; else the newest before it, which at least led there; else the first after it.

    Args:
        saved: (steps, uuid) of the trial's checkpoints, ascending.
        step: Where the best validation was reported.
    """
    exact = [uuid for steps, uuid in saved if steps == step]
    if exact:
        return exact[-1]
    before = [uuid for steps, uuid in saved if steps < step]
    after = [uuid for steps, uuid in saved if steps > step]
    return before[-1] if before else (after[0] if after else None)


# --- trials


def trial_views(s: Session, rows: Sequence[TrialRow], reasons: Reasons, *, summary: bool = False) -> list[TrialView]:
    """Make the views of many trials, each with its newest allocation.

    Args:
        s: A session.
        rows: The trials.
        reasons: Why pending allocations wait, by allocation id.
        summary: Whether the summaries of all metrics and the card go with each (queries per trial), and no text is
            shortened.
    """
    current = trials.latest_allocations(s, [row.id for row in rows])
    worked = trials.seconds_worked(s, [row.id for row in rows if row.started_at is not None])
    views = [_trial_view(s, row, current.get(row.id), reasons, worked, summary=summary) for row in rows]
    parents = {one.trial_id: one for one in parent_views(s, rows)}
    views = [view.model_copy(update={"parent": parents[view.id]}) if view.id in parents else view for view in views]
    return views if summary else list(map(brief, views))


def trial_view(s: Session, row: TrialRow, reasons: Reasons, *, summary: bool = True) -> TrialView:
    """Make the view of one trial, by default with the summaries of its metrics."""
    return trial_views(s, [row], reasons, summary=summary)[0]


def _trial_view(
    s: Session,
    row: TrialRow,
    current: AllocationRow | None,
    reasons: Reasons,
    worked: Mapping[int, float],
    *,
    summary: bool,
) -> TrialView:
    state = TrialState(row.state)
    works_since = current.started_at if current is not None and current.ended_at is None else None
    shown = curves.summaries(s, row.id, NAMES_SHOWN) if summary else {}
    full = sum(map(len, shown.values())) >= NAMES_SHOWN
    left_out = curves.count_series(s, row.id) - NAMES_SHOWN if full else 0
    return TrialView(
        id=row.id,
        index=row.idx,
        experiment_id=row.experiment_id,
        request_id=row.request_id,
        state=state,
        allocation_state=None if current is None else AllocationState(current.state),
        display_state=display_state(state, current, by_hand=row.asked_at is not None),
        end_reason=None if row.end_reason is None else EndReason(row.end_reason),
        hparams=row.hparams,
        point_due=row.point_due,
        seed=row.seed,
        restarts=row.restarts,
        run=row.run,
        progress=row.progress,
        status=row.status,
        steps_completed=row.steps_completed,
        best_validation=row.best_validation,
        latest_validation=row.latest_validation,
        latest_checkpoint=row.latest_checkpoint,
        agent_id=None if current is None else current.agent_id,
        slots=[] if current is None else current.slots,
        asked_by=row.asked_by,
        asked_at=row.asked_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        worked=worked.get(row.id, None if works_since is None else 0.0),
        works_since=works_since,
        pending_reason=waiting_for(current, reasons),
        stop_evidence=row.stop_evidence,
        would_stop=row.would_stop,
        warnings=row.warnings,
        attempts=[_attempt_view(one) for one in trials.attempts(s, row.id)] if summary else [],
        policy_matches=[PolicyMatch.model_validate(one) for one in row.policy_matches],
        failure=None if row.failure is None else FailureView.model_validate(row.failure),
        card=endings.of_trial(s, row, current) if summary else None,
        summary=shown,
        summary_left_out=left_out,
        metadata=row.metadata_,
    )


def _attempt_view(row: AllocationRow) -> AttemptView:
    return AttemptView(
        run=row.run,
        agent_id=row.agent_id,
        resume_step=row.resume_step,
        started_at=row.started_at,
        ended_at=row.ended_at,
        reason=row.exit_reason,
    )


MOST_SPANS = 5000
"""Attempts of a history: the newest."""


def attempt_spans(s: Session, rows: Sequence[TrialRow]) -> list[AttemptSpan]:
    """Return the slots that attempts of these trials held, oldest first: the newest that have started."""
    found = trials.started_attempts(s, [row.id for row in rows])
    found.sort(key=lambda one: (one.started_at, one.trial_id, one.run))
    return [AttemptSpan.model_validate(one, from_attributes=True) for one in found[-MOST_SPANS:]]


def parent_views(s: Session, rows: Sequence[TrialRow]) -> list[ParentView]:
    """Return of which trials the checkpoints were that these trials started from."""
    started_from = {row.id: row.parent_checkpoint for row in rows if row.parent_checkpoint is not None}
    known = checkpoints.owners(s, sorted(set(started_from.values())))
    return [
        ParentView(trial_id=key, parent_id=known[uuid][0], steps_completed=known[uuid][1])
        for key, uuid in started_from.items()
        if uuid in known
    ]


def display_state(state: TrialState, current: AllocationRow | None, *, by_hand: bool = False) -> str:
    """Return a trial's state in one word for people."""
    if state.terminal:
        return state.value
    if by_hand and state is TrialState.ACTIVE:
        return "RUNNING"
    allocation = None if current is None else AllocationState(current.state)
    live = allocation is not None and allocation is not AllocationState.TERMINATED
    if state is not TrialState.ACTIVE:
        leaving = "PAUSING" if state is TrialState.PAUSED else "STOPPING"
        return leaving if live else state.value
    if not live or allocation is AllocationState.PENDING or waits_elsewhere(current):
        return "QUEUED"
    if allocation is AllocationState.RUNNING:
        return "RUNNING" if current is None or current.preempt_reason is None else "PREEMPTING"
    return "STOPPING" if allocation is AllocationState.TERMINATING else "STARTING"


def waits_elsewhere(current: AllocationRow | None) -> bool:
    """Whether an attempt was handed over to a batch system, and waits in its queue."""
    return current is not None and current.state == AllocationState.ASSIGNED and bool(current.stage_message)


def waiting_for(current: AllocationRow | None, reasons: Mapping[str, str]) -> str | None:
    """Return why an attempt has not started: the scheduler's reason, or that of a batch system in its own words."""
    if current is None:
        return None
    return reasons.get(current.id) or (current.stage_message if waits_elsewhere(current) else None)


# --- checkpoints


def checkpoint_views(
    s: Session, rows: Sequence[CheckpointRow], metric: str | None = None, *, full: bool = False
) -> list[CheckpointView]:
    """Make the views of many checkpoints, each with the searcher metric reported at its step.

    Args:
        s: A session.
        rows: The checkpoints.
        metric: Another validation metric, whose value each view has in `metrics`.
        full: Whether the files and the metadata are there however many they are.
    """
    others = {} if metric is None else _validations_at(s, metric, rows)
    validations: dict[str, float] = {}
    by_experiment: defaultdict[int, list[CheckpointRow]] = defaultdict(list)
    for row in rows:
        by_experiment[row.experiment_id].append(row)
    for experiment_id, group in by_experiment.items():
        experiment = s.get(ExperimentRow, experiment_id)
        if experiment is not None and experiment.metric:
            validations.update(_validations_at(s, experiment.metric, group))
    trash = collection.trash_of(s, [row.uuid for row in rows if row.state == collection.DELETED])
    going = collection.being_removed(s, [row.uuid for row in rows if row.state != "COMPLETED"])
    views = [
        _checkpoint_view(
            row,
            validations.get(row.uuid),
            {metric: others[row.uuid]} if metric and row.uuid in others else {},
            trash.get(row.uuid),
            going.get(row.uuid),
        )
        for row in rows
    ]
    return views if full else list(map(brief, views))


def checkpoint_view(s: Session, row: CheckpointRow) -> CheckpointView:
    """Make the view of one checkpoint."""
    return checkpoint_views(s, [row], full=True)[0]


def _validations_at(s: Session, metric: str, rows: Sequence[CheckpointRow]) -> dict[str, float]:
    by_trial: defaultdict[int, list[CheckpointRow]] = defaultdict(list)
    for row in rows:
        by_trial[row.trial_id].append(row)
    validations: dict[str, float] = {}
    for trial_id, group in by_trial.items():
        found = curves.values_at(s, trial_id, "validation", metric, [row.steps_completed for row in group])
        validations.update({row.uuid: found[row.steps_completed] for row in group if row.steps_completed in found})
    return validations


_CHECKPOINT_STATES: dict[str, Literal["PARTIALLY_DELETED", "DELETED"]] = {
    "PARTIALLY_DELETED": "PARTIALLY_DELETED",
    "DELETED": "DELETED",
}


def _checkpoint_view(
    row: CheckpointRow,
    validation: float | None,
    metrics: dict[str, float],
    trash_until: float | None,
    removal: str | None,
) -> CheckpointView:
    return CheckpointView(
        uuid=row.uuid,
        trial_id=row.trial_id or 0,
        experiment_id=row.experiment_id or 0,
        tracked_run=row.run_id or "",
        run=row.run,
        steps_completed=row.steps_completed,
        state=_CHECKPOINT_STATES.get(row.state, "COMPLETED"),
        created_at=row.created_at,
        size=row.size,
        files={path: CheckpointFile.model_validate(entry) for path, entry in row.files.items()},
        metadata=row.metadata_,
        storage=masked_storage(row.storage),
        validation=validation,
        metrics=metrics,
        manifest_digest=row.manifest_digest,
        trash_until=trash_until,
        removing=removal is not None,
        removal_failure=removal or "",
    )


def _parts(ids: Sequence[Any]) -> list[Sequence[Any]]:
    return [ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK)]
