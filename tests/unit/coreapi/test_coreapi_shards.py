"""Uniting the files and metadata of several ranks."""

from __future__ import annotations

import pickle

import pytest

from detlab.core import ShardConflict
from detlab.core.checkpoint.shards import check_files, merge_metadata


def test_disjoint_files_and_shared_folders_are_fine() -> None:
    check_files([["a", "d/x"], ["b", "d/y"], []])


def test_one_file_from_two_ranks_is_a_conflict() -> None:
    with pytest.raises(ShardConflict, match="d/x: ranks 0, 2") as caught:
        check_files([["a", "d/x"], ["b"], ["d/x"]])
    assert caught.value.conflicts == {"d/x": [0, 2]}


def test_a_file_that_is_a_folder_elsewhere_is_a_conflict() -> None:
    with pytest.raises(ShardConflict, match="d: ranks 0, 1"):
        check_files([["d"], ["d/x"]])


@pytest.mark.parametrize(
    ("parts", "merged"),
    [
        ([{"a": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ([{"a": 1}, {"a": 1}], {"a": 1}),
        ([{"a": []}, {"a": []}], {"a": []}),
        ([{"a": {"c": 1}}, {"a": {"d": 1}}], {"a": {"c": 1, "d": 1}}),
        ([{"a": {}}, {"a": {"d": 1}}, None], {"a": {"d": 1}}),
        ([None, None], {}),
    ],
)
def test_metadata_merges(parts: list[dict[str, object] | None], merged: dict[str, object]) -> None:
    assert merge_metadata(parts) == merged


@pytest.mark.parametrize(
    ("parts", "conflicts"),
    [
        ([{"a": 1}, {"a": 2}], {"a": [0, 1]}),
        ([{"a": 1}, {}, {"a": 2}], {"a": [0, 2]}),
        ([{"a": 1}, {"a": 2}, {"a": 3}], {"a": [0, 1, 2]}),
        ([{"a": []}, {"a": {"c": 1}}], {"a": [0, 1]}),
        ([{"a": {"c": 1}}, {"a": 1}], {"a": [0, 1]}),
        ([{"a": {"c": 1, "d": 0}}, {"a": {"c": 2, "d": 0}}], {"a/c": [0, 1]}),
    ],
)
def test_metadata_conflicts_list_the_ranks(parts: list[dict[str, object]], conflicts: dict[str, list[int]]) -> None:
    with pytest.raises(ShardConflict) as caught:
        merge_metadata(parts)
    assert caught.value.conflicts == conflicts


def test_the_parts_are_not_changed() -> None:
    first = {"a": {"c": 1}}
    merge_metadata([first, {"a": {"d": 1}}])
    assert first == {"a": {"c": 1}}


def test_a_conflict_survives_the_way_to_another_rank() -> None:
    error = ShardConflict("files", {"x": [0, 1]})
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert copy.conflicts == error.conflicts
