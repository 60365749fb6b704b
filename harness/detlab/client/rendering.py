"""Small HTML tables for notebooks. Texts come from users: always escaped, never rendered as a formula."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping
from typing import Any

from detlab.visible import visible

MOST_ROWS = 200
NO_MATH = 'class="tex2jax_ignore mathjax_ignore"'
"""Of an element in which `$…$` is text, for the MathJax of notebooks, of nbconvert and of any other viewer."""


def cell(value: Any) -> str:
    """Return one value as escaped text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return html.escape(f"{value:.6g}") if math.isfinite(value) else html.escape(str(value))
    return html.escape(visible(str(value)))


def card(title: str, rows: Mapping[str, Any]) -> str:
    """Return a two-column table of what is set, under a title."""
    lines = "".join(
        f'<tr><th style="text-align:left">{cell(key)}</th><td style="text-align:left">{cell(value)}</td></tr>'
        for key, value in rows.items()
        if value not in (None, "", [], {})
    )
    return f"<div {NO_MATH}><strong>{cell(title)}</strong><table>{lines}</table></div>"


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table of at most `MOST_ROWS` rows."""
    kept = list(rows)
    head = "".join(f'<th style="text-align:left">{cell(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{cell(value)}</td>' for value in row) + "</tr>"
        for row in kept[:MOST_ROWS]
    )
    more = f"<p>… and {len(kept) - MOST_ROWS} more</p>" if len(kept) > MOST_ROWS else ""
    return f"<table {NO_MATH}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def no_point(*, over: bool) -> str:
    """Return what stands for the hyperparameters of a trial that has none yet or, if it is over, never got any."""
    return "none: it ended before it started" if over else "drawn when it starts"


def settings(values: Mapping[str, Any], most: int = 300) -> str:
    """Return hyperparameters as one line `a=1, b=0.5`, cut if it is long."""
    parts = [f"{key}={value:.6g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items()]
    line = ", ".join(parts)
    return line if len(line) <= most else f"{line[: most - 1]}…"
