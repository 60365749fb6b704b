"""The exception tree: codes, replies, and the drawing that documents it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from detlab import errors
from detlab.errors import (
    ApiError,
    ConfigError,
    DetlabError,
    InvalidHP,
    NotFound,
    Problem,
    StaleAttempt,
    from_reply,
)
from detlab.schemas import taskconf
from detlab.schemas.taskwire import TaskKind


def tree(base: type[DetlabError]) -> set[type[DetlabError]]:
    return {base}.union(*(tree(child) for child in base.__subclasses__() if child.__module__ == errors.__name__))


def test_the_drawing_is_the_tree() -> None:
    drawn = dict(re.findall(r"─ (\w+)\s{2,}([\w.]+)", errors.__doc__ or ""))
    assert drawn == {cls.__name__: cls.default_code for cls in tree(DetlabError)}


def test_codes_are_unique() -> None:
    codes = [cls.default_code for cls in tree(DetlabError)]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("cls", sorted(tree(DetlabError), key=lambda cls: cls.__name__))
def test_an_error_survives_the_wire(cls: type[DetlabError]) -> None:
    status = cls.default_status if issubclass(cls, ApiError) else 400
    reply = {"code": cls.default_code, "message": "what happened", "hint": "do this", "problems": []}
    found = from_reply(status, reply)
    assert type(found) is cls
    assert found.hint == "do this"
    assert "what happened" in str(found)
    assert str(found).endswith("do this")


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (401, "AuthError"),
        (403, "Forbidden"),
        (404, "NotFound"),
        (409, "Conflict"),
        (503, "Unavailable"),
        (500, "ApiError"),
    ],
)
def test_a_reply_without_a_known_code_is_told_by_its_status(status: int, name: str) -> None:
    for body in ({}, {"code": "of.the.future", "message": "x"}):
        found = from_reply(status, body)
        assert type(found).__name__ == name
        assert isinstance(found, ApiError)
        assert found.status == status
    assert from_reply(404, {"code": "of.the.future", "message": "x"}).code == "of.the.future"


def test_config_problems_survive_the_wire() -> None:
    problem = Problem("searcher.name", "is wrong", "fix it", "warning")
    found = from_reply(422, {"code": "config.invalid", "message": "bad", "problems": [problem.to_dict()]})
    assert isinstance(found, ConfigError)
    assert found.problems == [problem]


def test_status_and_code_of_api_errors() -> None:
    assert NotFound("x").status == 404
    assert StaleAttempt("x").code == "stale_attempt"
    assert ApiError("x", status=418, code="teapot").status == 418


def test_invalid_hp_needs_no_message() -> None:
    with pytest.raises(InvalidHP):
        raise InvalidHP


def test_config_error_lists_mistakes_not_warnings() -> None:
    error = ConfigError([Problem("a", "is bad"), Problem("b", "is old", None, "warning")])
    assert str(error) == "the experiment config has 1 error\n  a: is bad"


def test_light_imports() -> None:
    """Schemas and errors pull in no I/O framework; errors not even pydantic."""
    heavy = ("tornado", "sqlalchemy", "torch", "httpx", "asyncio")
    for module, forbidden in (
        ("detlab.errors", (*heavy, "pydantic", "yaml")),
        ("detlab.schemas.expconf", ("tornado", "sqlalchemy", "torch", "httpx")),
    ):
        code = f"import sys, {module}; print([name for name in {forbidden!r} if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.strip() == "[]", module


def test_mistakes_of_a_task_are_not_called_an_experiments() -> None:
    with pytest.raises(ConfigError, match=r"^the task config has 2 errors"):
        taskconf.parse({"slot": 1, "image": "x"}, TaskKind.SHELL)
