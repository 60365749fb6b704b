"""One place decides who may do what: no other module compares owners with callers or asks who is an administrator."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HUB = Path(__file__).resolve().parents[3] / "hub_ext/detlab_hub"
DECIDES = {
    "core/rights/actions.py",
    "core/rights/model.py",
    "core/rights/table.py",
    "services/base/access.py",
    "store/queries/rights.py",
}
TELLS = {
    "services/checkpoints/trash.py": "the trash of all that is the caller's own, where no experiment is named",
    "services/usertasks/usertasks.py": "a server's name is one of the caller's own; and a run's task says whose it is",
    "services/cluster/overview.py": "tells callers about themselves",
    "web/base.py": "notes an attempt at a hidden object in the audit log, and gives no right",
}
CALLERS = {"caller", "person", "viewer", "who", "me", "self.caller", "self.person", "self._caller"}


def decisions(tree: ast.AST) -> list[str]:
    """The expressions of a module that decide about rights by themselves."""
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in ast.walk(tree) if _decides(node)]


def _decides(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="admin", ctx=ast.Load()) | ast.Attribute(attr="sees"):
            return True
        case ast.Name(id="Hidden") | ast.alias(name="Hidden"):
            return True
        case ast.Attribute(value=ast.Name(id="Right"), attr="WRITE" | "OWN"):
            return True  # an action says which right it needs
        case ast.Compare(left=ast.Attribute(attr="run", value=ast.Name(id="caller"))):
            return True
        case ast.Compare():
            return _compares_an_owner_with_a_caller(node)
        case _:
            return False


def _compares_an_owner_with_a_caller(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    owner = any(isinstance(one, ast.Attribute) and one.attr in {"owner", "serves_user"} for one in sides)
    caller = any(
        isinstance(one, ast.Attribute) and one.attr == "name" and _is_caller(ast.unparse(one.value)) for one in sides
    )
    return owner and caller


def _is_caller(text: str) -> bool:
    return text in CALLERS or text in {f"person({one})" for one in CALLERS}


@pytest.mark.parametrize(
    "text",
    [
        "if caller.admin: pass",
        "row.owner == caller.name",
        "query.where(TaskRow.owner == caller.name)",
        "self._caller.name != row.owner",
        "caller.sees(row.owner)",
        "raise Hidden('no')",
        "experiment_for(s, caller, 1, Right.WRITE)",
        "if caller.run is not None: pass",
        "query.where(TaskRow.owner == person(caller).name)",
        "from access import Hidden",
    ],
)
def test_a_decision_is_found(text):
    assert decisions(ast.parse(text))


@pytest.mark.parametrize("text", ["row.owner == request.owner", "make(admin=True)", "caller.name", "row.owner"])
def test_a_look_up_is_none(text):
    assert decisions(ast.parse(text)) == []


@pytest.mark.slow
def test_no_module_but_those_of_rights_decides_who_may_what():
    others = {
        str(path.relative_to(HUB)): decisions(ast.parse(path.read_text()))
        for path in HUB.rglob("*.py")
        if str(path.relative_to(HUB)) not in DECIDES | TELLS.keys()
    }
    assert len(others) > 200
    assert {name: found for name, found in others.items() if found} == {}, (
        "ask services/base/access.py, or filter by store/queries/rights.py; a new kind of object is a row of"
        " core/rights/table.py: docs/contributing/recipes.md"
    )
    assert all(decisions(ast.parse((HUB / name).read_text())) for name in DECIDES | TELLS.keys())
