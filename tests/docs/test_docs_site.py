"""The site has each page of docs/ once, and nothing of other hosts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml
from docs_snippets import DOCS, ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
API = "reference/api/"
"""Pages that are made of docstrings while the site is built."""


def listed(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in listed(part)]


def test_each_page_has_its_place_in_the_site() -> None:
    """One line of `nav` in mkdocs.yml, where readers look for it."""
    places = Counter(page for page in listed(SITE["nav"]) if not page.startswith(API))
    assert sorted(places) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert [page for page, times in places.items() if times > 1] == []


def test_a_reader_s_browser_asks_no_other_host() -> None:
    assert SITE["theme"]["font"] is False
    assert "repo_url" not in SITE, "the theme would ask GitHub for its stars"
    assert not SITE.get("extra_javascript")
    assert "analytics" not in SITE["extra"]
