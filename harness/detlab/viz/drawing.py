"""What all figures share: plotly itself, colours, safe text, and the figure that says why there is nothing to draw.

No figure sets a background or a template, so that plotly's default one (`plotly.io.templates.default`) decides between
light and dark; the colours below are readable on both.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from detlab.errors import DetlabError
from detlab.visible import visible

COLOURS = ("#4c78a8", "#54a24b", "#b279a2", "#2a9d8f", "#9d755d", "#c9a227", "#6a5acd", "#d16ba5")
GREY = "#9aa5b1"
FAILED = "#b5656f"
BEST = "#e8590c"
GOODNESS = ((0.0, "#6256b0"), (0.25, "#3a709c"), (0.5, "#21918c"), (0.75, "#5ebe62"), (1.0, "#e9c428"))
"""Worst to best, told apart without colour vision by lightness; the same as in the panel."""
DOT = 6
"""Size of a point, pixels."""
MOST_IN_LEGEND = 20
"""With more lines than these the legend would be longer than the figure."""


def plotly_module(name: str) -> Any:
    """Return `plotly.<name>`.

    Raises:
        DetlabError: plotly is not installed.
        ModuleNotFoundError: plotly is installed, but a package that it needs is not.
    """
    from importlib import import_module

    try:
        return import_module(f"plotly.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "plotly":
            raise
        raise DetlabError(
            "figures need plotly, which is not installed in this Python",
            hint="Install it: pip install 'detlab[kernel]'",
            code="plotly_missing",
        ) from error


def safe(text: object, limit: int = 60) -> str:
    """Return user text as plotly may show it: no markup, no formula, no control characters, at most `limit` long."""
    line = visible(str(text), keep="")
    short = line if len(line) <= limit else line[: limit - 1] + "…"
    # plotly renders some HTML in every text, takes `$…$` for a formula, and `%{…}` for a value of the template
    return html.escape(short).replace("$", "&#36;").replace("%{", "&#37;{")


def number(value: float | None) -> str:
    """Return a number in a few characters, `–` for None."""
    return "–" if value is None else f"{value:.6g}"


def finite(value: object) -> bool:
    """Return whether this is a number that has a place on an axis; booleans are choices, not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def alone(drawn: Sequence[bool]) -> list[bool]:
    """Return which drawn points of a line have no neighbour that is drawn, so that the line does not show them."""
    last = len(drawn) - 1
    return [
        here and not (at > 0 and drawn[at - 1]) and not (at < last and drawn[at + 1]) for at, here in enumerate(drawn)
    ]


def line_mode(values: Sequence[object], *, log: bool = False) -> dict[str, Any]:
    """Return how plotly draws a line: with dots at points between those that have no place, such as NaN.

    Args:
        values: Of the line.
        log: Whether their axis is logarithmic.
    """
    dots = alone([isinstance(value, int | float) and finite(value) and (value > 0 or not log) for value in values])
    if not any(dots):
        return {"mode": "lines"}
    return {"mode": "lines+markers", "marker": {"size": [DOT if dot else 0 for dot in dots]}}


def axis_type(*, log: bool) -> dict[str, Any]:
    """Return the type of an axis; between powers of ten, plotly writes 2 for 0.02 unless it is told a format."""
    return {"type": "log", "tickformat": ".6~g"} if log else {"type": "linear"}


def empty(title: str, reason: str) -> Any:
    """Return a figure without axes that says why there is nothing to draw."""
    figure = plotly_module("graph_objects").Figure()
    figure.update_layout(title=title)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(text=reason, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"size": 15})
    return figure


def duration_unit(longest: float) -> tuple[float, str]:
    """Return (seconds of it, name) of the unit in which durations of up to `longest` seconds are drawn."""
    for seconds, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if longest >= 3 * seconds:
            return seconds, name
    return 1.0, "seconds"
