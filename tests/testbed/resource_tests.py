"""What the test of a resource declares by hand of its routes, gathered for the tests that look at all routes.

A test in tests/integration/web says, in literals:

    RIGHTS = {"quota.set": "own administrator"}             # action -> the least right, and whose tokens may ask
    SAID = {"PUT quotas": {"who": ["admin"], "body": ["kind", "name", "slots"]}}    # as in said_by_callers.toml
    VALID_BODIES = {"quota.set": {"kind": "user", "name": "ada", "slots": 1}}     # action -> a body that is valid
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1] / "integration" / "web"


def declared(name: str, tests: Path = TESTS) -> dict[str, Any]:
    """Return what all tests of resources declare under a name.

    Raises:
        ValueError: It is no literal, or two tests declare the same.
    """
    found: dict[str, Any] = {}
    for path in sorted(tests.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if f"\n{name} = " not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [name]:
                said = ast.literal_eval(node.value)
                if twice := found.keys() & said.keys():
                    raise ValueError(f"{path.name}: {name} of {', '.join(sorted(twice))} is declared by another test")
                found |= said
    return found
