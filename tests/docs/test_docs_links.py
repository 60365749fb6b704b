"""Every link and picture of every page leads to a file, and to a heading where it names one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_snippets import ROOT, pages

_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HTML = re.compile(r"(?:src|srcset|href)=\"([^\"]+)\"")
_CODE = re.compile(r"^ *```.*?^ *```$|^(?: {4}|\t)[^\n]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_EXTERNAL = re.compile(r"^(?:https?:|mailto:)")


def links(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    # A link's own text may hold code, so only blocks and code that is no part of a link are dropped.
    prose = _CODE.sub(lambda found: found[0] if "\n" not in found[0] and not found[0].startswith(" ") else "", text)
    found = [*_LINK.findall(prose), *_HTML.findall(prose)]
    return [link for link in found if not _EXTERNAL.match(link)]


def anchors(page: Path) -> set[str]:
    text = _CODE.sub(lambda found: found[0] if "\n" not in found[0] else "", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(ROOT):
            broken.append(link)
        elif anchor and anchor not in anchors(target):
            broken.append(f"{link} (no such heading)")
    assert not broken


def test_every_page_of_the_docs_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "docs" / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        todo += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
    assert sorted(str(p) for p in (ROOT / "docs").rglob("*.md") if p not in seen) == []


def test_every_how_to_and_explanation_is_on_the_index_itself() -> None:
    index = ROOT / "docs" / "README.md"
    there = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    pages = [page for folder in ("how-to", "explanation") for page in (ROOT / "docs" / folder).glob("*.md")]
    assert sorted(page.name for page in pages if page not in there) == []
