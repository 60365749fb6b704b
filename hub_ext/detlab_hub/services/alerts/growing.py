"""What grows by itself, and so makes no event: how long experiments wait, what is used of budgets and quotas.

Each look says what each rule remembers now, where that has changed, and what is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial

from sqlalchemy.orm import Session

from detlab_hub.core.alerts import AlertRule, AlertSubject, RuleIndex, RuleMark, RuleScope
from detlab_hub.services.admission import storage_quotas
from detlab_hub.services.notify.telling import Said
from detlab_hub.services.views import budget_views
from detlab_hub.store.queries import jobs
from detlab_hub.store.queries.notify import alerts

Change = tuple[AlertRule, int, RuleMark, Said | None]
"""(rule, experiment, what the rule remembers now, what is told)"""
Grown = Iterator[Change]
Look = Callable[[Session, Sequence[AlertRule], float], Grown]
MOST = 1000
"""Experiments that one look tells of; further ones follow with the next."""


def waiting(s: Session, rules: Sequence[AlertRule], now: float) -> Grown:
    """Look at experiments of which nothing runs, since something of them waits."""
    found = alerts.waiting_since(s, _watched(rules), now - min(rule.amount for rule in rules), MOST)
    for rule, subject, mark in _matched(s, rules, "waiting", list(found)):
        begun = found[subject.experiment_id]
        if now - begun < rule.amount or mark.value == begun:
            continue
        text = f"nothing of it has run for {_hours(now - begun)}: det job why {subject.experiment_id}"
        said = Said("waiting", f"waits for {_hours(now - begun)}", text, "warn", subject.experiment_id)
        yield rule, subject.experiment_id, RuleMark(value=begun, told=True), said


def budget(s: Session, rules: Sequence[AlertRule], now: float) -> Grown:
    """Look at `searcher.budget` of experiments, and, for rules about all that is one's own, at one's quotas."""
    rows = alerts.with_budget(s, _watched(rules), MOST)
    for rule, subject, mark in _matched(s, rules, "budget", list(rows)):
        if mark.told:
            continue
        used = [one for one in budget_views.views(s, rows[subject.experiment_id], now) if one.limit > 0]
        over = [one for one in used if 100.0 * one.used / one.limit >= rule.amount]
        if over:
            text = "; ".join(f"{one.name}: {one.used:.3g} of {one.limit:g}" for one in over)
            title = f"has used {rule.amount:g} % of its budget"
            said = Said("budget", title, text, "warn", subject.experiment_id)
            yield rule, subject.experiment_id, RuleMark(told=True), said
    yield from _quotas(s, [rule for rule in rules if rule.scope is RuleScope.OWNER])


def _quotas(s: Session, rules: Sequence[AlertRule]) -> Grown:
    marks = alerts.marks(s, [(rule.id, 0) for rule in rules])
    slots = jobs.live(s) if any(jobs.quotas_of(s, rule.owner, rule.groups) for rule in rules) else []
    stored = cache(partial(storage_quotas.standings, s))  # sums up what a user has stored: once for all their rules
    for rule in rules:
        over = [
            f"{one.kind} {one.name}: {100.0 * one.used / one.limit:.0f} % of the storage quota"
            for one in stored(rule.owner, rule.groups)
            if one.limit and 100.0 * one.used / one.limit >= rule.amount
        ]
        for quota in jobs.quotas_of(s, rule.owner, rule.groups):
            held = sum(one.held for one in slots if _binds(quota.kind, quota.name, one.owner, one.groups))
            if quota.slots and 100.0 * held / quota.slots >= rule.amount:
                over.append(f"{quota.kind} {quota.name}: {held} of {quota.slots} slots held")
        before = marks.get((rule.id, 0), RuleMark())
        if bool(over) == before.told:
            continue
        said = Said("budget", f"{rule.amount:g} % of a quota are used", "\n".join(over), "warn") if over else None
        yield rule, 0, RuleMark(told=bool(over)), said


def _binds(kind: str, name: str, owner: str, groups: Sequence[str]) -> bool:
    return owner == name if kind == jobs.USER else name in groups


def _watched(rules: Sequence[AlertRule]) -> dict[RuleScope, set[str | int]]:
    """Return whose experiments, and which, any of some rules looks at."""
    found: dict[RuleScope, set[str | int]] = {}
    for rule in rules:
        found.setdefault(rule.scope, set()).add(rule.owner if rule.scope is RuleScope.OWNER else rule.key)
    return found


def _matched(
    s: Session, rules: Sequence[AlertRule], kind: str, ids: list[int]
) -> Iterator[tuple[AlertRule, AlertSubject, RuleMark]]:
    index = RuleIndex(rules)
    pairs = [(rule, one) for one in alerts.subjects(s, ids).values() for rule in index.matching(kind, one)]
    marks = alerts.marks(s, [(rule.id, subject.experiment_id) for rule, subject in pairs])
    for rule, subject in pairs:
        yield rule, subject, marks.get((rule.id, subject.experiment_id), RuleMark())


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


LOOKS: Mapping[str, Look] = {"waiting": waiting, "budget": budget}
"""Kind of rules -> the look."""
