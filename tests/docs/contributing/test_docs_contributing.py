"""Recipes, the page about search methods and the one about monitoring name what the code has."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from docs_snippets import DOCS, ROOT

from detlab_hub.core.searchers import Event, SearchMethod
from detlab_hub.services.cluster.metrics import METRICS

_TOP = ("harness/", "hub_ext/", "labextension/", "tests/", "docs/")


def _paths(page: str) -> set[str]:
    text = (DOCS / "contributing" / page).read_text(encoding="utf-8")
    return {path for path in re.findall(r"`([^`\s]+)`", text) if path.startswith(_TOP)}


def test_the_paths_of_the_recipes_exist() -> None:
    named = _paths("recipes.md")
    assert len(named) > 20
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_the_page_about_search_methods_names_what_there_is() -> None:
    paths = _paths("search-methods.md")
    assert len(paths) >= 5
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
    text = (DOCS / "contributing" / "search-methods.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    known = {kind.__name__ for kind in get_args(Event)}
    assert known - named == {"TrialCreated", "ProgressReported"}, "these two reach no method"
    assert named <= known
    methods = {name for name in vars(SearchMethod) if not name.startswith("_")}
    assert sorted(name for name in methods if not re.search(rf"\b{name}\b", text)) == []


def test_every_metric_is_explained() -> None:
    text = (DOCS / "how-to" / "monitor-with-prometheus.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(detlab_\w+)`", text)) == {metric.name for metric in METRICS}


USUAL = ["Before you upgrade", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


@pytest.mark.parametrize(("file", "level"), [("CHANGELOG.md", "###"), ("docs/contributing/history.md", "##")])
def test_the_changelog_has_one_short_line_for_each_change_under_the_headings_of_keep_a_changelog(
    file: str, level: str
) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    _, found, unreleased = text.partition("## [Unreleased]\n")
    part = unreleased.partition("\n## ")[0] if found else text
    assert re.findall(rf"^{level} (.+)$", part, re.MULTILINE) == USUAL
    lines = text.splitlines()
    changes = [line for line in lines if line.startswith("- ")]
    assert len(changes) > (10 if found else 600)
    assert [line for line in changes if len(line) > 160] == []
    assert [line for line in lines if line.startswith(" ")] == [], "a change of more than one line"
