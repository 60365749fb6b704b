"""The glossary defines each term once, and what it writes as code is in the code."""

from __future__ import annotations

import re

from docs_snippets import DOCS, ROOT

PAGE = (DOCS / "reference" / "glossary.md").read_text(encoding="utf-8")
_ROWS = [line for line in PAGE.splitlines() if line.startswith("| **")]


def terms() -> list[str]:
    return [term for row in _ROWS for term in re.findall(r"\*\*(.+?)\*\*", row.partition(" | ")[0])]


def test_each_term_is_defined_once_in_two_sentences_or_so() -> None:
    found = terms()
    assert len(found) > 50
    assert sorted(set(found)) == sorted(found)
    assert [row for row in _ROWS if len(row) > 330] == []


def test_names_in_the_glossary_are_in_the_code() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8") for part in ("harness", "hub_ext") for path in (ROOT / part).rglob("*.py")
    )
    named = {name for code in re.findall(r"`([^`]+)`", PAGE) for name in re.findall(r"[A-Za-z_]{3,}", code)}
    assert len(named) > 30
    assert sorted(name for name in named if not re.search(rf"\b{name}\b", sources)) == []
