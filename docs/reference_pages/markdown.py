"""Pages, tables and paragraphs in markdown."""

from __future__ import annotations

import inspect
import re

MARK = "<!-- Made by `python docs/generate.py` from the code; do not edit. -->"


def page(title: str, *parts: str) -> str:
    """Join the parts of a page under its title."""
    return "\n\n".join([f"# {title}", MARK, *(part.strip("\n") for part in parts)]) + "\n"


def row(*cells: str) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(_no_references(" ".join(cell.replace("|", "\\|").split())) for cell in cells) + " |"


def _no_references(text: str) -> str:
    """Keep words in brackets, one after the other, from being a reference to a link; what is code stays as it is."""
    return re.sub(r"(`[^`]*`)|\]( ?)\[", lambda found: found[1] or f"]{found[2]}\\[", text)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table; an empty one is nothing."""
    return "\n".join([row(*header), "|" + "---|" * len(header), *(row(*cells) for cells in rows)]) if rows else ""


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a help text or docstring."""
    paragraph = " ".join(inspect.cleandoc(text or "").split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=[a-z)`])\. (?=[A-Z])", paragraph)[0].rstrip(".")


def first_paragraph(doc: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(inspect.cleandoc(doc or "").split("\n\n", maxsplit=1)[0].split())


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


def rest_to_markdown(doc: str) -> str:
    """Return a docstring with `Example::` as `Example:`; its indented lines are markdown's code already."""
    return re.sub(r"::$", ":", doc, flags=re.MULTILINE)
