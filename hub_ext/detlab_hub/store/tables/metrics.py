"""Tables of trials' reports.

Sized for 10 million points, 12,000 metric names and 10,000 trials: a name is stored once, a series row holds the
summary that lists and tables show (so these never touch points), and a point is a narrow row whose key is
(series, step), which is also the order in which curves are read. On SQLite the points table is that index
(WITHOUT ROWID). Points have no foreign key: they are only written through their series, and a check per
row would double the cost of PostgreSQL's inserts.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, ForeignKey, Index, SmallInteger, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class MetricName(Base):
    """A metric name, stored once."""

    __tablename__ = "metric_names"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(CleanText, unique=True)


class ExperimentMetric(Base):
    """The scalar metrics of an experiment: the list of names without a scan of its series."""

    __tablename__ = "experiment_metrics"
    __table_args__ = ({"sqlite_with_rowid": False},)

    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id"), primary_key=True)
    group_name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    name_id: Mapped[int] = mapped_column(ForeignKey("metric_names.id"), primary_key=True)


class MetricSeries(Base):
    """One scalar metric of one trial, with its running summary.

    `count` counts every point, NaN and infinite ones included; `finite_sum` sums the finite ones; `min` and `max`
    are over all that is not NaN. `last` is the value at the greatest step, with `last_flag` as in `MetricPoint`.
    """

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("trial_id", "group_name", "name_id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id"))
    group_name: Mapped[str] = mapped_column(CleanText)
    name_id: Mapped[int] = mapped_column(ForeignKey("metric_names.id"))
    count: Mapped[int] = mapped_column(BigInteger, default=0)
    nan_count: Mapped[int] = mapped_column(BigInteger, default=0)
    posinf_count: Mapped[int] = mapped_column(BigInteger, default=0)
    neginf_count: Mapped[int] = mapped_column(BigInteger, default=0)
    finite_sum: Mapped[float] = mapped_column(Double, default=0.0)
    min: Mapped[float | None] = mapped_column(Double, default=None)
    max: Mapped[float | None] = mapped_column(Double, default=None)
    last: Mapped[float | None] = mapped_column(Double, default=None)
    last_flag: Mapped[int] = mapped_column(SmallInteger, default=0)
    last_step: Mapped[int | None] = mapped_column(BigInteger, default=None)
    rolled_step: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """Points up to this step are also in `rollups`; None = none are."""
    unrolled: Mapped[int] = mapped_column(BigInteger, default=0)
    """How many points lie beyond `rolled_step`."""


class MetricPoint(Base):
    """One value. `flag`: 0 finite (in `value`), 1 NaN, 2 +infinity, 3 -infinity (then `value` is NULL)."""

    __tablename__ = "points"
    __table_args__ = ({"sqlite_with_rowid": False},)

    series_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    run: Mapped[int]
    value: Mapped[float | None] = mapped_column(Double)
    flag: Mapped[int] = mapped_column(SmallInteger, default=0)
    time: Mapped[float] = mapped_column(Double)


class Rollup(Base):
    """The extremes of a few hundred consecutive points, so that a curve of millions reads thousands of rows."""

    __tablename__ = "rollups"
    __table_args__ = ({"sqlite_with_rowid": False},)

    series_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    first_step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    last_step: Mapped[int] = mapped_column(BigInteger)
    count: Mapped[int]
    kept: Mapped[list[list[Any]]] = mapped_column(Json)
    """The first, least, greatest and first NaN point, in step order: [step, value, flag, time] each."""


class StructuredValue(Base):
    """A reported value that is not a number: confusion matrix, histogram, text (any JSON up to 256 kB)."""

    __tablename__ = "structured_values"
    __table_args__ = (
        UniqueConstraint("trial_id", "group_name", "name_id", "step"),
        Index(None, "trial_id", "step"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id"))
    group_name: Mapped[str] = mapped_column(CleanText)
    name_id: Mapped[int] = mapped_column(ForeignKey("metric_names.id"))
    step: Mapped[int] = mapped_column(BigInteger)
    run: Mapped[int]
    time: Mapped[float] = mapped_column(Double)
    value: Mapped[Any] = mapped_column(Json, nullable=True)
