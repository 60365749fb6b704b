"""A wrong name or type of a block keeps no other mistake of it for a second round."""

from __future__ import annotations

from typing import Any

import pytest
from schemas_problems import GOOD, errors, hints

from detlab.schemas.expconf.blocks import searchers, stopping, storage


def test_the_errors_beside_a_wrong_searcher_name_are_said_with_it() -> None:
    block = {"name": "randm", "metrik": "loss", "max_trials": -3, "smaller_is_better": "maybe",
             "budget": {"slot_hors": 2}}  # fmt: skip
    assert errors({**GOOD, "searcher": block}, complete=True) == {
        "searcher.name": errors({"searcher": {"name": "randm"}})["searcher.name"],
        "searcher.metrik": "unknown key",
        "searcher.max_trials": "must be at least 1, not -3",
        "searcher.smaller_is_better": "must be true or false, not the text 'maybe'",
        "searcher.budget.slot_hors": "unknown key",
        "searcher.metric": "is required",
    }
    assert hints({"searcher": block})["searcher.metrik"] == "did you mean `metric`?"


@pytest.mark.parametrize(
    ("raw", "paths"),
    [
        ({"searcher": {"name": "sync_halving", "metric": 3, "divisor": 0}}, {"name", "metric", "divisor"}),
        ({"checkpoint_storage": {"type": "s4", "bucket": [], "save_trial_best": -1}},
         {"type", "bucket", "save_trial_best"}),
        ({"stopping": [{"name": "meddian", "min_trials": "x", "wurmup": 3}]}, {"name", "min_trials", "wurmup"}),
        ({"stopping": [{"patience": "x"}]}, {"name", "patience"}),
        ({"hyperparameters": {"a": {"type": "intt", "minval": "x", "maxval": 1, "foo": 3}}}, {"", "minval", "foo"}),
        ({"hyperparameters": {"a": {"type": [3], "minval": 1, "maxval": "y"}}}, {"", "maxval"}),
    ],
)  # fmt: skip
def test_of_every_block_that_has_a_name_or_a_type(raw: dict[str, Any], paths: set[str]) -> None:
    found = errors({**GOOD, **raw})
    place = {"searcher": "searcher", "checkpoint_storage": "checkpoint_storage", "stopping": "stopping[0]",
             "hyperparameters": "hyperparameters.a"}[next(iter(raw))]  # fmt: skip
    assert set(found) == {f"{place}.{path}".rstrip(".") for path in paths}


def test_a_label_of_ten_thousand_characters_is_refused_by_its_place_and_not_repeated() -> None:
    found = errors({**GOOD, "labels": ["fine", "x" * 10_000]})
    assert found == {"labels[1]": "has 10,000 characters; a label may have 200"}


@pytest.mark.parametrize("name", ["mine_of_a_plugin", 7, ["random"], "x" * 10_000])
def test_a_name_that_resembles_none_makes_no_key_unknown(name: object) -> None:
    """It may be that of a method which only the master has."""
    assert set(errors({**GOOD, "searcher": {"name": name, "metric": "loss", "own_key": 3}})) == {"searcher.name"}


@pytest.mark.parametrize("models", [searchers.BUILT_IN, stopping.BUILT_IN, storage.MEMBERS])
def test_what_is_right_for_one_model_is_not_refused(models: dict[str, Any]) -> None:
    for name, model in models.items():
        for key, field in model.model_fields.items():
            if field.is_required() or field.default is None or key in ("name", "type"):
                continue
            value = field.get_default(call_default_factory=True)
            plain = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
            kind = "type" if models is storage.MEMBERS else "name"
            block = {kind: f"{name}_", key: plain}
            where = {"type": "checkpoint_storage"}.get(kind, "searcher" if models is searchers.BUILT_IN else "stopping")
            raw = {**GOOD, where: [block] if where == "stopping" else block}
            assert [path for path in errors(raw) if path.endswith(key)] == [], (name, key)
