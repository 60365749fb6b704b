"""The matrix S as a picture: a table for terminals, SVG for notebooks."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

from detlab.governance.matrix import Plan
from detlab.governance.targets import told
from detlab.visible import visible

MOST_GROUPS = 200
"""Columns of a picture; a model with more different runs of parameters is cut, and the picture says so."""
_CELL_WIDTH, _CELL_HEIGHT, _LEFT, _TOP = 132, 20, 330, 64
_INK = "#7b8794"
_LONGEST = 44


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring parameters with the same scales.

    Attributes:
        label: Their name, or what their names begin with.
        count: How many they are.
        scales: By source.
        levels: Likewise.
    """

    label: str
    count: int
    scales: tuple[float, ...]
    levels: tuple[str, ...]


def groups(plan: Plan) -> list[Group]:
    """Return the columns of S, neighbours with the same scales joined."""
    found: list[Group] = []
    run: list[int] = []

    def key(index: int) -> tuple[tuple[float, ...], tuple[str, ...]]:
        return tuple(row[index] for row in plan.scales), tuple(row[index] for row in plan.levels)

    for index in range(len(plan.parameters)):
        if run and key(index) != key(run[-1]):
            found.append(_group(plan, run, *key(run[-1])))
            run = []
        run.append(index)
    if run:
        found.append(_group(plan, run, *key(run[-1])))
    return found


def _group(plan: Plan, run: Sequence[int], scales: tuple[float, ...], levels: tuple[str, ...]) -> Group:
    names = [plan.parameters[index].name for index in run]
    if len(names) == 1:
        return Group(names[0], 1, scales, levels)
    common = _common([name.split(".") for name in names])
    first, last = names[0], names[-1]
    return Group(".".join([*common, "*"]) if common else f"{first} to {last}", len(names), scales, levels)


def _common(names: Sequence[Sequence[str]]) -> list[str]:
    """Return the parts that all names begin with."""
    found = []
    for parts in zip(*names, strict=False):
        if len(set(parts)) > 1:
            break
        found.append(parts[0])
    return found


def _cut(text: str, most: int = _LONGEST) -> str:
    shown = visible(text, keep="")
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _mark(scale: float) -> str:
    return "closed" if scale == 0 else "open" if scale == 1 else f"x {scale:g}"


def _marks(group: Group) -> list[str]:
    """Return what is said of each source: its factor, and its level where that promises more than `direct`."""
    return [
        _mark(scale) + ("" if level == "direct" or scale == 0 else f", {level}")
        for scale, level in zip(group.scales, group.levels, strict=True)
    ]


def text(plan: Plan) -> str:
    """Return the matrix as a table: a line for parameters with the same scales, a column for each source."""
    shown = groups(plan)
    heads = ["parameters", *(_cut(name, 20) for name in plan.sources)]
    lines = [
        [f"{_cut(group.label)} ({group.count})" if group.count > 1 else _cut(group.label), *_marks(group)]
        for group in shown[:MOST_GROUPS]
    ]
    widths = [max(len(line[at]) for line in [heads, *lines]) for at in range(len(heads))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [heads, *lines]
    ]
    if len(shown) > MOST_GROUPS:
        table.append(f"... and {len(shown) - MOST_GROUPS} more")
    table += [*map(visible, told(plan.policy)), *map(str, plan.warnings)]
    return "\n".join([*table, f"policy {plan.policy_hash}", f"S      {plan.s_hash}"])


def _colour(scale: float) -> str:
    """Return red for closed, blue for open, lighter below 1, darker above; each cell says it in words, too."""
    if scale == 0:
        return "#b4443c"
    if scale > 1:
        return "#123f73"
    share = min(1.0, scale)
    near, far = (0x1F, 0x6F, 0xB5), (0xC9, 0xDD, 0xF0)
    return "#" + "".join(f"{round(low + (high - low) * share):02x}" for low, high in zip(far, near, strict=True))


def svg(plan: Plan) -> str:
    """Return the matrix as SVG: no scripts, user's texts escaped."""
    shown = groups(plan)
    rows = shown[:MOST_GROUPS]
    wide = _LEFT + _CELL_WIDTH * len(plan.sources) + 16
    high = _TOP + _CELL_HEIGHT * (len(rows) + (len(shown) > MOST_GROUPS)) + 12
    parts = [
        _label(12, 20, "What each source may train", weight=600),
        _label(12, 38, f"S {plan.s_hash[7:19]}, policy {plan.policy_hash[7:19]}, {len(plan.parameters)} parameters"),
    ]
    for at, name in enumerate(plan.sources):
        parts.append(_label(_LEFT + at * _CELL_WIDTH + 4, _TOP - 8, _cut(name, 18)))
    for line, group in enumerate(rows):
        y = _TOP + line * _CELL_HEIGHT
        count = f" ({group.count})" if group.count > 1 else ""
        parts.append(_label(12, y + 14, _cut(group.label) + count))
        parts += [_cell(_LEFT + at * _CELL_WIDTH, y, group, at) for at in range(len(group.scales))]
    if len(shown) > MOST_GROUPS:
        parts.append(_label(12, _TOP + len(rows) * _CELL_HEIGHT + 14, f"and {len(shown) - MOST_GROUPS} more"))
    return _frame(wide, high, parts)


def _frame(wide: int, high: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        'role="img">'
        f"<style>text{{font:12px system-ui,sans-serif;fill:{_INK}}}.on{{fill:#fff}}.in{{fill:#10253d}}</style>"
        f"{''.join(parts)}</svg>"
    )


def _label(x: float, y: float, said: str, *, weight: int = 400) -> str:
    style = f' style="font-weight:{weight}"' if weight != 400 else ""
    return f'<text x="{x}" y="{y}"{style}>{html.escape(visible(said, keep=""))}</text>'


def _cell(x: int, y: int, group: Group, at: int) -> str:
    scale, mark = group.scales[at], _marks(group)[at]
    ink = "in" if 0 < scale < 0.6 else "on"
    return (
        f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL_WIDTH - 2}" height="{_CELL_HEIGHT - 2}" fill="{_colour(scale)}"/>'
        f'<text class="{ink}" x="{x + 8}" y="{y + 14}">{html.escape(mark)}</text>'
    )
