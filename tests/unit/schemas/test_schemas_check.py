"""What `check` accepts and refuses, all at once and at every path."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
from schemas_problems import GOOD, errors, hints, warnings

from detlab.errors import ConfigError, Problem
from detlab.schemas.expconf import check, errors_of, parse


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
        "workspace": 5,
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
        "workspace",
    }


def test_parse_raises_with_all_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"foo": 1, "debug": 2, "scheduling_unit": 5})
    assert [problem.path for problem in errors_of(caught.value.problems)] == ["debug", "foo"]
    assert caught.value.code == "config.invalid"
    assert "2 errors" in str(caught.value)


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
        (
            {"searcher": {"name": "random", "max_time": 16}},
            "searcher.max_time",
            "`random` does not use it; `async_halving`, `adaptive_asha`, `asha`, `hyperband`, `bohb` and `dehb` do:"
            " remove it, or change `name`",
        ),
        (
            {"checkpoint_storage": {"type": "shared_fs", "host_path": "/a", "bucket": "b"}},
            "checkpoint_storage.bucket",
            "`shared_fs` does not use it; `s3` and `gcs` do: remove it, or change `type`",
        ),
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


@pytest.mark.parametrize(
    ("raw", "path"),
    [({"zzz": 1}, "zzz"), ({"resources": {"constraints": {"zone_rules": []}}}, "resources.constraints.zone_rules")],
)
def test_a_key_ahead_of_an_upgrade_is_told_with_the_version_that_does_not_know_it(raw: object, path: str) -> None:
    """A client may be newer than the master, or older: each judges the config, and says who it is."""
    hint = hints(raw)[path]
    assert hint is not None
    assert hint.startswith(f"detlab {version('detlab')} has no such key")
    assert "det version" in hint


# --- storage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "storage",
    [
        {"type": "s3", "bucket": "b"},
        {"type": "gcs", "bucket": "b", "prefix": "a/b"},
        {"type": "azure", "container": "c", "connection_string": "s"},
        {"type": "azure", "container": "c", "account_url": "https://u.example", "credential": "k"},
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
        ({"type": "s3", "bucket": "b", "access_key": "AKIA"}, "checkpoint_storage.secret_key"),
        ({"type": "s3", "bucket": "b", "secret_key": "s"}, "checkpoint_storage.access_key"),
        ({"type": "s3", "bucket": "b", "session_token": "t"}, "checkpoint_storage.access_key"),
        ({"type": "gcs", "bucket": "b", "prefix": "a/../b"}, "checkpoint_storage.prefix"),
        ({"type": "s3", "bucket": "b", "prefix": ".."}, "checkpoint_storage.prefix"),
        ({"type": "azure", "container": "c"}, "checkpoint_storage"),
        (
            {"type": "azure", "container": "c", "connection_string": "s", "account_url": "https://u.example"},
            "checkpoint_storage",
        ),
        (
            {"type": "azure", "container": "c", "connection_string": "s", "credential": "k"},
            "checkpoint_storage.credential",
        ),
        ({"type": "shared_fs"}, "checkpoint_storage.host_path"),
        ({"type": "shared_fs", "host_path": "/m", "storage_path": "../x"}, "checkpoint_storage.storage_path"),
        ({"type": "shared_fs", "host_path": "/m", "storage_path": "/mm/x"}, "checkpoint_storage.storage_path"),
        ({"type": "shared_fs", "host_path": "/m", "storage_path": "/m-evil"}, "checkpoint_storage.storage_path"),
        ({"type": "shared_fs", "host_path": "/m/", "storage_path": "../m-evil"}, "checkpoint_storage.storage_path"),
        ({"type": "shared_fs", "host_path": "/m", "storage_path": "/m/../x"}, "checkpoint_storage.storage_path"),
        ({"type": "directory", "container_path": "/c", "bucket": "b"}, "checkpoint_storage.bucket"),
        ({"type": "directory", "container_path": "/c", "save_trial_best": -1}, "checkpoint_storage.save_trial_best"),
    ],
)
def test_bad_storage(storage: dict[str, Any], path: str) -> None:
    assert set(errors({**GOOD, "checkpoint_storage": storage}, complete=True)) == {path}


# --- the rest -----------------------------------------------------------------------------------------------


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
        ({"workspace": 5}, "workspace"),
        ({"project": ["p"]}, "project"),
    ],
)
def test_bad_values_have_their_path(raw: object, path: str) -> None:
    assert set(errors(raw)) == {path}


@pytest.mark.parametrize("key", ["min_validation_period", "min_checkpoint_period", "scheduling_unit", "optimizations"])
def test_deprecated_keys_earn_a_warning(key: str) -> None:
    values = {"scheduling_unit": 1, "optimizations": {}}
    assert warnings({key: values.get(key, {"batches": 1})}) == {key: "is deprecated"}


@pytest.mark.parametrize(
    ("entrypoint", "hint"),
    [
        ("python3 train.py", "a script passes it to the trainer"),
        ("model_def:Trial", "it counts as long as the entrypoint has the form module:Class"),
    ],
)
def test_a_period_is_told_where_it_counts(entrypoint: str, hint: str) -> None:
    """Regression: a trial class was told to pass its periods to the trainer, and they were honoured."""
    periods = {"min_validation_period": {"batches": 1}, "min_checkpoint_period": {"epochs": 1}, "scheduling_unit": 5}
    found = {problem.path: problem.hint or "" for problem in check({"entrypoint": entrypoint, **periods})}
    assert {key: hint in found[key] for key in periods} == dict.fromkeys(periods, True)
    assert all("passes it to the trainer" not in found[key] for key in periods) == (entrypoint == "model_def:Trial")


@pytest.mark.parametrize("key", ["data_layer", "internal", "tensorboard_storage"])
def test_ignored_keys_earn_a_warning(key: str) -> None:
    assert warnings({key: {"anything": ["at", "all"]}}) == {key: "is accepted and has no effect"}


@pytest.mark.parametrize("value", ["export", True, ["import"], {"import": "runs"}, ""])
def test_tensorboard_is_imported_or_not(value: object) -> None:
    assert parse({**GOOD, "tensorboard": "import"}).model_dump(mode="json")["tensorboard"] == "import"
    assert "tensorboard" not in parse(GOOD).model_dump(mode="json")
    assert set(errors({"tensorboard": value})) == {"tensorboard"}


def test_tensorboard_has_no_effect_where_the_cluster_runs_no_trial() -> None:
    raw = {"unmanaged": True, "tensorboard": "import"}
    assert "has no effect" in warnings(raw)["tensorboard"]
    assert "det.init" in (hints(raw)["tensorboard"] or "")


@pytest.mark.parametrize("value", [{}, {"kerberos": None}, {"kerberos": {"config_file": "/etc/krb5.conf"}}])
def test_security_earns_a_warning(value: object) -> None:
    assert check({"security": value}) == [
        Problem("security", "is accepted and has no effect", "Kerberos support was removed", "warning")
    ]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"tls": True}, "security.tls"),
        ({"kerberos": {}}, "security.kerberos.config_file"),
        ({"kerberos": {"config_file": 3}}, "security.kerberos.config_file"),
        ({"kerberos": {"config_file": "x", "realm": "y"}}, "security.kerberos.realm"),
    ],
)
def test_security_that_determined_refuses_is_refused(value: object, path: str) -> None:
    assert set(errors({"security": value})) == {path}


def test_a_range_of_profiled_batches_holds_one() -> None:
    """Determined refuses it where profiling is enabled, and only there."""
    backwards = {"begin_on_batch": 5, "end_after_batch": 4}
    assert set(errors({"profiling": {"enabled": True, **backwards}})) == {"profiling.begin_on_batch"}
    assert errors({"profiling": {"enabled": False, **backwards}}) == errors({"profiling": backwards}) == {}
    assert errors({"profiling": {"enabled": True, "begin_on_batch": 4, "end_after_batch": 4}}) == {}


def test_records_of_an_epoch_have_no_effect() -> None:
    assert warnings({"records_per_epoch": 1}) == {"records_per_epoch": "is accepted and has no effect"}


def test_ignored_fields_of_blocks_earn_a_warning() -> None:
    raw = {
        "resources": {"agent_label": "x", "native_parallel": True, "slots": 3},
        "profiling": {"enabled": True, "begin_on_batch": 1, "end_after_batch": 2, "sync_timings": False},
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


def test_too_many_log_policies_are_told_beside_the_other_mistakes() -> None:
    policies = [{"name": f"p{n}", "pattern": "x"} for n in range(20)]
    assert errors({"log_policies": policies}) == {}
    found = errors({"log_policies": [*policies, {"name": "one more", "pattern": "("}]})
    assert set(found) == {"log_policies", "log_policies[20].pattern"}


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
    }
    assert set(warnings(raw)) == {"resources.max_slots", "bind_mounts[1].container_path", "environment.image.gpu"}
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


# --- named regressions --------------------------------------------------------------------------------------


def test_a_flood_of_mistakes_is_cut_and_stays_quick() -> None:
    raw = {**{f"unknown_{i}": i for i in range(20_000)}, "labels": [None] * 20_000}
    found = check(raw)
    assert 100 <= len(found) <= 200
    assert errors_of(found)


def test_a_flood_of_warnings_cannot_hide_an_error() -> None:
    policies = [{"name": f"n{i}", "pattern": "x", "action": {"type": "exclude_node"}} for i in range(500)]
    raw = {"log_policies": [*policies, {"name": "n0"}]}
    assert errors(raw) == {
        "log_policies": "has 501 policies; there may be 20",
        "log_policies[500].name": "'n0' is the name of two policies",
    }


def test_long_keys_and_values_are_shown_shortened() -> None:
    for raw in (
        {"x" * 10_000: 1},
        {"searcher": {"name": "x" * 10_000}},
        {"hyperparameters": {"h": {"type": "x" * 10_000}}},
        {"checkpoint_policy": "x" * 10_000},
    ):
        [problem] = errors_of(check(raw))
        assert len(str(problem)) < 400


@pytest.mark.parametrize("pattern", ["(", "(" * 900, "(" * 5000, "a{2000}", "a(?=b)", "(a)\\1", "(?P<n>", "x" * 1001])
def test_patterns_that_cannot_be_matched_are_refused(pattern: str) -> None:
    assert set(errors({"log_policies": [{"name": "a", "pattern": pattern}]})) == {"log_policies[0].pattern"}


def test_an_odd_pattern_that_is_one_is_taken() -> None:
    assert errors({"log_policies": [{"name": "a", "pattern": "[[a]"}]}) == {}


def test_a_sweep_of_wandb_is_told_from_a_config_with_five_unknown_keys() -> None:
    sweep = {"method": "random", "metric": {"name": "loss"}, "parameters": {"lr": {"min": 0.1}}, "program": "a.py"}
    (problem,) = check(sweep)
    assert (problem.path, "sweep of W&B" in problem.message) == ("method", True)
    assert "det config import" in str(problem.hint)
