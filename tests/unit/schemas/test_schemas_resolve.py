"""The resolved config: exact defaults, plain JSON, and laws over generated configs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schemas_problems import GOOD

from detlab.errors import ConfigError
from detlab.schemas.expconf import check, errors_of, load_yaml, parse, resolve, to_dict, unsupported_keys
from detlab.schemas.expconf.blocks.environment import DEFAULT_IMAGE, DEFAULT_ROCM_IMAGE

Raw = dict[str, Any]

IMAGES = {"cpu": DEFAULT_IMAGE, "cuda": DEFAULT_IMAGE, "rocm": DEFAULT_ROCM_IMAGE}
POLICIES = [
    {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
    {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
]


def test_every_default() -> None:
    """Written out in full on purpose: these are Determined 0.38's defaults."""
    full = resolve({"entrypoint": "python3 t.py", "searcher": {"name": "single", "metric": "loss"}})
    assert full == {
        "name": None,
        "description": None,
        "labels": [],
        "data": {},
        "workspace": "",
        "project": "",
        "entrypoint": "python3 t.py",
        "hyperparameters": {},
        "searcher": {
            "name": "single",
            "metric": "loss",
            "smaller_is_better": True,
            "source_trial_id": None,
            "source_checkpoint_uuid": None,
            "max_length": None,
        },
        "resources": {
            "slots_per_trial": 1,
            "max_slots": None,
            "weight": 1,
            "priority": None,
            "resource_pool": "",
            "shm_size": None,
            "is_single_node": None,
            "devices": [],
            "native_parallel": False,
        },
        "environment": {
            "image": IMAGES,
            "environment_variables": {"cpu": [], "cuda": [], "rocm": []},
            "proxy_ports": [],
            "ports": {},
            "force_pull_image": False,
            "registry_auth": None,
            "add_capabilities": [],
            "drop_capabilities": [],
            "pod_spec": None,
        },
        "checkpoint_storage": None,
        "checkpoint_policy": "best",
        "max_restarts": 5,
        "preemption_timeout": None,
        "profiling": {"enabled": False, "begin_on_batch": 0, "end_after_batch": None, "sync_timings": True},
        "reproducibility": {"experiment_seed": None},
        "debug": False,
        "log_policies": POLICIES,
        "retention_policy": {"log_retention_days": None},
        "bind_mounts": [],
        "integrations": None,
        "slurm": {},
        "pbs": {},
        "min_validation_period": {"batches": 0},
        "min_checkpoint_period": {"batches": 0},
        "scheduling_unit": 100,
        "records_per_epoch": 0,
        "perform_initial_validation": False,
        "optimizations": {
            "aggregation_frequency": 1,
            "average_aggregated_gradients": True,
            "average_training_metrics": True,
            "gradient_compression": False,
            "mixed_precision": "O0",
            "tensor_fusion_threshold": 64,
            "tensor_fusion_cycle_time": 1,
            "auto_tune_tensor_fusion": False,
            "grad_updates_size_file": None,
        },
    }


_COMMON = {"metric": "m", "smaller_is_better": True, "source_trial_id": None, "source_checkpoint_uuid": None}


@pytest.mark.parametrize(
    ("searcher", "more"),
    [
        ({"name": "single"}, {"max_length": None}),
        (
            {"name": "random", "max_trials": 3},
            {"max_concurrent_trials": 16, "max_length": None, "repeat_points": False},
        ),
        ({"name": "grid"}, {"max_concurrent_trials": 16, "max_length": None}),
        (
            {"name": "async_halving", "num_rungs": 2, "max_trials": 4, "time_metric": "t", "max_time": 9},
            {"divisor": 4, "max_concurrent_trials": 16, "repeat_points": False},
        ),
        (
            {"name": "adaptive_asha", "max_trials": 4, "time_metric": "t", "max_time": 9},
            {
                "divisor": 4,
                "max_concurrent_trials": 16,
                "repeat_points": False,
                "mode": "standard",
                "max_rungs": 5,
                "bracket_rungs": [],
            },
        ),
    ],
)
def test_searcher_defaults(searcher: Raw, more: Raw) -> None:
    full = resolve({"searcher": {**searcher, "metric": "m"}})
    assert full["searcher"] == {**searcher, **_COMMON, **more}


_SAVES = {"save_experiment_best": 0, "save_trial_best": 1, "save_trial_latest": 1}


@pytest.mark.parametrize(
    ("storage", "more"),
    [
        (
            {"type": "s3", "bucket": "b"},
            {"access_key": None, "secret_key": None, "endpoint_url": None, "prefix": None},
        ),
        ({"type": "gcs", "bucket": "b"}, {"prefix": None}),
        ({"type": "azure", "container": "c", "account_url": "https://u.example"}, {}),
        ({"type": "shared_fs", "host_path": "/m"}, {"storage_path": None, "propagation": "rprivate"}),
        ({"type": "directory", "container_path": "/c"}, {}),
        ({}, {}),
    ],
)
def test_storage_defaults(storage: Raw, more: Raw) -> None:
    assert resolve({"checkpoint_storage": storage})["checkpoint_storage"] == {**storage, **_SAVES, **more}


def test_shorthands_are_spelt_out() -> None:
    raw = {
        "hyperparameters": {"lr": 0.1, "n": {"x": None}, "l": [1], "i": {"type": "int", "minval": 0, "maxval": 3}},
        "resources": {"shm_size": "1.5G", "devices": ["/h:/c"]},
        "environment": {"image": {"gpu": "g"}, "environment_variables": ["A=1"]},
        "bind_mounts": [{"host_path": "/h", "container_path": "/c"}],
        "log_policies": [{"pattern": "p", "action": {"type": "exclude_node"}}],
        "labels": ["a", "b", "a"],
    }
    full = resolve(raw)
    assert full["hyperparameters"] == {
        "lr": {"type": "const", "val": 0.1},
        "n": {"x": {"type": "const", "val": None}},
        "l": {"type": "const", "val": [1]},
        "i": {"type": "int", "minval": 0, "maxval": 3},
    }
    assert full["resources"]["shm_size"] == 1610612736
    assert full["resources"]["devices"] == [{"host_path": "/h", "container_path": "/c", "mode": "mrw"}]
    assert full["environment"]["image"] == {**IMAGES, "cuda": "g"}
    assert full["environment"]["environment_variables"] == {"cpu": ["A=1"], "cuda": ["A=1"], "rocm": ["A=1"]}
    assert full["bind_mounts"] == [
        {"host_path": "/h", "container_path": "/c", "read_only": False, "propagation": "rprivate"}
    ]
    assert full["log_policies"] == [{"pattern": "p", "action": "exclude_node"}, *POLICIES]
    assert full["labels"] == ["a", "b"]


def test_a_default_log_policy_is_turned_off_by_name() -> None:
    full = resolve({"log_policies": [{"name": "CUDA OOM"}]})
    assert full["log_policies"] == [{"name": "CUDA OOM"}, POLICIES[1]]


def test_ignored_blocks_are_kept_as_they_are() -> None:
    full = resolve({"data_layer": {"type": "shared_fs"}, "security": {"kerberos": {"config_file": "x"}}})
    assert full["data_layer"] == {"type": "shared_fs"}
    assert full["security"] == {"kerberos": {"config_file": "x"}}
    assert "internal" not in full


def test_user_over_template_over_cluster() -> None:
    full = resolve(
        {"max_restarts": 1, "searcher": {"metric": "m"}},
        {"max_restarts": 2, "scheduling_unit": 2, "searcher": {"name": "random", "max_trials": 2}},
        {"max_restarts": 3, "scheduling_unit": 3, "debug": True, "checkpoint_storage": {"type": "gcs", "bucket": "b"}},
    )
    assert (full["max_restarts"], full["scheduling_unit"], full["debug"]) == (1, 2, True)
    assert full["searcher"]["name"] == "random"
    assert full["checkpoint_storage"]["type"] == "gcs"


def test_a_mistake_that_only_the_merge_makes_is_found() -> None:
    ranged = {"hyperparameters": {"a": {"type": "double", "minval": 0, "maxval": 1}}}
    with pytest.raises(ConfigError, match="count was not given"):
        resolve(ranged, {"searcher": {"name": "grid", "metric": "m"}})


def test_hostile_values_are_refused_before_they_are_merged() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    for arguments in (({"data": deep}, {"data": {"a": {}}}), ({}, {"data": deep})):
        with pytest.raises(ConfigError, match="deep"):
            resolve(*arguments)


def test_partial_storage_inherits_the_clusters() -> None:
    cluster = {"checkpoint_storage": {"type": "shared_fs", "host_path": "/ck", "save_trial_latest": 2}}
    full = resolve({"checkpoint_storage": {"save_trial_best": 5}}, cluster_defaults=cluster)
    assert full["checkpoint_storage"] == {
        "type": "shared_fs",
        "host_path": "/ck",
        "storage_path": None,
        "propagation": "rprivate",
        "save_experiment_best": 0,
        "save_trial_best": 5,
        "save_trial_latest": 2,
    }


def test_big_numbers_and_texts_survive() -> None:
    raw = {"data": {"big": 2**62, "small": 5e-324, "text": "ünï ☃ 🎉", "nested": [[[{}]]]}}
    assert json.loads(json.dumps(resolve(raw)))["data"] == raw["data"]


# --- laws -------------------------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "lr", "type_", "int", "x.y"])
_FLOATS = st.floats(-1e6, 1e6, allow_nan=False)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | _FLOATS | st.sampled_from(["", "x", "1e-4", "null"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@st.composite
def _ranges(draw: st.DrawFn) -> Raw:
    kind = draw(st.sampled_from(["int", "double", "log"]))
    low, width = draw(st.integers(-9, 9)), draw(st.integers(1, 9))
    found: Raw = {"type": kind, "minval": low, "maxval": low + width, "count": draw(st.integers(1, 4))}
    return {**found, "base": draw(st.sampled_from([2, 10, 0.5]))} if kind == "log" else found


_LEAVES = (
    _ranges()
    | _JSON
    | st.builds(lambda vals: {"type": "categorical", "vals": vals}, st.lists(_JSON, min_size=1, max_size=3))
    | st.builds(lambda val: {"type": "const", "val": val}, _JSON)
)
_HYPERPARAMETERS = st.dictionaries(
    _NAMES, st.recursive(_LEAVES, lambda inner: st.dictionaries(_NAMES, inner, max_size=2), max_leaves=3), max_size=3
)
_LENGTHS = st.integers(0, 9) | st.builds(
    lambda unit, n: {unit: n}, st.sampled_from(["batches", "records", "epochs"]), st.integers(1, 9)
)


def _optional(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Raw]:
    return st.fixed_dictionaries({}, optional={key: st.none() | value for key, value in keys.items()})


def _searcher(name: str, **keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Raw]:
    common = _optional(metric=st.just("m"), smaller_is_better=st.booleans(), max_length=_LENGTHS, **keys)
    return st.builds(lambda block: {"name": name, **block}, common)


_TRIALS, _CONCURRENT = st.integers(1, 9), st.integers(0, 9)
_ASHA = {
    "max_trials": _TRIALS,
    "max_concurrent_trials": _CONCURRENT,
    "time_metric": st.just("batches"),
    "max_time": st.integers(1, 100),
    "divisor": st.floats(1.5, 8),
    "stop_once": st.booleans(),
}
_SEARCHERS = st.one_of(
    _searcher("single"),
    _searcher("random", max_trials=_TRIALS, max_concurrent_trials=_CONCURRENT),
    _searcher("grid", max_concurrent_trials=_CONCURRENT),
    _searcher("async_halving", num_rungs=st.integers(1, 4), **_ASHA),
    _searcher("adaptive_asha", mode=st.sampled_from(["aggressive", "standard"]), **_ASHA),
    _optional(metric=st.just("m"), max_trials=_TRIALS),
)
_VARIABLES = st.lists(st.sampled_from(["A=1", "B=2", "C"]), max_size=2)
_DEVICES = st.sampled_from(["/a:/b", "/a:/b:r", {"host_path": "/h", "container_path": "/c"}])
_TOP = st.sampled_from(["searcher", "resources", "environment", "max_restarts", "labels", "checkpoint_policy"])
VALID: st.SearchStrategy[Raw] = _optional(
    name=st.sampled_from(["", "n"]),
    labels=st.lists(st.sampled_from(["l", "m"]), max_size=3),
    data=st.dictionaries(_NAMES, _JSON, max_size=2),
    entrypoint=st.sampled_from(["python3 x.py", "a:B", ["python3", "x.py"]]),
    hyperparameters=_HYPERPARAMETERS,
    searcher=_SEARCHERS,
    max_restarts=st.integers(0, 9) | st.just(3.0),
    resources=_optional(
        slots_per_trial=st.integers(0, 4),
        weight=st.floats(0, 9),
        shm_size=st.sampled_from([1, "1G", "1.5 MiB"]),
        devices=st.lists(
            st.sampled_from(["/a:/b", "/a:/b:r", {"host_path": "/h", "container_path": "/c"}]), max_size=2
        ),
        agent_label=st.just("x"),
    ),
    environment=_optional(
        image=st.sampled_from(["i", {"gpu": "g"}, {"cuda": "c", "cpu": None}]),
        environment_variables=_VARIABLES | _optional(cpu=_VARIABLES, gpu=_VARIABLES),
        ports=st.just({"a": 1}),
        proxy_ports=st.just([{"proxy_port": 80}]),
    ),
    checkpoint_storage=st.sampled_from(
        [{"save_trial_best": 2}, {"type": "directory", "container_path": "/c"}, {"type": "azure"}]
    ),
    checkpoint_policy=st.sampled_from(["best", "all", "none"]),
    log_policies=st.sampled_from([[], [{"name": "CUDA OOM"}], [{"pattern": "p", "action": {"type": "exclude_node"}}]]),
    min_validation_period=st.sampled_from([{"batches": 0}, {"epochs": 2}]),
    slurm=_optional(sbatch_args=st.just(["--exclude=n1"]), slots_per_node=st.integers(1, 3)),
    data_layer=st.just({"type": "shared_fs"}),
)


@given(VALID)
def test_law_resolve_is_idempotent(raw: Raw) -> None:
    assert errors_of(check(raw)) == []
    full = resolve(raw)
    assert resolve(full) == full


@given(VALID)
def test_law_resolved_config_survives_json_and_yaml(raw: Raw) -> None:
    full = resolve(raw)
    text = json.dumps(full, allow_nan=False)
    assert json.loads(text) == full
    assert load_yaml(text) == (full, [])


@given(VALID)
def test_law_parse_and_to_dict_are_inverse(raw: Raw) -> None:
    config = parse(raw)
    assert parse(to_dict(config)) == config


@given(VALID)
def test_law_the_argument_is_untouched(raw: Raw) -> None:
    before = json.dumps(raw)
    resolve(raw, raw, raw)
    assert json.dumps(raw) == before


@given(
    VALID,
    st.sampled_from(["searcher", "resources", "environment", "max_restarts", "labels", "checkpoint_policy"]),
    _JSON,
)
def test_law_any_value_anywhere_is_judged_without_a_crash(raw: Raw, key: str, value: Any) -> None:
    broken = {**raw, key: value}
    problems = check(broken, complete=True)
    if not errors_of(problems):
        resolve(broken)


@pytest.mark.parametrize("entrypoint", ["python3 train.py", "model:Trial"])
@pytest.mark.parametrize("runtime", ["process", "docker", "kubernetes", "slurm"])
def test_a_resolved_config_has_no_warnings_of_keys_that_nobody_wrote(entrypoint: str, runtime: str) -> None:
    """A clone opened with eight of them."""
    written = {**GOOD, "entrypoint": entrypoint, "name": "n", "runtime": runtime}
    cloned = resolve(written)
    assert {problem.path for problem in check(cloned)} == {problem.path for problem in check(written)}
    assert [p.path for p in unsupported_keys(parse(cloned), runtime=runtime)] == [
        p.path for p in unsupported_keys(parse(written), runtime=runtime)
    ]


def test_a_key_of_no_effect_that_somebody_set_is_still_named() -> None:
    written = {**GOOD, "scheduling_unit": 7, "profiling": {"begin_on_batch": 3}, "min_validation_period": {"epochs": 1}}
    assert {problem.path for problem in check(resolve(written))} == {
        "scheduling_unit",
        "profiling.begin_on_batch",
        "min_validation_period",
    }
