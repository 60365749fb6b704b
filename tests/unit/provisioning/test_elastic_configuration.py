"""Providers as operators write them: what is wrong is said with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detlab_hub.backends.instances.configuration import Surroundings, largest_growth, make_pools
from detlab_hub.core.scheduling import UNBOUNDED, read_pools

AROUND = Surroundings(Path("instances"), "http://127.0.0.1:1/", "c1")
AWS = {"type": "aws", "slots": 1, "region": "r", "instance_type": "t", "image_id": "i"}


def made(provider: dict[str, Any], name: str = "p") -> Any:
    pools, mistakes = read_pools({name: {"provider": provider}})
    assert not mistakes
    return make_pools(pools, AROUND)


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ({"slots": 1}, "type must be local or aws"),
        ({"type": "gcp", "slots": 1}, "type must be local or aws"),
        ({"type": "local"}, "slots must say"),
        ({"type": "local", "slots": True}, "slots must say"),
        ({"type": "local", "slots": 1, "max_instance": 3}, "max_instance is unknown"),
        ({"type": "local", "slots": 1, "cpus": "many"}, "many"),
        ({"type": "local", "slots": 1, "memory": "much"}, "much"),
        ({"type": "local", "slots": 1, "min_instances": 6}, "min_instances must be between"),
        ({"type": "aws", "slots": 1, "region": "r"}, "instance_type"),
        ({**AWS, "instance_types": ["a"]}, "instance_types is unknown"),
    ],
)
def test_mistakes_name_the_pool_and_the_setting(provider: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        made(provider)
    assert "provider of the pool 'p'" in str(raised.value)


def test_names_that_name_no_folder_are_refused_and_pools_without_a_provider_are_not_elastic() -> None:
    with pytest.raises(ValueError, match="small letters"):
        made({"type": "local", "slots": 1}, "..")
    assert make_pools(read_pools({"static": {}})[0], AROUND) == ()
    assert len(made(AWS)) == 1


@pytest.mark.parametrize("provider", [{"type": "local", "slots": 1}, AWS], ids=["local", "aws"])
def test_cpus_and_memory_of_an_instance_are_what_the_master_counts_with_and_its_agent_is_told(
    provider: dict[str, Any],
) -> None:
    (pool,) = made({**provider, "cpus": 2.5, "memory": "8G"})
    assert (pool.template.millicpus, pool.template.host_memory) == (2500, 8 * 2**30)
    told = pool.provider._arguments if provider["type"] == "local" else pool.provider._settings.agent_arguments
    assert " ".join(told).count("--cpus 2.5 --memory 8G") == 1
    (plain,) = made(provider)
    assert (plain.template.millicpus, plain.template.host_memory) == (UNBOUNDED, UNBOUNDED)


def test_an_instance_of_a_pool_of_shared_devices_counts_by_its_shares_and_is_told_its_devices() -> None:
    shape = {"type": "local", "slots": 2, "gpu_memory": 80, "max_instances": 3}
    pools, _ = read_pools({"p": {"provider": shape, "slots_per_device": 4}})
    (pool,) = make_pools(pools, AROUND)
    assert (pool.template.slots, pool.template.memory) == (8, 20)
    assert " ".join(pool.provider._arguments).count("--slots 2") == 1
    assert [agent.slots for agent in largest_growth(pools.by_name["p"])] == [8, 8, 8]
