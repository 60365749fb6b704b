"""Random reports, aborts, restarts and superseding equal a plain dictionary."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab.schemas.wire import SummaryView
from detlab_hub.store import Store
from detlab_hub.store.queries.metrics import curves as metrics
from detlab_hub.store.queries.metrics import rollups
from detlab_hub.store.values import as_scalar
from testbed.databases.store_rows import DEAD, add_experiment, add_trial

steps = st.integers(0, 30) | st.sampled_from([0, 29, 2**53])
numbers = st.sampled_from([math.nan, math.inf, -math.inf, "NaN", True, 0, -0.5, 3.25, 1e300, -1e300, 7.0])
structured = st.sampled_from(["text", [1, [2]], {"a": "NaN"}, None])
reports = st.builds(
    lambda group, step, values: metrics.ReportedMetrics(group, step, step / 2, values),
    st.sampled_from(["training", "validation"]),
    steps,
    st.dictionaries(st.sampled_from(["loss", "acc", "x"]), numbers | structured, max_size=3),
)
actions = st.one_of(
    st.tuples(st.just("report"), st.lists(reports, min_size=1, max_size=12)),
    st.tuples(st.just("one by one"), st.lists(reports, min_size=1, max_size=8)),
    st.tuples(st.just("ramp"), st.integers(0, 25)),
    st.tuples(st.just("abort"), st.lists(reports, min_size=1, max_size=4)),
    st.tuples(st.just("new run"), st.none() | st.integers(0, 30)),
    st.tuples(st.just("crash"), st.none()),
)

Key = tuple[str, str, int]


class Model:
    """What the store must hold: (group, name, step) -> (run, time, value)."""

    def __init__(self) -> None:
        self.run = 1
        self.resume: int | None = None
        self.reported = 0
        self.scalars: dict[Key, tuple[float, float]] = {}
        self.structured: dict[Key, Any] = {}

    def report(self, batch: list[metrics.ReportedMetrics]) -> None:
        if self.run > self.reported:
            if self.reported:
                limit = -1 if self.resume is None else self.resume
                self.scalars = {k: v for k, v in self.scalars.items() if k[2] <= limit}
                self.structured = {k: v for k, v in self.structured.items() if k[2] <= limit}
            self.reported = self.run
        for report in batch:
            for name, value in report.metrics.items():
                key = (report.group, name, report.steps_completed)
                number = as_scalar(value)
                if number is None:
                    self.structured[key] = value
                else:
                    self.scalars[key] = (number, report.time)

    def curve(self, group: str, name: str) -> list[tuple[int, float, float]]:
        return sorted(
            (step, value, time) for (g, n, step), (value, time) in self.scalars.items() if (g, n) == (group, name)
        )


def same(one: float | None, two: float | None) -> bool:
    if one is None or two is None:
        return one is two
    return one == two or (math.isnan(one) and math.isnan(two))


def check_summary(found: SummaryView, curve: list[tuple[int, float, float]]) -> None:
    values = [value for _, value, _ in curve]
    real = [value for value in values if not math.isnan(value)]
    assert (found.count, found.nan_count) == (len(values), len(values) - len(real))
    assert found.last_step == curve[-1][0]
    assert same(found.last, curve[-1][1])
    assert same(found.min, min(real, default=None))
    assert same(found.max, max(real, default=None))
    if not real:
        assert found.mean is None
        return
    mean = math.fsum(real) / len(real) if all(map(math.isfinite, real)) else sum(real) / len(real)
    assert found.mean is not None
    scale = max((abs(value) for value in real if math.isfinite(value)), default=0.0)
    assert same(found.mean, mean) or abs(found.mean - mean) <= 1e-12 * scale


def check(store: Store, trial_id: int, model: Model, experiment_id: int) -> None:
    curves = store.read_sync(lambda s: metrics.series(s, [trial_id], max_points=None))
    keys = sorted({(group, name) for group, name, _ in model.scalars})
    assert [(view.group, view.name) for view in curves] == keys
    summaries = store.read_sync(lambda s: metrics.summaries(s, trial_id))
    thinned = store.read_sync(lambda s: metrics.series(s, [trial_id], max_points=5))
    for view, thin in zip(curves, thinned, strict=True):
        expected = model.curve(view.group, view.name)
        assert view.steps == [step for step, _, _ in expected]
        assert all(same(a, b) for a, (_, b, _) in zip(view.values, expected, strict=True))
        assert view.times == [time for _, _, time in expected]
        check_summary(summaries[view.group][view.name], expected)
        check_thinned(thin.steps, thin.values, expected)
    found = store.read_sync(lambda s: metrics.values(s, trial_id, limit=10_000))
    assert {(v["group"], v["name"], v["steps_completed"]): v["value"] for v in found} == model.structured


def check_thinned(kept: list[int], values: list[float], expected: list[tuple[int, float, float]]) -> None:
    real = [value for _, value, _ in expected if not math.isnan(value)]
    kept_real = [value for value in values if not math.isnan(value)]
    assert len(kept) <= 5
    assert kept == sorted(set(kept))
    assert kept[0] == expected[0][0]
    assert kept[-1] == expected[-1][0]
    if real:
        assert (min(kept_real), max(kept_real)) == (min(real), max(real))
    assert any(map(math.isnan, values)) == (len(real) < len(expected))


@pytest.fixture
def small_rollups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollups of four points, always read, so that short sequences go through all of their code."""
    monkeypatch.setattr(rollups, "CHUNK", 4)
    monkeypatch.setattr(rollups, "BATCH", 2)
    monkeypatch.setattr(metrics, "RAW_FACTOR", 0)


class Abort(Exception):
    pass


@pytest.mark.slow
@pytest.mark.usefixtures("small_rollups")
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(sequence=st.lists(actions, max_size=12))
def test_the_store_equals_a_dictionary(db_url: str, sequence: list[tuple[str, Any]]) -> None:
    store = Store.open(db_url, holder="model", process=DEAD)
    experiment_id = store.write_sync(add_experiment)
    trial_id = store.write_sync(lambda s: add_trial(s, experiment_id))
    model = Model()
    try:
        for action, argument in sequence:
            if action in {"report", "ramp"}:
                batch = ramp(model, argument) if action == "ramp" else argument
                store.write_sync(
                    lambda s, batch=batch: metrics.insert_reports(s, trial_id, model.run, batch, model.resume)
                )
                model.report(batch)
            elif action == "one by one":
                store.write_sync(lambda s, batch=argument: insert_singly(s, trial_id, model, batch))
                model.report(argument)
            elif action == "abort":
                with pytest.raises(Abort):
                    store.write_sync(lambda s, batch=argument: insert_and_abort(s, trial_id, model, batch))
            elif action == "new run":
                model.run += 1
                model.resume = argument
            else:
                store.close(release=False)
                store = Store.open(db_url, holder="model", process=DEAD)
        check(store, trial_id, model, experiment_id)
    finally:
        store.close()


def ramp(model: Model, length: int) -> list[metrics.ReportedMetrics]:
    """Reports that go on after the last step, as training code makes them."""
    begin = max((step for _, _, step in model.scalars if step < 2**53), default=-1) + 1
    return [
        metrics.ReportedMetrics("training", step, 0.0, {"loss": math.sin(step * 1.7)})
        for step in range(begin, begin + length)
    ]


def insert_singly(s: Any, trial_id: int, model: Model, batch: list[metrics.ReportedMetrics]) -> None:
    """Many small calls in one transaction, as the master makes them; a savepoint in between is given up."""
    for number, report in enumerate(batch):
        arguments = (report.group, report.steps_completed, report.time, report.metrics, model.resume)
        if number == 1:
            savepoint = s.begin_nested()
            metrics.insert_report(s, trial_id, model.run, "given up", 1, 0.0, {"loss": 1.0, "new": 2.0})
            savepoint.rollback()
        metrics.insert_report(s, trial_id, model.run, *arguments)


def insert_and_abort(s: Any, trial_id: int, model: Model, batch: list[metrics.ReportedMetrics]) -> None:
    metrics.insert_reports(s, trial_id, model.run, batch, model.resume)
    raise Abort
