"""The level "restricted" of the Pod Security Standards, written from the standard: what a pod has that it forbids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
_SECCOMP = {"RuntimeDefault", "Localhost"}
_SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
_SELINUX = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}


def violations(spec: dict[str, Any]) -> Iterator[str]:
    """Yield what of a pod's spec the level does not admit."""
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"{key} is set"
    for volume in spec.get("volumes") or []:
        if kinds := set(volume) - {"name"} - _VOLUMES:
            yield f"volume {volume['name']} is {', '.join(kinds)}"
    own = spec.get("securityContext") or {}
    yield from _of_context("pod", own)
    if bad := {one["name"] for one in own.get("sysctls") or []} - _SYSCTLS:
        yield f"sysctls {', '.join(bad)}"
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or []:
            yield from _of_container(container, own)


def _of_container(container: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    name, context = container["name"], container.get("securityContext") or {}
    yield from _of_context(name, context)
    if context.get("privileged"):
        yield f"{name} is privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{name} may escalate privileges"
    capabilities = context.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or []):
        yield f"{name} does not drop all capabilities"
    if added := set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
        yield f"{name} adds {', '.join(added)}"
    if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{name} may run as root"
    if (context.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type") not in _SECCOMP:
        yield f"{name} has no seccomp profile"
    if context.get("procMount") not in {None, "Default"}:
        yield f"{name} has another /proc"
    if any(port.get("hostPort") for port in container.get("ports") or []):
        yield f"{name} has a port of the host"
    hooks = [container.get(key) or {} for key in ("livenessProbe", "readinessProbe", "startupProbe")]
    hooks += list((container.get("lifecycle") or {}).values())
    for hook in hooks:
        if any((hook.get(key) or {}).get("host") for key in ("httpGet", "tcpSocket")):
            yield f"{name} has a probe of another host"


def _of_context(where: str, context: dict[str, Any]) -> Iterator[str]:
    if context.get("runAsUser") == 0:
        yield f"{where} runs as root"
    if (context.get("seccompProfile") or {"type": "RuntimeDefault"}).get("type") not in _SECCOMP:
        yield f"{where} is without seccomp"
    if (context.get("appArmorProfile") or {"type": "RuntimeDefault"}).get("type") not in _SECCOMP:
        yield f"{where} is without AppArmor"
    selinux = context.get("seLinuxOptions") or {}
    if selinux.get("type", "") not in _SELINUX or selinux.get("user") or selinux.get("role"):
        yield f"{where} has a label of SELinux"
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{where} is a process of the host"
