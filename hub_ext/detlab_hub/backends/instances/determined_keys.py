"""Determined's names for the settings of EC2's instances, and its settings that mean nothing here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RENAMED = {
    "root_volume_size": "root_volume_gb",
    "ssh_key_name": "key_name",
    "iam_instance_profile_arn": "iam_instance_profile",
    "instance_name": "name",
    "instance_slots": "slots",
    "startup_script": "setup",
}
_RENAMED_IN_NETWORK = {"public_ip": "public_ip", "subnet_id": "subnet_id", "security_group_id": "security_group_ids"}
_NOT_HERE = {
    "master_url": "set c.DetHub.service_url",
    "master_cert_name": "agents check the name in service_url; for a certificate of detlab's own, set fingerprint",
    "agent_docker_image": "the image has detlab, or `setup` installs it: agents run without a container",
    "agent_docker_network": "containers have the engine's network, or the one their task asks for",
    "agent_docker_runtime": "set it in the image's Docker engine",
    "agent_fluent_image": "agents ship logs themselves",
    "agent_reconnect_attempts": "agents reconnect until they are ended",
    "agent_reconnect_backoff": "agents reconnect until they are ended",
    "container_startup_script": "use startup-hook.sh beside the code, or `setup` for the instance",
    "base_config": "it would pass on anything: name what you miss, by a key of its own",
    "use_cloud_logging": "the agent's log is /var/log/detlab-agent.log: let Google's Ops Agent in the image read it",
    "log_group": "the agent's log is /var/log/detlab-agent.log: let the CloudWatch agent in the image read it",
    "log_stream": "the agent's log is /var/log/detlab-agent.log: let the CloudWatch agent in the image read it",
}


def refuse_what_is_not_here(said: Mapping[str, Any]) -> None:
    """Refuse settings of Determined that have another place here.

    Raises:
        ValueError: There are some; it names each with what to do instead.
    """
    found = [f"{key}: {_NOT_HERE[key]}" for key in said if key in _NOT_HERE]
    if found:
        raise ValueError("; ".join(found))


def common_names(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with `startup_script` under the name `setup`.

    Raises:
        ValueError: Both are given.
    """
    return _renamed(said, {"startup_script": "setup"}, "")


def names_of_ec2(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with Determined's names of EC2's settings replaced by ours.

    Raises:
        ValueError: One is given under both names, or has another shape.
    """
    settings = _renamed(said, _RENAMED, "")
    network = settings.pop("network_interface", {})
    if not isinstance(network, Mapping) or network.keys() - _RENAMED_IN_NETWORK.keys():
        raise ValueError(f"network_interface is a mapping with {', '.join(_RENAMED_IN_NETWORK)}")
    inside = _renamed(network, _RENAMED_IN_NETWORK, "network_interface.")
    if isinstance(inside.get("security_group_ids"), str):
        inside["security_group_ids"] = [inside["security_group_ids"]]
    _merge(settings, inside, "network_interface.")
    tags = dict(settings.get("tags", {}))
    for number, tag in enumerate(settings.pop("custom_tags", ())):
        if not isinstance(tag, Mapping) or set(tag) != {"key", "value"}:
            raise ValueError(f"custom_tags[{number}] is a mapping with key and value")
        tags[str(tag["key"])] = str(tag["value"])
    key, value = settings.pop("tag_key", None), settings.pop("tag_value", None)
    if key is not None or value is not None:
        tags[str(key or "managed-by")] = str(value or "detlab")
    return {**settings, "tags": tags} if tags else settings


def _renamed(said: Mapping[str, Any], names: Mapping[str, str], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {key: value for key, value in said.items() if key not in names}
    _merge(found, {names[key]: value for key, value in said.items() if key in names}, where)
    return found


def _merge(into: dict[str, Any], more: Mapping[str, Any], where: str) -> None:
    twice = sorted(into.keys() & more.keys())
    if twice:
        raise ValueError(f"{', '.join(twice)} is said twice, once under Determined's name ({where or 'see the page'})")
    into.update(more)
