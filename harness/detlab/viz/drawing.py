"""What all figures share: plotly itself, colours, safe text, and the figure that says why there is nothing to draw.

No figure sets a background or a template, so that plotly's default one (`plotly.io.templates.default`) decides between
light and dark; the colours below are readable on both.
"""

from __future__ import annotations

import html
import math
from typing import Any

from detlab.errors import DetlabError
from detlab.visible import visible

COLOURS = ("#4c78a8", "#54a24b", "#b279a2", "#2a9d8f", "#9d755d", "#c9a227", "#6a5acd", "#d16ba5")
GREY = "#9aa5b1"
FAILED = "#b5656f"
BEST = "#e8590c"
GOODNESS = ((0.0, "#6256b0"), (0.25, "#3a709c"), (0.5, "#21918c"), (0.75, "#5ebe62"), (1.0, "#e9c428"))
"""Worst to best, told apart without colour vision by lightness; the same as in the panel."""
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
