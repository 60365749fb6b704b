"""The view as a MIME bundle: HTML card, SVG and plain text, under 100 kB, which any front end can show at any time."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from detlab.client.rendering import NO_MATH
from detlab_magics.plaintext import plain
from detlab_magics.view.state import ViewState
from detlab_magics.view.svg import BEST, HEIGHT, INK, WIDTH, learning_curves
from detlab_magics.view.text import WHY, card, left_out, notices, progress_line, table, title

MAX_BYTES = 100_000
STATE = 3  # a column of words of the table, as WHY is; the others hold numbers


def mimebundle(
    state: ViewState, *, url: str | None = None, now: float | None = None, note: str | None = None
) -> dict[str, Any]:
    """Return {mime type: content} of the static view.

    Args:
        state: What to show.
        url: Where people can look further.
        now: The time, for the progress line.
        note: Why the picture stands still, if that is not the end.
    """
    svg = learning_curves(state)
    text = card(state, now)
    return {
        "text/html": html_card(state, svg, url=url, now=now, note=note),
        "image/svg+xml": svg,
        "text/plain": text if note is None else f"{text}\n({plain(note, 300)})",
    }


def html_card(
    state: ViewState, svg: str, *, url: str | None = None, now: float | None = None, note: str | None = None
) -> str:
    """Return the card: title, progress line, picture, notices, table. Every text from users is escaped."""
    heading = escape(title(state.experiment))
    if url:
        heading = f'<a href="{escape(url, quote=True)}" target="_blank" rel="noopener">{heading}</a>'
    still = "" if note is None else f'<div style="opacity:.7">{escape(plain(note, 300))}</div>'
    picture = base64.b64encode(svg.encode()).decode()
    return (
        f'<div {NO_MATH} style="max-width:760px">'
        f'<div style="font-weight:600;margin-bottom:2px">{heading}</div>'
        f'<div style="opacity:.8;margin-bottom:6px">{escape(progress_line(state, now))}</div>'
        f'<img alt="learning curves" width="{WIDTH}" height="{HEIGHT}" style="max-width:100%;height:auto" '
        f'src="data:image/svg+xml;base64,{picture}">'
        f"{_notices(state)}{_table(state)}{still}</div>"
    )


def _notices(state: ViewState) -> str:
    lines = notices(state)
    if not lines:
        return ""
    text = "\n".join(escape(line) for line in lines)
    colour = INK if all(line.startswith("note: ") for line in lines) else BEST
    return (
        f'<pre style="border-left:3px solid {colour};padding:4px 10px;margin:6px 0;white-space:pre-wrap">{text}</pre>'
    )


def _table(state: ViewState) -> str:
    header, rows = table(state)
    if not rows:
        return ""
    best = state.best_trial()
    right, left = (f"text-align:{side};padding:2px 10px;white-space:nowrap" for side in ("right", "left"))
    words = {STATE, *(at for at, name in enumerate(header) if name == WHY)}
    head = "".join(f'<th style="{left if i in words else right}">{escape(h)}</th>' for i, h in enumerate(header))
    body = []
    for row in rows:
        weight = ' style="font-weight:600"' if row[0] == str(best) else ""
        cells = (f'<td style="{left if i in words else right}">{escape(c)}</td>' for i, c in enumerate(row))
        body.append(f"<tr{weight}>{''.join(cells)}</tr>")
    more = "".join(f'<div style="opacity:.7">{escape(line)}</div>' for line in left_out(state, len(rows)))
    style = "margin-top:4px;font-size:12px"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>{more}'
