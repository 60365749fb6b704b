"""Rows that are appended as each database takes them fastest: exact, all or none, and part of the transaction."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from detlab_hub.store import Store, StoreBroken
from detlab_hub.store.queries import events
from detlab_hub.store.queries.appending import BLOCK, COPY_FROM, PointRow, append_points
from detlab_hub.store.queries.metrics.reports import ReportedMetrics, insert_report, insert_reports
from detlab_hub.store.tables import MetricPoint, MetricSeries
from testbed.databases import postgres
from testbed.databases.store_rows import add_experiment, add_trial

MANY = COPY_FROM + 5
VALUES = [
    *(5e-324, -5e-324, 1e-310, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308),
    *(0.0, -0.0, 0.1 + 0.2, 1e22, 123456789.123456789, -1 / 3, math.nan, math.inf, -math.inf),
    *(math.sin(number) * 10.0 ** (number % 600 - 300) for number in range(400)),
]


def count(store: Store) -> int:
    return store.read_sync(lambda s: s.scalar(select(func.count()).select_from(MetricPoint)) or 0)


@pytest.fixture
def series_id(store: Store, trial_id: int) -> int:
    """A series with points at the steps 0, 1, 2, …"""
    reports = [ReportedMetrics("g", step, 0.0, {"v": 1.0}) for step in range(MANY)]
    store.write_sync(lambda s: insert_reports(s, trial_id, 1, reports))
    return store.read_sync(lambda s: s.scalars(select(MetricSeries.id)).one())


def rows(series_id: int, first: int) -> list[PointRow]:
    return [(series_id, first + number, 1, 1.0, 0, 0.0) for number in range(MANY)]


def test_every_number_comes_back_as_it_was_appended(store: Store, trial_id: int) -> None:
    reports = [ReportedMetrics("g", step, 1e9 + step / 7, {"v": value}) for step, value in enumerate(VALUES)]
    for _ in range(2):  # again: as a launcher that never heard the answer
        store.write_sync(lambda s: insert_reports(s, trial_id, 1, reports))
        found = store.read_sync(
            lambda s: s.execute(
                select(MetricPoint.value, MetricPoint.flag, MetricPoint.time).order_by(MetricPoint.step)
            ).all()
        )
        flags = [0 if math.isfinite(value) else 1 if math.isnan(value) else 2 if value > 0 else 3 for value in VALUES]
        wanted = [
            (repr(value) if math.isfinite(value) else "None", flag, 1e9 + step / 7)
            for step, (value, flag) in enumerate(zip(VALUES, flags, strict=True))
        ]
        if store.url.startswith("sqlite"):  # it keeps a whole number as an integer, which has no sign when it is zero
            wanted[VALUES.index(-0.0) + 1] = ("0.0", 0, wanted[VALUES.index(-0.0) + 1][2])
        assert [(repr(value), flag, time) for value, flag, time in found] == wanted
        series = store.read_sync(lambda s: s.scalars(select(MetricSeries)).one())
        assert (series.count, series.nan_count, series.last_step) == (len(VALUES), 1, len(VALUES) - 1)


def test_a_point_that_exists_is_the_callers_mistake_and_nothing_of_it_is_kept(store: Store, series_id: int) -> None:
    before = count(store)
    with pytest.raises(IntegrityError):
        store.write_sync(lambda s: append_points(s, rows(series_id, MANY - 1)))
    assert store.healthy
    assert count(store) == before
    store.write_sync(lambda s: append_points(s, rows(series_id, MANY)))
    assert count(store) == before + MANY


def test_a_savepoint_takes_back_what_was_appended_in_it_and_no_more(store: Store, series_id: int) -> None:
    def write(s: Any) -> None:
        append_points(s, rows(series_id, 1000))
        with pytest.raises(IntegrityError), s.begin_nested():  # noqa: PT012  (the first of the two is taken back)
            append_points(s, rows(series_id, 2000))
            append_points(s, rows(series_id, 0))
        append_points(s, rows(series_id, 3000))

    before = count(store)
    store.write_sync(write)
    assert count(store) == before + 2 * MANY
    assert store.read_sync(lambda s: s.scalar(select(func.count()).where(MetricPoint.step.between(2000, 2999)))) == 0


@pytest.mark.parametrize("kept", [True, False])
def test_reports_around_a_savepoint_know_what_became_of_it(store: Store, trial_id: int, kept: bool) -> None:
    def write(s: Any) -> None:
        insert_report(s, trial_id, 1, "g", 1, 0.0, {"v": 1.0})
        with suppress(LookupError), s.begin_nested():
            insert_report(s, trial_id, 1, "g", 2, 0.0, {"v": 2.0, "new": 2.0})
            if not kept:
                raise LookupError
        insert_report(s, trial_id, 1, "g", 3, 0.0, {"v": 4.0, "new": 4.0})

    store.write_sync(write)
    found = store.read_sync(
        lambda s: s.execute(select(MetricSeries.count, MetricSeries.finite_sum).order_by(MetricSeries.count)).all()
    )
    assert [tuple(row) for row in found] == ([(2, 6.0), (3, 7.0)] if kept else [(1, 4.0), (2, 5.0)])
    stored = store.read_sync(lambda s: s.scalar(select(func.sum(MetricPoint.value))))
    assert stored == (13.0 if kept else 9.0)


@pytest.mark.parametrize("size", [1, COPY_FROM - 1, COPY_FROM, BLOCK - 1, BLOCK, 2 * BLOCK + 7])
def test_events_come_back_as_they_were_and_in_their_order(store: Store, size: int) -> None:
    names = ["plain", "a\tb\nc\\N\r", "\\.", "a\x00b", "\ud800", "\N{SNOWMAN}", ""]
    data = [{"number": number, names[number % 7]: number / 3, "nothing": None} for number in range(size)]
    rows = [events.new("trial", number / 7, None, number or None, one) for number, one in enumerate(data)]
    store.write_sync(lambda s: events.append_all(s, rows))
    found = store.read_sync(lambda s: events.after(s, 0))
    assert [event.data for event in found] == data
    assert [(event.time, event.trial_id, event.experiment_id) for event in found] == [
        (number / 7, number or None, None) for number in range(size)
    ]
    assert sorted({event.id for event in found}) == [event.id for event in found]


@pytest.mark.parametrize("size", [COPY_FROM, BLOCK, 3 * BLOCK + COPY_FROM + 1])
def test_points_of_every_number_of_rows_are_all_there(store: Store, series_id: int, size: int) -> None:
    steps = range(1000, 1000 + size)
    points: list[PointRow] = [
        (series_id, step, 1, None if step % 3 == 0 else step / 7, int(step % 3 == 0), step / 11) for step in steps
    ]
    store.write_sync(lambda s: append_points(s, points))
    columns = (
        MetricPoint.series_id,
        MetricPoint.step,
        MetricPoint.run,
        MetricPoint.value,
        MetricPoint.flag,
        MetricPoint.time,
    )
    query = select(*columns).where(MetricPoint.step >= 1000).order_by(MetricPoint.step)
    assert [tuple(row) for row in store.read_sync(lambda s: s.execute(query).all())] == points


@pytest.mark.postgres
def test_a_connection_that_is_cut_before_a_copy_stops_the_store(
    postgres_server: postgres.Server, migrated_postgres: str
) -> None:
    def write(s: Any) -> None:
        trial_id = add_trial(s, add_experiment(s))
        insert_report(s, trial_id, 1, "g", 0, 0.0, {"v": 1.0})
        series_id = s.scalars(select(MetricSeries.id)).one()
        process = s.scalar(text("SELECT pg_backend_pid()"))
        postgres_server.sql(f"SELECT pg_terminate_backend({process}, 10000)")  # returns when it has ended
        append_points(s, rows(series_id, 1))

    with postgres_server.database("detlab_cut_before_a_copy", migrated_postgres) as url:
        store = Store.open(url, holder="test")
        with pytest.raises(StoreBroken) as caught:
            store.write_sync(write)
        cause = caught.value.__cause__
        assert isinstance(cause, DBAPIError)
        assert str(cause.statement).startswith("COPY points")
        assert cause.connection_invalidated
        assert not store.healthy
        with pytest.raises(StoreBroken):
            store.write_sync(lambda s: None)
        assert count(store) == 0
        store.close()
