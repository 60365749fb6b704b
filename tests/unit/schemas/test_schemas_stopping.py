"""What `check` says of stopping policies, several metrics and constraints: all mistakes at once, each with its path."""

from __future__ import annotations

from typing import Any

import pytest
from schemas_problems import GOOD, errors, hints, warnings

from detlab.schemas.expconf import parse

SINGLE = GOOD["searcher"]


def stopping(*entries: object, **searcher: Any) -> dict[str, Any]:
    return {**GOOD, "searcher": {**SINGLE, **searcher}, "stopping": list(entries)}


def searching(**more: Any) -> dict[str, Any]:
    return {**GOOD, "searcher": {"name": "random", "max_trials": 4, **more}}


def test_a_list_of_every_policy_is_good() -> None:
    raw = stopping(
        {"name": "no_improvement", "patience": 3, "min_delta": 0.1, "dry_run": True},
        {"name": "threshold", "upper": 5},
        {"name": "divergence"},
        {"name": "median", "warmup": 2},
        {"name": "percentile", "percentile": 25},
        {"name": "curve", "end": 30},
        {"name": "wall_clock", "seconds": 60},
        time_metric="epoch",
    )
    assert errors(raw, complete=True) == {}
    assert warnings(raw) == {}


def test_all_mistakes_of_all_policies_are_told_at_once() -> None:
    raw = stopping(
        {"name": "no_improvment", "patience": 3},
        {"name": "no_improvement", "patience": 0, "patince": 1},
        {"name": "threshold"},
        {"name": "threshold", "lower": 5, "upper": 1},
        {"name": "curve", "end": -1, "confidence": 2},
        "median",
        {"name": "wall_clock"},
        {"patience": 3},
        {"name": "percentile", "percentile": 100},
        {"name": "divergence", "factor": 1},
        {"name": 3},
    )
    found = errors(raw)
    assert set(found) == {
        "stopping[0].name",
        "stopping[1].patience",
        "stopping[1].patince",
        "stopping[2]",
        "stopping[3]",
        "stopping[4]",
        "stopping[4].end",
        "stopping[4].confidence",
        "stopping[5]",
        "stopping[6].seconds",
        "stopping[7].name",
        "stopping[8].percentile",
        "stopping[9].factor",
        "stopping[10].name",
    }
    assert "lower must be less than upper, but 5 >= 1" in found["stopping[3]"]
    said = hints(raw)
    assert said["stopping[0].name"] == "did you mean `no_improvement`?"
    assert said["stopping[1].patince"] == "did you mean `patience`?"
    assert "`lower`, `upper` or both" in (said["stopping[2]"] or "")
    assert "time_metric: epoch" in (said["stopping[4]"] or "")


@pytest.mark.parametrize("value", [{"name": "median"}, "median", 3])
def test_policies_are_a_list(value: object) -> None:
    assert "must be a list" in errors({**GOOD, "stopping": value})["stopping"]


def test_a_warmup_without_a_time_metric_counts_reports() -> None:
    assert "counts reports" in warnings(stopping({"name": "median", "warmup": 3}))["stopping[0].warmup"]
    assert warnings(stopping({"name": "median", "warmup": 3}, time_metric="epoch")) == {}


def test_there_may_be_twenty_policies() -> None:
    assert errors(stopping(*[{"name": "divergence"}] * 20)) == {}
    assert "21 policies" in errors(stopping(*[{"name": "divergence"}] * 21))["stopping"]


# --- several metrics, constraints


def test_the_first_of_the_metrics_is_the_searcher_metric() -> None:
    config = parse(searching(metrics=[{"name": "acc", "smaller_is_better": False}, {"name": "size"}]))
    assert config.searcher is not None
    assert (config.searcher.metric, config.searcher.smaller_is_better) == ("acc", False)


def test_all_mistakes_of_metrics_and_constraints_are_told_at_once() -> None:
    raw = searching(
        name="cmaes",
        metrics=[{"name": "loss"}, {"name": "loss"}, {"nam": "size"}],
        metric="acc",
        smaller_is_better=False,
        constraints={"size": {"min": 3, "max": 1}, "x": {}, "mem": {"mx": 1}, "t": {"max": "a"}, "": {"max": 1}},
    )
    found = errors(raw)
    assert set(found) == {
        "searcher.metrics",
        "searcher.metrics[1].name",
        "searcher.metrics[2].name",
        "searcher.metrics[2].nam",
        "searcher.metric",
        "searcher.smaller_is_better",
        "searcher.constraints",
        "searcher.constraints.size",
        "searcher.constraints.x",
        "searcher.constraints.mem",
        "searcher.constraints.mem.mx",
        "searcher.constraints.t.max",
    }
    assert found["searcher.metrics"] == "cmaes searches by one metric only"
    assert "3 > 1: no trial can keep it" in found["searcher.constraints.size"]
    said = hints(raw)
    assert said["searcher.constraints.mem.mx"] == "did you mean `max`?"
    assert said["searcher.metrics[2].nam"] == "did you mean `name`?"
    assert "set `min`, `max` or both" in (said["searcher.constraints.x"] or "")


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"metrics": []}, "searcher.metrics"),
        ({"metrics": "loss"}, "searcher.metrics"),
        ({"metrics": ["loss"]}, "searcher.metrics[0]"),
        ({"metric": "a", "constraints": []}, "searcher.constraints"),
        ({"metric": "a", "constraints": {"b": 3}}, "searcher.constraints.b"),
        ({"metrics": [{"name": f"m{place}"} for place in range(9)]}, "searcher.metrics"),
    ],
)
def test_other_forms(more: dict[str, Any], path: str) -> None:
    assert path in errors(searching(**more))


def test_cmaes_takes_one_metric_with_constraints() -> None:
    assert errors(searching(name="cmaes", metrics=[{"name": "loss"}], constraints={"size": {"max": 1}})) == {}
