"""What users set by `environment.pod_spec`, and what of it the operator of this agent has to allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from detlab.schemas.podspec import block, forbidden, items
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.kubernetes.options import Options, Rules, allowed
from detlab_agent.runtimes.preparation import Order

_SAFE_VOLUMES = frozenset({"emptyDir", "configMap", "downwardAPI", "ephemeral"})
_OURS = "det-"
"""Begins the names of volumes that this agent adds."""
DIRECTORY = "Directory"
"""The type of a hostPath that must be there."""
_TOLD = 8
"""How many mistakes are named."""


def checked(order: Order, rules: Rules) -> Mapping[str, Any]:
    """Return the pod_spec of a task's config.

    Raises:
        SetupFailed: It has what this agent does not allow; everything is named.
    """
    config = order.launch.info.config
    wanted = block(block(config, "environment"), "pod_spec")
    problems = [f"{path} {what}" for path, what, _ in forbidden(wanted)]
    problems += [f"environment.pod_spec.spec.{problem}" for problem in _not_allowed(block(wanted, "spec"), rules)]
    if problems:
        more = f"; and {len(problems) - _TOLD} more" if len(problems) > _TOLD else ""
        raise SetupFailed("; ".join(problems[:_TOLD]) + more)
    return wanted


def _not_allowed(spec: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    options = rules.options
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account and not allowed(options.allow_service_accounts, str(account)):
        yield f"serviceAccountName: {account} is not one of allow_service_accounts in the agent's settings"
    priority = spec.get("priorityClassName")
    if priority and not allowed(options.allow_priority_classes, str(priority)):
        yield f"priorityClassName: {priority} is not one of allow_priority_classes in the agent's settings"
    for number, volume in enumerate(items(spec, "volumes")):
        yield from _volume_not_allowed(f"volumes[{number}]", volume, rules)
    operators = {str(one.get("name")) for one in options.volumes}
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(items(spec, kind)):
            for mount in items(container, "volumeMounts"):
                name = str(block({"it": mount}, "it").get("name"))
                if name in operators or name.startswith(_OURS):  # else what is mounted read-only could be written
                    yield f"{kind}[{number}].volumeMounts: the volume {name} is not the config's own"
            yield from _environment_not_allowed(f"{kind}[{number}]", container, options)


def _volume_not_allowed(where: str, volume: Any, rules: Rules) -> Iterator[str]:
    for kind in sorted(set(block({"it": volume}, "it")) - {"name"} - _SAFE_VOLUMES):
        source = block(volume, kind)
        match kind:
            case "persistentVolumeClaim":
                claim = str(source.get("claimName"))
                if not allowed(rules.options.allow_claims, claim):
                    yield f"{where}: the claim {claim} is not one of allow_claims in the agent's settings"
            case "secret":
                if not allowed(rules.options.allow_secrets, str(source.get("secretName"))):
                    yield f"{where}: the secret {source.get('secretName')} is not one of allow_secrets there"
            case "hostPath":
                yield from _host_volume_not_allowed(where, source, rules)
            case _:
                yield f"{where}.{kind}: this agent allows no such volume"


def _environment_not_allowed(where: str, container: Any, options: Options) -> Iterator[str]:
    sources = [("env", block({"it": one}, "it").get("valueFrom")) for one in items(container, "env")]
    sources += [("envFrom", one) for one in items(container, "envFrom")]
    for what, source in sources:
        reference = block(source, "secretKeyRef") or block(source, "secretRef")
        name = str(reference.get("name"))
        if reference and not allowed(options.allow_secrets, name):
            yield f"{where}.{what}: the secret {name} is not one of allow_secrets in the agent's settings"


def _host_volume_not_allowed(where: str, source: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    try:
        root, inside = check_host_path(str(source.get("path")), rules, where)
    except SetupFailed as error:
        yield str(error)
        return
    if inside:
        yield f"{where}: name {root} as hostPath.path and {inside} as subPath of its volumeMounts, or use bind_mounts"
    if source.get("type") not in {None, "", DIRECTORY}:
        yield f"{where}: hostPath.type can only be {DIRECTORY}"


def check_host_path(path: str, rules: Rules, where: str) -> tuple[str, str]:
    """Check that the operator lets users mount a directory of the nodes, and return how it is mounted safely.

    What lies on a node is not seen from here, and kubelets follow links in a hostPath, as root: a user's
    `allowed/x -> /` would be the node's root. So the volume is the directory that the operator named, which users
    cannot exchange, and what is inside it a subPath, which kubelets follow without leaving the volume.

    Returns:
        The allowed directory, and the path inside it; "" for all of it.

    Raises:
        SetupFailed: They may not.
    """
    asked = PurePosixPath(path)
    if not asked.is_absolute() or ".." in asked.parts:
        raise SetupFailed(f"{where}: {path[:200]!r} is not an absolute path")
    above = [root for root in map(PurePosixPath, rules.allow_mounts) if asked.is_relative_to(root)]
    if not above:
        raise SetupFailed(
            f"{where}: the agent does not allow mounts of {path[:200]} (det agent run --allow-mount DIR on the agent)"
        )
    root = max(above, key=lambda one: len(one.parts))
    inside = str(asked.relative_to(root))
    return str(root), "" if inside == "." else inside
