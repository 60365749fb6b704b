"""The OpenAPI document is valid and complete."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from detlab.schemas.wire import API_PREFIX, SERVICE_PREFIX
from detlab_hub.web.openapi import describe
from detlab_hub.web.routes import API


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return describe([(SERVICE_PREFIX + API_PREFIX + path, handler) for path, handler in API])


@pytest.mark.slow
def test_it_is_valid(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_it_has_every_route(document: dict[str, Any]) -> None:
    assert {path.removeprefix(SERVICE_PREFIX + API_PREFIX) for path in document["paths"]} == {p for p, _ in API}


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [op["operationId"] for verbs in document["paths"].values() for op in verbs.values()]
    assert len(ids) == len(set(ids))


def test_bodies_parameters_and_streams(document: dict[str, Any]) -> None:
    paths = {key.removeprefix(SERVICE_PREFIX + API_PREFIX): value for key, value in document["paths"].items()}
    create = paths["experiments"]["post"]
    assert create["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("CreateExperiment")
    assert create["security"] == [{"hub": []}]
    assert {p["name"] for p in paths["experiments/{experiment_id}/curves"]["get"]["parameters"]} == {
        "experiment_id",
        "group",
        "history",
        "name",
        "max_points",
        "max_trials",
        "skip",
    }
    stream = paths["experiments/{experiment_id}/stream"]["get"]["responses"]["200"]["content"]
    assert stream["application/x-ndjson"]["schema"]["$ref"].endswith("Event")
    assert paths["task/records"]["post"]["security"] == [{"task": []}]
    assert paths["agents"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]["type"] == "array"


CLOSED = {"state", "kind", "archived", "by", "format", "level", "stream", "only", "what"}
"""Parameters whose values are few and known: a text that is none of them would be answered by nothing."""


FREE = {("artifacts", "kind")}
"""Words of people's own."""


def test_filters_of_few_values_name_them(document: dict[str, Any]) -> None:
    open_ = [
        f"{verb.upper()} {path} {parameter['name']}"
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
        and parameter["name"] in CLOSED
        and (path.rpartition("/")[2], parameter["name"]) not in FREE
        and not {'"enum"', '"const"'} & set(re.findall(r'"\w+"', json.dumps(parameter)))
    ]
    assert open_ == []
