"""What `check` accepts and refuses, field by field and all at once."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest

from detlab.errors import ConfigError, Problem
from detlab.schemas.expconf import check, errors_of, parse

GOOD: dict[str, Any] = {
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "loss"},
}


def errors(raw: object, *, complete: bool = False) -> dict[str, str]:
    return {problem.path: problem.message for problem in errors_of(check(raw, complete=complete))}


def warnings(raw: object) -> dict[str, str]:
    return {problem.path: problem.message for problem in check(raw) if problem.level == "warning"}


def hints(raw: object) -> dict[str, str | None]:
    return {problem.path: problem.hint for problem in check(raw)}


def test_minimal_config_is_good_and_complete() -> None:
    assert check(GOOD, complete=True) == []


def test_absent_blocks_are_no_error() -> None:
    assert check({}) == []
    assert check({"name": "just a name"}) == []


def test_completeness_asks_for_entrypoint_and_searcher_only() -> None:
    assert set(errors({}, complete=True)) == {"entrypoint", "searcher"}


def test_every_mistake_is_named_at_once() -> None:
    raw = {
        "nme": "typo",
        "max_restarts": -1,
        "debug": "yes",
        "resources": {"priority": 100, "slots_per_trial": True, "shm_size": "1Gi"},
        "searcher": {"name": "random", "metric": 3, "max_trials": 0, "divisor": 4},
        "hyperparameters": {
            "a": {"type": "int", "minval": 5, "maxval": 1},
            "b": {"c": {"type": "log", "minval": 0, "maxval": 1}},
        },
        "bind_mounts": [{"host_path": "/ok", "container_path": "/ok"}, {"host_path": "rel", "container_path": "."}],
        "workspace": "w",
    }
    assert set(errors(raw)) == {
        "nme",
        "max_restarts",
        "debug",
        "resources.priority",
        "resources.slots_per_trial",
        "resources.shm_size",
        "searcher.metric",
        "searcher.max_trials",
        "searcher.divisor",
        "hyperparameters.a",
        "hyperparameters.b.c.base",
        "bind_mounts[1].host_path",
        "bind_mounts[1].container_path",
        "project",
    }


def test_parse_raises_with_all_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"foo": 1, "debug": 2, "scheduling_unit": 5})
    assert [problem.path for problem in errors_of(caught.value.problems)] == ["debug", "foo"]
    assert caught.value.code == "config.invalid"
    assert "2 mistakes" in str(caught.value)


@pytest.mark.parametrize("raw", [None, [], "text", 3])
def test_a_config_is_a_mapping(raw: object) -> None:
    [problem] = check(raw)
    assert problem.path == ""
    assert problem.level == "error"


@pytest.mark.parametrize(
    ("raw", "path", "hint"),
    [
        ({"hyperparametrs": {}}, "hyperparametrs", "did you mean `hyperparameters`?"),
        ({"searcher": {"name": "random", "max_trails": 1}}, "searcher.max_trails", "did you mean `max_trials`?"),
        ({"max_trials": 3}, "max_trials", "it belongs at `searcher.max_trials`"),
        ({"slots_per_trial": 3}, "slots_per_trial", "it belongs at `resources.slots_per_trial`"),
        (
            {"searcher": {"name": "adaptive_ash"}},
            "searcher.name",
            "did you mean `adaptive_asha`?",
        ),
        ({"checkpoint_policy": "alll"}, "checkpoint_policy", "did you mean `all`?"),
    ],
)
def test_did_you_mean(raw: object, path: str, hint: str) -> None:
    assert hints(raw)[path] == hint


def test_unknown_key_without_a_likely_meaning_has_no_hint() -> None:
    assert hints({"zzz": 1})["zzz"] is None


# --- scalars ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [True, "5", 2.5, [1], {}, math.inf, -1])
def test_integers_are_strict(value: object) -> None:
    assert "max_restarts" in errors({"max_restarts": value})


@pytest.mark.parametrize(("value", "meant"), [(0, 0), (7, 7), (1e3, 1000), (None, 5)])
def test_integers_are_friendly(value: object, meant: int) -> None:
    assert parse({"max_restarts": value}).max_restarts == meant


def test_quoted_number_is_explained() -> None:
    assert hints({"max_restarts": "5"})["max_restarts"] == "remove the quotes"
    assert hints({"name": 5})["name"] == "put it in quotes"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place",
    [
        lambda value: {"data": {"x": [value]}},
        lambda value: {"hyperparameters": {"lr": value}},
        lambda value: {"hyperparameters": {"lr": {"type": "categorical", "vals": [value]}}},
        lambda value: {"resources": {"weight": value}},
        lambda value: {"hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": value}}},
    ],
)
def test_non_finite_numbers_are_refused_once(value: float, place: Any) -> None:
    found = errors_of(check(place(value)))
    assert len(found) == 1
    assert "finite" in found[0].message


@pytest.mark.parametrize("value", [datetime.date(2020, 1, 1), b"bytes", {1, 2}, object()])
def test_only_json_values(value: object) -> None:
    assert "data.x" in errors({"data": {"x": value}})


def test_keys_must_be_texts() -> None:
    assert errors({"data": {1: "x"}}) != {}
    assert errors({1: "x"}) != {}


def test_deep_and_huge_values_are_refused_quickly() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"a": deep}
    assert "deep" in errors({"data": deep})[""]
    wide: Any = ["x"] * 10
    for _ in range(9):
        wide = [wide] * 10  # 10^10 values in a few objects
    assert "more than" in errors({"data": wide})[""]
    loop: list[Any] = []
    loop.append(loop)
    assert "deep" in errors({"data": loop})[""]


@pytest.mark.parametrize("value", ["true", 1, 0, "yes", []])
def test_flags_are_true_or_false(value: object) -> None:
    assert "debug" in errors({"debug": value})


def test_null_means_not_set() -> None:
    raw = dict.fromkeys(("name", "resources", "searcher", "labels", "environment", "hyperparameters", "slurm"))
    assert check(raw) == []
    assert parse({"resources": {"slots_per_trial": None}}).resources.slots_per_trial == 1


# --- shorthands ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "amount"),
    [
        (1024, 1024),
        ("1.5G", 1610612736),
        ("512 MiB", 536870912),
        ("10k", 10240),
        ("2gb", 2 << 30),
        ("7", 7),
        ("7b", 7),
        (".5K", 512),
        (4e9, 4_000_000_000),
    ],
)
def test_shm_size(size: object, amount: int) -> None:
    assert parse({"resources": {"shm_size": size}}).resources.shm_size == amount


@pytest.mark.parametrize("size", ["1Gi", "big", "-1G", "", True, -5, "1.G.", "1e3"])
def test_bad_shm_size(size: object) -> None:
    assert "resources.shm_size" in errors({"resources": {"shm_size": size}})


def test_devices_as_text_or_mapping() -> None:
    raw = {
        "resources": {
            "devices": ["/h:/c", "/h2:/c2:r", {"host_path": "/h3", "container_path": "/c3"}],
        }
    }
    devices = parse(raw).resources.devices
    assert [(device.host_path, device.container_path, device.mode) for device in devices] == [
        ("/h", "/c", "mrw"),
        ("/h2", "/c2", "r"),
        ("/h3", "/c3", "mrw"),
    ]
    assert set(errors({"resources": {"devices": ["/h", "/a:/b:r:x", {"host_path": "/h"}]}})) == {
        "resources.devices[0]",
        "resources.devices[1]",
        "resources.devices[2].container_path",
    }


def test_image_as_text_or_map_with_gpu_as_cuda() -> None:
    image = parse({"environment": {"image": "mine"}}).environment.image
    assert (image.cpu, image.cuda, image.rocm) == ("mine", "mine", "mine")
    image = parse({"environment": {"image": {"gpu": "g"}}}).environment.image
    assert image.cuda == "g"
    assert image.cpu.startswith("determinedai/pytorch-ngc-dev:")
    image = parse({"environment": {"image": {"gpu": "g", "cuda": "c"}}}).environment.image
    assert image.cuda == "c"


def test_environment_variables_as_list_or_map() -> None:
    variables = parse({"environment": {"environment_variables": ["A=1"]}}).environment.environment_variables
    assert (variables.cpu, variables.cuda, variables.rocm) == (["A=1"], ["A=1"], ["A=1"])
    raw = {"environment": {"environment_variables": {"gpu": ["G=1"], "cpu": ["C=1"]}}}
    variables = parse(raw).environment.environment_variables
    assert (variables.cpu, variables.cuda, variables.rocm) == (["C=1"], ["G=1"], [])
    assert parse({"environment": {"environment_variables": {}}}).environment.environment_variables.cpu == []


def test_environment_variable_mistake_is_reported_once() -> None:
    found = check({"environment": {"environment_variables": [{"A": 1}]}})
    assert [problem.path for problem in found] == ["environment.environment_variables"]
    assert found[0].hint == "write NAME=VALUE, not NAME: VALUE"


@pytest.mark.parametrize("entrypoint", ["python3 x.py", "./x.sh", ["python3", "x.py"], "model_def:Trial"])
def test_entrypoint_forms(entrypoint: object) -> None:
    assert errors({"entrypoint": entrypoint}) == {}
    assert parse({"entrypoint": entrypoint}).entrypoint == entrypoint


@pytest.mark.parametrize("entrypoint", ["", "  ", [], 3, {"a": 1}, True])
def test_bad_entrypoints(entrypoint: object) -> None:
    assert "entrypoint" in errors({"entrypoint": entrypoint})


def test_entrypoint_word_that_is_not_a_text() -> None:
    assert errors({"entrypoint": ["python3", 3]}) == {"entrypoint[1]": "must be a text, not the number 3"}


def test_trial_class_entrypoint_is_deprecated() -> None:
    assert "entrypoint" in warnings({"entrypoint": "model_def:MNistTrial"})
    assert warnings({"entrypoint": "python3 train.py"}) == {}


# --- searchers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["custom", "sync_halving", "adaptive", "adaptive_simple", "pbt"])
def test_removed_searchers_are_refused_by_name_with_the_reason(name: str) -> None:
    raw = {"searcher": {"name": name, "metric": "loss", "anything": 1}}
    [problem] = errors_of(check(raw))
    assert problem.path == "searcher.name"
    assert f"'{name}'" in problem.message
    assert "removed" in problem.message
    assert problem.hint


@pytest.mark.parametrize("name", ["bayes", "", 3, [], "Single"])
def test_unknown_searchers(name: object) -> None:
    [problem] = errors_of(check({"searcher": {"name": name, "metric": "loss"}}))
    assert problem.path == "searcher.name"
    assert "must be one of single, random, grid, async_halving, adaptive_asha" in problem.message


@pytest.mark.parametrize(
    ("searcher", "needs"),
    [
        ({"name": "single"}, {"metric"}),
        ({"name": "random"}, {"metric", "max_trials"}),
        ({"name": "grid"}, {"metric"}),
        ({"name": "async_halving"}, {"metric", "num_rungs", "max_trials", "time_metric", "max_time"}),
        ({"name": "adaptive_asha"}, {"metric", "max_trials", "time_metric", "max_time"}),
        ({}, {"name", "metric"}),
        ({"max_trials": 3}, {"name", "metric"}),
    ],
)
def test_what_a_searcher_needs(searcher: dict[str, Any], needs: set[str]) -> None:
    raw = {"entrypoint": "x", "searcher": searcher}
    assert set(errors(raw, complete=True)) == {f"searcher.{key}" for key in needs}
    assert errors(raw) == {}, "sanity: a template can still supply them"
    assert set(warnings(raw)) == {f"searcher.{key}" for key in needs}


def test_old_asha_file_is_told_what_to_write() -> None:
    raw = {
        **GOOD,
        "searcher": {"name": "adaptive_asha", "metric": "x", "max_trials": 4, "max_length": {"epochs": 10}},
    }
    found = {problem.path: problem.hint or "" for problem in errors_of(check(raw, complete=True))}
    assert "`time_metric: epochs`" in found["searcher.time_metric"]
    assert "`max_time: 10`" in found["searcher.max_time"]


@pytest.mark.parametrize("length", [0, 100, 1e3, {"batches": 1}, {"records": 5}, {"epochs": 3, "batches": None}])
def test_max_length_forms(length: object) -> None:
    assert errors({"searcher": {"name": "single", "metric": "x", "max_length": length}}) == {}


@pytest.mark.parametrize(
    "length", [-1, "10", True, 1.5, [], {}, {"batches": 0}, {"batches": 1, "epochs": 1}, {"steps": 3}, {"batches": -1}]
)
def test_bad_max_length(length: object) -> None:
    found = errors({"searcher": {"name": "single", "metric": "x", "max_length": length}})
    assert found
    assert all(path.startswith("searcher.max_length") for path in found)


def test_max_length_is_deprecated_or_ignored() -> None:
    single = warnings({"searcher": {"name": "single", "metric": "x", "max_length": 1}})
    assert single["searcher.max_length"] == "is deprecated"
    asha = warnings({"searcher": {"name": "async_halving", "metric": "x", "max_length": 1, "stop_once": True}})
    assert asha["searcher.max_length"] == "is accepted and has no effect"
    assert asha["searcher.stop_once"] == "is accepted and has no effect"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("divisor", 1),
        ("divisor", "4"),
        ("max_rungs", 0),
        ("mode", "fast"),
        ("max_trials", 0),
        ("max_time", 0),
        ("max_time", 1.5),
        ("max_concurrent_trials", -1),
        ("bracket_rungs", 3),
        ("bracket_rungs", [0]),
        ("smaller_is_better", "no"),
        ("time_metric", ""),
        ("num_rungs", 3),
    ],
)
def test_adaptive_asha_bounds(key: str, value: object) -> None:
    found = errors({"searcher": {"name": "adaptive_asha", key: value}})
    assert [path for path in found if path.startswith(f"searcher.{key}")]


def test_one_warm_start() -> None:
    raw = {"searcher": {"name": "single", "metric": "x", "source_trial_id": 1, "source_checkpoint_uuid": "u"}}
    assert errors(raw) == {"searcher": "at most one of source_trial_id and source_checkpoint_uuid may be set"}


# --- hyperparameters ------------------------------------------------------------------------------------------


def test_hyperparameter_forms() -> None:
    raw = {
        "bare": 1,
        "null": None,
        "list": [1, "fish", {"a": {"b": 1}}],
        "const": {"type": "const", "val": None},
        "int": {"type": "int", "minval": -1, "maxval": 1, "count": 2},
        "double": {"type": "double", "minval": 0, "maxval": 0.5},
        "log": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "categorical": {"type": "categorical", "vals": [None, True, 0, "x", [1], {"type": "adam"}]},
        "nested": {"empty": {}, "deeper": {"x": {"type": "int", "minval": 0, "maxval": 1}}},
    }
    assert check({"hyperparameters": raw}) == []
    hyperparameters = parse({"hyperparameters": raw}).hyperparameters
    assert hyperparameters["bare"].val == 1
    assert hyperparameters["null"].val is None
    assert hyperparameters["list"].val == [1, "fish", {"a": {"b": 1}}]
    assert hyperparameters["nested"]["deeper"]["x"].maxval == 1


@pytest.mark.parametrize(
    ("hyperparameter", "path"),
    [
        ({"type": "int", "minval": 1, "maxval": 1}, ""),
        ({"type": "double", "minval": 2, "maxval": 1}, ""),
        ({"type": "log", "base": 10, "minval": 0, "maxval": 0}, ""),
        ({"type": "log", "base": 0, "minval": 0, "maxval": 1}, ".base"),
        ({"type": "log", "base": -2, "minval": 0, "maxval": 1}, ".base"),
        ({"type": "int", "minval": 0.5, "maxval": 3}, ".minval"),
        ({"type": "int", "minval": False, "maxval": 3}, ".minval"),
        ({"type": "int", "minval": 0, "maxval": 3, "count": 0}, ".count"),
        ({"type": "int", "minval": 0, "maxval": 3, "count": True}, ".count"),
        ({"type": "int", "minval": 0}, ".maxval"),
        ({"type": "categorical", "vals": []}, ".vals"),
        ({"type": "categorical", "vals": "ab"}, ".vals"),
        ({"type": "categorical"}, ".vals"),
        ({"type": "const"}, ".val"),
        ({"type": "uniform", "minval": 0, "maxval": 1}, ""),
        ({"type": None}, ""),
        ({"type": "int", "minval": 0, "maxval": 1, "step": 1}, ".step"),
        ([{"type": "categorical"}], "[0].vals"),
        ({"a": [[{"type": "int", "minval": 3, "maxval": 1}]]}, ".a[0][0]"),
    ],
)
def test_bad_hyperparameters(hyperparameter: object, path: str) -> None:
    assert set(errors({"hyperparameters": {"h": hyperparameter}})) == {f"hyperparameters.h{path}"}


def test_a_hyperparameter_named_like_a_type_keeps_its_path() -> None:
    raw = {"hyperparameters": {"int": {"const": {"type": "int", "minval": 2, "maxval": "x"}}}}
    assert set(errors(raw)) == {"hyperparameters.int.const.maxval"}


def test_a_top_level_hyperparameter_may_be_called_type() -> None:
    assert errors({"hyperparameters": {"type": "adam", "lr": {"type": "int", "minval": 2, "maxval": 1}}}) == {
        "hyperparameters.lr": "minval must be less than maxval, but 2 >= 1"
    }
    assert "hyperparameters.type" in warnings({"hyperparameters": {"type": "int", "minval": 1, "maxval": 2}})


def test_grid_needs_counts_everywhere() -> None:
    raw = {
        "searcher": {"name": "grid", "metric": "x"},
        "hyperparameters": {
            "a": {"type": "int", "minval": 0, "maxval": 3},
            "b": {"c": {"type": "log", "base": 2, "minval": 0, "maxval": 3}},
            "d": {"type": "double", "minval": 0, "maxval": 3, "count": 2},
            "e": [{"type": "double", "minval": 0, "maxval": 3}],
            "f": {"type": "categorical", "vals": [1]},
        },
    }
    assert set(errors(raw)) == {"hyperparameters.a", "hyperparameters.b.c", "hyperparameters.e[0]"}
    raw["searcher"] = {"name": "random", "metric": "x"}
    assert errors(raw) == {}


def test_a_range_in_a_list_is_pointed_at() -> None:
    found = warnings({"hyperparameters": {"l": [{"type": "int", "minval": 0, "maxval": 3}]}})
    assert "not searched" in found["hyperparameters.l[0]"]


def test_nothing_to_search_is_pointed_at() -> None:
    raw = {**GOOD, "searcher": {"name": "random", "metric": "x", "max_trials": 3}, "hyperparameters": {"a": 1}}
    [problem] = check(raw, complete=True)
    assert (problem.path, problem.level) == ("hyperparameters", "warning")


# --- storage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "storage",
    [
        {"type": "s3", "bucket": "b"},
        {"type": "gcs", "bucket": "b", "prefix": "a/b"},
        {"type": "azure", "container": "c", "connection_string": "s"},
        {"type": "azure", "container": "c", "account_url": "u", "credential": "k"},
        {"type": "shared_fs", "host_path": "/mnt"},
        {"type": "shared_fs", "host_path": "/mnt", "storage_path": "/mnt/a"},
        {"type": "shared_fs", "host_path": "/mnt", "storage_path": "a/../b"},
        {"type": "directory", "container_path": "/ck", "save_trial_best": 0},
        {"save_trial_latest": 5},
    ],
)
def test_good_storage(storage: dict[str, Any]) -> None:
    assert check({**GOOD, "checkpoint_storage": storage}, complete=True) == []


@pytest.mark.parametrize(
    ("storage", "path"),
    [
        ({"type": "hdfs"}, "checkpoint_storage.type"),
        ({"type": "ftp"}, "checkpoint_storage.type"),
        ({"type": "s3"}, "checkpoint_storage.bucket"),
        ({"type": "gcs", "bucket": "b", "prefix": "a/../b"}, "checkpoint_storage.prefix"),
        ({"type": "s3", "bucket": "b", "prefix": ".."}, "checkpoint_storage.prefix"),
        ({"type": "azure", "container": "c"}, "checkpoint_storage"),
        ({"type": "azure", "container": "c", "connection_string": "s", "account_url": "u"}, "checkpoint_storage"),
        (
            {"type": "azure", "container": "c", "connection_string": "s", "credential": "k"},
            "checkpoint_storage.credential",
        ),
        ({"type": "shared_fs"}, "checkpoint_storage.host_path"),
        ({"type": "shared_fs", "host_path": "/m", "storage_path": "../x"}, "checkpoint_storage.storage_path"),
        ({"type": "shared_fs", "host_path": "/m", "storage_path": "/mm/x"}, "checkpoint_storage.storage_path"),
        ({"type": "shared_fs", "host_path": "/m", "storage_path": "/m/../x"}, "checkpoint_storage.storage_path"),
        ({"type": "directory", "container_path": "/c", "bucket": "b"}, "checkpoint_storage.bucket"),
        ({"type": "directory", "container_path": "/c", "save_trial_best": -1}, "checkpoint_storage.save_trial_best"),
    ],
)
def test_bad_storage(storage: dict[str, Any], path: str) -> None:
    assert set(errors({**GOOD, "checkpoint_storage": storage}, complete=True)) == {path}


# --- the rest --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"resources": {"priority": 0}}, "resources.priority"),
        ({"resources": {"weight": -1}}, "resources.weight"),
        ({"scheduling_unit": 0}, "scheduling_unit"),
        ({"reproducibility": {"experiment_seed": 2**31}}, "reproducibility.experiment_seed"),
        ({"reproducibility": {"experiment_seed": -1}}, "reproducibility.experiment_seed"),
        ({"retention_policy": {"log_retention_days": -2}}, "retention_policy.log_retention_days"),
        ({"retention_policy": {"log_retention_days": 32768}}, "retention_policy.log_retention_days"),
        ({"slurm": {"slots_per_node": 0}}, "slurm.slots_per_node"),
        ({"pbs": {"sbatch_args": []}}, "pbs.sbatch_args"),
        ({"optimizations": {"mixed_precision": "O4"}}, "optimizations.mixed_precision"),
        ({"optimizations": {"aggregation_frequency": 0}}, "optimizations.aggregation_frequency"),
        ({"environment": {"proxy_ports": [{"proxy_port": 70000}]}}, "environment.proxy_ports[0].proxy_port"),
        ({"environment": {"ports": {"a": "x"}}}, "environment.ports.a"),
        ({"environment": {"image": {"gpus": "x"}}}, "environment.image.gpus"),
        ({"labels": "one"}, "labels"),
        ({"labels": [None]}, "labels[0]"),
        ({"data": []}, "data"),
        ({"min_validation_period": 5}, "min_validation_period"),
        ({"min_checkpoint_period": {"batches": "1"}}, "min_checkpoint_period.batches"),
        ({"preemption_timeout": -1}, "preemption_timeout"),
        ({"integrations": {"webhooks": {"webhook_id": ["a"]}}}, "integrations.webhooks.webhook_id[0]"),
        ({"workspace": "w"}, "project"),
        ({"project": "p"}, "workspace"),
    ],
)
def test_bad_values_have_their_path(raw: object, path: str) -> None:
    assert set(errors(raw)) == {path}


@pytest.mark.parametrize(
    "key", ["min_validation_period", "min_checkpoint_period", "scheduling_unit", "records_per_epoch", "optimizations"]
)
def test_deprecated_keys_earn_a_warning(key: str) -> None:
    values = {"scheduling_unit": 1, "records_per_epoch": 1, "optimizations": {}}
    assert warnings({key: values.get(key, {"batches": 1})}) == {key: "is deprecated"}


@pytest.mark.parametrize("key", ["data_layer", "internal", "security", "tensorboard_storage"])
def test_ignored_keys_earn_a_warning(key: str) -> None:
    assert warnings({key: {"anything": ["at", "all"]}}) == {key: "is accepted and has no effect"}


def test_ignored_fields_of_blocks_earn_a_warning() -> None:
    raw = {
        "resources": {"agent_label": "x", "native_parallel": False, "slots": 3},
        "profiling": {"enabled": True, "begin_on_batch": 1, "end_after_batch": 2, "sync_timings": True},
    }
    assert set(warnings(raw)) == {
        "resources.agent_label",
        "resources.native_parallel",
        "resources.slots",
        "profiling.begin_on_batch",
        "profiling.end_after_batch",
        "profiling.sync_timings",
    }


def test_log_policies() -> None:
    raw = {
        "log_policies": [
            {"name": "a", "pattern": "x", "action": "exclude_node"},
            {"pattern": "y", "action": {"type": "cancel_retries"}},
            {"name": "CUDA OOM"},
        ]
    }
    assert errors(raw) == {}
    policies = parse(raw).log_policies
    assert [(policy.name, policy.pattern, policy.action) for policy in policies] == [
        ("a", "x", "exclude_node"),
        (None, "y", "cancel_retries"),
        ("CUDA OOM", None, None),
        ("ECC Error", ".*uncorrectable ECC error encountered.*", None),
    ]
    assert "log_policies[1].action" in warnings(raw)


@pytest.mark.parametrize(
    ("policies", "path"),
    [
        ([{"pattern": "x"}], "log_policies[0]"),
        ([{"action": "exclude_node"}], "log_policies[0]"),
        ([{"name": "a"}, {"name": "a", "pattern": "x"}], "log_policies[1].name"),
        ([{"name": "a", "action": "explode"}], "log_policies[0].action"),
        ([{"name": "a", "action": {"type": "explode"}}], "log_policies[0].action"),
        ([{"name": "a", "action": {"type": "exclude_node", "x": 1}}], "log_policies[0].action"),
        ([{"name": "a", "actions": ["exclude_node"]}], "log_policies[0].actions"),
    ],
)
def test_bad_log_policies(policies: object, path: str) -> None:
    assert set(errors({"log_policies": policies})) == {path}


def test_pod_spec_limits() -> None:
    raw = {
        "environment": {
            "pod_spec": {
                "metadata": {"name": "mine"},
                "spec": {
                    "containers": [
                        {"name": "sidecar", "image": "fine"},
                        {"name": "determined-container", "image": "no", "securityContext": {}, "volumeMounts": []},
                    ]
                },
            }
        }
    }
    assert set(errors(raw)) == {
        "environment.pod_spec.metadata.name",
        "environment.pod_spec.spec.containers[1].image",
        "environment.pod_spec.spec.containers[1].securityContext",
    }


def test_oddities_are_warnings() -> None:
    raw = {
        "resources": {"max_slots": 1, "slots_per_trial": 2},
        "bind_mounts": [{"host_path": "/a", "container_path": "/c"}, {"host_path": "/b", "container_path": "/c"}],
        "environment": {"image": {"gpu": "a", "cuda": "b"}},
        "log_policies": [{"name": "a", "pattern": "("}],
    }
    assert set(warnings(raw)) == {
        "resources.max_slots",
        "bind_mounts[1].container_path",
        "environment.image.gpu",
        "log_policies[0].pattern",
    }
    assert errors(raw) == {}


def test_errors_come_before_warnings_and_only_once() -> None:
    found = check({"scheduling_unit": 5, "foo": 1})
    assert [problem.level for problem in found] == ["error", "warning"]
    assert len(found) == len(set(found))


def test_problem_as_text_and_as_json() -> None:
    problem = Problem("a.b", "is odd", "fix it", "warning")
    assert str(problem) == "warning: a.b: is odd (fix it)"
    assert problem.to_dict() == {"path": "a.b", "message": "is odd", "hint": "fix it", "level": "warning"}


def test_odd_keys_are_quoted_in_paths() -> None:
    raw = {"hyperparameters": {"a.b": {"type": "int", "minval": 1, "maxval": 0}}}
    assert set(errors(raw)) == {"hyperparameters['a.b']"}


# --- named regressions ------------------------------------------------------------------------------------------


def test_a_forgotten_type_is_pointed_at() -> None:
    raw = {
        "hyperparameters": {"lr": {"minval": 0, "maxval": 1}, "n": {"o": {"vals": [1, 2]}}, "minval": 1, "maxval": 2}
    }
    assert set(warnings(raw)) == {"hyperparameters.lr", "hyperparameters.n.o"}


@pytest.mark.parametrize("number", [10**30, -(10**30), 10**5000], ids=["30 digits", "negative", "5000 digits"])
def test_numbers_beyond_64_bits_are_refused_not_crashed_on(number: int) -> None:
    for raw in ({"data": {"x": number}}, {"max_restarts": number}, {"resources": {"weight": number}}):
        [problem] = errors_of(check(raw))
        assert "64 bits" in problem.message


def test_integers_of_fields_fit_a_database() -> None:
    assert "max_restarts" in errors({"max_restarts": 2**63})
    assert "max_restarts" in errors({"max_restarts": 1e19})


def test_a_flood_of_mistakes_is_cut_and_stays_quick() -> None:
    raw = {**{f"unknown_{i}": i for i in range(50_000)}, "labels": [None] * 50_000}
    found = check(raw)
    assert 100 <= len(found) <= 200
    assert errors_of(found)


def test_a_flood_of_warnings_cannot_hide_an_error() -> None:
    policies = [{"name": f"n{i}", "pattern": "x", "action": {"type": "exclude_node"}} for i in range(500)]
    raw = {"log_policies": [*policies, {"name": "n0"}]}
    assert errors(raw) == {"log_policies[500].name": "'n0' is the name of two policies"}


def test_long_keys_and_values_are_shown_shortened() -> None:
    for raw in (
        {"x" * 10_000: 1},
        {"searcher": {"name": "x" * 10_000}},
        {"hyperparameters": {"h": {"type": "x" * 10_000}}},
        {"checkpoint_policy": "x" * 10_000},
    ):
        [problem] = errors_of(check(raw))
        assert len(str(problem)) < 400


@pytest.mark.parametrize("pattern", ["[[a]", "(" * 5000, "a{99999999999999}", "(?P<n>"])
def test_odd_patterns_are_warned_about(pattern: str) -> None:
    found = check({"log_policies": [{"name": "a", "pattern": pattern}]})
    assert {problem.level for problem in found} <= {"warning"}
