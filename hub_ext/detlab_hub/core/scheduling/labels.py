"""Rules for the labels of agents: those that must hold, and those that are preferred."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class LabelRule(NamedTuple):
    """A rule for one label of an agent.

    Attributes:
        label: Its name.
        values: One of these; empty: any value.
        negated: The opposite: the label has another value, or is absent.
    """

    label: str
    values: frozenset[str] = frozenset()
    negated: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the rule holds for the labels of an agent."""
        value = labels.get(self.label)
        return (value is not None and (not self.values or value in self.values)) is not self.negated


class Preference(NamedTuple):
    """A preference among agents: a weight that counts if the rule holds."""

    rule: LabelRule
    weight: int


def rule_of(said: Mapping[str, Any]) -> LabelRule:
    """Return the rule that a config or a scenario states with `one_of`, `none_of` or `exists`."""
    values = frozenset(str(value) for value in said.get("one_of") or said.get("none_of") or ())
    return LabelRule(str(said["label"]), values, bool(said.get("none_of")) or said.get("exists") is False)


def preferences_of(said: Iterable[Mapping[str, Any]]) -> frozenset[Preference]:
    """Return the rules with their weights; a rule that is repeated counts again."""
    weights = Counter[LabelRule]()
    for one in said:
        weights[rule_of(one)] += int(one["weight"])
    return frozenset(Preference(rule, weight) for rule, weight in weights.items())


def liking(preferred: Iterable[Preference], labels: Mapping[str, str]) -> int:
    """Return how much an agent with these labels is preferred: the weights of all rules that hold."""
    return sum(weight for rule, weight in preferred if rule.holds(labels))
