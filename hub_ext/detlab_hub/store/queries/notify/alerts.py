"""Alerts of a user, the rules by which they are told, and what rules remember."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import ColumnElement, case, delete, false, func, insert, or_, select, tuple_, update
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState, ExperimentState
from detlab_hub.core.alerts import AlertRule, AlertSubject, RuleMark, RuleScope
from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.core.searchers.objectives import Objectives
from detlab_hub.store.queries.rights import visible, visible_experiments
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import (
    AlertMarkRow,
    AlertRow,
    AlertRuleRow,
    AllocationRow,
    ExperimentRow,
    Meta,
    TrackedRunRow,
    TrialRow,
)

_PATTERN = "pattern of alert rule "
UNREAD = 100
"""Unread alerts are counted up to here."""


# --- alerts


def page(
    s: Session,
    owner: str,
    viewer: Person,
    limit: int,
    before: int | None,
    *,
    unread: bool = False,
    all_channels: bool = False,
) -> list[int]:
    """Return the ids of a user's alerts of what they may read today, the newest first.

    Those that were sent by webhook or e-mail alone are kept as read when they were made: they are of `all_channels`.
    """
    row = AlertRow
    query = select(row.id).where(row.owner == owner, _readable(viewer))
    if not all_channels:
        query = query.where(or_(row.read_at.is_(None), row.read_at > row.created_at))
    if unread:
        query = query.where(AlertRow.read_at.is_(None))
    if before is not None:
        query = query.where(AlertRow.id < before)
    return list(s.scalars(query.order_by(AlertRow.id.desc()).limit(limit)))


def unread(s: Session, owner: str, viewer: Person) -> int:
    """Count a user's unread alerts of what they may read today, up to `UNREAD`."""
    new = select(AlertRow.id).where(AlertRow.owner == owner, AlertRow.read_at.is_(None), _readable(viewer))
    return s.scalar(select(func.count()).select_from(new.limit(UNREAD).subquery())) or 0


def _readable(viewer: Person) -> ColumnElement[bool]:
    """Return the condition on alerts of what a user may read: an alert ends with the right to its run."""
    mine = ExperimentRow.id == AlertRow.experiment_id
    experiments = select(ExperimentRow.id).where(mine, visible_experiments(viewer))
    row = TrackedRunRow
    runs = select(row.id).where(
        row.id == AlertRow.run_id,
        visible(ObjectKind.TRACKED_RUN, viewer, owner=row.owner, workspace_id=row.workspace_id),
    )
    return or_(
        AlertRow.experiment_id.is_(None) & AlertRow.run_id.is_(None),
        experiments.correlate(AlertRow).exists(),
        AlertRow.experiment_id.is_(None) & runs.correlate(AlertRow).exists(),
    )


def mark_read(s: Session, owner: str, ids: Collection[int], upto: int | None, now: float) -> None:
    """Mark some of a user's alerts as read, and all up to one."""
    at = case((AlertRow.created_at < now, now), else_=AlertRow.created_at + 0.001)  # later, even if the clock jumped
    mine = update(AlertRow).where(AlertRow.owner == owner, AlertRow.read_at.is_(None)).values(read_at=at)
    if upto is not None:
        s.execute(mine.where(AlertRow.id <= upto).execution_options(synchronize_session=False))
    for some in chunks(sorted(ids)):
        s.execute(mine.where(AlertRow.id.in_(some)).execution_options(synchronize_session=False))


def recent(s: Session, source: str, owner: str, since: float, most: int) -> list[int]:
    """Return the ids of the alerts of a source to a user since some time, the newest first, so many at most."""
    query = select(AlertRow.id).where(AlertRow.source == source, AlertRow.owner == owner, AlertRow.created_at > since)
    return list(s.scalars(query.order_by(AlertRow.id.desc()).limit(most)))


def hold_back(s: Session, alert_id: int, more: int) -> None:
    """Count alerts that came too fast after this one."""
    s.execute(
        update(AlertRow)
        .where(AlertRow.id == alert_id)
        .values(held_back=AlertRow.held_back + more)
        .execution_options(synchronize_session=False)
    )


def purge(s: Session, before: float, limit: int) -> int:
    """Remove alerts from before some time, at most so many; return how many."""
    old = select(AlertRow.id).where(AlertRow.created_at < before).order_by(AlertRow.created_at).limit(limit)
    ids = list(s.scalars(old))
    for some in chunks(ids):
        s.execute(delete(AlertRow).where(AlertRow.id.in_(some)).execution_options(synchronize_session=False))
    return len(ids)


def forget_experiment(s: Session, experiment_id: int) -> None:
    """Remove all that is kept about an experiment that is deleted."""
    about = (AlertRuleRow.scope == RuleScope.EXPERIMENT.value) & (AlertRuleRow.key == experiment_id)
    s.execute(delete(AlertRow).where(AlertRow.experiment_id == experiment_id))
    trials = s.scalars(select(TrialRow.id).where(TrialRow.experiment_id == experiment_id))
    for some in chunks([experiment_id, *(trial_key(one) for one in trials)]):
        s.execute(delete(AlertMarkRow).where(AlertMarkRow.experiment_id.in_(some)))
    for rule_id in s.scalars(select(AlertRuleRow.id).where(about)).all():
        remove_rule(s, rule_id)


# --- rules


def rules(s: Session) -> list[AlertRule]:
    """Return all rules, as they are looked up by."""
    row = AlertRuleRow
    query = select(row.id, row.owner, row.kind, row.amount, row.scope, row.key, row.owner_groups).order_by(row.id)
    found = s.execute(query).all()
    looked_for = patterns(s, [one.id for one in found if one.kind == "log"])
    return [
        AlertRule(
            one.id,
            one.owner,
            one.kind,
            one.amount,
            RuleScope(one.scope),
            one.key,
            frozenset(one.owner_groups),
            looked_for.get(one.id, ""),
        )
        for one in found
    ]


def patterns(s: Session, rule_ids: Collection[int]) -> dict[int, str]:
    """Return what rules of kind `log` look for, by their ids: it lies among the small facts."""
    found: dict[int, str] = {}
    for some in chunks(sorted(rule_ids)):
        query = select(Meta.key, Meta.value).where(Meta.key.in_([_PATTERN + str(one) for one in some]))
        found |= {int(key.removeprefix(_PATTERN)): value for key, value in s.execute(query)}
    return found


def set_pattern(s: Session, rule_id: int, pattern: str) -> None:
    """Keep what a rule looks for."""
    s.add(Meta(key=_PATTERN + str(rule_id), value=pattern))


def trial_key(trial_id: int) -> int:
    """Return the number of a trial among experiments in what rules remember: below 0, where no experiment is."""
    return -1 - int.from_bytes(hashlib.sha256(f"trial {trial_id}".encode()).digest()[:7], "big")


def rules_page(s: Session, owner: str, limit: int, after: int | None) -> list[int]:
    """Return the ids of the rules of a user, the oldest first."""
    query = select(AlertRuleRow.id).where(AlertRuleRow.owner == owner)
    query = query.order_by(AlertRuleRow.id).limit(limit)
    return list(s.scalars(query if after is None else query.where(AlertRuleRow.id > after)))


def rules_of(s: Session, owner: str) -> int:
    """Count the rules of a user."""
    return s.scalar(select(func.count()).select_from(AlertRuleRow).where(AlertRuleRow.owner == owner)) or 0


def rules_for_alerts(s: Session, subject: AlertSubject) -> list[AlertRuleRow]:
    """Return the rules that pass on what the code of an experiment says."""
    row = AlertRuleRow
    looks = [(row.scope == RuleScope.OWNER.value) & (row.owner == subject.owner)]
    for scope, key in (
        (RuleScope.EXPERIMENT, subject.experiment_id or None),
        (RuleScope.PROJECT, subject.project_id),
        (RuleScope.WORKSPACE, subject.workspace_id),
    ):
        if key is not None:
            looks.append((row.scope == scope.value) & (row.key == key))
    return list(s.scalars(select(row).where(row.kind == "alert", or_(*looks)).order_by(row.id)))


def remove_rule(s: Session, rule_id: int) -> None:
    """Remove a rule and what it remembers."""
    s.execute(delete(AlertMarkRow).where(AlertMarkRow.rule_id == rule_id))
    s.execute(delete(Meta).where(Meta.key == _PATTERN + str(rule_id)))
    s.execute(delete(AlertRuleRow).where(AlertRuleRow.id == rule_id))


# --- what rules look at, and remember


def subjects(s: Session, ids: Collection[int]) -> dict[int, AlertSubject]:
    """Return experiments as rules look at them."""
    row, found = ExperimentRow, dict[int, AlertSubject]()
    query = select(row.id, row.owner, row.project_id, row.workspace_id, row.metric, row.smaller_is_better, row.config)
    for some in chunks(sorted(ids)):
        for one in s.execute(query.where(row.id.in_(some))):
            bounds = Objectives.from_config(one.config.get("searcher") or {}).bounds
            limits = tuple((bound.name, bound.low, bound.high) for bound in bounds)
            found[one.id] = AlertSubject(
                one.id, one.owner, one.project_id, one.workspace_id, one.metric, one.smaller_is_better, limits
            )
    return found


def marks(s: Session, keys: Iterable[tuple[int, int]]) -> dict[tuple[int, int], RuleMark]:
    """Return what rules remember, by (rule, experiment)."""
    row, found = AlertMarkRow, dict[tuple[int, int], RuleMark]()
    query = select(row.rule_id, row.experiment_id, row.value, row.count, row.told)
    for some in chunks(sorted(set(keys))):
        for one in s.execute(query.where(tuple_(row.rule_id, row.experiment_id).in_(some))):
            found[one.rule_id, one.experiment_id] = RuleMark(one.value, one[3], one.told)
    return found


def put_marks(s: Session, changed: Mapping[tuple[int, int], RuleMark]) -> None:
    """Write what rules remember."""
    there = marks(s, changed)
    rows = {
        key: {"rule_id": key[0], "experiment_id": key[1], "value": one.value, "count": one.count, "told": one.told}
        for key, one in changed.items()
    }
    if new := [row for key, row in rows.items() if key not in there]:
        s.execute(insert(AlertMarkRow), new)
    if known := [row for key, row in rows.items() if key in there]:
        s.execute(update(AlertMarkRow), known)


# --- what grows by itself

_ACTIVE = ExperimentState.ACTIVE.value
_PENDING = AllocationState.PENDING.value
_RUNNING = [one.value for one in AllocationState if one.value not in {_PENDING, AllocationState.TERMINATED.value}]
Watched = Mapping[RuleScope, Collection[str | int]]
"""Whose experiments, and which, are looked at."""


def waiting_since(s: Session, watched: Watched, before: float, limit: int) -> dict[int, float]:
    """Return since when something of experiments waits of which nothing runs, if that is since `before`."""
    row = AllocationRow
    since = func.min(case((row.state == _PENDING, row.requested_at)))
    runs = func.sum(case((row.state.in_(_RUNNING), 1), else_=0))
    query = select(row.experiment_id, since).join(ExperimentRow, ExperimentRow.id == row.experiment_id)
    query = query.where(row.state.in_([_PENDING, *_RUNNING]), ExperimentRow.state == _ACTIVE, _any_of(watched))
    query = query.group_by(row.experiment_id).having(runs == 0, since <= before).limit(limit)
    return {one[0]: one[1] for one in s.execute(query)}


def with_budget(s: Session, watched: Watched, limit: int) -> dict[int, ExperimentRow]:
    """Return the active experiments with a budget, by their ids."""
    row = ExperimentRow
    query = select(row).where(row.state == _ACTIVE, row.budget.is_not(None), _any_of(watched)).limit(limit)
    return {one.id: one for one in s.scalars(query)}


def _any_of(watched: Watched) -> ColumnElement[bool]:
    row = ExperimentRow
    columns = {
        RuleScope.OWNER: row.owner,
        RuleScope.EXPERIMENT: row.id,
        RuleScope.PROJECT: row.project_id,
        RuleScope.WORKSPACE: row.workspace_id,
    }
    return or_(false(), *(columns[scope].in_(sorted(keys, key=str)) for scope, keys in watched.items()))


def any_rule(s: Session) -> bool:
    """Whether there is a rule."""
    return s.scalar(select(AlertRuleRow.id).limit(1)) is not None
