"""docs/explanation/reliability.md names tests that are there, and numbers that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from docs_snippets import DOCS, ROOT

from detlab.core.full_disk import PATIENCE
from detlab.core.session import COMMIT_LIMIT
from detlab_hub.embedded.supervisor import part_backoff
from detlab_hub.services import Settings

PAGE = (DOCS / "explanation" / "reliability.md").read_text(encoding="utf-8")


def test_every_test_that_reliability_names_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+)`", PAGE))
    assert len(named) > 15
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


def test_every_fault_of_the_table_names_a_test() -> None:
    table = PAGE.partition("## What happens, and what shows it")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "shown by" not in line]
    assert len(rows) > 12
    assert [row for row in rows if "`tests/" not in row.rpartition(" | ")[2]] == []


def rows_below(heading: str) -> list[str]:
    """The rows of the table below a heading, without its head."""
    table = PAGE.partition(f"## {heading}")[2].partition("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][1:]


def defined_tests() -> set[str]:
    found = set()
    shipped = (ROOT / "harness" / "detlab" / "testing", ROOT / "hub_ext" / "detlab_hub" / "testing")
    contracts = [path for folder in shipped for path in folder.glob("*.py")]  # tested once for each implementation
    for path in [*(ROOT / "tests").rglob("test_*.py"), *contracts]:
        found.update(re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def test_each_invariant_names_the_modules_that_keep_it_and_its_tests() -> None:
    defined = defined_tests()
    rows = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows_below("The invariants")]
    assert [row[0] for row in rows] == [f"I{number}" for number in range(1, 11)]
    for name, _, keepers, tests in rows:
        modules = re.findall(r"`((?:hub_ext|harness)/[\w/]+\.py)`", keepers)
        assert modules, name
        assert [path for path in modules if not (ROOT / path).is_file()] == [], name
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, name
        assert [test for test in named if test not in defined] == [], name


def test_every_case_of_the_failure_matrix_names_tests_that_are_defined() -> None:
    defined = defined_tests()
    rows = rows_below("Agents and nodes, case by case")
    assert len(rows) >= 14
    for row in rows:
        case, _, tests = (cell.strip() for cell in row.strip("| ").split(" | "))
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, case
        assert [name for name in named if name not in defined] == [], case


def test_the_times_that_the_page_says_are_those_of_the_code() -> None:
    settings = Settings(state_dir=Path(), bundles_dir=Path())
    assert f"after {settings.agent_suspect_after:.0f} seconds without a word" in PAGE
    assert f"*lost* after {settings.agent_reconnect_wait:.0f}" in PAGE
    assert PATIENCE == COMMIT_LIMIT == 24 * 3600.0, "for a day at most"
    assert part_backoff().cap == 30.0, "up to half a minute"
