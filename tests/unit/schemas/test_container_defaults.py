"""`task_container_defaults`: Determined's names, as a part of a config that each runtime takes what it knows of."""

from __future__ import annotations

import pytest

from detlab.launch.entrypoint import HOOK_VARIABLE as LAUNCHED
from detlab.schemas.expconf import container_defaults, merge


def test_they_are_a_part_of_a_config() -> None:
    part, problems = container_defaults.read(
        {
            "shm_size_bytes": 4096,
            "image": "lab/torch",
            "environment_variables": ["A=1"],
            "registry_auth": {"username": "u", "password": "p"},
            "bind_mounts": [{"host_path": "/data", "container_path": "/data"}],
            "log_policies": [{"name": "oom", "pattern": "out of memory", "action": "cancel_retries"}],
            "startup_hook": "echo hello",
        }
    )
    assert problems == []
    assert part["resources"] == {"shm_size": 4096}
    assert part["environment"]["environment_variables"] == ["A=1", f"{container_defaults.HOOK_VARIABLE}=echo hello"]
    own = {"environment": {"environment_variables": ["A=2"]}, "resources": {"shm_size": "8G"}}
    merged = merge(own, part)
    assert merged["environment"]["environment_variables"]["cpu"][0] == "A=1"
    assert merged["environment"]["environment_variables"]["cpu"][-1] == "A=2"
    assert merged["resources"]["shm_size"] == "8G"


def test_the_launcher_reads_the_hook_where_it_is_put() -> None:
    assert LAUNCHED == container_defaults.HOOK_VARIABLE


def test_the_hook_is_there_for_each_kind_of_device() -> None:
    raw = {"environment_variables": {"gpu": ["A=1"]}, "startup_hook": "true"}
    variables = container_defaults.read(raw)[0]["environment"]["environment_variables"]
    assert {kind: len(entries) for kind, entries in variables.items()} == {"cpu": 1, "cuda": 2, "rocm": 1}


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"shm": 1}, "shm"),
        ({"startup_hook": 3}, "startup_hook"),
        ({"startup_hook": "x" * 20_000}, "startup_hook"),
        ({"bind_mounts": [{"host_path": "data", "container_path": "/d"}]}, "bind_mounts[0].host_path"),
        ({"image": 3}, "environment.image"),
        ("shm_size: 1", ""),
    ],
)
def test_mistakes_have_their_places(raw: object, path: str) -> None:
    assert path in [one.path for one in container_defaults.read(raw)[1]]


def test_a_process_takes_no_keys_of_containers() -> None:
    raw = {"image": "i", "shm_size": "1G", "environment_variables": ["A=1"], "devices": ["/dev/x:/dev/x"], "slurm": {}}
    part, _ = container_defaults.read(raw)
    assert container_defaults.for_runtime(part, "process") == {"environment": {"environment_variables": ["A=1"]}}
    assert container_defaults.for_runtime(part, "docker")["resources"]["shm_size"] == "1G"
    assert part["resources"]["shm_size"] == "1G"
