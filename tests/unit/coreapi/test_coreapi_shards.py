"""Uniting the files and metadata of several ranks."""

from __future__ import annotations

import pickle

import pytest

from detlab.core import ShardConflict
from detlab.core.checkpoint.shards import join_parts, merge_metadata, shared_files
from detlab.schemas.wire import CheckpointFile
from detlab.storage import ManifestPart


def part(*directories: str, **files: str) -> ManifestPart:
    """A part with these empty directories and files: name, with `__` for a slash, to content."""
    named = {
        name.replace("__", "/"): CheckpointFile(size=len(text), digest=f"sha256:{text}") for name, text in files.items()
    }
    return ManifestPart(named, directories)


def test_disjoint_files_and_shared_folders_are_fine() -> None:
    assert shared_files([["a", "d/x"], ["b", "d/y"], []]) == {}


def test_files_of_several_ranks_are_told_with_their_ranks() -> None:
    assert shared_files([["a", "d/x"], ["b"], ["d/x"]]) == {"d/x": [0, 2]}


def test_a_file_that_is_a_folder_elsewhere_is_a_conflict() -> None:
    with pytest.raises(ShardConflict, match="d: ranks 0, 1"):
        shared_files([["d"], ["d/x"]])


def test_parts_are_joined_and_equal_files_are_one() -> None:
    joined = join_parts([part("empty", a="1", d__x="2"), None, part("d", "empty", d__x="2", b="3")])
    assert joined == part("empty", a="1", d__x="2", b="3")
    assert join_parts([None, None]) == ManifestPart()


def test_different_files_of_one_name_are_a_conflict_that_names_the_ranks() -> None:
    with pytest.raises(ShardConflict, match=r"d/x: ranks 0, 2, 3") as caught:
        join_parts([part(d__x="1", same="7"), part(a="1", same="7"), part(d__x="2"), part(d__x="1")])
    assert caught.value.conflicts == {"d/x": [0, 2, 3]}


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
