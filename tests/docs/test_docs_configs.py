"""Experiment configs on the pages are without errors: they are copied as they stand."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from docs_snippets import Block, blocks, pages

from detlab.schemas.expconf import check


def configs() -> list[tuple[Block, dict[str, Any]]]:
    """All YAML blocks that say what is searched, or how."""
    found = [(block, yaml.safe_load(block.text)) for page in pages() for block in blocks(page, "yaml")]
    return [
        (block, raw)
        for block, raw in found
        if isinstance(raw, dict) and not {"searcher", "hyperparameters"}.isdisjoint(raw)
    ]


@pytest.mark.parametrize(("block", "raw"), [pytest.param(block, raw, id=str(block)) for block, raw in configs()])
def test_a_config_on_a_page_has_no_error(block: Block, raw: dict[str, Any]) -> None:
    assert [f"{problem.path}: {problem.message}" for problem in check(raw) if problem.level == "error"] == []


def test_an_argparse_script_is_told_how_to_report() -> None:
    """Regression: such a script "needs no change", and its search had no result."""
    (page,) = [path for path in pages() if path.name == "hyperparameters-as-arguments.md"]
    assert any("report_validation_metrics" in block.text for block in blocks(page, "python"))
