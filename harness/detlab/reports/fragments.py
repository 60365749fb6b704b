"""Pieces of HTML. Texts of people become text nodes or quoted values here, whatever is in them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from detlab.visible import visible
from detlab.viz.data import flatten

MOST_CHARS = 500
"""Of a value; longer ones are cut."""
MOST_BLOCK = 50_000
"""Characters of a config or another text of many lines."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell of a table.

    Attributes:
        html: What it shows.
        value: What its column is sorted by: a text that is not escaped yet.
    """

    html: str
    value: str = ""


def line_of(value: object, most: int = MOST_CHARS) -> str:
    """Return a value as one line, cut and with nothing unseen in it, but not escaped."""
    line = visible(" ".join(str(value).split()), keep="")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def shown(value: object, most: int = MOST_CHARS) -> str:
    """Return a value as one line of escaped text."""
    return html.escape(line_of(value, most))


def block(text: str) -> str:
    """Return a text of many lines as it is, escaped."""
    cut = text if len(text) <= MOST_BLOCK else f"{text[:MOST_BLOCK]}\n… ({len(text) - MOST_BLOCK:,} more characters)"
    return f"<pre>{html.escape(visible(cut))}</pre>"


def folded(title: str, inside: str) -> str:
    """Return a part that a reader opens."""
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>"


def number(value: float | None) -> str:
    """Return a number in a few characters; empty: there is none."""
    return "" if value is None else f"{value:.6g}"


def moment(seconds: float | None) -> str:
    """Return a time as `2026-11-30 12:05 UTC`, in one line: a report is read elsewhere."""
    if not seconds or not math.isfinite(seconds) or abs(seconds) > 2**37:
        return ""
    return f'<span class="t">{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC</span>'


def duration(seconds: float | None) -> str:
    """Return a span as `1h 02m`, `3m 04s` or `5s`."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def settings(values: Mapping[str, Any], most: int = 160) -> str:
    """Return hyperparameters as one line `a=1, b.c=0.5`, cut if it is long."""
    parts = (
        f"{key}={value:.6g}" if isinstance(value, float) else f"{key}={value}" for key, value in flatten(values).items()
    )
    return line_of(", ".join(parts), most)


def words(value: object, most: int = MOST_CHARS) -> TableCell:
    """Return a cell with a text, sorted as such."""
    line = line_of(value, most)
    return TableCell(html.escape(line), line)


def amount(value: float | None, text: str | None = None) -> TableCell:
    """Return a cell with a number, sorted as such; `text` is shown for it."""
    at = "" if value is None or math.isnan(value) else repr(float(value)).replace("inf", "Infinity")
    return TableCell(html.escape(number(value) if text is None else text), at)


def grid(columns: Sequence[str], rows: Iterable[Sequence[TableCell]], *, right: Iterable[str] = ()) -> str:
    """Return a table; where scripts run, its heads sort it. Columns in which nothing stands are left out.

    Args:
        columns: Names of ours.
        rows: A cell for each column.
        right: Columns of numbers.
    """
    found, numbers = list(rows), set(right)
    kept = [at for at in range(len(columns)) if any(row[at].html for row in found)]
    sides = {at: ' class="n"' if columns[at] in numbers else "" for at in kept}
    head = "".join(f"<th{sides[at]}>{html.escape(columns[at])}</th>" for at in kept)
    body = "".join(f"<tr>{_row(row, sides)}</tr>\n" for row in found)
    kind = "rows sorts" if len(found) > 1 else "rows"
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
    )


def _row(row: Sequence[TableCell], sides: Mapping[int, str]) -> str:
    return "".join(
        f'<td{side} data-sort="{html.escape(line_of(row[at].value))}">{row[at].html}</td>' for at, side in sides.items()
    )


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return facts as a table of two columns; those that are empty are left out.

    Args:
        rows: A name of ours and HTML each.
    """
    lines = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{value}</td></tr>\n' for name, value in rows if value
    )
    return f'<div class="wide"><table class="facts"><tbody>\n{lines}</tbody></table></div>' if lines else ""


class HubLinks:
    """Links to the pages of the service.

    Args:
        base: Its address; where it is none of http, texts stand without links.
    """

    def __init__(self, base: str) -> None:
        self._base = f"{base.rstrip('/')}/" if base.startswith(("http://", "https://")) else ""

    def to(self, text: object, *path: object) -> str:
        """Return a link; parts of the path are quoted."""
        label = shown(text)
        if not self._base:
            return label
        address = self._base + "/".join(quote(str(part), safe="") for part in path)
        return f'<a href="{html.escape(address)}" rel="noopener noreferrer">{label}</a>'
