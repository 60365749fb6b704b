"""The OpenAPI 3.1 document, made from the route table and the handlers' annotations. Nothing is written twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode, models_json_schema

import detlab
from detlab.schemas.wire import ErrorView
from detlab_hub.web.base import Guarded
from detlab_hub.web.scopes import Operation, Scope, operation_of

_REF = "#/components/schemas/{model}"
_SCHEMES = {
    Scope.READ: "hub",
    Scope.WRITE: "hub",
    Scope.ADMIN: "hub",
    Scope.TASK: "task",
    Scope.AGENT: "agent",
    Scope.ENROL: "enrolment",
    Scope.HUB: "spawner",
}
_DESCRIPTIONS = {
    "hub": "A token of JupyterHub with custom:detlab:read, custom:detlab:write or custom:detlab:admin.",
    "task": "The token of one run of a trial (dttask_…).",
    "agent": "The key of an enrolled agent (dtagent_…).",
    "enrolment": "An enrolment token (dtenrol_…).",
    "spawner": "The token of the Hub's spawners (dthub_…).",
}


def describe(routes: Iterable[tuple[str, type[Guarded]]]) -> dict[str, Any]:
    """Return the document for (path, handler class) pairs; path parameters are written `{name}`."""
    table = list(routes)
    names, components = _components(table)
    paths: dict[str, dict[str, Any]] = {}
    for path, cls in table:
        paths[path] = {
            verb.lower(): _operation(path, verb, operation, names)
            for verb in cls.SUPPORTED_METHODS
            if (operation := operation_of(cls, verb)) is not None
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "detlab",
            "version": detlab.__version__ if hasattr(detlab, "__version__") else "0",
            "description": "Experiments, trials and their metrics. Non-finite numbers are sent as the strings"
            ' "NaN", "Infinity" and "-Infinity". Every non-2xx reply is an ErrorView.',
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": text} for name, text in _DESCRIPTIONS.items()
            },
        },
    }


_Key = tuple[Any, JsonSchemaMode]


def _components(table: list[tuple[str, type[Guarded]]]) -> tuple[dict[_Key, Any], dict[str, Any]]:
    wanted: dict[_Key, None] = {(ErrorView, "serialization"): None}
    for _, cls in table:
        for verb in cls.SUPPORTED_METHODS:
            operation = operation_of(cls, verb)
            if operation is None:
                continue
            if operation.body is not None:
                wanted[(operation.body, "validation")] = None
            for model in (_element(operation.reply), operation.streams):
                if model is not None:
                    wanted[(model, "serialization")] = None
    names, document = models_json_schema(list(wanted), ref_template=_REF)
    return {(model, mode): ref for (model, mode), ref in names.items()}, dict(document.get("$defs", {}))


def _element(reply: Any) -> type[BaseModel] | None:
    arguments = getattr(reply, "__args__", ())
    model = arguments[0] if arguments and getattr(reply, "__origin__", None) is list else reply
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _operation(path: str, verb: str, operation: Operation, names: dict[_Key, Any]) -> dict[str, Any]:
    schemes = sorted({_SCHEMES[scope] for scope in operation.scopes if scope is not Scope.PUBLIC})
    words = re.sub(r"[^a-z0-9]+", "_", path.partition("/api/v1/")[2].lower()).strip("_")
    described: dict[str, Any] = {
        "operationId": f"{verb.lower()}_{words}",
        "summary": operation.summary.splitlines()[0],
        "description": "Scope: " + " or ".join(sorted(operation.scopes)) + ".",
        "tags": [path.partition("/api/v1/")[2].split("/")[0]],
        "security": [{name: []} for name in schemes],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": {
            str(operation.status): _response(operation, names),
            "default": {
                "description": "What went wrong.",
                "content": {"application/json": {"schema": names[(ErrorView, "serialization")]}},
            },
        },
    }
    if operation.body is not None:
        schema = names[(operation.body, "validation")]
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    elif operation.accepts is not None:
        described["requestBody"] = {"required": True, "content": {operation.accepts: {"schema": {}}}}
    return described


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer"} if kind is int else {"type": "string"},
        }
        for name, kind in operation.path.items()
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = TypeAdapter(operation.query).json_schema()
    required, named = schema.get("required", []), schema.get("$defs", {})
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _inlined(field, named)}
        for name, field in schema["properties"].items()
    ]


def _inlined(schema: Any, named: dict[str, Any]) -> Any:
    """Return the schema of a parameter with what it refers to in the place of the reference."""
    if isinstance(schema, list):
        return [_inlined(one, named) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found = named[schema["$ref"].rpartition("/")[2]]
        return {**_inlined(found, named), **{key: value for key, value in schema.items() if key != "$ref"}}
    return {key: _inlined(value, named) for key, value in schema.items()}


def _response(operation: Operation, names: dict[_Key, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": operation.summary.splitlines()[0]}
    model = _element(operation.reply)
    if operation.streams is not None:
        schema = names[(operation.streams, "serialization")]
        described["description"] += " One JSON object a line; an empty line is a keep-alive."
        described["content"] = {operation.media: {"schema": schema}}
    elif model is not None:
        ref = names[(model, "serialization")]
        schema = ref if operation.reply is model else {"type": "array", "items": ref}
        described["content"] = {"application/json": {"schema": schema}}
    elif operation.media != "application/json":
        described["content"] = {operation.media: {"schema": {}}}
    return described
