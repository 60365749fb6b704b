"""What this runtime cannot honour is named, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.schemas.expconf import command_of, parse, resolve, unsupported_keys


def named(raw: dict[str, Any]) -> dict[str, str]:
    return {problem.path: problem.level for problem in unsupported_keys(parse(raw))}


def test_a_plain_config_is_fully_supported() -> None:
    raw = {
        "entrypoint": "python3 -m detlab.launch.torch_distributed python3 train.py",
        "searcher": {"name": "single", "metric": "x"},
        "resources": {"slots_per_trial": 2, "priority": 3, "resource_pool": "gpu", "weight": 2},
        "environment": {"environment_variables": ["A=1"]},
        "checkpoint_storage": {"type": "shared_fs", "host_path": "/mnt"},
        "log_policies": [
            {"name": "CUDA OOM"},
            {"name": "label only", "pattern": "x"},
            {"pattern": "x", "action": "exclude_node"},
        ],
        "data": {"anything": 1},
    }
    assert named(raw) == {}


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"environment": {"image": "mine"}}, "environment.image"),
        ({"environment": {"image": {"gpu": "mine"}}}, "environment.image"),
        ({"environment": {"force_pull_image": True}}, "environment.force_pull_image"),
        ({"environment": {"registry_auth": {"username": "u"}}}, "environment.registry_auth"),
        ({"environment": {"pod_spec": {"spec": {}}}}, "environment.pod_spec"),
        ({"environment": {"proxy_ports": [{"proxy_port": 80}]}}, "environment.proxy_ports"),
        ({"environment": {"add_capabilities": ["SYS_PTRACE"]}}, "environment.add_capabilities"),
        ({"bind_mounts": [{"host_path": "/a", "container_path": "/a"}]}, "bind_mounts"),
        ({"resources": {"devices": ["/a:/b"]}}, "resources.devices"),
        ({"resources": {"shm_size": "1G"}}, "resources.shm_size"),
        ({"resources": {"memory": "1G"}}, "resources.memory"),
        ({"resources": {"cpus": 1}}, "resources.cpus"),
        (
            {"checkpoint_storage": {"type": "shared_fs", "host_path": "/d", "propagation": "rshared"}},
            "checkpoint_storage.propagation",
        ),
        ({"checkpoint_policy": "all"}, "checkpoint_policy"),
        ({"debug": True}, "debug"),
        ({"slurm": {"gpu_type": "x"}}, "slurm"),
        ({"pbs": {"slots_per_node": 1}}, "pbs"),
        ({"integrations": {"pachyderm": {"pachd": {"host": "h", "port": "80"}}}}, "integrations.pachyderm"),
        ({"profiling": {"enabled": True}}, "profiling.enabled"),
        ({"optimizations": {"aggregation_frequency": 2}}, "optimizations"),
        ({"entrypoint": "python3 -m determined.launch.torch_distributed python3 x.py"}, "entrypoint"),
        ({"entrypoint": "python3 -m determined.launch.deepspeed python3 x.py"}, "entrypoint"),
    ],
)
def test_warnings(raw: dict[str, Any], path: str) -> None:
    assert named(raw) == {path: "warning"}


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"entrypoint": "python3 -m determined.launch.tensorflow python3 x.py"}, "entrypoint"),
        ({"entrypoint": ["python3", "-m", "detlab.launch.horovod", "x"]}, "entrypoint"),
    ],
)
def test_errors(raw: dict[str, Any], path: str) -> None:
    assert named(raw) == {path: "error"}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "s3", "bucket": "b"},
        {"type": "gcs", "bucket": "b"},
        {"type": "azure", "container": "c", "account_url": "https://account.blob.core.windows.net"},
    ],
)
def test_object_stores_are_supported(block: dict[str, Any]) -> None:
    assert named({"checkpoint_storage": block}) == {}


def test_a_trial_class_is_trained_by_the_config() -> None:
    raw = {
        "entrypoint": "model_def:Trial",
        "perform_initial_validation": True,
        "checkpoint_policy": "all",
        "debug": True,
        "profiling": {"enabled": True},
        "optimizations": {
            "aggregation_frequency": 2,
            "gradient_compression": True,
            "average_aggregated_gradients": False,
        },
    }
    assert named(raw) == {}
    raw["optimizations"]["mixed_precision"] = "O1"
    assert named(raw) == {"optimizations.mixed_precision": "warning"}
    assert set(named({**raw, "entrypoint": "python3 train.py"})) == {
        "perform_initial_validation",
        "checkpoint_policy",
        "debug",
        "optimizations",
        "profiling.enabled",
    }


def test_the_command_of_a_trial_class_starts_one_process_per_slot() -> None:
    assert command_of("model_def:Trial", 1) == ["python3", "-m", "detlab.pytorch", "model_def:Trial"]
    assert command_of(" model_def:Trial\n", 2) == [
        "python3", "-m", "detlab.launch.torch_distributed", "--trial", "model_def:Trial",
    ]  # fmt: skip
    assert command_of("python3 train.py", 2) == "python3 train.py"
    assert command_of(["a:b", "c"], 2) == ["a:b", "c"]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "environment": st.just({"image": None, "ports": {}, "registry_auth": None}),
            "slurm": st.sampled_from([{}, {"gpu_type": None}]),
            "profiling": st.sampled_from([{}, {"enabled": False}]),
            "optimizations": st.sampled_from([{}, {"aggregation_frequency": 1}]),
            "integrations": st.none(),
        },
    )
)
def test_defaults_spelt_out_are_not_named(raw: dict[str, Any]) -> None:
    assert named(raw) == {}
    assert named(resolve(raw)) == {}


@pytest.mark.parametrize("engine", ["auto", "fused", "dual", "microbatch"])
def test_each_engine_of_a_policy_is_there(engine: str) -> None:
    raw = {
        "entrypoint": "model_def:Trial",
        "searcher": {"name": "single", "metric": "x", "max_length": {"batches": 1}},
        "governance": {
            "engine": engine,
            "sources": [{"name": "web"}],
            "rules": [{"source": "*", "layers": ".*", "scale": 1.0}],
        },
    }
    assert named(raw) == {"governance": "warning"}
