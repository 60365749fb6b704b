"""Figures as small static pictures: SVG without a browser or another library, for notebooks that nobody watches.

It draws what `detlab.viz` makes of plotly: lines, points, bars and coloured cells on axes that are linear, logarithmic
or have named places. Anything else, such as parallel coordinates, becomes a line of text that says so.
"""

from __future__ import annotations

import html
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from detlab.viz.drawing import COLOURS, DOT, GOODNESS, alone
from detlab.viz.ticks import log_ticks, round_ticks, tick_texts

WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 72, 44
"""Margins; the left one is wider where labels of the y axis are."""
DIGIT = 7.2
"""Width of a digit of 12 px at most."""
MOST_NAME = 12
"""Characters of the name of a place on an axis; a number is never shortened."""
MOST_MARKS = 4000
"""Points, bars and cells of one picture; of more only every second, third ... is drawn."""
_LARGEST = sys.float_info.max
_NUMBER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")
_INK = "#7b8794"
_DRAWN = frozenset({"scatter", "bar", "contour"})


@dataclass(frozen=True)
class Scale:
    """One axis: from values to 0 ... 1."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def place(self, value: object) -> float | None:
        """Return where a value lies, None if it has no place."""
        if not isinstance(value, int | float) or not math.isfinite(value) or (self.log and value <= 0):
            return None
        # halves, since the distance of two doubles may be more than a double holds
        low, high, at = (math.log10(x) if self.log else x / 2 for x in (self.low, self.high, float(value)))
        return (at - low) / ((high - low) or 1.0)


def svg(figure: Any) -> str:
    """Draw a plotly figure as SVG: readable on light and dark, without scripts, text as text nodes only."""
    layout = figure.layout
    height = int(layout.height or 420)
    subtitle = layout.title.subtitle.text or ""
    parts = [_text(12, 20, layout.title.text or "", weight=600), _text(12, 38, subtitle)]
    traces = [trace for trace in figure.data if trace.type in _DRAWN]
    for note in layout.annotations if not figure.data else ():
        parts.append(_text(WIDTH / 2, height / 2, note.text, anchor="middle"))
    if figure.data and not traces:
        parts.append(_text(WIDTH / 2, height / 2, "This figure has no static picture.", anchor="middle"))
    panels: dict[tuple[str, str], list[Any]] = {}
    for trace in traces:
        panels.setdefault((trace.xaxis or "x", trace.yaxis or "y"), []).append(trace)
    left = max((_left(layout, *names, mine) for names, mine in panels.items()), default=LEFT)
    for at, (names, mine) in enumerate(panels.items()):
        parts += _panel(layout, *names, mine, (left, height), at)
    parts += _titles(layout, left, height) if traces else []
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><style>text{{font:12px system-ui,sans-serif;fill:{_INK}}}</style>{"".join(parts)}</svg>'
    )


def text(figure: Any) -> str:
    """Return a figure's title and subtitle, and the reason if it is empty, as plain text."""
    layout = figure.layout
    notes = [note.text for note in layout.annotations] if not figure.data else []
    return "\n".join(_plain(part) for part in (layout.title.text, layout.title.subtitle.text, *notes) if part)


def _plain(text: str) -> str:
    return html.unescape(re.sub(r"<br\s*/?>", " ", text))


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: int = 400) -> str:
    shown = escape(_plain(text))
    style = f' style="font-weight:{weight}"' if weight != 400 else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{shown}</text>' if shown else ""


def _titles(layout: Any, left: float, height: int) -> list[str]:
    """Return the titles of panels, which plotly keeps as notes on the paper."""
    wide, high = WIDTH - left - RIGHT, height - TOP - BOTTOM
    on_paper = [note for note in layout.annotations if (note.xref, note.yref) == ("paper", "paper")]
    return [
        _text(left + note.x * wide, TOP + (1 - note.y) * high - 6, note.text or "", anchor="middle", weight=600)
        for note in on_paper
    ]


def _left(layout: Any, x_name: str, y_name: str, traces: Sequence[Any]) -> float:
    """Return the left margin that the labels of a panel need: one that is cut is another number."""
    axis = layout[_key(y_name)]
    if (layout[_key(x_name)].domain or (0, 1))[0] or axis.showticklabels is False:
        return LEFT
    labels = _scale(axis, [value for trace in traces for value in _values(trace, "y")]).ticks
    return max(LEFT, max((len(_beside(label)) for _, label in labels), default=0) * DIGIT + 12)


def _panel(layout: Any, x_name: str, y_name: str, traces: Sequence[Any], size: tuple[float, int], at: int) -> list[str]:
    left, height = size
    x_axis, y_axis = layout[_key(x_name)], layout[_key(y_name)]
    x_span, y_span = x_axis.domain or (0, 1), y_axis.domain or (0, 1)
    wide, high = WIDTH - left - RIGHT, height - TOP - BOTTOM
    box = (
        left + x_span[0] * wide + (20 if x_span[0] else 0),
        left + x_span[1] * wide,
        TOP + (1 - y_span[1]) * high,
        TOP + (1 - y_span[0]) * high - (22 if y_span[0] else 0),
    )
    across = _scale(x_axis, [value for trace in traces for value in _values(trace, "x")])
    up = _scale(y_axis, [value for trace in traces for value in _values(trace, "y")])
    sides = {"labelled": y_axis.showticklabels is not False, "outer": not x_span[0]}
    frame = _frame(box, (across, up), (x_axis.title.text or "", y_axis.title.text or ""), **sides)
    edge = f"M{box[0]:.1f} {box[2]:.1f}H{box[1]:.1f}V{box[3]:.1f}H{box[0]:.1f}Z"
    clip = f'<clipPath id="det-{at}"><path d="{edge}"/></clipPath>'
    marks = [mark for trace in traces for mark in _marks(trace, box, across, up)]
    return [*frame, clip, f'<g clip-path="url(#det-{at})">', *marks, "</g>"]


def _key(name: str) -> str:
    return f"{name[0]}axis{name[1:]}"


def _values(trace: Any, side: str) -> list[Any]:
    values = list(trace[side] if trace[side] is not None else ())
    if trace.type == "bar" and side == "x":
        starts = list(trace.base) if trace.base is not None else [0.0] * len(values)
        return [*starts, *(start + value for start, value in zip(starts, values, strict=True))]
    return values


def _scale(axis: Any, values: Sequence[Any]) -> Scale:
    log = axis.type == "log"
    numbers = [v for v in values if isinstance(v, int | float) and math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    if axis.tickvals is not None:
        low, high = sorted(axis.range) if axis.range else (min(axis.tickvals) - 0.5, max(axis.tickvals) + 0.5)
        ticks = tuple(zip(map(float, axis.tickvals), axis.ticktext, strict=True))
    elif log:
        low, high = (low / 1.15, min(high * 1.15, _LARGEST)) if numbers else (0.1, 10.0)
        places = log_ticks(low, high)
        ticks = tuple(zip(places, tick_texts(places), strict=True))
    else:
        pad = high * 0.05 - low * 0.05 or abs(high) * 0.1 or 1.0
        from_zero = axis.rangemode == "tozero" and low >= 0
        low, high = (0.0 if from_zero else max(low - pad, -_LARGEST)), min(high + pad, _LARGEST)
        places = round_ticks(low, high)
        ticks = tuple(zip(places, tick_texts(places), strict=True))
    if axis.autorange == "reversed" or (axis.range and axis.range[0] > axis.range[1]):
        low, high = high, low
    return Scale(low, high, log, ticks)


def _beside(label: str) -> str:
    """Return what stands beside the y axis: a number whole, a name shortened."""
    if len(label) <= MOST_NAME or _NUMBER.fullmatch(label):
        return label
    return f"{label[: MOST_NAME - 1]}…"


def _frame(
    box: tuple[float, float, float, float],
    scales: tuple[Scale, Scale],
    titles: tuple[str, str],
    *,
    labelled: bool,
    outer: bool,
) -> list[str]:
    x0, x1, y0, y1 = box
    parts = [f'<path d="M{x0:.1f} {y0:.1f}V{y1:.1f}H{x1:.1f}" stroke="{_INK}" stroke-opacity=".5" fill="none"/>']
    for value, label in scales[0].ticks:
        place = scales[0].place(value)
        if place is not None and 0 <= place <= 1:
            parts.append(_text(x0 + place * (x1 - x0), y1 + 15, label, anchor="middle"))
    every = max(1, math.ceil(len(scales[1].ticks) * 14 / max(1.0, y1 - y0)))
    for value, label in scales[1].ticks[::every]:
        place = scales[1].place(value)
        if place is None or not 0 <= place <= 1:
            continue
        y = y1 - place * (y1 - y0)
        parts.append(f'<path d="M{x0:.1f} {y:.1f}H{x1:.1f}" stroke="{_INK}" stroke-opacity=".2"/>')
        if labelled:
            parts.append(_text(x0 - 6, y + 4, _beside(label), anchor="end"))
    parts.append(_text((x0 + x1) / 2, y1 + 32, titles[0], anchor="middle"))
    if labelled:
        parts.append(_text(x0 - (64 if outer else 30), y0 - 8, titles[1]))
    return parts


def _marks(trace: Any, box: tuple[float, float, float, float], across: Scale, up: Scale) -> Iterator[str]:
    x0, x1, y0, y1 = box
    if trace.type == "bar":
        yield from _bars(trace, box, across, up)
        return
    if trace.type == "contour":
        yield from _cells(trace, box, across, up)
        return
    places = [
        None if a is None or b is None else (x0 + a * (x1 - x0), y1 - b * (y1 - y0))
        for a, b in ((across.place(x), up.place(y)) for x, y in zip(trace.x, trace.y, strict=True))
    ]
    mode = trace.mode or "lines"
    if "lines" in mode:
        yield _line(places, trace)
        if "markers" not in mode:
            yield from _lone(places, trace)
    if "markers" in mode:
        yield from _bars_of_error(places, trace, (y0, y1), up)
        yield from _dots(places, trace)


def _bars_of_error(
    places: Sequence[tuple[float, float] | None], trace: Any, side: tuple[float, float], up: Scale
) -> Iterator[str]:
    for place, value, spread in zip(places, trace.y, trace.error_y.array or (), strict=False):
        low, high = up.place(value - spread), up.place(value + spread)
        if place is not None and spread and low is not None and high is not None:
            ends = [min(max(side[1] - at * (side[1] - side[0]), side[0]), side[1]) for at in (low, high)]
            path = f"M{place[0]:.1f} {ends[0]:.1f}V{ends[1]:.1f}"
            yield f'<path d="{path}" stroke="#888888" stroke-width="1"/>'


def _line(places: Sequence[tuple[float, float] | None], trace: Any) -> str:
    path: list[str] = []
    before: tuple[float, float] | None = None
    for place in places:
        if place is not None:
            corner = f"H{place[0]:.1f}" if before and trace.line.shape == "hv" else ""
            path.append(f"{corner}{'L' if before else 'M'}{place[0]:.1f} {place[1]:.1f}")
        before = place
    width = trace.line.width or 1.5
    return f'<path d="{"".join(path)}" fill="none" stroke="{_line_colour(trace)}" stroke-width="{width}"/>'


def _line_colour(trace: Any) -> str:
    return escape(str(trace.line.color or COLOURS[0]))


def _lone(places: Sequence[tuple[float, float] | None], trace: Any) -> Iterator[str]:
    """Draw the points that no line reaches."""
    for place, dot in zip(places, alone([place is not None for place in places]), strict=True):
        if dot and place is not None:
            yield _dot(place, DOT / 2, _line_colour(trace), trace)


def _dots(places: Sequence[tuple[float, float] | None], trace: Any) -> Iterator[str]:
    given = trace.marker.color if trace.marker.color is not None else trace.line.color
    colours, sizes = _colours(given, len(places), trace), trace.marker.size
    every = max(1, len(places) // MOST_MARKS)
    for at in range(0, len(places), every):
        place = places[at]
        if place is not None:
            size = sizes[at] if isinstance(sizes, Sequence) else sizes or DOT
            if size:
                yield _dot(place, size / 2, escape(colours[at]), trace)


def _dot(place: tuple[float, float], radius: float, colour: str, trace: Any) -> str:
    (x, y), opacity = place, trace.marker.opacity
    faint = f' opacity="{opacity:g}"' if isinstance(opacity, int | float) and opacity < 1 else ""
    if trace.marker.symbol == "x":
        r = radius * 0.8
        path = f"M{x - r:.1f} {y - r:.1f}L{x + r:.1f} {y + r:.1f}M{x - r:.1f} {y + r:.1f}L{x + r:.1f} {y - r:.1f}"
        return f'<path d="{path}" stroke="{colour}" stroke-width="2"{faint}/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}"{faint}/>'


def _colours(given: Any, count: int, trace: Any) -> list[str]:
    if given is None or isinstance(given, str):
        return [given or COLOURS[0]] * count
    numbers = [value for value in given if isinstance(value, int | float) and math.isfinite(value)]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    turned = bool(trace.marker.reversescale)
    return [value if isinstance(value, str) else _shade(value, low, high, turned=turned) for value in given]


def _shade(value: Any, low: float, high: float, *, turned: bool) -> str:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return _INK
    part = (value - low) / ((high - low) or 1.0)
    part = 1 - part if turned else part
    return GOODNESS[min(len(GOODNESS) - 1, max(0, round(part * (len(GOODNESS) - 1))))][1]


def _bars(trace: Any, box: tuple[float, float, float, float], across: Scale, up: Scale) -> Iterator[str]:
    x0, x1, y0, y1 = box
    ends = _values(trace, "x")
    half = len(ends) // 2
    thick = max(2.0, 0.7 * (y1 - y0) / max(1, len(up.ticks)))
    every = max(1, half // MOST_MARKS)
    colour = escape(str(trace.marker.color or COLOURS[0]))
    for at in range(0, half, every):
        left, right, y = across.place(ends[at]), across.place(ends[half + at]), up.place(trace.y[at])
        if left is None or right is None or y is None:
            continue
        wide = max(1.0, (right - left) * (x1 - x0))
        top = y1 - y * (y1 - y0) - thick / 2
        yield (
            f'<rect x="{x0 + left * (x1 - x0):.1f}" y="{top:.1f}" width="{wide:.1f}" height="{thick:.1f}" '
            f'fill="{colour}" stroke="{_INK}" stroke-width=".5"/>'
        )


def _cells(trace: Any, box: tuple[float, float, float, float], across: Scale, up: Scale) -> Iterator[str]:
    x0, x1, y0, y1 = box
    known = [value for row in trace.z for value in row if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    wide, high_px = (x1 - x0) / max(1, len(trace.x) - 1), (y1 - y0) / max(1, len(trace.y) - 1)
    for y, row in zip(trace.y, trace.z, strict=True):
        for x, value in zip(trace.x, row, strict=True):
            a, b = across.place(x), up.place(y)
            if value is not None and a is not None and b is not None:
                left, top = x0 + a * (x1 - x0) - wide / 2, y1 - b * (y1 - y0) - high_px / 2
                yield (
                    f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high_px:.1f}" '
                    f'fill="{_shade(value, low, high, turned=bool(trace.reversescale))}" fill-opacity=".75"/>'
                )
