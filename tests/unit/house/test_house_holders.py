"""What differs between trials and user tasks is a method of `Holder`: services do not ask which of them a row is of."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SERVICES = Path(__file__).resolve().parents[3] / "hub_ext/detlab_hub/services"
DATA = {
    "base/unit_of_work.py": "the fork: it chooses the holder of an allocation",
    "base/fencing.py": "which row a task token names",
    "admission/log_rate.py": "the groups of an owner are in the row of the experiment or of the task",
    "lifecycle/no_progress.py": "which attempts are those of one trial or task, as a condition of a query",
    "placement/active_rows.py": "ids of jobs and holders in a snapshot, which has no unit of work",
    "placement/after_checkpoint.py": "only trials have checkpoints",
    "placement/snapshots.py": "facts for the pure scheduler: preemptible, on one node",
    "streams/reads.py": "whose an event is",
    "usertasks/idle.py": "a report of a user task's watcher",
}


def forks(tree: ast.AST) -> list[str]:
    """The comparisons of a `trial_id` or `task_id` with None."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Attribute)
        and node.left.attr in {"trial_id", "task_id"}
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value is None
    ]


@pytest.mark.parametrize("text", ["if row.task_id is not None: pass", "x = row.trial_id is None"])
def test_a_fork_is_found(text):
    assert len(forks(ast.parse(text))) == 1


def test_only_data_is_told_apart_by_whose_it_is():
    found = {
        str(path.relative_to(SERVICES)): forks(ast.parse(path.read_text(encoding="utf-8")))
        for path in SERVICES.rglob("*.py")
    }
    assert {name: lines for name, lines in found.items() if lines and name not in DATA} == {}, (
        "make it a method of `Holder` in services/base/unit_of_work.py"
    )
    assert sorted(name for name in DATA if not found[name]) == []
