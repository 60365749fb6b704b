"""Pages of trials in the order of a metric, and with conditions on hyperparameters."""

from __future__ import annotations

import math
from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from detlab.errors import NotFound
from detlab_hub.store import Store
from detlab_hub.store.queries import trial_order
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import TrialRow
from testbed.databases.store_rows import add_experiment, add_trial

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
                curves.insert_report(s, trial_id, 1, "validation", step, 0.0, {"loss": loss, "a.b": 1.0})
            made.append(trial_id)
        return made

    return store.write_sync(make)


def places(store: Store, experiment_id: int, ids: list[int], *where: str, **more: Any) -> list[int]:
    conditions = [trial_order.HyperparameterComparison.parse(text) for text in where]
    sort = more.pop("sort", None)
    order = None if sort is None else trial_order.MetricOrder.parse(sort)
    found = store.read_sync(
        lambda s: trial_order.ids(s, experiment_id, more.pop("limit", 9), order=order, conditions=conditions, **more)
    )
    return [ids.index(key) for key in found]


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
        ("lr!=1", [0, 1, 3, 4]),
        ("act!=relu", [1, 4]),
        ("nesterov!=true", [1, 2, 3, 4]),
        ("no such!=1", [0, 1, 2, 3, 4]),
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


@pytest.mark.parametrize("sort", ["validation.loss", "-validation.loss"])
@pytest.mark.parametrize("limit", [1, 2, 3, 40])
def test_pages_are_whole_wherever_in_the_order_the_trials_lie_that_fit(
    store: Store, experiment_id: int, sort: str, limit: int
) -> None:
    """Conditions are tried on the first few in the order first; ties in the order must not lose or double any."""
    fits = [place % 7 == 5 or 20 <= place < 28 for place in range(40)]

    def make(s: Any) -> list[int]:
        made = []
        for place, fit in enumerate(fits):
            trial_id = add_trial(s, experiment_id)
            s.get_one(TrialRow, trial_id).hparams = {"lr": 0.01 if fit else 0.1}
            curves.insert_report(s, trial_id, 1, "validation", 1, 0.0, {"loss": float(place // 3)})
            made.append(trial_id)
        return made

    ids = store.write_sync(make)
    better = sorted(range(40), key=lambda place: (-(place // 3) if sort.startswith("-") else place // 3, place))
    found: list[int] = []
    while page := places(
        store, experiment_id, ids, "lr<=0.01", sort=sort, limit=limit, after=ids[found[-1]] if found else None
    ):
        assert len(page) == min(limit, sum(fits) - len(found))
        found += page
    assert found == [place for place in better if fits[place]]


@pytest.mark.parametrize("sort", [None, "validation.loss", "-validation.loss"])
def test_a_page_never_begins_at_a_trial_of_somebody_elses_experiment(
    store: Store, experiment_id: int, ids: list[int], sort: str | None
) -> None:
    """How many of one's own trials lie beyond it would tell what it reported."""

    def make(s: Any) -> int:
        trial_id = add_trial(s, add_experiment(s, "eve", "secret"))
        curves.insert_report(s, trial_id, 1, "validation", 1, 0.0, {"loss": 2.5})
        return trial_id

    secret = store.write_sync(make)
    said = []
    for after in (secret, 10**6):
        with pytest.raises(NotFound) as caught:
            places(store, experiment_id, ids, sort=sort, after=after)
        said.append(str(caught.value).replace(str(after), "N"))
    assert said[0] == said[1], "not even whether there is such a trial"


@pytest.mark.parametrize("text", ["a\0b<1", "lr=0.1\0", "a\nb=1", "lr=x\x7f", "lr=\t1"])
def test_a_condition_with_control_characters_is_none(text: str) -> None:
    assert TypeAdapter(Annotated[str, Field(pattern=trial_order.CONDITION)]).validate_python("lr=1") == "lr=1"
    with pytest.raises(ValidationError):  # what the address is checked with: 422
        TypeAdapter(Annotated[str, Field(pattern=trial_order.CONDITION)]).validate_python(text)
    with pytest.raises(ValueError, match="is not a condition"):
        trial_order.HyperparameterComparison.parse(text)


@pytest.mark.parametrize(
    ("where", "expected"), [("a\\b=1", [0]), ("a\\=2", [0]), ("lé=3", [0]), ("a=1", []), ("x.c\\d=\\", [0])]
)
def test_names_with_a_backslash_are_the_same_on_either_database(
    store: Store, experiment_id: int, where: str, expected: list[int]
) -> None:
    def make(s: Any) -> int:
        trial_id = add_trial(s, experiment_id)
        s.get_one(TrialRow, trial_id).hparams = {"a\\b": 1, "a\\": 2, "lé": 3, "x": {"c\\d": "\\"}}
        return trial_id

    assert places(store, experiment_id, [store.write_sync(make)], where) == expected
