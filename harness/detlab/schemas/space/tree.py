"""A space as its leaves: each hyperparameter with the conditions under which a trial has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

Route = tuple[str, ...]
"""Names from the outermost."""
WHEN = "when"


@dataclass(frozen=True)
class Condition:
    """That another hyperparameter has one of some values.

    Attributes:
        name: The other one, dotted.
        values: Of which it must have one.
        home: Route of the hyperparameter or group that says so.
    """

    name: str
    values: tuple[Any, ...]
    home: Route

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether it holds in a flat point; never if the point does not have the other hyperparameter."""
        return self.name in values and any(same(values[self.name], one) for one in self.values)


@dataclass(frozen=True)
class Leaf:
    """A hyperparameter, or a group without any.

    Attributes:
        route: Its names.
        spec: As the block has it: a mapping with a `type`, a bare value, or an empty group.
        conditions: All of which must hold, those of enclosing groups first.
    """

    route: Route
    spec: Any
    conditions: tuple[Condition, ...]

    @property
    def name(self) -> str:
        """The route, as one text."""
        return ".".join(self.route)

    @property
    def kind(self) -> str:
        """Its `type`; a bare value is a `const`."""
        return str(self.spec["type"]) if isinstance(self.spec, Mapping) and "type" in self.spec else "const"

    def active(self, values: Mapping[str, Any]) -> bool:
        """Return whether a trial with these values has it."""
        return all(condition.holds(values) for condition in self.conditions)


def is_group(value: object) -> bool:
    """Return whether a value is a map of further hyperparameters."""
    return isinstance(value, Mapping) and "type" not in value


def is_condition(key: str, value: object, depth: int) -> bool:
    """Return whether an entry of a group is its condition; at the top level, `when` is an ordinary name.

    Args:
        key: Of the entry.
        value: Of the entry.
        depth: How many names lead to the group.
    """
    return depth > 0 and key == WHEN and is_group(value)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; a boolean equals no number, and 2 equals 2.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return type(one) is type(other) and one == other
    return bool(one == other)


def leaves_of(space: Mapping[str, Any]) -> list[Leaf]:
    """Return the leaves of a space in sorted order."""
    return list(_walk(space, (), ()))


def _walk(space: Mapping[str, Any], route: Route, outer: tuple[Condition, ...]) -> Iterator[Leaf]:
    for name in sorted(space, key=str):  # a raw block may have keys that are no texts
        spec, here = space[name], (*route, str(name))
        if is_condition(name, spec, len(route)):
            continue
        if not isinstance(spec, Mapping):
            yield Leaf(here, spec, outer)
            continue
        mine = (*outer, *_conditions(spec.get(WHEN), here)) if _has_condition(spec) else outer
        if is_group(spec) and set(spec) - ({WHEN} if _has_condition(spec) else set()):
            yield from _walk(spec, here, mine)
        else:
            yield Leaf(here, spec, mine)


def _has_condition(spec: Mapping[str, Any]) -> bool:
    return is_group(spec.get(WHEN))


def _conditions(when: Any, home: Route) -> Iterator[Condition]:
    for name, values in when.items():
        yield Condition(str(name), tuple(values) if isinstance(values, list) else (values,), home)


def in_order(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Return the leaves so that each comes after those that its conditions name, and else in sorted order.

    Without conditions it is the sorted order. Leaves on a cycle are left out; see `cycle`.
    """
    if not any(leaf.conditions for leaf in leaves):
        return list(leaves)
    known = {leaf.name for leaf in leaves}
    needs = [_needs(leaf, known) for leaf in leaves]
    waiting: dict[str, list[int]] = {}
    for at, names in enumerate(needs):
        for name in names:
            waiting.setdefault(name, []).append(at)
    ready = [at for at, names in enumerate(needs) if not names]  # a heap, since it is sorted
    ordered: list[Leaf] = []
    while ready:
        leaf = leaves[heappop(ready)]
        ordered.append(leaf)
        for at in waiting.pop(leaf.name, ()):
            needs[at].discard(leaf.name)
            if not needs[at]:
                heappush(ready, at)
    return ordered


def _needs(leaf: Leaf, known: set[str]) -> set[str]:
    return {condition.name for condition in leaf.conditions} & known


def cycle(leaves: Sequence[Leaf]) -> list[str]:
    """Return the names of a cycle of conditions, its first name again at its end; empty if there is none."""
    known = {leaf.name: leaf for leaf in leaves}
    left = {leaf.name for leaf in leaves} - {leaf.name for leaf in in_order(leaves)}
    if not left:
        return []
    walked = {min(left): 0}
    following = min(left)
    while (following := min(_needs(known[following], left))) not in walked:
        walked[following] = len(walked)
    return [*list(walked)[walked[following] :], following]
