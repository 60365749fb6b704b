"""Merging a template under a config: Determined's rules, case by case and as laws."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detlab.schemas.expconf import merge

Raw = dict[str, Any]


def test_user_scalars_win_and_maps_recurse() -> None:
    user = {"max_restarts": 1, "resources": {"slots_per_trial": 2}, "data": {"a": {"x": 1}}}
    template = {"max_restarts": 9, "debug": True, "resources": {"priority": 3}, "data": {"a": {"x": 2, "y": 3}}}
    assert merge(user, template) == {
        "max_restarts": 1,
        "debug": True,
        "resources": {"slots_per_trial": 2, "priority": 3},
        "data": {"a": {"x": 1, "y": 3}},
    }


def test_null_gives_way() -> None:
    user = {"name": None, "resources": {"priority": None}, "environment": None}
    template = {"name": "t", "resources": {"priority": 3}, "environment": {"image": "x"}}
    assert merge(user, template) == template


def test_lists_concatenate_template_first() -> None:
    user = {"labels": ["u"], "slurm": {"sbatch_args": ["-u"]}, "environment": {"add_capabilities": ["U"]}}
    template = {"labels": ["t"], "slurm": {"sbatch_args": ["-t"]}, "environment": {"add_capabilities": ["T"]}}
    assert merge(user, template) == {
        "labels": ["t", "u"],
        "slurm": {"sbatch_args": ["-t", "-u"]},
        "environment": {"add_capabilities": ["T", "U"]},
    }


def test_labels_are_a_set() -> None:
    assert merge({"labels": ["a", "b"]}, {"labels": ["b", "c"]})["labels"] == ["b", "c", "a"]


def test_bind_mounts_by_container_path() -> None:
    user = {"bind_mounts": [{"host_path": "/asdf", "container_path": "/asdf"}]}
    template = {
        "bind_mounts": [
            {"host_path": "/zxcv", "container_path": "/zxcv"},
            {"host_path": "/other", "container_path": "/asdf"},
        ]
    }
    assert merge(user, template)["bind_mounts"] == [
        {"host_path": "/asdf", "container_path": "/asdf"},
        {"host_path": "/zxcv", "container_path": "/zxcv"},
    ]


def test_devices_by_container_path_in_both_forms() -> None:
    user = {"resources": {"devices": [{"host_path": "/a", "container_path": "/a"}, "/q:/q"]}}
    template = {"resources": {"devices": ["/x:/q:r", {"host_path": "/y", "container_path": "/a"}, "/z:/z"]}}
    assert merge(user, template)["resources"]["devices"] == [
        {"host_path": "/a", "container_path": "/a"},
        "/q:/q",
        "/z:/z",
    ]


def test_log_policies_by_name_or_as_a_whole() -> None:
    user = {"log_policies": [{"name": "a"}, {"pattern": "p", "action": {"type": "exclude_node"}}]}
    template = {
        "log_policies": [
            {"name": "a", "pattern": "x"},
            {"name": "b", "pattern": "y"},
            {"pattern": "p", "action": "exclude_node"},
            {"pattern": "p", "action": "cancel_retries"},
        ]
    }
    assert merge(user, template)["log_policies"] == [
        {"name": "a"},
        {"pattern": "p", "action": {"type": "exclude_node"}},
        {"name": "b", "pattern": "y"},
        {"pattern": "p", "action": "cancel_retries"},
    ]


def test_environment_variables_of_the_user_come_last() -> None:
    user = {"environment": {"environment_variables": {"gpu": ["A=user"]}}}
    template = {"environment": {"environment_variables": ["A=template"]}}
    assert merge(user, template)["environment"]["environment_variables"] == {
        "cpu": ["A=template"],
        "cuda": ["A=template", "A=user"],
        "rocm": ["A=template"],
    }


def test_image_text_replaces_all_and_map_replaces_some() -> None:
    template = {"environment": {"image": {"cpu": "tc", "gpu": "tg"}}}
    assert merge({"environment": {"image": "u"}}, template)["environment"]["image"] == {
        "cpu": "u",
        "cuda": "u",
        "rocm": "u",
    }
    assert merge({"environment": {"image": {"cuda": "u"}}}, template)["environment"]["image"] == {
        "cuda": "u",
        "cpu": "tc",
    }


def test_proxy_ports_by_port() -> None:
    user = {"environment": {"proxy_ports": [{"proxy_port": 1, "proxy_tcp": True}]}}
    template = {"environment": {"proxy_ports": [{"proxy_port": 1}, {"proxy_port": 2}]}}
    assert merge(user, template)["environment"]["proxy_ports"] == [
        {"proxy_port": 1, "proxy_tcp": True},
        {"proxy_port": 2},
    ]


@pytest.mark.parametrize(
    ("user", "template", "merged"),
    [
        ({"type": "int", "minval": 1, "maxval": 2}, {"type": "int", "minval": 5, "maxval": 9, "count": 3}, "user"),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": None}, {"a": {"c": 2}}, "user"),
        ([1], [2, 3], "user"),
        (5, {"a": 1}, "user"),
        ({"type": "const", "val": 1}, {"a": 1}, "user"),
        ({"a": {"type": "const", "val": 1}}, {"a": {"b": 1}, "c": 1}, {"a": {"type": "const", "val": 1}, "c": 1}),
    ],
)
def test_hyperparameters_are_never_mixed(user: object, template: object, merged: object) -> None:
    expected = user if merged == "user" else merged
    found = merge({"hyperparameters": {"h": user}}, {"hyperparameters": {"h": template, "t": 1}})
    assert found == {"hyperparameters": {"h": expected, "t": 1}}


def test_searchers_of_different_kinds_share_only_the_common_keys() -> None:
    user = {"searcher": {"name": "single", "metric": "loss", "smaller_is_better": True}}
    template = {
        "searcher": {
            "name": "random",
            "max_concurrent_trials": 2,
            "max_trials": 10000,
            "metric": "other",
            "smaller_is_better": False,
            "source_checkpoint_uuid": "asdf",
        }
    }
    assert merge(user, template)["searcher"] == {
        "name": "single",
        "metric": "loss",
        "smaller_is_better": True,
        "source_checkpoint_uuid": "asdf",
    }


def test_searchers_of_one_kind_recurse() -> None:
    user = {"searcher": {"name": "random", "max_trials": 3}}
    template = {"searcher": {"name": "random", "max_trials": 9, "metric": "m", "max_length": {"epochs": 3}}}
    assert merge(user, template)["searcher"] == {
        "name": "random",
        "max_trials": 3,
        "metric": "m",
        "max_length": {"epochs": 3},
    }


def test_partial_searchers_complete_each_other() -> None:
    assert merge({"searcher": {"max_trials": 3}}, {"searcher": {"name": "random", "metric": "m"}}) == {
        "searcher": {"max_trials": 3, "name": "random", "metric": "m"}
    }
    assert merge({"searcher": {"name": "single"}}, {"searcher": {"max_trials": 3, "metric": "m"}}) == {
        "searcher": {"name": "single", "metric": "m"}
    }


def test_one_warm_start_is_inherited_at_most() -> None:
    user = {"searcher": {"name": "single", "source_trial_id": 4}}
    template = {"searcher": {"name": "single", "source_checkpoint_uuid": "u"}}
    assert merge(user, template)["searcher"] == {"name": "single", "source_trial_id": 4}


def test_lengths_and_bracket_rungs_are_taken_whole() -> None:
    user = {
        "min_validation_period": {"epochs": 1},
        "searcher": {"name": "adaptive_asha", "max_length": {"epochs": 1}, "bracket_rungs": [1]},
    }
    template = {
        "min_validation_period": {"batches": 9},
        "searcher": {"name": "adaptive_asha", "max_length": {"batches": 9}, "bracket_rungs": [2, 3]},
    }
    assert merge(user, template) == user


def test_entrypoint_words_are_one_value() -> None:
    assert merge({"entrypoint": ["a", "b"]}, {"entrypoint": ["c"]}) == {"entrypoint": ["a", "b"]}


def test_storages_of_different_kinds_share_only_save_numbers() -> None:
    user = {
        "checkpoint_storage": {
            "type": "shared_fs",
            "host_path": "/tmp",
            "save_experiment_best": 0,
            "save_trial_best": 1,
        }
    }
    template = {
        "checkpoint_storage": {
            "type": "s3",
            "bucket": "b",
            "save_experiment_best": 10,
            "save_trial_best": 10,
            "save_trial_latest": 10,
        }
    }
    assert merge(user, template)["checkpoint_storage"] == {
        "type": "shared_fs",
        "host_path": "/tmp",
        "save_experiment_best": 0,
        "save_trial_best": 1,
        "save_trial_latest": 10,
    }


def test_storage_without_type_takes_the_clusters() -> None:
    assert merge(
        {"checkpoint_storage": {"save_trial_best": 3}}, {"checkpoint_storage": {"type": "gcs", "bucket": "b"}}
    ) == {"checkpoint_storage": {"save_trial_best": 3, "type": "gcs", "bucket": "b"}}


def test_azure_credentials_are_one_choice() -> None:
    template = {"type": "azure", "container": "c", "account_url": "u", "credential": "k"}
    merged = merge(
        {"checkpoint_storage": {"type": "azure", "connection_string": "s"}}, {"checkpoint_storage": template}
    )
    assert merged["checkpoint_storage"] == {"type": "azure", "container": "c", "connection_string": "s"}
    merged = merge({"checkpoint_storage": {"type": "azure"}}, {"checkpoint_storage": template})
    assert merged["checkpoint_storage"] == template


def test_values_of_unlike_shape_do_not_crash() -> None:
    odd = [None, 1, "x", [], [1], {}, {"a": 1}]
    for key in ("searcher", "labels", "bind_mounts", "environment", "hyperparameters", "resources", "entrypoint"):
        for mine in odd:
            for theirs in odd:
                merge({key: mine}, {key: theirs})
                merge({key: {"devices": mine, "image": mine}}, {key: {"devices": theirs, "image": theirs}})


# --- laws -------------------------------------------------------------------------------------------------------

_KEYS = st.sampled_from(["a", "b", "c"])
_SCALARS = st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["x", "y"])
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=8
)
_MOUNTS = st.lists(
    st.fixed_dictionaries(
        {"host_path": st.sampled_from(["/a", "/b"]), "container_path": st.sampled_from(["/c", "/d"])}
    ),
    max_size=3,
)
CONFIGS: st.SearchStrategy[Raw] = st.fixed_dictionaries(
    {},
    optional={
        "name": st.none() | st.sampled_from(["n", "m"]),
        "max_restarts": st.integers(0, 5),
        "data": st.dictionaries(_KEYS, _TREES, max_size=3),
        "hyperparameters": st.dictionaries(_KEYS, _TREES, max_size=3),
        "labels": st.lists(st.sampled_from(["l", "m", "n"]), max_size=3, unique=True),
        "bind_mounts": _MOUNTS,
        "environment": st.fixed_dictionaries(
            {}, optional={"environment_variables": st.lists(st.sampled_from(["A=1", "B=2"]), max_size=2)}
        ),
        "searcher": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["single", "random"]),
                "metric": st.sampled_from(["m1", "m2"]),
                "smaller_is_better": st.booleans(),
            },
        ),
        "checkpoint_storage": st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["directory", "shared_fs"]),
                "save_trial_best": st.integers(0, 3),
                "save_trial_latest": st.integers(0, 3),
            },
        ),
    },
)


@given(CONFIGS)
def test_law_nothing_below_changes_nothing(user: Raw) -> None:
    assert merge(user, {}) == user


@given(CONFIGS)
def test_law_nothing_above_is_the_template(template: Raw) -> None:
    assert merge({}, template) == template


@pytest.mark.slow
@given(CONFIGS, CONFIGS)
def test_law_arguments_are_untouched_and_unshared(user: Raw, template: Raw) -> None:
    before = copy.deepcopy((user, template))
    merged = merge(user, template)
    assert (user, template) == before
    for value in merged.values():
        if isinstance(value, dict):
            value["poison"] = 1
    assert (user, template) == before


@given(CONFIGS, CONFIGS)
def test_law_no_key_is_lost(user: Raw, template: Raw) -> None:
    assert set(merge(user, template)) == set(user) | set(template)


@given(CONFIGS, CONFIGS)
def test_law_set_scalars_of_the_user_win(user: Raw, template: Raw) -> None:
    merged = merge(user, template)
    for block, key in (("searcher", "metric"), ("searcher", "name"), ("checkpoint_storage", "save_trial_best")):
        if user.get(block, {}).get(key) is not None:
            assert merged[block][key] == user[block][key]


def _same_kinds(values: list[Any]) -> bool:
    """Whether each entry is a block, a list or a value in all configs that have it: one kind hides another below."""
    kinds = {("block" if "type" not in v else "value") if isinstance(v, dict) else type(v) is list for v in values}
    if len(kinds) > 1:
        return False
    if kinds != {"block"}:
        return True
    keys = {key for value in values for key in value}
    return all(_same_kinds([value[key] for value in values if key in value]) for key in keys)


@given(CONFIGS, CONFIGS, CONFIGS)
def test_law_templates_stack(user: Raw, middle: Raw, bottom: Raw) -> None:
    """Merging two templates first gives the same, where none changes the kind of a block under another."""
    for config in (user, middle, bottom):
        for block, key in (("searcher", "name"), ("checkpoint_storage", "type")):
            if block in config:
                config[block].pop(key, None)
    assume(_same_kinds([user, middle, bottom]))
    assert merge(merge(user, middle), bottom) == merge(user, merge(middle, bottom))
