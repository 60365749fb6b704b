"""Points that were just written are remembered for their rollups, and believed only while they are so."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from detlab_hub.store import Store
from detlab_hub.store.queries.metrics.newest import NewestPoints
from detlab_hub.store.queries.metrics.reports import ReportedMetrics, insert_reports
from detlab_hub.store.queries.metrics.series_rows import SeriesLine
from detlab_hub.store.tables import Rollup
from testbed.databases.store_rows import DEAD, add_experiment, add_trial


def grow(store: Store, trial_id: int, steps: range, sign: float = 1.0) -> None:
    said = [ReportedMetrics("training", step, 0.0, {"loss": sign * step}) for step in steps]
    store.write_sync(lambda s: insert_reports(s, trial_id, 1, said))


def rolled_up(store: Store) -> list[Any]:
    return store.read_sync(lambda s: [row.kept for row in s.scalars(select(Rollup).order_by(Rollup.first_step))])


def test_points_that_were_just_written_are_not_read_back(store: Store, trial_id: int) -> None:
    grow(store, trial_id, range(200))
    statements: list[str] = []

    def work(s: Session) -> None:
        event.listen(s.connection(), "before_cursor_execute", lambda *args: statements.append(args[2]))
        insert_reports(
            s, trial_id, 1, [ReportedMetrics("training", step, 0.0, {"loss": float(step)}) for step in range(200, 400)]
        )

    store.write_sync(work)
    assert statements
    assert not [text for text in statements if "FROM points" in text]
    assert [[point[0] for point in kept] for kept in rolled_up(store)] == [[0, 127], [128, 255]]


def test_points_of_a_write_that_was_undone_are_in_no_rollup(store: Store, trial_id: int) -> None:
    """What a failed transaction leaves in memory has the same steps as what comes in its place."""
    grow(store, trial_id, range(100))

    def fails(s: Session) -> None:
        insert_reports(
            s, trial_id, 1, [ReportedMetrics("training", step, 0.0, {"loss": 1e6}) for step in range(100, 200)]
        )
        raise RuntimeError("after its points")

    with pytest.raises(RuntimeError, match="after its points"):
        store.write_sync(fails)
    grow(store, trial_id, range(100, 200))
    grow(store, trial_id, range(200, 400))
    assert [[point[1] for point in kept] for kept in rolled_up(store)] == [[0.0, 127.0], [128.0, 255.0]]


def test_a_point_that_was_replaced_is_not_rolled_up_as_it_was(store: Store, trial_id: int) -> None:
    grow(store, trial_id, range(200))
    grow(store, trial_id, range(50, 51), -1.0)
    grow(store, trial_id, range(200, 260))
    assert [[point[1] for point in kept] for kept in rolled_up(store)] == [[0.0, -50.0, 127.0]]


def test_a_series_of_another_life_is_read_once_and_known_from_then_on(db_url: str) -> None:
    with closing(Store.open(db_url, holder="first", process=DEAD)) as first:
        trial_id = first.write_sync(lambda s: add_trial(s, add_experiment(s)))
        grow(first, trial_id, range(200))
    with closing(Store.open(db_url, holder="second", process=DEAD)) as second:
        for begin in range(200, 1000, 100):
            grow(second, trial_id, range(begin, begin + 100))
        assert [[point[1] for point in kept] for kept in rolled_up(second)] == [
            [float(begin), float(begin + 127)] for begin in range(0, 1000 - 128 - 127, 128)
        ]


def test_what_is_remembered_has_a_bound() -> None:
    newest = NewestPoints(most=1000)
    series = [SeriesLine(number, 1, "training", 1) for number in range(50)]
    for one in series:
        one.count, one.last_step = 100, 99
        newest.appended((0, None), one, [(one.id, step, 1, 0.0, 0, 0.0) for step in range(100)])
    known = [one.id for one in series if newest.of(one) is not None]
    assert known == [41, 42, 43, 44, 45, 46, 47, 48, 49]
    series[49].count += 1
    assert newest.of(series[49]) is None
