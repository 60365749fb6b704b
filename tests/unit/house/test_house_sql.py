"""SQL belongs into `store/queries`: the statements that services still write themselves may only become fewer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SERVICES = Path(__file__).resolve().parents[3] / "hub_ext/detlab_hub/services"
STATEMENTS = frozenset({"delete", "insert", "select", "text", "update"})
LEFT = 139
"""Lower it when a statement moves to `store/queries`; never raise it."""


def statements(text: str) -> list[int]:
    """Lines with a statement that is made by a function of SQLAlchemy."""
    tree = ast.parse(text)
    made = {
        one.asname or one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sqlalchemy"
        for one in node.names
        if one.name in STATEMENTS
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in made
    ]


def test_a_statement_is_found():
    assert statements("from sqlalchemy import select as s, func\nrows = s(Row).where(s(func.max(Row.id)) > 1)\n") == [
        2,
        2,
    ]
    assert statements("from detlab_hub.store.queries.trials import select\nselect(1)\n") == []


@pytest.mark.slow
def test_services_write_no_more_sql_than_before():
    found = {
        str(path.relative_to(SERVICES)): len(statements(path.read_text(encoding="utf-8")))
        for path in sorted(SERVICES.rglob("*.py"))
    }
    there = sum(found.values())
    assert there <= LEFT, (
        f"make it a function of a module in store/queries: { ({k: n for k, n in found.items() if n}) }"
    )
    assert there == LEFT, f"there are fewer now: set LEFT to {there}"
