"""Collection of an experiment's checkpoints by its policy: what goes is decided and marked in one transaction.

Decided are all checkpoints whose files exist, and what nothing keeps is put into the trash; a task of the owner removes
the files when their time there is over. To decide again decides the same, so that a crash anywhere costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab.schemas.wire import ExperimentState
from detlab.schemas.wire.storage import Bookmark, GcItem, GcPolicy, GcPreview, GcRequest, Pin, PinList
from detlab_hub.core.collection import CheckpointDecision, CheckpointRetention, Saved, decide
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import checkpoint_for, experiment_for, is_deleting
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.rules import rules_of
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.pins import NeedsCheckpoints, Pins, pins_of
from detlab_hub.services.views import experiment_views
from detlab_hub.services.views.pages import within
from detlab_hub.store.queries import checkpoints
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.queries.storage import collection
from detlab_hub.store.queries.storage.collection import Kept
from detlab_hub.store.tables import BookmarkRow, CheckpointRow, ExperimentRow, TaskRow, TrialRow

_log = logging.getLogger(__name__)
MOST_PINS = 10
"""Of each checkpoint that are shown; its own route has all."""
MOST_SHOWN = 5_000
_MOST_TOLD = 500
"""Checkpoints that each get an event when they go; of more, only the experiment does."""
_PINS_SAID = 10
_NUMBERS = ("save_experiment_best", "save_trial_best", "save_trial_latest")


class Collecting(Service):
    """Use cases of collection and of bookmarks. All raise NotFound for what the caller may not know of."""

    async def preview(self, caller: Caller, experiment_id: int, policy: GcPolicy | None = None) -> GcPreview:
        """Return what a policy, or the experiment's own, would do now; nothing is changed."""

        def ask(unit: UnitOfWork) -> _Needed:
            return _needed(unit, experiment_for(unit.session, caller, experiment_id))

        needed = await self._context.write(ask)
        now = self._context.clock()
        until = now + self._context.settings.trash_window

        def look(s: Session) -> GcPreview:
            row = experiment_for(s, caller, experiment_id)
            return _preview(row, policy or policy_of(row), _plan(s, needed, row, policy), now, until)

        return await self._context.look(caller.name, look)

    async def apply(self, caller: Caller, experiment_id: int, wanted: GcRequest) -> GcPreview:
        """Change an experiment's policy, if one is given, and collect, if it has ended or `now` is set.

        Returns:
            What has gone and what stays; `applied` says whether it has.

        Raises:
            ConfigError: A config policy says what is kept.
            Conflict: The experiment is being deleted; or it has not ended, and there is nothing to change or to do now.
            Forbidden: It is another user's.
        """

        self._context.settings.check_not_a_copy()

        def apply(unit: UnitOfWork) -> GcPreview:
            row = experiment_for(unit.session, caller, experiment_id, Action.EXPERIMENT_GC)
            if wanted.retry:
                return _retried(unit, caller, row)
            subject, ended = f"experiment {experiment_id}", _has_ended(row)
            if wanted.policy is None and not ended and not wanted.now:
                raise Conflict(
                    f"experiment {experiment_id} is {row.state}: its checkpoints are collected when it has ended",
                    hint=f"to collect what nothing needs now: det experiment gc {experiment_id} --now",
                )
            if wanted.policy is not None and wanted.policy != policy_of(row):
                kept = {f"checkpoint_storage.{key}": value for key, value in wanted.policy.model_dump().items()}
                rules_of(unit.session, row).check_change(row.config, kept)
                row.gc_policy = wanted.policy.model_dump()
                audit.note(unit, caller, "experiment.gc_policy", subject, _said(wanted.policy))
                unit.changed_experiment(row.id)
            plan, until = _plan(unit.session, unit.searches, row), unit.now + unit.settings.trash_window
            if not (ended or wanted.now):
                return _preview(row, policy_of(row), plan, unit.now, until)
            due_at = unit.now if wanted.purge else until
            gone = collect(unit, row, plan, due_at)
            if gone:
                audit.note(unit, caller, "experiment.gc", subject, f"{gone} checkpoints")
            return _preview(row, policy_of(row), plan, unit.now, due_at, applied=True)

        return await self._context.write(apply)

    async def pins(self, caller: Caller, uuid: str) -> PinList:
        """Return what keeps a checkpoint from being deleted or collected."""

        def look(unit: UnitOfWork) -> PinList:  # of one checkpoint; only the writer can ask the searches
            row = checkpoint_for(unit.session, caller, uuid)
            return PinList(items=pins_of(unit.session, [row], unit.searches).get(uuid, []))

        return await self._context.write(look)

    async def bookmark(self, caller: Caller, uuid: str, wanted: Bookmark) -> PinList:
        """Pin a checkpoint for the caller; the same again replaces the note.

        Raises:
            Conflict: It is deleted.
            Forbidden: The caller may read it, not change it.
        """

        def pin(unit: UnitOfWork) -> PinList:
            row = checkpoint_for(unit.session, caller, uuid, Action.CHECKPOINT_BOOKMARK)
            if row.state == collection.DELETED:
                raise Conflict(f"checkpoint {uuid} is deleted", hint=f"det checkpoint undelete {uuid}")
            if is_deleting(unit.session, row.experiment_id):
                raise Conflict(f"experiment {row.experiment_id} is being deleted, and its checkpoints with it")
            known = unit.session.get(BookmarkRow, (uuid, caller.name))
            if known is None:
                unit.session.add(BookmarkRow(uuid=uuid, name=caller.name, note=wanted.note, at=unit.now))
                audit.note(unit, caller, "checkpoint.bookmark", f"checkpoint {uuid}", wanted.note)
            else:
                known.note = wanted.note
            unit.session.flush()
            return PinList(items=pins_of(unit.session, [row], unit.searches).get(uuid, []))

        return await self._context.write(pin)

    async def unbookmark(self, caller: Caller, uuid: str) -> PinList:
        """Remove the caller's bookmark, or, if they have none and may delete the checkpoint, those of all."""

        def unpin(unit: UnitOfWork) -> PinList:
            row = checkpoint_for(unit.session, caller, uuid, Action.CHECKPOINT_UNBOOKMARK)
            bookmarks = unit.session.scalars(select(BookmarkRow).where(BookmarkRow.uuid == uuid)).all()
            mine = [one for one in bookmarks if one.name == caller.name]
            if not mine and bookmarks:
                checkpoint_for(unit.session, caller, uuid, Action.CHECKPOINT_UNBOOKMARK_ALL)
                mine = list(bookmarks)
            for one in mine:
                unit.session.delete(one)
                audit.note(unit, caller, "checkpoint.unbookmark", f"checkpoint {uuid}", one.name)
            unit.session.flush()
            return PinList(items=pins_of(unit.session, [row], unit.searches).get(uuid, []))

        return await self._context.write(unpin)


def _retried(unit: UnitOfWork, caller: Caller, row: ExperimentRow) -> GcPreview:
    """Have what could not be removed be removed now, whatever pause a task that was killed or failed has caused."""
    count = collection.retry(unit.session, row.id, unit.now)
    last = None if row.gc_task is None else unit.session.get(TaskRow, row.gc_task)
    if last is not None and last.ended_at is not None:
        row.gc_task = None
    if count:
        audit.note(unit, caller, "experiment.gc_retry", f"experiment {row.id}", f"{count} checkpoints")
        unit.changed_experiment(row.id)
    return GcPreview(
        experiment_id=row.id, policy=policy_of(row), items=[], left_out=0, going=count, staying=0, freed=0, kept=0,
        applied=True,
    )  # fmt: skip


def policy_of(row: ExperimentRow) -> GcPolicy:
    """Return what an experiment keeps: as it was changed, or else as its config says."""
    if row.gc_policy is not None:
        return GcPolicy.model_validate(row.gc_policy)
    block = row.config.get("checkpoint_storage") or {}
    return GcPolicy.model_validate({name: block[name] for name in _NUMBERS if block.get(name) is not None})


def check_none_pinned(unit: UnitOfWork, row: ExperimentRow) -> None:
    """Check that nothing pins a checkpoint of an experiment that is to be deleted with them.

    Raises:
        Conflict: Something does; the first few are listed.
    """
    pins = pins_of(unit.session, collection.kept(unit.session, row.id), unit.searches)
    said = [f"checkpoint {uuid}: {pin.reason}" for uuid, found in sorted(pins.items()) for pin in found]
    if said:
        more = f"; and {len(said) - _PINS_SAID} more" if len(said) > _PINS_SAID else ""
        raise Conflict(
            f"experiment {row.id} has checkpoints in use: {'; '.join(said[:_PINS_SAID])}{more}",
            hint="det checkpoint describe UUID shows what pins one; det checkpoint unbookmark UUID removes a bookmark",
        )


def due(s: Session, now: float) -> list[int]:
    """Return the experiments whose policy is to be applied now."""
    return collection.policies_due(s, now)


def act(unit: UnitOfWork, experiment_id: int) -> None:
    """Apply the policy of an experiment that has ended."""
    row = unit.session.get(ExperimentRow, experiment_id)
    if row is None or row.gc_at is None or row.gc_at > unit.now:
        return
    row.gc_at = None
    if not ExperimentState(row.state).terminal:  # it is being deleted
        return
    gone = collect(unit, row, _plan(unit.session, unit.searches, row), unit.now + unit.settings.trash_window)
    if gone:
        audit.note(unit, audit.CLUSTER, "experiment.gc", f"experiment {experiment_id}", f"{gone} checkpoints")
        _log.info("experiment %d: %d checkpoints are in the trash", experiment_id, gone)


@dataclass(frozen=True)
class CollectionPlan:
    """What is decided about the checkpoints of an experiment, and what pins them; in the same order."""

    rows: list[Kept]
    metrics: dict[str, float]
    decisions: list[CheckpointDecision]
    pins: Pins

    @property
    def going(self) -> list[Kept]:
        """Those that nothing keeps."""
        return [row for row, decision in zip(self.rows, self.decisions, strict=True) if not decision.keep]


def collect(unit: UnitOfWork, row: ExperimentRow, plan: CollectionPlan, due_at: float) -> int:
    """Put what nothing keeps into the trash, in the transaction in which it was decided; return how many."""
    going = plan.going
    if not going:
        return 0
    s = unit.session
    collection.mark_deleted(s, going, unit.now, due_at)
    gone = {one.uuid for one in going}
    for trial in s.scalars(select(TrialRow).where(TrialRow.experiment_id == row.id)):
        if trial.latest_checkpoint in gone:
            newest = checkpoints.latest(s, trial.id)
            trial.latest_checkpoint = None if newest is None else newest.uuid
            unit.changed_trial(trial)
    if len(going) <= _MOST_TOLD:
        _tell(unit, sorted(gone))
    unit.changed_experiment(row.id)
    return len(going)


def _tell(unit: UnitOfWork, uuids: Sequence[str]) -> None:
    for part in chunks(uuids):
        rows = list(unit.session.scalars(select(CheckpointRow).where(CheckpointRow.uuid.in_(part))))
        for view in experiment_views.checkpoint_views(unit.session, rows):
            data = view.model_dump(mode="json", exclude={"files", "storage"})
            unit.event("checkpoint", view.experiment_id, view.trial_id, data)


@dataclass(frozen=True)
class _Needed:
    """What the search of one experiment may still need, asked in the writer; all else of a plan is read outside of it.

    Attributes:
        checkpoints: Theirs; None: perhaps all.
    """

    checkpoints: frozenset[str] | None

    def needed_checkpoints(self, s: Session, row: ExperimentRow) -> frozenset[str] | None:
        """Return them."""
        del s, row
        return self.checkpoints


def _needed(unit: UnitOfWork, row: ExperimentRow) -> _Needed:
    if ExperimentState(row.state).terminal or row.state == ExperimentState.DELETING:
        return _Needed(frozenset())
    found = unit.searches.needed_checkpoints(unit.session, row)
    return _Needed(None if found is None else frozenset(found))


def _plan(s: Session, searches: NeedsCheckpoints, row: ExperimentRow, policy: GcPolicy | None = None) -> CollectionPlan:
    s.flush()
    rows = collection.kept(s, row.id)
    metrics = collection.metrics_of(s, row.id, row.metric) if row.metric else {}
    pins = pins_of(s, rows, searches)
    wanted = CheckpointRetention(**(policy or policy_of(row)).model_dump())
    decisions = decide(wanted, [_saved(one, metrics) for one in rows], pins, smaller_is_better=row.smaller_is_better)
    return CollectionPlan(rows, metrics, decisions, pins)


def _saved(row: Kept, metrics: dict[str, float]) -> Saved:
    """Return a checkpoint as the policy sees it; one from before its trial began anew ranks below all others."""
    metric = metrics.get(row.uuid) if row.since_anew else None
    return Saved(row.uuid, row.trial_id, row.steps_completed, metric, row.created_at, current=row.since_anew)


def _preview(
    row: ExperimentRow, policy: GcPolicy, plan: CollectionPlan, now: float, until: float, *, applied: bool = False
) -> GcPreview:
    pairs = list(zip(plan.rows, plan.decisions, strict=True))
    items = within(
        _item(one, decision, plan.metrics.get(one.uuid), plan.pins.get(one.uuid, [])[:MOST_PINS])
        for one, decision in sorted(pairs, key=lambda pair: pair[1].keep)[:MOST_SHOWN]
    )
    going = [one.size for one, decision in pairs if not decision.keep]
    return GcPreview(
        experiment_id=row.id,
        policy=policy,
        items=items,
        left_out=len(pairs) - len(items),
        going=len(going),
        staying=len(pairs) - len(going),
        freed=sum(going),
        kept=sum(one.size for one in plan.rows) - sum(going),
        applied=applied,
        trash_until=until if until > now else None,
    )


def _item(row: Kept, decision: CheckpointDecision, metric: float | None, pins: list[Pin]) -> GcItem:
    return GcItem(
        uuid=row.uuid,
        trial_id=row.trial_id,
        steps_completed=row.steps_completed,
        metric=metric,
        size=row.size,
        keep=decision.keep,
        why=list(decision.why),
        pins=pins,
    )


def _has_ended(row: ExperimentRow) -> bool:
    if row.state == ExperimentState.DELETING:
        raise Conflict(f"experiment {row.id} is being deleted, and its checkpoints with it")
    return ExperimentState(row.state).terminal


def _said(policy: GcPolicy) -> str:
    return ", ".join(f"{name} {value}" for name, value in policy.model_dump().items())
