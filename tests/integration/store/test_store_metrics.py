from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.orm import Session

from detlab.errors import NotFound, StaleAttempt
from detlab_hub.store import BadReport, Store
from detlab_hub.store.queries.metrics import curves, rollups
from detlab_hub.store.tables import MetricName, MetricPoint, MetricSeries, Rollup, StructuredValue, TrialRow

T = "training"


def report(store: Store, trial_id: int, step: int, values: dict[str, Any], run: int = 1, **more: Any) -> None:
    store.write_sync(lambda s: curves.insert_report(s, trial_id, run, T, step, float(step), values, **more))


def curve(store: Store, trial_id: int, name: str = "loss", max_points: int | None = None) -> dict[int, float]:
    found = store.read_sync(lambda s: curves.series(s, [trial_id], T, [name], max_points))
    return dict(zip(found[0].steps, found[0].values, strict=True)) if found else {}


def test_scalars_come_back_in_order_with_times(store: Store, trial_id: int) -> None:
    for step in (10, 20, 2**53):
        report(store, trial_id, step, {"loss": step / 3, "acc": True})
    loss, acc = sorted(store.read_sync(lambda s: curves.series(s, [trial_id])), key=lambda v: v.name)[::-1]
    assert loss.steps == [10, 20, 2**53]
    assert loss.values == [10 / 3, 20 / 3, 2**53 / 3]
    assert loss.times == [10.0, 20.0, float(2**53)]
    assert acc.values == [1.0, 1.0, 1.0]
    assert (loss.trial_id, loss.group, loss.total) == (trial_id, T, 3)


@pytest.mark.parametrize("spelling", ["float", "name"])
def test_nan_and_infinities_are_kept(store: Store, trial_id: int, spelling: str) -> None:
    named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    for step, (name, value) in enumerate(named.items()):
        report(store, trial_id, step, {"loss": value if spelling == "float" else name})
    values = list(curve(store, trial_id).values())
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]
    summary = store.read_sync(lambda s: curves.summaries(s, trial_id))[T]["loss"]
    assert (summary.count, summary.nan_count, summary.min, summary.max) == (3, 1, -math.inf, math.inf)
    assert summary.last == -math.inf


def test_a_last_nan_shows_in_the_summary(store: Store, trial_id: int) -> None:
    report(store, trial_id, 1, {"loss": 1.0})
    report(store, trial_id, 2, {"loss": math.nan})
    summary = store.read_sync(lambda s: curves.summaries(s, trial_id))[T]["loss"]
    assert summary.last is not None
    assert math.isnan(summary.last)
    assert (summary.last_step, summary.mean, summary.min) == (2, 1.0, 1.0)


def test_structured_values_are_kept_whole(store: Store, trial_id: int) -> None:
    matrix = {"labels": ["a", "b"], "counts": [[5, 1], [0, 7]], "share": "NaN", "nul": "\x00"}
    report(store, trial_id, 1, {"confusion": matrix, "note": "text", "nothing": None, "loss": 1.0})
    report(store, trial_id, 2, {"confusion": [math.inf]})
    found = store.read_sync(lambda s: curves.values(s, trial_id, T, "confusion"))
    assert [(v["steps_completed"], v["value"]) for v in found] == [(1, matrix), (2, [math.inf])]
    everything = store.read_sync(lambda s: curves.values(s, trial_id))
    assert {v["name"] for v in everything} == {"confusion", "note", "nothing"}
    assert store.read_sync(lambda s: curves.names(s, 1)) == [(T, "loss")]


def test_structured_values_page_backwards(store: Store, trial_id: int) -> None:
    for step in range(10):
        report(store, trial_id, step, {"note": f"n{step}"})
    newest = store.read_sync(lambda s: curves.values(s, trial_id, limit=4))
    assert [v["value"] for v in newest] == ["n6", "n7", "n8", "n9"]
    mark = (newest[0]["steps_completed"], newest[0]["id"])
    older = store.read_sync(lambda s: curves.values(s, trial_id, limit=4, before=mark))
    assert [v["value"] for v in older] == ["n2", "n3", "n4", "n5"]


def test_a_repeated_step_merges_names_and_replaces_values(store: Store, trial_id: int) -> None:
    report(store, trial_id, 1, {"loss": 9.0, "acc": 0.1, "note": "a"})
    report(store, trial_id, 2, {"loss": 1.0})
    report(store, trial_id, 1, {"loss": 3.0, "f1": 0.5, "note": "b"})
    assert curve(store, trial_id) == {1: 3.0, 2: 1.0}
    found = store.read_sync(lambda s: curves.summaries(s, trial_id))[T]
    assert set(found) == {"loss", "acc", "f1"}
    loss = found["loss"]
    assert (loss.count, loss.min, loss.max, loss.mean, loss.last) == (2, 1.0, 3.0, 2.0, 1.0)
    assert [v["value"] for v in store.read_sync(lambda s: curves.values(s, trial_id))] == ["b"]


def test_a_late_step_does_not_become_the_last(store: Store, trial_id: int) -> None:
    report(store, trial_id, 5, {"loss": 5.0})
    report(store, trial_id, 3, {"loss": 3.0})
    summary = store.read_sync(lambda s: curves.summaries(s, trial_id))[T]["loss"]
    assert (summary.last, summary.last_step, summary.count, summary.mean) == (5.0, 5, 2, 4.0)
    assert list(curve(store, trial_id)) == [3, 5]


def test_huge_values_that_are_replaced_do_not_break_the_sum(store: Store, trial_id: int) -> None:
    big = 1.7e308
    for step in range(6):
        report(store, trial_id, step, {"loss": big})
    for step in range(6):
        report(store, trial_id, step, {"loss": 2.0})
    summary = store.read_sync(lambda s: curves.summaries(s, trial_id))[T]["loss"]
    assert (summary.mean, summary.min, summary.max) == (2.0, 2.0, 2.0)


def test_the_least_floats_do_not_break_the_recount(store: Store, trial_id: int) -> None:
    report(store, trial_id, 1, {"loss": 5e-324})
    report(store, trial_id, 1, {"loss": -5e-324})
    assert curve(store, trial_id) == {1: -5e-324}


# --- superseding ----------------------------------------------------------------------------------------------


def test_a_resumed_run_supersedes_what_lies_beyond_its_checkpoint(store: Store, trial_id: int) -> None:
    for step in range(1, 9):
        report(store, trial_id, step, {"loss": float(step), "note": f"first {step}"})
    report(store, trial_id, 8, {"only_late": 1.0})
    report(store, trial_id, 5, {"loss": 50.0}, run=2, resume_step=4)
    assert curve(store, trial_id) == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 5: 50.0}
    summary = store.read_sync(lambda s: curves.summaries(s, trial_id))[T]
    assert set(summary) == {"loss"}
    assert (summary["loss"].count, summary["loss"].max, summary["loss"].last_step) == (5, 50.0, 5)
    notes = store.read_sync(lambda s: curves.values(s, trial_id))
    assert [v["steps_completed"] for v in notes] == [1, 2, 3, 4]


def test_a_resumed_run_reports_other_groups_where_the_first_had(store: Store, trial_id: int) -> None:
    """As the profiler does: system metrics at the step of the checkpoint, and again at it, from both runs."""

    def both(run: int, step: int, cpu: float) -> None:
        said = [
            curves.ReportedMetrics(T, step, 0.0, {"loss": float(step)}),
            curves.ReportedMetrics("cpu", step, 0.0, {"util": cpu}),
        ]
        store.write_sync(lambda s: curves.insert_reports(s, trial_id, run, said, resume_step=4 if run > 1 else None))

    for run, step, cpu in [(1, 2, 20.0), (1, 4, 40.0), (1, 6, 60.0)]:
        both(run, step, cpu)
    store.write_sync(lambda s: curves.insert_report(s, trial_id, 2, "cpu", 4, 0.0, {"util": 41.0}, resume_step=4))
    both(2, 5, 50.0)
    assert curve(store, trial_id) == {2: 2.0, 4: 4.0, 5: 5.0}
    (cpu,) = store.read_sync(lambda s: curves.series(s, [trial_id], "cpu", ["util"]))
    assert dict(zip(cpu.steps, cpu.values, strict=True)) == {2: 20.0, 4: 41.0, 5: 50.0}


def test_a_run_from_scratch_supersedes_all(store: Store, trial_id: int) -> None:
    for step in range(4):
        report(store, trial_id, step, {"loss": float(step)})
    report(store, trial_id, 1, {"loss": 7.0}, run=2, resume_step=None)
    assert curve(store, trial_id) == {1: 7.0}


def test_superseding_happens_once_per_run(store: Store, trial_id: int) -> None:
    report(store, trial_id, 1, {"loss": 1.0})
    for step in (3, 4, 5):
        report(store, trial_id, step, {"loss": float(step)}, run=3, resume_step=1)
    assert list(curve(store, trial_id)) == [1, 3, 4, 5]


def test_an_older_run_cannot_report_any_more(store: Store, trial_id: int) -> None:
    report(store, trial_id, 1, {"loss": 1.0}, run=2)
    with pytest.raises(StaleAttempt):
        report(store, trial_id, 2, {"loss": 1.0}, run=1)
    assert list(curve(store, trial_id)) == [1]


def test_other_trials_are_not_superseded(store: Store, new_trial: Callable[[], int]) -> None:
    one, two = new_trial(), new_trial()
    report(store, one, 5, {"loss": 1.0})
    report(store, two, 5, {"loss": 1.0})
    report(store, one, 1, {"loss": 1.0}, run=2)
    assert list(curve(store, two)) == [5]


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "step", "values", "code"),
    [
        ("", 1, {}, "report.group"),
        ("a.b", 1, {}, "report.group"),
        ("g" * 129, 1, {}, "report.group"),
        (T, -1, {}, "report.step"),
        (T, 2**53 + 1, {}, "report.step"),
        (T, 1, {"": 1}, "report.name"),
        (T, 1, {"n" * 513: 1}, "report.name"),
        (T, 1, {"x": "y" * 256_000}, "report.too_large"),
        (T, 1, {str(i): 1 for i in range(20_001)}, "report.too_large"),
    ],
)
def test_what_can_never_be_stored_is_refused_and_leaves_nothing(
    store: Store, trial_id: int, group: str, step: int, values: dict[str, Any], code: str
) -> None:
    with pytest.raises(BadReport) as caught:
        store.write_sync(lambda s: curves.insert_report(s, trial_id, 1, group, step, 0.0, {"good": 1.0, **values}))
    assert caught.value.code == code
    assert store.read_sync(lambda s: s.scalar(select(func.count()).select_from(MetricSeries))) == 0
    assert store.healthy


def test_the_largest_things_allowed_are_stored(store: Store, trial_id: int) -> None:
    blob = "y" * (256_000 - 2)
    assert len(json.dumps(blob)) == 256_000
    long_name = "é" * 512
    store.write_sync(lambda s: curves.insert_report(s, trial_id, 1, "g" * 128, 2**53, 0.0, {"x": blob, long_name: 1}))
    assert store.read_sync(lambda s: curves.values(s, trial_id))[0]["value"] == blob


def test_an_unknown_trial_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        report(store, 4711, 1, {"loss": 1.0})


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "a'b\"c", "%s %(x)s {0}", "\x00\ud800", "名前"])
def test_hostile_names_are_text(store: Store, trial_id: int, name: str) -> None:
    report(store, trial_id, 1, {name: 1.0})
    report(store, trial_id, 2, {name: 2.0})
    assert curve(store, trial_id, name) == {1: 1.0, 2: 2.0}


# --- many -----------------------------------------------------------------------------------------------------


def test_names_are_stored_once(store: Store, new_trial: Callable[[], int]) -> None:
    for trial_id in [new_trial() for _ in range(5)]:
        report(store, trial_id, 1, {"loss": 1.0, "note": "x"})
    assert store.read_sync(lambda s: s.scalar(select(func.count()).select_from(MetricName))) == 2


@pytest.mark.soak
def test_twelve_thousand_names_in_one_report(store: Store, trial_id: int, experiment_id: int) -> None:
    names = {f"layer/{index:05d}": float(index) for index in range(12_000)}
    report(store, trial_id, 1, names)
    report(store, trial_id, 2, names)
    assert len(store.read_sync(lambda s: curves.summaries(s, trial_id))[T]) == 12_000
    first = store.read_sync(lambda s: curves.names(s, experiment_id, limit=1000))
    second = store.read_sync(lambda s: curves.names(s, experiment_id, after=first[-1], limit=1000))
    assert first[-1] == (T, "layer/00999")
    assert second[0] == (T, "layer/01000")
    found = store.read_sync(lambda s: curves.names(s, experiment_id, contains="LAYER/0123"))
    assert len(found) == 10
    assert curve(store, trial_id, "layer/11999") == {1: 11999.0, 2: 11999.0}


def test_new_names_and_series_are_no_statement_each_on_postgresql(store: Store, trial_id: int) -> None:
    """A report of 12,000 new names was 12,000 questions and answers, and held the writer for most of a minute."""
    statements: list[str] = []
    names = {f"layer/{index:05d}": float(index) for index in range(300)}

    def work(s: Any) -> None:
        event.listen(s.connection(), "before_cursor_execute", lambda *args: statements.append(args[2]))
        curves.insert_report(s, trial_id, 1, T, 1, 1.0, {**names, "loss": math.nan})
        if s.get_bind().dialect.name == "postgresql":
            assert len(statements) < 12, statements

    store.write_sync(work)
    report(store, trial_id, 2, {**names, "new": 7.0})
    assert curve(store, trial_id, "layer/00299") == {1: 299.0, 2: 299.0}
    assert curve(store, trial_id, "new") == {2: 7.0}
    assert math.isnan(curve(store, trial_id)[1])
    assert store.read_sync(lambda s: curves.summaries(s, trial_id))[T]["layer/00007"].count == 2


def big_series(store: Store, trial_id: int, size: int) -> list[float]:
    values = [math.sin(step / 700) for step in range(size)]
    values[size // 3] = 40.0
    values[size // 2] = -40.0
    values[size // 5] = math.nan
    for begin in range(0, size, 5000):
        batch = [
            curves.ReportedMetrics(T, step, 0.0, {"loss": values[step]})
            for step in range(begin, min(begin + 5000, size))
        ]
        store.write_sync(lambda s, batch=batch: curves.insert_reports(s, trial_id, 1, batch))
    return values


def test_a_long_series_is_read_through_its_rollups(store: Store, trial_id: int) -> None:
    size = 20_000
    values = big_series(store, trial_id, size)
    found = store.read_sync(lambda s: curves.series(s, [trial_id], T, ["loss"], 50))[0]
    assert found.total == size
    assert len(found.steps) <= 50
    assert found.steps == sorted(set(found.steps))
    assert {0, size // 3, size // 2, size - 1} <= set(found.steps)
    assert any(map(math.isnan, found.values))
    for step, value in zip(found.steps, found.values, strict=True):
        assert value == values[step] or (math.isnan(value) and math.isnan(values[step]))
    covered = store.read_sync(lambda s: s.scalar(select(func.sum(Rollup.count))))
    assert covered is not None
    assert size - 2 * rollups.CHUNK < covered <= size - rollups.CHUNK


def test_a_change_deep_in_a_long_series_reaches_its_rollups(store: Store, trial_id: int) -> None:
    size = 20_000
    big_series(store, trial_id, size)
    report(store, trial_id, size // 3, {"loss": 0.5})
    report(store, trial_id, 777, {"loss": 99.0})
    found = store.read_sync(lambda s: curves.series(s, [trial_id], T, ["loss"], 50))[0]
    assert 777 in found.steps
    assert max(v for v in found.values if not math.isnan(v)) == 99.0
    assert size // 3 not in found.steps
    # The rollups that were cut are made again as the trial goes on.
    for step in range(size, size + 3):
        report(store, trial_id, step, {"loss": 0.0})
    covered = store.read_sync(lambda s: s.scalar(select(func.sum(Rollup.count))))
    assert covered is not None
    assert covered > rollups.CHUNK * rollups.BATCH
    row = store.read_sync(lambda s: s.scalars(select(MetricSeries)).one())
    stored = store.read_sync(lambda s: s.scalar(select(func.count()).select_from(MetricPoint)))
    assert row.unrolled + covered == stored == row.count


def test_the_best_of_a_trial_that_has_diverged_is_that_of_its_numbers(
    store: Store, experiment_id: int, new_trial: Callable[[], int]
) -> None:
    one, two, three, four = (new_trial() for _ in range(4))
    for step, value in enumerate([-math.inf, 2.0, 0.5, 0.5, math.inf, math.nan, -math.inf]):
        report(store, one, step, {"loss": value})
    report(store, two, 0, {"loss": 1.0})
    for step, value in enumerate([-math.inf, math.inf]):
        report(store, three, step, {"loss": value})
    report(store, four, 0, {"loss": -math.inf})
    read = store.read_sync
    assert read(lambda s: curves.trial_best(s, one, T, "loss", True)) == (2, 0.5)
    assert read(lambda s: curves.trial_best(s, one, T, "loss", False)) == (1, 2.0)
    assert read(lambda s: curves.trial_best(s, three, T, "loss", True)) == (1, math.inf)
    assert read(lambda s: curves.trial_best(s, four, T, "loss", True)) is None
    assert read(lambda s: curves.experiment_best(s, experiment_id, T, "loss", True)) == (one, 2, 0.5)
    assert read(lambda s: curves.experiment_best(s, experiment_id, T, "loss", False)) == (one, 1, 2.0)


def test_the_best_comes_from_the_summaries(store: Store, experiment_id: int, new_trial: Callable[[], int]) -> None:
    one, two, three = new_trial(), new_trial(), new_trial()
    for step, value in enumerate([3.0, 1.0, math.nan, 1.0]):
        report(store, one, step, {"loss": value})
    for step, value in enumerate([2.0, 0.5, 4.0]):
        report(store, two, step, {"loss": value})
    report(store, three, 0, {"loss": math.nan})
    read = store.read_sync
    assert read(lambda s: curves.trial_best(s, one, T, "loss", True)) == (1, 1.0)
    assert read(lambda s: curves.trial_best(s, three, T, "loss", True)) is None
    assert read(lambda s: curves.trial_best(s, three, T, "never", True)) is None
    assert read(lambda s: curves.experiment_best(s, experiment_id, T, "loss", True)) == (two, 1, 0.5)
    assert read(lambda s: curves.experiment_best(s, experiment_id, T, "loss", False)) == (two, 2, 4.0)
    assert read(lambda s: curves.experiment_best(s, experiment_id + 1, T, "loss", False)) is None
    assert read(lambda s: curves.value_at(s, two, T, "loss", 1)) == 0.5
    assert read(lambda s: curves.value_at(s, two, T, "loss", 9)) is None


def test_points_are_found_through_an_index(store: Store, trial_id: int) -> None:
    report(store, trial_id, 1, {"loss": 1.0})
    for query in (
        select(MetricPoint).where(MetricPoint.series_id == 1, MetricPoint.step > 5),
        select(MetricSeries).where(MetricSeries.trial_id == 1, MetricSeries.group_name == T, MetricSeries.name_id == 1),
        select(StructuredValue).where(StructuredValue.trial_id == 1).order_by(StructuredValue.step.desc()),
        select(TrialRow).where(TrialRow.experiment_id == 1).order_by(TrialRow.idx),
    ):
        text = str(query.compile(store._read_engine, compile_kwargs={"literal_binds": True}))
        postgres = store.url.startswith("postgresql")
        explain = f"EXPLAIN {text}" if postgres else f"EXPLAIN QUERY PLAN {text}"

        def plan(s: Any, explain: str = explain, postgres: bool = postgres) -> str:
            if postgres:
                s.connection().exec_driver_sql("SET LOCAL enable_seqscan = off")
            return "\n".join(str(tuple(row)) for row in s.connection().exec_driver_sql(explain))

        found = store.read_sync(plan)
        assert "Index" in found or "SEARCH" in found, found
        assert "Seq Scan" not in found
        assert "SCAN" not in found.replace("SEARCH", "")


def test_superseding_many_series_takes_few_statements(store: Store, trial_id: int) -> None:
    names = {f"layer/{index:04d}": float(index) for index in range(3000)}
    for step in (1, 2, 3):
        report(store, trial_id, step, {**names, "only here": 1.0} if step == 3 else names)
    statements = []

    def supersede(s: Any) -> int:
        event.listen(s.connection(), "before_cursor_execute", lambda *_: statements.append(1))
        return curves.supersede(s, trial_id, 2, 2)

    assert store.write_sync(supersede) == 3001
    assert len(statements) < 100
    found = store.read_sync(lambda s: curves.summaries(s, trial_id))[T]
    assert len(found) == 3000
    assert found["layer/0007"].count == 2
    assert found["layer/0007"].last_step == 2


def test_a_small_report_asks_the_database_few_times(store: Store, trial_id: int, db_url: str) -> None:
    store.write_sync(lambda s: curves.insert_report(s, trial_id, 1, "g", 1, 0.0, {"v": 1.0}))
    asked: list[str] = []

    def report(s: Session) -> None:
        event.listen(s.connection(), "before_cursor_execute", lambda *given: asked.append(given[2]))
        curves.insert_report(s, trial_id, 1, "g", 2, 0.0, {"v": 2.0})

    store.write_sync(report)
    # The trial; its series by the name of the metric; the point; the series with it.
    assert len(asked) == (4 if db_url.startswith("sqlite") else 3)
    series = store.read_sync(lambda s: s.scalars(select(MetricSeries)).one())
    assert (series.count, series.finite_sum, series.last_step) == (2, 3.0, 2)
    assert store.read_sync(lambda s: s.scalars(select(MetricPoint.value).order_by(MetricPoint.step)).all()) == [
        1.0,
        2.0,
    ]


def test_small_reports_one_by_one_are_rolled_up_as_in_one_call(store: Store, new_trial: Callable[[], int]) -> None:
    one, other = new_trial(), new_trial()
    reports = [curves.ReportedMetrics("g", step, 0.0, {"v": float(step % 7)}) for step in range(3 * rollups.CHUNK + 5)]
    for report in reports:
        store.write_sync(lambda s, report=report: curves.insert_reports(s, one, 1, [report]))
    store.write_sync(lambda s: curves.insert_reports(s, other, 1, reports))

    def read(s: Session, trial_id: int) -> tuple[Any, ...]:
        series = s.scalars(select(MetricSeries).where(MetricSeries.trial_id == trial_id)).one()
        kept = s.execute(
            select(Rollup.first_step, Rollup.last_step, Rollup.kept)
            .where(Rollup.series_id == series.id)
            .order_by(Rollup.first_step)
        )
        points = s.execute(
            select(MetricPoint.step, MetricPoint.value)
            .where(MetricPoint.series_id == series.id)
            .order_by(MetricPoint.step)
        )
        totals = series.count, series.finite_sum, series.last_step, series.rolled_step, series.unrolled
        return totals, [tuple(row) for row in kept], [tuple(row) for row in points]

    assert store.read_sync(lambda s: read(s, one)) == store.read_sync(lambda s: read(s, other))
