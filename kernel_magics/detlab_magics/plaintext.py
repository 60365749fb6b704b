"""User-written text made fit to print: what cannot be seen becomes visible, what is long is cut."""

from __future__ import annotations

import unicodedata


def plain(text: str, limit: int = 120) -> str:
    """Return one line of `text`: control characters and escapes become visible, long text is cut."""
    shown = "".join(c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def plain_lines(text: str, limit: int = 600) -> str:
    """Return `text` with each of its lines made plain."""
    return "\n".join(plain(line, limit) for line in text.split("\n"))
