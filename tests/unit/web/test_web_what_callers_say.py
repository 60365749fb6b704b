"""What each caller may say: every field of every body and query is declared by hand.

It stands in `said_by_callers.toml`, or in the test of the resource (`SAID`).

A field that is new fails here until somebody has asked whether its caller may decide it. `hold` in a task's `source`
was none: that was a mapping of any keys, in which the master also kept its own notes, and acted on them.
"""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from detlab.schemas.taskwire import TaskSource
from detlab.schemas.wire import AgentMessage, PersonRequest
from detlab_hub.store.tables import TaskNote
from detlab_hub.web.routes import API, PAGES
from detlab_hub.web.scopes import PEOPLE, Operation, operation_of
from testbed.resource_tests import declared

DECLARED: dict[str, dict[str, Any]] = {
    **tomllib.loads((Path(__file__).parent / "said_by_callers.toml").read_text(encoding="utf-8")),
    **declared("SAID"),
}
ALSO_REPLIES = {"GcPolicy"}
"""Parts of people's bodies that replies have, too, which a newer master may extend."""
INTERNAL = (
    *TaskNote,
    *("owner", "owner_groups", "groups", "uid", "account", "admin", "scopes", "task_token", "run_token", "token"),
    *("attempt", "allocation_id", "agent_id", "claimed", "base_url", "server_name", "created_at", "ended_at"),
    *("exit_code", "failure", "granted_by", "search_task", "gc_task", "runtime", "user_home", "reach", "entrypoint"),
)
"""What the master alone decides, or only a config may say, which is checked as one."""


def _routes() -> Iterator[tuple[str, Operation]]:
    for path, handler in [*API, *PAGES]:
        for verb in handler.SUPPORTED_METHODS:
            operation = operation_of(handler, verb)
            if operation is not None and (operation.body or operation.query):
                yield f"{verb} {path}", operation


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _models(part)


def _is_free(annotation: Any) -> bool:
    """Whether a field is a mapping of any keys, or holds one."""
    if annotation is Any or typing.get_origin(annotation) is dict:
        return True
    return any(_is_free(part) for part in typing.get_args(annotation))


def _fields(model: type[BaseModel], at: str = "") -> Iterator[str]:
    """Yield the paths of a model's fields; those of a mapping of any keys end with `.*`."""
    for name, field in model.model_fields.items():
        inner = list(_models(field.annotation))
        here = f"{at}{name}"
        yield f"{here}.*" if _is_free(field.annotation) and not inner else here
        for one in inner:
            yield from _fields(one, f"{here}.")


def _said(operation: Operation) -> dict[str, list[str]]:
    found = {"who": sorted(operation.scopes)}
    for kind, model in (("body", operation.body), ("query", operation.query)):
        if model is not None:
            found[kind] = sorted(set(_fields(model)))
    return found


ROUTES = dict(_routes())
PERSONAL = [name for name, one in ROUTES.items() if one.body is not None and PEOPLE & one.scopes]


def test_every_field_that_a_caller_may_say_is_declared() -> None:
    found = {name: _said(operation) for name, operation in ROUTES.items()}
    said = TypeAdapter(AgentMessage)
    messages = {model for one in typing.get_args(AgentMessage) for model in _models(one)}
    assert said is not None
    found["GET agents/connect"] = {
        "who": ["agent"],
        "messages": sorted({f"{one.__name__}.{path}" for one in messages for path in _fields(one)}),
    }
    assert found == DECLARED, (
        "declare a new field in said_by_callers.toml or its test, once it is clear that this caller decides it"
    )


def test_no_client_can_write_a_note_of_the_masters() -> None:
    assert not {note.value for note in TaskNote} & TaskSource.model_fields.keys()
    for note in TaskNote:
        with pytest.raises(ValidationError, match="extra_forbidden"):
            TaskSource.model_validate({note.value: True})


@pytest.mark.parametrize("route", PERSONAL)
def test_bodies_of_people_have_no_unknown_keys(route: str) -> None:
    """Neither at the top nor below: what is passed over there may be what somebody reads tomorrow."""
    body = ROUTES[route].body
    assert body is not None
    for model in _all_models(body):
        assert issubclass(model, PersonRequest) or model.__name__ in ALSO_REPLIES, f"{model.__name__} takes any key"
    for name in INTERNAL:
        if name not in body.model_fields:
            with pytest.raises(ValidationError) as caught:
                body.model_validate({name: 1})
            assert (name, "extra_forbidden") in {(*one["loc"], one["type"]) for one in caught.value.errors()}


def _all_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for inner in _models(field.annotation):
            yield from _all_models(inner)


def test_bodies_of_programs_pass_unknown_keys_over() -> None:
    """Tasks, agents and spawners may be newer than the master: nothing of what it does not know is kept."""
    programs = [one.body for name, one in ROUTES.items() if one.body is not None and not PEOPLE & one.scopes]
    assert programs
    for body in programs:
        for model in _all_models(body):
            assert model.model_config.get("extra") != "allow"
