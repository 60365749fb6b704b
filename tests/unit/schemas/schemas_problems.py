"""A good config, and what `check` finds in others, by path."""

from __future__ import annotations

from typing import Any

from detlab.schemas.expconf import check, errors_of

GOOD: dict[str, Any] = {
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "loss"},
}


def errors(raw: object, *, complete: bool = False) -> dict[str, str]:
    return {problem.path: problem.message for problem in errors_of(check(raw, complete=complete))}


def warnings(raw: object) -> dict[str, str]:
    return {problem.path: problem.message for problem in check(raw) if problem.level == "warning"}


def hints(raw: object) -> dict[str, str | None]:
    return {problem.path: problem.hint for problem in check(raw)}
