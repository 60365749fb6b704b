"""A secret at a key of the wrong type: the error says where and what type it has, and never the secret."""

from __future__ import annotations

from typing import Any

import pytest
from schemas_problems import GOOD

from detlab.errors import Problem
from detlab.schemas import taskconf
from detlab.schemas.expconf import check, check_yaml, errors_of
from detlab.schemas.taskwire import TaskKind

SECRET, NUMBER = "hunter2-very-secret", 4711471147

ENVIRONMENTS: list[dict[str, Any]] = [
    {"registry_auth": SECRET},
    {"registry_auth": NUMBER},
    {"registry_auth": [SECRET]},
    {"registry_auth": {"username": "puller", "password": NUMBER}},
    {"registry_auth": {"password": [SECRET]}},
    {"registry_auth": {"password": {SECRET: 1}}},
    {"registry_auth": {"auth": NUMBER, "identitytoken": NUMBER, "registrytoken": [SECRET]}},
]
BLOCKS: list[dict[str, Any]] = [
    *({"environment": environment} for environment in ENVIRONMENTS),
    {"checkpoint_storage": {"type": "s3", "bucket": "b", "access_key": NUMBER, "secret_key": [SECRET]}},
    {"checkpoint_storage": {"bucket": "b", "secret_key": NUMBER}},
    {"checkpoint_storage": {"type": "azure", "container": "c", "connection_string": NUMBER}},
    {"checkpoint_storage": {"type": "azure", "container": "c", "account_url": "u", "credential": NUMBER}},
    {"integrations": {"pachyderm": {"dataset": {"token": NUMBER}}}},
    {"data": {"secrets": {"key": f"{SECRET}\0"}}},
]


def said(problems: list[Problem]) -> str:
    return "\n".join(f"{problem} {problem.hint}" for problem in problems)


@pytest.mark.parametrize("block", BLOCKS)
def test_an_error_of_an_experiment_quotes_no_secret(block: dict[str, Any]) -> None:
    problems = check({**GOOD, **block})
    assert errors_of(problems)
    assert SECRET not in said(problems)
    assert str(NUMBER) not in said(problems)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_error_of_a_task_quotes_no_secret(environment: dict[str, Any]) -> None:
    problems = taskconf.check({"entrypoint": "true", "environment": environment}, TaskKind.COMMAND)
    assert errors_of(problems)
    assert SECRET not in said(problems)
    assert str(NUMBER) not in said(problems)


def test_the_error_still_says_what_is_there_and_what_to_do() -> None:
    text = f"""
entrypoint: python3 train.py
searcher: {{name: single, metric: loss}}
environment: {{registry_auth: {SECRET}}}
checkpoint_storage: {{type: s3, bucket: b, secret_key: {NUMBER}}}
"""
    found = {problem.path: (problem.message, problem.hint) for problem in check_yaml(text)[1]}
    assert found == {
        "environment.registry_auth": ("must be a mapping, not a text", None),
        "checkpoint_storage.secret_key": ("must be a text, not a number", "put it in quotes"),
    }


def test_elsewhere_the_value_is_told() -> None:
    """A hyperparameter may be named `token`, and a user name is no secret."""
    block = {
        "environment": {"registry_auth": {"username": NUMBER}},
        "hyperparameters": {"token": {"type": "int", "minval": "ten", "maxval": 3}},
    }
    assert str(NUMBER) in said(check({**GOOD, **block}))
    assert "'ten'" in said(check({**GOOD, **block}))
