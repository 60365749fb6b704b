"""The filters of MLflow's clients."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.filters.grammar import FilterError
from detlab_hub.core.tracking.search import (
    MODEL_FIELDS,
    RUN_FIELDS,
    Clause,
    FieldOf,
    RunOrder,
    parse_filter,
    parse_order,
)


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("metrics.loss < 0.5", Clause(FieldOf.METRIC, "loss", "<", (0.5,))),
        ("metric.`val loss` >= -1e3", Clause(FieldOf.METRIC, "val loss", ">=", (-1000.0,))),
        ('metrics."val loss" != 2', Clause(FieldOf.METRIC, "val loss", "!=", (2.0,))),
        ("params.lr = '0.1'", Clause(FieldOf.PARAM, "lr", "=", ("0.1",))),
        ('parameters.opt LIKE "ad%"', Clause(FieldOf.PARAM, "opt", "LIKE", ("ad%",))),
        ("tags.mlflow.parentRunId = 'abc'", Clause(FieldOf.TAG, "mlflow.parentRunId", "=", ("abc",))),
        ("tag.`a b` ilike '%X'", Clause(FieldOf.TAG, "a b", "ILIKE", ("%X",))),
        ("tags.team is not null", Clause(FieldOf.TAG, "team", "IS NOT NULL")),
        ("params.x IS NULL", Clause(FieldOf.PARAM, "x", "IS NULL")),
        ("status = 'FINISHED'", Clause(FieldOf.ATTRIBUTE, "status", "=", ("FINISHED",))),
        ("attributes.run_id IN ('a', 'b')", Clause(FieldOf.ATTRIBUTE, "run_id", "IN", ("a", "b"))),
        ("run_id not in ('a')", Clause(FieldOf.ATTRIBUTE, "run_id", "NOT IN", ("a",))),
        ("`run name` = 'first'", Clause(FieldOf.ATTRIBUTE, "run_name", "=", ("first",))),
        ("attributes.start_time > 1664067852747", Clause(FieldOf.ATTRIBUTE, "start_time", ">", (1664067852747.0,))),
        ("dataset.digest = 'd'", Clause(FieldOf.DATASET, "digest", "=", ("d",))),
        ("params.a = 'it\\'s'", Clause(FieldOf.PARAM, "a", "=", ("it's",))),
    ],
)
def test_a_clause_is_read(text: str, clause: Clause) -> None:
    assert parse_filter(text, RUN_FIELDS) == (clause,)


def test_clauses_are_joined_by_and() -> None:
    found = parse_filter("metrics.a > 1 and tags.b = 'c AND d' AND status != 'FAILED'", RUN_FIELDS)
    assert [one.key for one in found] == ["a", "b", "status"]
    assert parse_filter("", RUN_FIELDS) == parse_filter("  ", RUN_FIELDS) == ()


def test_what_every_client_asks_of_registered_models_is_read() -> None:
    (one,) = parse_filter("tag.`mlflow.prompt.is_prompt` != 'true'", MODEL_FIELDS)
    assert one == Clause(FieldOf.TAG, "mlflow.prompt.is_prompt", "!=", ("true",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("metrics.a > 1 or metrics.b > 1", "joined by `and`"),
        ("metrics.a > 'x'", "a number is expected"),
        ("metrics.a > nan", "a number is expected"),
        ("metrics.a LIKE 'x'", "not compared by LIKE"),
        ("params.a > 'x'", "not compared by >"),
        ("params.a = x", "text in quotation marks"),
        ("params.a = 'x", "never closed"),
        ("secret = 'x'", "no attribute 'secret'"),
        ("owner = 'x'", "no attribute 'owner'"),
        ("metrics. > 1", "a name is missing"),
        ("metrics.a", "an operator after 'a'"),
        ("metrics.a >", "ends where a value"),
        ("run_id IN ()", "text in quotation marks"),
        ("; DROP TABLE runs", "operator is missing|no attribute"),
        ("params.a = 'x' " + "and params.a = 'x' " * 60, "more than 50"),
        ("x" * 5000, "4,000 is the most"),
    ],
)
def test_a_filter_that_cannot_be_read_says_where_and_why(text: str, said: str) -> None:
    with pytest.raises(FilterError, match=said):
        parse_filter(text, RUN_FIELDS)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("metrics.loss", RunOrder(FieldOf.METRIC, "loss")),
        ("metrics.`val loss` DESC", RunOrder(FieldOf.METRIC, "val loss", True)),
        ("attribute.start_time ASC", RunOrder(FieldOf.ATTRIBUTE, "start_time")),
        ("tags.mlflow.runName desc", RunOrder(FieldOf.TAG, "mlflow.runName", True)),
    ],
)
def test_an_order_is_read(text: str, order: RunOrder) -> None:
    assert parse_order(text, RUN_FIELDS) == order


@given(st.text("metricspaltg.'\"`()<>=! ,ANDINOTLKE\\%_01", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(FilterError):
        parse_filter(text, RUN_FIELDS)
