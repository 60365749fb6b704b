"""The page on training strategies names the whole interface, the group, and what the contract suite asks for."""

from __future__ import annotations

import re

from docs_snippets import DOCS

from detlab.pytorch.parallel.strategy import STRATEGIES, Strategy
from detlab.testing.strategies import StrategyContract

PAGE = (DOCS / "contributing" / "add-a-strategy.md").read_text(encoding="utf-8")


def test_each_method_of_the_interface_has_its_row() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert len(named) == len(set(named))
    methods = {name for name, item in vars(Strategy).items() if not name.startswith("_") and callable(item)}
    assert set(named) == {*methods, "refusal"}


def test_what_a_test_class_overrides_is_there() -> None:
    block = PAGE[PAGE.index("class TestMine") :].split("\n\n", 1)[0]
    overridden = set(re.findall(r"^ +(\w+) = ", block, re.MULTILINE))
    ours = {name for name in vars(StrategyContract) if not name.startswith(("_", "test_"))}
    assert overridden == {*ours, "strategy"} - {"processes", "ranks"}


def test_the_group_is_the_one_that_is_searched() -> None:
    assert f'[project.entry-points."{STRATEGIES.group}"]' in PAGE
