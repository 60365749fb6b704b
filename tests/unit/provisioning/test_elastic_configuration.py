"""Providers as operators write them: what is wrong is said with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detlab_hub.backends.instances import InstanceOrder
from detlab_hub.backends.instances.configuration import Surroundings, largest_growth, make_pools
from detlab_hub.core.scheduling import UNBOUNDED, read_pools

AROUND = Surroundings(Path("instances"), "http://127.0.0.1:1/", "c1")
AWS = {"type": "aws", "slots": 1, "region": "r", "instance_type": "t", "image_id": "i"}

GCP = {"type": "gcp", "project": "lab-project", "zone": "europe-west4-a", "boot_disk_source_image": "lab"}


def made(provider: dict[str, Any], name: str = "p") -> Any:
    pools, mistakes = read_pools({name: {"provider": provider}})
    assert not mistakes
    return make_pools(pools, AROUND)


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ({"slots": 1}, "type must be local, aws or gcp"),
        ({"type": "azure", "slots": 1}, "type must be local, aws or gcp"),
        ({"type": "gcp"}, "project: is missing; zone: is missing; boot_disk_source_image: is missing"),
        ({**GCP, "zone": "Europe"}, "zone: 'Europe' is none, such as europe-west4-a"),
        ({**GCP, "boot_disk": 3}, "boot_disk is unknown; there are .*boot_disk_size"),
        ({**GCP, "instance_type": {"gpus": 1}}, "instance_type.gpus: is unknown"),
        ({**GCP, "instance_type": {"machine_type": "g2-standard-4"}}, "gpu_num is missing: how many GPUs"),
        ({**GCP, "instance_type": {"gpu_type": "", "gpu_num": 1}}, "gpu_type is missing"),
        ({**GCP, "slots": 8}, "slots must be 4, as instance_type"),
        ({**GCP, "labels": {"Team": "x"}}, "labels.Team"),
        ({**GCP, "labels": {"detlab-pool": "x"}}, "detlab-pool says whose an instance is"),
        ({**GCP, "name_prefix": "p" * 50}, "name_prefix: 'pppp"),
        ({**GCP, "operation_timeout_period": "five minutes"}, "'five minutes' is no period"),
        ({**GCP, "service_account": {"scopes": ["https://www.googleapis.com/auth/logging.write"]}}, "name its email"),
        ({**GCP, "base_config": {}}, "base_config: it would pass on anything"),
        ({**GCP, "max_idle_agent_period": "soon"}, "max_idle_agent_period: 'soon' is no period"),
        ({**AWS, "root_volume_gb": 1, "root_volume_size": 1}, "root_volume_gb is said twice"),
        ({**AWS, "network_interface": {"subnet": 1}}, "network_interface is a mapping with"),
        ({**AWS, "custom_tags": [{"key": "a"}]}, r"custom_tags\[0\]"),
        ({**AWS, "log_group": "x"}, "log_group: the agent's log is"),
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


@pytest.mark.parametrize("provider", [{"type": "local", "slots": 1}, AWS, GCP], ids=["local", "aws", "gcp"])
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


@pytest.mark.parametrize(
    ("more", "slots", "slot_type", "told"),
    [
        ({}, 4, "cuda", "--pool p"),
        ({"instance_type": {"machine_type": "g2-standard-24", "gpu_num": 2}}, 2, "cuda", "--pool p"),
        ({"instance_type": {"gpu_num": 0}}, 0, "cpu", "--pool p --slots 0"),
        ({"instance_type": {"gpu_num": 0}, "cpu_slots_allowed": True}, 1, "cpu", "--pool p --slots 1"),
        ({"labels": {"team": "vision"}}, 4, "cuda", "--pool p --label team=vision"),
    ],
)
def test_the_slots_of_google_s_machines_follow_from_their_type(
    more: dict[str, Any], slots: int, slot_type: str, told: str
) -> None:
    (pool,) = made({**GCP, **more})
    assert (pool.template.slots, pool.template.slot_type) == (slots, slot_type)
    assert pool.template.labels == more.get("labels", {})
    assert " ".join(pool.provider._settings.agent_arguments) == told
    pools, _ = read_pools({"p": {"provider": {**GCP, **more}}})
    assert [agent.slots for agent in largest_growth(pools.by_name["p"])] == [slots] * 5


def test_a_pool_whose_instances_would_have_names_that_google_refuses_is_refused() -> None:
    with pytest.raises(ValueError, match="shorten it by 1"):
        made({**GCP, "name_prefix": "p" * 11}, "q" * 40)
    made({**GCP, "name_prefix": "p" * 10}, "q" * 40)


def test_periods_may_be_written_as_determined_writes_them() -> None:
    (pool,) = made({**AWS, "max_idle_agent_period": "1h30m", "max_agent_starting_period": "90s"})
    assert (pool.limits.max_idle_agent_period, pool.limits.max_agent_starting_period) == (5400, 90)


def test_determined_s_names_of_ec2_s_settings_are_known() -> None:
    (pool,) = made(
        {
            "type": "aws",
            "region": "r",
            "instance_type": "t",
            "image_id": "i",
            "cpu_slots_allowed": True,
            "root_volume_size": 100,
            "ssh_key_name": "ops",
            "iam_instance_profile_arn": "arn:aws:iam::1:instance-profile/agents",
            "instance_name": "lab",
            "tag_key": "managed-by",
            "tag_value": "us",
            "custom_tags": [{"key": "team", "value": "vision"}],
            "network_interface": {"public_ip": False, "subnet_id": "subnet-1", "security_group_id": "sg-1"},
            "startup_script": "mount -a",
        }
    )
    assert pool.template.slots == 1
    settings = pool.provider._settings
    assert settings.agent_arguments == ("--pool", "p", "--slots", "1")
    assert (settings.setup, settings.key_name, settings.name) == ("mount -a", "ops", "lab")
    request = pool.provider._request(InstanceOrder("p-1", "p", 0.0, "dtenrol_x"))
    assert request["NetworkInterfaces"] == [
        {"DeviceIndex": 0, "AssociatePublicIpAddress": False, "SubnetId": "subnet-1", "Groups": ["sg-1"]}
    ]
    assert not {"SubnetId", "SecurityGroupIds"} & request.keys(), "EC2 takes them in one place only"
    assert request["IamInstanceProfile"] == {"Arn": "arn:aws:iam::1:instance-profile/agents"}
    assert request["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 100
    tags = {tag["Key"]: tag["Value"] for tag in request["TagSpecifications"][0]["Tags"]}
    assert (tags["Name"], tags["managed-by"], tags["team"]) == ("lab", "us", "vision")
