"""What users may not set in `environment.pod_spec`: what is the runtime's, and what would let a pod break out.

The master checks it at submit, the agent of a Kubernetes cluster once more before it makes a pod; what is the choice of
that agent's operator (claims, secrets, host paths, accounts, priority classes) the agent alone can check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAIN_CONTAINER = "determined-container"
HELD_LABEL = "detlab.io/held"
"""Of a pod that somebody else makes, and whose devices are those of an allocation of detlab's (`DetKubeSpawner`)."""
FORBIDDEN = ("name", "name_space", "namespace")
MAIN_FORBIDDEN = {
    "image": "set environment.image",
    "command": None,
    "args": None,
    "working_dir": None,
    "ports": None,
    "env_from": None,
    "env": "set environment.environment_variables",
    "liveness_probe": None,
    "readiness_probe": None,
    "startup_probe": None,
    "lifecycle": None,
    "termination_message_path": None,
    "termination_message_policy": None,
    "image_pull_policy": "set environment.force_pull_image",
    "security_context": None,
    "stdin": None,
    "tty": None,
}
METADATA_FORBIDDEN = {
    "owner_references": None,
    "finalizers": None,
    "generate_name": None,
}
SPEC_FORBIDDEN = {
    "host_network": "pods have a network of their own",
    "host_pid": None,
    "hostPID": None,
    "host_ipc": None,
    "hostIPC": None,
    "host_users": None,
    "share_process_namespace": None,
    "node_name": "use node_selector or resources.agent_labels: the master chooses the node",
    "restart_policy": "set max_restarts",
    "security_context": "tasks run under the uid of their user",
    "automount_service_account_token": None,
    "ephemeral_containers": None,
    "priority": "set resources.priority, or pod_spec.spec.priorityClassName",
}
CONTAINER_FORBIDDEN = {"security_context": "tasks run under the uid of their user", "volume_devices": None}
"""Of every other container."""


def camel(name: str) -> str:
    """Return a name as Kubernetes spells it."""
    return re.sub(r"_(.)", lambda match: match.group(1).upper(), name)


def block(raw: Any, key: str) -> Mapping[str, Any]:
    """Return a mapping in a mapping; empty if it is none."""
    value = raw.get(key) if isinstance(raw, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def items(raw: Any, *keys: str) -> list[Any]:
    """Return the list under the first of the keys that has one."""
    for key in keys:
        value = raw.get(key) if isinstance(raw, Mapping) else None
        if isinstance(value, list):
            return value
    return []


def forbidden(spec: Any, base: str = "environment.pod_spec") -> Iterator[tuple[str, str, str | None]]:
    """Yield the path of each field that is not the user's to set, what is wrong, and what to do instead."""
    metadata, inner = block(spec, "metadata"), block(spec, "spec")
    for where, found in ((base, block({"it": spec}, "it")), (f"{base}.metadata", metadata)):
        for key in FORBIDDEN:
            if found.get(key) is not None:
                yield f"{where}.{key}", "is not configurable", None
    yield from _named(metadata, METADATA_FORBIDDEN, f"{base}.metadata", "is not configurable")
    yield from _named(inner, SPEC_FORBIDDEN, f"{base}.spec", "is not configurable")
    for kind in ("containers", "initContainers", "init_containers"):
        for index, container in enumerate(items(inner, kind)):
            main = kind == "containers" and block({"it": container}, "it").get("name") == MAIN_CONTAINER
            names = MAIN_FORBIDDEN if main else CONTAINER_FORBIDDEN
            what = f"is not configurable for {MAIN_CONTAINER}" if main else "is not configurable"
            yield from _named(container, names, f"{base}.spec.{kind}[{index}]", what)


def _named(found: Any, names: Mapping[str, str | None], base: str, what: str) -> Iterator[tuple[str, str, str | None]]:
    if not isinstance(found, Mapping):
        return
    for key, hint in names.items():
        for spelling in dict.fromkeys((key, camel(key))):
            if found.get(spelling) is not None:
                yield f"{base}.{spelling}", what, hint
