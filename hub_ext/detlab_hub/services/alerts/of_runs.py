"""Rules about runs that no cluster started: told in the transaction that stores what a run says, so once.

Experiments make events, and their rules are evaluated from these; runs make none. What came long after it happened
(a folder of last month that is sent today) is remembered, and causes no alert.
"""

from __future__ import annotations

from collections.abc import Sequence

from detlab_hub.core.alerts import AlertRule, AlertSubject, RuleIndex, RuleMark, judge
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.telling import OF_RULE, Said, of_rule, reads_run, tell
from detlab_hub.store.queries.notify import alerts
from detlab_hub.store.queries.tracking import runs
from detlab_hub.store.queries.tracking.points import LoggedPoint
from detlab_hub.store.tables import AlertRuleRow, TrackedRunRow

OF_METRICS = ("improved", "plateau")
ENDS = {"FINISHED": "completed", "FAILED": "failed"}
NEWS_SECONDS = 3600.0
"""What happened longer ago is no news."""


def tell_of_end(unit: UnitOfWork, rules: RuleIndex, row: TrackedRunRow, before: str) -> None:
    """Tell who has a rule for it that a run has ended, if its status was another one before."""
    kind = ENDS.get(row.status)
    if kind is None or row.status == before or not rules.kinds.intersection(ENDS.values()) or not _counts(row):
        return
    if not _is_news(unit, row.ended_ms):
        return
    said = Said(kind, "has completed", "", "info", run_id=row.id)
    if kind == "failed":
        said = Said(kind, "has failed", row.end_reason, "error", run_id=row.id)
    for rule in rules.matching(kind, _subject(row)):
        _tell(unit, rule, said, row)


def tell_of_metrics(unit: UnitOfWork, rules: RuleIndex, row: TrackedRunRow, logged: Sequence[LoggedPoint]) -> None:
    """Judge the values of the metric by which a run is measured, and tell who has a rule for what they mean."""
    if not rules.kinds.intersection(OF_METRICS) or not _counts(row):
        return
    subject = _subject(row)
    mine = [rule for kind in OF_METRICS for rule in rules.matching(kind, subject)]
    if not mine:
        return
    metric, smaller = runs.measured_by(unit.session, row.id)
    values = [one for one in logged if one.key == metric]
    if not values:
        return
    key = runs.mark_key(row.id)
    marks = alerts.marks(unit.session, [(rule.id, key) for rule in mine])
    changed: dict[tuple[int, int], RuleMark] = {}
    for rule in mine:
        mark = marks.get((rule.id, key), RuleMark())
        for one in values:
            judged = judge(rule.kind, rule.amount, mark, one.value, smaller_is_better=smaller)
            mark = judged.mark
            if judged.text and _is_news(unit, one.time_ms):
                title = "has improved" if rule.kind == "improved" else "does not improve any more"
                _tell(unit, rule, Said(rule.kind, title, f"{metric}: {judged.text}", run_id=row.id), row)
        if mark != marks.get((rule.id, key)):
            changed[rule.id, key] = mark
    alerts.put_marks(unit.session, changed)


def _counts(row: TrackedRunRow) -> bool:
    """Whether it is a run from elsewhere: trials and what they make are told of as their experiment."""
    return row.experiment_id is None and not row.is_trial and row.deleted_at is None


def _subject(row: TrackedRunRow) -> AlertSubject:
    return AlertSubject(0, row.owner, row.project_id, row.workspace_id)


def _is_news(unit: UnitOfWork, ms: int | None) -> bool:
    return ms is None or unit.now - ms / 1000.0 <= NEWS_SECONDS


def _tell(unit: UnitOfWork, rule: AlertRule, said: Said, run: TrackedRunRow) -> None:
    """Tell the owner of a rule, if the rule is still there, and they may read the run."""
    found = unit.session.get(AlertRuleRow, rule.id)
    if found is None or not reads_run(unit.session, Caller(rule.owner, groups=rule.groups), run):
        return
    name = f"run {run.name[:100]} {said.title}"
    whole = Said(said.kind, name, said.text, said.level, run_id=run.id)
    hooks = [] if found.hook_id is None else [found.hook_id]
    tell(unit, rule.owner, of_rule(rule.id), whole, most=OF_RULE, bell=found.bell, hooks=hooks, email=found.email)
