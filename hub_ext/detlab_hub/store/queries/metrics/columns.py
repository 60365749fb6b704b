"""Reports turned into columns: of each metric its steps, values and times, in step order. Pure.

Reports nearly always have the same names, so a batch of them is transposed in one go and in C: a thousand values
cost a few dozen calls. Only a name that reports of several kinds have is gathered value by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import TypeAlias

from detlab_hub.store.tables import clean_text

Key: TypeAlias = tuple[str, str]
"""(group, name), as they are stored."""
Gathered: TypeAlias = dict[int, tuple[float, float]]
"""step -> (value, time)"""


@dataclass(slots=True)
class ReportNumbers:
    """The numbers of one report."""

    group: str
    step: int
    time: float
    numbers: Mapping[str, float]


@dataclass(slots=True)
class Column:
    """The values of one metric, by strictly increasing steps."""

    steps: Sequence[int]
    values: Sequence[float]
    times: Sequence[float]


@dataclass(slots=True)
class _Kind:
    """Reports of the same group with the same names."""

    keys: list[Key]
    reports: list[ReportNumbers] = field(default_factory=list)


def columns_of(reports: Iterable[ReportNumbers]) -> dict[Key, Column]:
    """Return the column of each metric; of several values at one step the last one counts."""
    kinds: dict[tuple[str, ...], _Kind] = {}
    order: list[tuple[ReportNumbers, _Kind]] = []
    for said in reports:
        names = (said.group, *said.numbers)
        kind = kinds.get(names)
        if kind is None:
            group = clean_text(said.group)
            kind = kinds[names] = _Kind([(group, clean_text(name)) for name in said.numbers])
        kind.reports.append(said)
        order.append((said, kind))
    shared = _shared(kinds.values())
    found: dict[Key, Column] = {}
    for kind in kinds.values():
        found.update(_turned(kind, shared))
    if shared:
        found.update((key, _sorted(points)) for key, points in _gathered(order, shared).items())
    return found


def _shared(kinds: Iterable[_Kind]) -> set[Key]:
    """Return the metrics that several kinds have, or one has twice: under names that are stored as the same one."""
    seen: set[Key] = set()
    shared: set[Key] = set()
    for kind in kinds:
        for key in kind.keys:
            (shared if key in seen else seen).add(key)
    return shared


def _turned(kind: _Kind, shared: set[Key]) -> Iterable[tuple[Key, Column]]:
    steps = [said.step for said in kind.reports]
    times = [said.time for said in kind.reports]
    grows = all(map(lt, steps, steps[1:]))
    for key, values in zip(kind.keys, zip(*[said.numbers.values() for said in kind.reports], strict=True), strict=True):
        if key not in shared:
            points = zip(values, times, strict=True)
            yield key, Column(steps, values, times) if grows else _sorted(dict(zip(steps, points, strict=True)))


def _gathered(order: Iterable[tuple[ReportNumbers, _Kind]], shared: set[Key]) -> dict[Key, Gathered]:
    """Collect the values of metrics that several kinds have, in the order of the reports."""
    found: dict[Key, Gathered] = {key: {} for key in shared}
    takers: dict[int, list[tuple[str, Gathered]]] = {}
    for said, kind in order:
        taking = takers.get(id(kind))
        if taking is None:
            named = zip(said.numbers, kind.keys, strict=True)
            taking = takers[id(kind)] = [(name, found[key]) for name, key in named if key in shared]
        for name, points in taking:
            points[said.step] = (said.numbers[name], said.time)
    return found


def _sorted(points: Gathered) -> Column:
    steps = sorted(points)
    values, times = zip(*[points[step] for step in steps], strict=True)
    return Column(steps, values, times)
