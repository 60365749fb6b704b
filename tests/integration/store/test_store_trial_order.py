"""Pages of trials in the order of a metric, and with conditions on hyperparameters."""

from __future__ import annotations

import math
from typing import Any

import pytest

from detlab_hub.store import Store
from detlab_hub.store.queries import metrics, trial_order
from detlab_hub.store.tables import TrialRow
from testbed.store_rows import add_trial

HPARAMS: list[dict[str, Any]] = [
    {"lr": 0.1, "act": "relu", "opt": {"name": "adam"}, "nesterov": True},
    {"lr": 0.01, "act": "gelu", "opt": {"name": "sgd"}, "nesterov": False},
    {"lr": 1, "act": "relu", "opt": {"name": "adam"}},
    {"lr": "auto", "act": "relu", "opt": {"name": "it's"}},
    {},
]
LOSSES = [[3.0, 2.0], [math.nan, 1.0], [2.0, 5.0], [math.nan], []]


@pytest.fixture
def ids(store: Store, experiment_id: int) -> list[int]:
    def make(s: Any) -> list[int]:
        made = []
        for hparams, losses in zip(HPARAMS, LOSSES, strict=True):
            trial_id = add_trial(s, experiment_id)
            s.get_one(TrialRow, trial_id).hparams = hparams
            for step, loss in enumerate(losses):
                metrics.insert_report(s, trial_id, 1, "validation", step, 0.0, {"loss": loss, "a.b": 1.0})
            made.append(trial_id)
        return made

    return store.write_sync(make)


def places(store: Store, experiment_id: int, ids: list[int], *where: str, **more: Any) -> list[int]:
    conditions = [trial_order.Condition.parse(text) for text in where]
    sort = more.pop("sort", None)
    order = None if sort is None else trial_order.Order.parse(sort)
    rows = store.read_sync(
        lambda s: trial_order.page(s, experiment_id, more.pop("limit", 9), order=order, conditions=conditions, **more)
    )
    return [ids.index(row.id) for row in rows]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (None, [0, 1, 2, 3, 4]),
        ("validation.loss", [1, 0, 2]),
        ("-validation.loss", [2, 0, 1]),
        ("validation.a.b", [0, 1, 2, 3]),
        ("training.loss", []),
        ("validation.unknown", []),
    ],
)
def test_trials_come_in_the_order_of_a_metric(
    store: Store, experiment_id: int, ids: list[int], sort: str | None, expected: list[int]
) -> None:
    assert places(store, experiment_id, ids, sort=sort) == expected
    paged: list[int] = []
    while page := places(store, experiment_id, ids, sort=sort, limit=1, after=ids[paged[-1]] if paged else None):
        paged += page
    assert paged == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("lr<=0.1", [0, 1]),
        ("lr>0.01", [0, 2]),
        ("lr=1", [2]),
        ("lr!=1", [0, 1]),
        ("lr=auto", [3]),
        ("act=relu", [0, 2, 3]),
        ("opt.name=adam", [0, 2]),
        ("opt.name=it's", [3]),
        ("nesterov=true", [0]),
        ("nesterov=false", [1]),
        ("no such=1", []),
        ("lr=' OR 1=1 --", []),
    ],
)
def test_trials_are_chosen_by_a_hyperparameter(
    store: Store, experiment_id: int, ids: list[int], where: str, expected: list[int]
) -> None:
    assert places(store, experiment_id, ids, where) == expected


def test_all_conditions_hold_and_the_order_too(store: Store, experiment_id: int, ids: list[int]) -> None:
    assert places(store, experiment_id, ids, "act=relu", "lr<5", sort="-validation.loss") == [2, 0]
