"""The recipes name files that there are, and the page about monitoring names every metric."""

from __future__ import annotations

import re

from docs_snippets import DOCS, ROOT

from detlab_hub.services.cluster.metrics import METRICS

_TOP = ("harness/", "hub_ext/", "labextension/", "tests/", "docs/")


def test_the_paths_of_the_recipes_exist() -> None:
    text = (DOCS / "contributing" / "recipes.md").read_text(encoding="utf-8")
    named = {path for path in re.findall(r"`([^`\s]+)`", text) if path.startswith(_TOP)}
    assert len(named) > 20
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_every_metric_is_explained() -> None:
    text = (DOCS / "how-to" / "monitor-with-prometheus.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(detlab_\w+)`", text)) == {metric.name for metric in METRICS}
