"""The matrices S and D as pictures: tables for terminals, SVG for notebooks."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

from detlab.governance.ledger import MatrixRecord
from detlab.governance.matrix import Plan
from detlab.governance.targets import told
from detlab.visible import visible

MOST_GROUPS = 200
"""Columns of a picture; a model with more different runs of parameters is cut, and the picture says so."""
_CELL_WIDTH, _CELL_HEIGHT, _LEFT, _TOP = 132, 20, 330, 64
_INK = "#7b8794"
_LONGEST = 44
_Cell = tuple[str, str, str]
"""What it says, its colour, and the class of its text."""


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


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """Part of an SVG document.

    Attributes:
        wide: In pixels.
        high: Likewise.
        parts: Its elements, texts escaped.
    """

    wide: int
    high: int
    parts: str


def groups(matrix: MatrixRecord) -> list[Group]:
    """Return the columns of S, neighbours with the same scales joined."""
    found: list[Group] = []
    run: list[int] = []

    def key(index: int) -> tuple[tuple[float, ...], tuple[str, ...]]:
        return tuple(row[index] for row in matrix.scales), tuple(row[index] for row in matrix.levels)

    for index in range(len(matrix.parameters)):
        if run and key(index) != key(run[-1]):
            found.append(_group(matrix, run, *key(run[-1])))
            run = []
        run.append(index)
    if run:
        found.append(_group(matrix, run, *key(run[-1])))
    return found


def _group(matrix: MatrixRecord, run: Sequence[int], scales: tuple[float, ...], levels: tuple[str, ...]) -> Group:
    names = [matrix.parameters[index][0] for index in run]
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
    shown = groups(plan.matrix)
    table = matrix_lines(plan.sources, shown[:MOST_GROUPS], len(shown) - MOST_GROUPS)
    table += [*map(visible, told(plan.policy)), *map(str, plan.warnings)]
    return "\n".join([*table, f"policy {plan.policy_hash}", f"S      {plan.s_hash}"])


def matrix_lines(sources: Sequence[str], shown: Sequence[Group], left_out: int) -> list[str]:
    """Return S as the lines of a table.

    Args:
        sources: Names of its columns.
        shown: Its lines.
        left_out: Groups beyond them, none below 1.
    """
    lines = [[_label_of(group), *_marks(group)] for group in shown]
    return _columns(["parameters", *(_cut(name, 20) for name in sources)], lines, left_out)


def depth_lines(
    sources: Sequence[str], layers: Sequence[str], shares: Sequence[Sequence[float]], left_out: int
) -> list[str]:
    """Return D as the lines of a table: what each source gave to each layer, as a share of what it gave in all.

    Args:
        sources: Names of its columns.
        layers: Names of its lines.
        shares: By source, then by layer, from 0 to 1.
        left_out: Layers beyond them, none below 1.
    """
    lines = [[_cut(name), *(_percent(row[at]) for row in shares)] for at, name in enumerate(layers)]
    return _columns(["layer", *(_cut(name, 20) for name in sources)], lines, left_out)


def _columns(heads: Sequence[str], lines: Sequence[Sequence[str]], left_out: int) -> list[str]:
    widths = [max(len(line[at]) for line in [heads, *lines]) for at in range(len(heads))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [heads, *lines]
    ]
    return [*table, f"... and {left_out} more"] if left_out > 0 else table


def _label_of(group: Group) -> str:
    return f"{_cut(group.label)} ({group.count})" if group.count > 1 else _cut(group.label)


def _percent(share: float) -> str:
    return "0" if share == 0 else "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def _colour(scale: float) -> str:
    """Return red for closed, blue for open, lighter below 1, darker above; each cell says it in words, too."""
    if scale == 0:
        return "#b4443c"
    return "#123f73" if scale > 1 else _tint(scale)


def _ink(share: float) -> str:
    return "in" if 0 < share < 0.6 else "on"


def _tint(share: float) -> str:
    """Return a blue, the darker the more."""
    share = min(1.0, max(0.0, share))
    near, far = (0x1F, 0x6F, 0xB5), (0xC9, 0xDD, 0xF0)
    return "#" + "".join(f"{round(low + (high - low) * share):02x}" for low, high in zip(far, near, strict=True))


def svg(plan: Plan) -> str:
    """Return the matrix as SVG: no scripts, user's texts escaped."""
    shown = groups(plan.matrix)
    about = f"S {plan.s_hash[7:19]}, policy {plan.policy_hash[7:19]}, {len(plan.parameters)} parameters"
    return svg_of(matrix_picture(plan.sources, shown[:MOST_GROUPS], len(shown) - MOST_GROUPS, about))


def matrix_picture(sources: Sequence[str], shown: Sequence[Group], left_out: int, about: str) -> Picture:
    """Return S as a picture; see `matrix_lines`. `about` stands below the title."""
    lines = [
        (
            _label_of(group),
            [(mark, _colour(scale), _ink(scale)) for mark, scale in zip(_marks(group), group.scales, strict=True)],
        )
        for group in shown
    ]
    return _drawn("What each source may train", about, sources, lines, left_out)


def depth_picture(
    sources: Sequence[str], layers: Sequence[str], shares: Sequence[Sequence[float]], left_out: int, about: str
) -> Picture:
    """Return D as a picture; see `depth_lines`. `about` stands below the title."""
    lines = [
        (_cut(name), [(_percent(row[at]), _tint(row[at]), "in" if row[at] < 0.6 else "on") for row in shares])
        for at, name in enumerate(layers)
    ]
    return _drawn("What each source gave to each layer", about, sources, lines, left_out)


def _drawn(
    title: str, about: str, sources: Sequence[str], lines: Sequence[tuple[str, Sequence[_Cell]]], left_out: int
) -> Picture:
    wide = _LEFT + _CELL_WIDTH * len(sources) + 16
    high = _TOP + _CELL_HEIGHT * (len(lines) + (left_out > 0)) + 12
    parts = [_label(12, 20, title, weight=600), _label(12, 38, about)]
    for at, name in enumerate(sources):
        parts.append(_label(_LEFT + at * _CELL_WIDTH + 4, _TOP - 8, _cut(name, 18)))
    for line, (label, cells) in enumerate(lines):
        y = _TOP + line * _CELL_HEIGHT
        parts.append(_label(12, y + 14, label))
        parts += [_cell(_LEFT + at * _CELL_WIDTH, y, cell) for at, cell in enumerate(cells)]
    if left_out > 0:
        parts.append(_label(12, _TOP + len(lines) * _CELL_HEIGHT + 14, f"and {left_out} more"))
    return Picture(wide, high, "".join(parts))


def svg_of(*pictures: Picture) -> str:
    """Return pictures as SVG, one below the other."""
    wide, high = max(one.wide for one in pictures), sum(one.high for one in pictures)
    drawn, y = [], 0
    for one in pictures:
        drawn.append(f'<g transform="translate(0 {y})">{one.parts}</g>' if y else one.parts)
        y += one.high
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        'role="img">'
        f"<style>text{{font:12px system-ui,sans-serif;fill:{_INK}}}.on{{fill:#fff}}.in{{fill:#10253d}}</style>"
        f"{''.join(drawn)}</svg>"
    )


def _label(x: float, y: float, said: str, *, weight: int = 400) -> str:
    style = f' style="font-weight:{weight}"' if weight != 400 else ""
    return f'<text x="{x}" y="{y}"{style}>{html.escape(visible(said, keep=""))}</text>'


def _cell(x: int, y: int, cell: _Cell) -> str:
    mark, colour, ink = cell
    return (
        f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL_WIDTH - 2}" height="{_CELL_HEIGHT - 2}" fill="{colour}"/>'
        f'<text class="{ink}" x="{x + 8}" y="{y + 14}">{html.escape(mark)}</text>'
    )
