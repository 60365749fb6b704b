"""The rules, found by what they look at: an event costs as much as the rules that it concerns, not as all there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class RuleScope(StrEnum):
    """Which experiments a rule looks at."""

    OWNER = "owner"
    """All that its owner has."""
    EXPERIMENT = "experiment"
    PROJECT = "project"
    WORKSPACE = "workspace"


@dataclass(frozen=True)
class AlertRule:
    """A rule: when somebody wants to be told.

    Attributes:
        id: Of its row.
        owner: Whose it is.
        kind: What it waits for, see `wire.notify.alerts.RuleKind`.
        amount: Percent, validations or seconds, by the kind.
        scope: Which experiments it looks at.
        key: The id of that experiment, project or workspace; 0 for those of the owner.
        groups: Of the owner, when the rule was made.
        pattern: Of `log`: what is looked for in lines of output.
    """

    id: int
    owner: str
    kind: str
    amount: float = 0.0
    scope: RuleScope = RuleScope.OWNER
    key: int = 0
    groups: frozenset[str] = frozenset()
    pattern: str = ""


@dataclass(frozen=True)
class AlertSubject:
    """An experiment, as rules look at it."""

    experiment_id: int
    owner: str
    project_id: int | None = None
    workspace_id: int | None = None
    metric: str = ""
    smaller_is_better: bool = True
    bounds: tuple[tuple[str, float, float], ...] = ()
    """Of `searcher.constraints`: metric, smallest and largest value."""


class RuleIndex:
    """Rules by kind and by what they look at.

    Args:
        rules: All rules.
    """

    def __init__(self, rules: Iterable[AlertRule] = ()) -> None:
        self._found: dict[tuple[str, RuleScope, str | int], list[AlertRule]] = {}
        self.kinds: set[str] = set()
        for rule in rules:
            key: str | int = rule.owner if rule.scope is RuleScope.OWNER else rule.key
            self._found.setdefault((rule.kind, rule.scope, key), []).append(rule)
            self.kinds.add(rule.kind)

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def matching(self, kind: str, subject: AlertSubject) -> list[AlertRule]:
        """Return the rules of a kind that look at an experiment."""
        if kind not in self.kinds:
            return []
        get = self._found.get
        found = list(get((kind, RuleScope.OWNER, subject.owner), ()))
        found += get((kind, RuleScope.EXPERIMENT, subject.experiment_id), ())
        if subject.project_id is not None:
            found += get((kind, RuleScope.PROJECT, subject.project_id), ())
        if subject.workspace_id is not None:
            found += get((kind, RuleScope.WORKSPACE, subject.workspace_id), ())
        return found

    def of_kind(self, kind: str) -> list[AlertRule]:
        """Return all rules of a kind."""
        return [rule for (one, *_), rules in self._found.items() if one == kind for rule in rules]
