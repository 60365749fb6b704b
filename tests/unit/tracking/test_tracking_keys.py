"""Names and steps of metrics between MLflow's clients and the groups of a trial."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.schemas.wire.logged_names import BadKey, check_key, place_of
from detlab_hub.core.tracking.keys import cut_value, free_steps, key_of, places

NAMES = st.text("abclosv_/. ", min_size=1, max_size=20)
GROUPS = st.sampled_from(["training", "validation", "system", "mine"])


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("loss", ("training", "loss")),
        ("eval_loss", ("validation", "eval_loss")),
        ("val_accuracy", ("validation", "val_accuracy")),
        ("val/accuracy", ("validation", "val/accuracy")),
        ("validation_0-logloss", ("validation", "validation_0-logloss")),
        ("accuracy", ("validation", "accuracy")),
        ("train/loss", ("training", "train/loss")),
        ("training/loss", ("training", "loss")),
        ("validation/loss", ("validation", "loss")),
        ("system/cpu_utilization_percentage", ("system", "cpu_utilization_percentage")),
        ("valence", ("training", "valence")),
        ("training/", ("training", "training/")),
    ],
)
def test_a_metric_goes_to_the_group_that_its_name_says_and_the_searched_one_to_validation(
    key: str, place: tuple[str, str]
) -> None:
    assert place_of(key, "accuracy") == place


@given(GROUPS, NAMES, NAMES)
def test_whatever_a_trial_has_is_found_by_the_name_that_is_told(group: str, name: str, searched: str) -> None:
    assert (group, name) in places(key_of(group, name, searched), searched)


@given(NAMES, NAMES)
def test_what_was_logged_by_a_name_is_told_by_one_that_means_the_same(key: str, searched: str) -> None:
    group, name = place_of(key, searched)
    assert place_of(key_of(group, name, searched), searched) == (group, name)


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "a/../b", "..", "a\nb", "a\x00", "a|b", "x" * 251, "./a", "a/."]
)
def test_a_name_that_could_lead_out_is_refused(key: str) -> None:
    with pytest.raises(BadKey, match="of a metric"):
        check_key(key, "metric")


@pytest.mark.parametrize("key", ["val/top 5", "été", "损失", "a.b:c-d", "x" * 250])
def test_names_with_slashes_and_unicode_are_names(key: str) -> None:
    assert check_key(key, "metric") == key


def test_values_are_cut_as_mlflow_cuts_them_but_lists_that_clients_keep_in_tags_are_whole() -> None:
    assert len(cut_value("lr", "x" * 10_000)) == 8000
    assert len(cut_value("mlflow.loggedArtifacts", "x" * 10_000)) == 10_000


def test_a_step_that_is_taken_counts_on_and_a_repeated_request_changes_nothing() -> None:
    one, two, three = (1, "0.1"), (1, "0.2"), (3, "0.2")
    assert free_steps([(0, one), (0, two), (0, three)], {}, None) == [0, 1, 2]
    assert free_steps([(0, two), (0, three)], {0: one, 1: one}, 1) == [2, 3]
    assert free_steps([(5, one), (5, one)], {5: one}, 5) == [None, None]
    assert free_steps([(7, one), (3, two)], {}, 5) == [7, 3]  # late, but its own step is free
    assert free_steps([(-4, one)], {}, None) == [0]
