"""Which fields of a query are lists: by their type, never by what its name says."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from detlab_hub.web.base import takes_list
from detlab_hub.web.routes import API
from detlab_hub.web.scopes import operation_of


class Listing(BaseModel):
    """Has `list` in its name, and is none."""

    alist: Literal["list", "table"] = "list"


@pytest.mark.parametrize(
    ("annotation", "taken"),
    [
        (list, True),
        (list[str], True),
        (list[str] | None, True),
        (Optional[list[int]], True),  # noqa: UP045 - the older form
        (Annotated[list[str], Field(max_length=3)], True),
        (Annotated[list[str] | None, "said"], True),
        (str, False),
        (Literal["list", "table"], False),
        (Listing, False),
        (Annotated[str, "list"], False),
        (dict[str, list[str]], False),
        (None, False),
    ],
)
def test_a_list_is_known_by_its_type(annotation: Any, taken: bool) -> None:
    """Fields were lists whose type had `list` anywhere in its text, such as a choice of that name."""
    assert takes_list(annotation) is taken


def test_every_list_of_the_api_is_taken_for_one() -> None:
    """By the schema that the API publishes."""
    verbs = ("get", "post", "put", "patch", "delete")
    handlers = {handler for _, handler, *_ in API}
    operations = [operation_of(handler, verb) for handler in handlers for verb in verbs]
    models = {operation.query for operation in operations if operation is not None and operation.query is not None}
    assert models
    for model in models:
        for name, field in model.model_json_schema().get("properties", {}).items():
            forms = [field, *field.get("anyOf", [])]
            listed = any(form.get("type") == "array" for form in forms)
            assert takes_list(model.model_fields[name].annotation) is listed, (model, name)
