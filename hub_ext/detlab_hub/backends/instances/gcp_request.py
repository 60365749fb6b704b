"""What Google is asked for: an instance as Compute Engine's API describes one, from a pool's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab_hub.backends.instances.gcp_settings import GcpSettings


def instance_resource(settings: GcpSettings, name: str, labels: Mapping[str, str], script: str) -> dict[str, Any]:
    """Return an instance, in the names of Google's library.

    Args:
        settings: Of its pool.
        name: Its own.
        labels: By which it is found.
        script: What root runs at each start.
    """
    kind, zone = settings.instance_type, f"zones/{settings.zone}"
    disk: dict[str, Any] = {"source_image": settings.boot_disk_source_image, "disk_size_gb": settings.boot_disk_size}
    if settings.boot_disk_type:
        disk["disk_type"] = f"{zone}/diskTypes/{settings.boot_disk_type.rpartition('/')[2]}"
    wish: dict[str, Any] = {
        "name": name,
        "machine_type": f"{zone}/machineTypes/{kind.machine_type}",
        "labels": {**settings.labels, settings.label_key: settings.label_value, **labels},
        "disks": [{"boot": True, "auto_delete": True, "initialize_params": disk}],
        "network_interfaces": [_interface(settings)],
        "metadata": {"items": [{"key": "startup-script", "value": script}]},
        "scheduling": _scheduling(preemptible=kind.preemptible, gpus=bool(kind.gpu_num)),
    }
    if kind.accelerators:
        path = f"projects/{settings.project}/{zone}/acceleratorTypes/{kind.gpu_type}"
        wish["guest_accelerators"] = [{"accelerator_type": path, "accelerator_count": kind.accelerators}]
    if settings.network_tags:
        wish["tags"] = {"items": settings.network_tags}
    if settings.service_account.email:
        account = settings.service_account
        wish["service_accounts"] = [{"email": account.email, "scopes": account.granted}]
    return wish


def _interface(settings: GcpSettings) -> dict[str, Any]:
    said = settings.network_interface
    wish: dict[str, Any] = {}
    if said.network or not said.subnetwork:
        wish["network"] = _path(said.network or "default", "global/networks")
    if said.subnetwork:
        wish["subnetwork"] = _path(said.subnetwork, f"regions/{settings.region}/subnetworks")
    if said.external_ip:
        nat = {"type_": "ONE_TO_ONE_NAT", "name": "External NAT", "network_tier": "PREMIUM"}
        wish["access_configs"] = [nat]
    return wish


def _scheduling(*, preemptible: bool, gpus: bool) -> dict[str, Any]:
    if preemptible:
        # Stopped, not deleted: until the master has deleted it, the list says why it went.
        return {
            "preemptible": True,
            "provisioning_model": "SPOT",
            "instance_termination_action": "STOP",
            "automatic_restart": False,
            "on_host_maintenance": "TERMINATE",
        }
    return {"automatic_restart": True, "on_host_maintenance": "TERMINATE" if gpus else "MIGRATE"}


def _path(name: str, folder: str) -> str:
    return name if "/" in name else f"{folder}/{name}"
