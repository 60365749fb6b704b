"""Notes of people in Markdown as HTML: raw HTML stays text, pictures become links, links lead to the web or to mail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from detlab.visible import visible

if TYPE_CHECKING:
    from markdown_it.token import Token

MOST_NOTES = 100_000
"""Characters that are read, as on the page of the Hub."""
_SCHEMES = ("http://", "https://", "mailto:")
_LEAST_HEADING = 4
"""Level of the highest heading of notes: the report's own are above it."""


def notes_html(text: str) -> str:
    """Return Markdown as HTML that has no element, attribute or address of its own but links."""
    from markdown_it import MarkdownIt

    if not text.strip():
        return ""
    reader = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
    reader.disable("image")
    tokens = reader.parse(visible(text[:MOST_NOTES].replace("\r\n", "\n")))
    for token in _all(tokens):
        _harmless(token)
    return f'<div class="notes">{reader.renderer.render(tokens, reader.options, {})}</div>'


def _all(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or ())


def _harmless(token: Token) -> None:
    """Take away what the text has chosen: classes of code, styles of cells, addresses of other kinds."""
    token.info = ""
    address = str(token.attrs.get("href", ""))
    kept = {name: value for name, value in token.attrs.items() if name == "start"}
    if token.type == "link_open":
        kept["rel"] = "noopener noreferrer nofollow"
        if address.lower().startswith(_SCHEMES):
            kept["href"] = address
    token.attrs = kept
    if token.type in {"heading_open", "heading_close"}:
        token.tag = f"h{min(6, int(token.tag[1]) + _LEAST_HEADING - 1)}"
