"""Servers' pods at the level "restricted" of Pod Security: what is always set, and which settings break it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubernetes_asyncio.client import V1PodSecurityContext, V1SecurityContext
from kubespawner.utils import get_k8s_model

from detlab_hub.spawners.wording import SpawnFailed

RESTRICTED, PRIVILEGED = "restricted", "privileged"
_VOLUMES = frozenset(
    {"name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
_MAY_ADD = frozenset({"NET_BIND_SERVICE"})


def restrict(pod: Any, as_json: Callable[[Any], dict[str, Any]]) -> None:
    """Set what the level asks for, where the site's settings say nothing.

    Args:
        pod: The pod, as KubeSpawner makes it.
        as_json: Returns it as the API server gets it.

    Raises:
        SpawnFailed: They say what the level does not admit; everything is named.
    """
    spec = pod.spec
    context = {"seccompProfile": {"type": "RuntimeDefault"}, **(as_json(spec.security_context) or {})}
    spec.security_context = get_k8s_model(V1PodSecurityContext, {**context, "runAsNonRoot": True})
    for container in [*spec.containers, *(spec.init_containers or [])]:
        own = {"allowPrivilegeEscalation": False, **(as_json(container.security_context) or {})}
        own["capabilities"] = {**(own.get("capabilities") or {}), "drop": ["ALL"]}
        container.security_context = get_k8s_model(V1SecurityContext, own)
    if found := list(_beyond(as_json(pod)["spec"])):
        raise SpawnFailed(
            f"The site's settings for servers go beyond Pod Security's level restricted: {'; '.join(found)}. Take them "
            "out, or set c.DetKubeSpawner.pod_security = 'privileged', also as the level of the namespace",
            reason="pod_security",
            status_code=500,
        )


def _beyond(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key))
    for volume in spec.get("volumes") or []:
        yield from (f"volume {volume.get('name')}: {kind}" for kind in sorted(set(volume) - _VOLUMES))
    of_pod = spec.get("securityContext") or {}
    if of_pod.get("runAsUser") == 0:
        yield "the pod may run as root"
    if (of_pod.get("seccompProfile") or {}).get("type") == "Unconfined":
        yield "the pod is without seccomp"
    if of_pod.get("sysctls") or of_pod.get("seLinuxOptions"):
        yield "the pod has sysctls or a label of SELinux"
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        name, context = container.get("name"), container.get("securityContext") or {}
        capabilities = context.get("capabilities") or {}
        if context.get("privileged"):
            yield f"{name} is privileged"
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{name} may escalate its privileges"
        if context.get("runAsUser") == 0 or context.get("runAsNonRoot") is False:
            yield f"{name} may run as root"
        if "ALL" not in (capabilities.get("drop") or []) or set(capabilities.get("add") or []) - _MAY_ADD:
            yield f"{name} has capabilities"
        if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
            yield f"{name} is without seccomp"
        if any(port.get("hostPort") for port in container.get("ports") or []):
            yield f"{name} has a port of the host"
