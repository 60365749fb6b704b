"""What users set by `environment.pod_spec`, and what of it the operator of this agent has to allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from detlab.schemas.expconf.podspec import mistakes, rendered
from detlab.schemas.podspec import OUR_VOLUMES, block, items, reserved
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.kubernetes.homes import is_home
from detlab_agent.runtimes.kubernetes.nodes import quantity
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions, Rules, allowed
from detlab_agent.runtimes.preparation import Order

DIRECTORY = "Directory"
"""The type of a hostPath that must be there."""
_INSTEAD = {"/dev/shm": "set resources.shm_size for more of it"}  # noqa: S108 - in pods
"""What to write instead of a volume at a place of the agent's own."""
_TOLD = 8
"""How many mistakes are named."""
_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources that every node has."""


def checked(order: Order, rules: Rules) -> Mapping[str, Any]:
    """Return the pod_spec of a task's config, made of its typed values.

    Raises:
        SetupFailed: It has what this agent does not allow; everything is named.
    """
    config = order.launch.info.config
    raw = block(config, "environment").get("pod_spec")
    if raw is None:
        return {}
    problems = [f"{one.path} {one.message}" + (f" ({one.hint})" if one.hint else "") for one in mistakes(raw)]
    allowing = raw if isinstance(raw, Mapping) else {}
    problems += [f"environment.pod_spec.{problem}" for problem in _not_allowed(allowing, rules)]
    if problems:
        more = f"; and {len(problems) - _TOLD} more" if len(problems) > _TOLD else ""
        raise SetupFailed("; ".join(problems[:_TOLD]) + more)
    return rendered(raw)


def _not_allowed(raw: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    """Yield what the operator does not allow; of a value of another type than it must have `mistakes` tell."""
    options, spec = rules.options, block(raw, "spec")
    for kind, patterns in (("labels", options.allow_labels), ("annotations", options.allow_annotations)):
        for key in block(block(raw, "metadata"), kind):
            if not reserved(str(key)) and not allowed(patterns, str(key)):
                ask = f" ({', '.join(patterns)})" if patterns else ""
                yield f"metadata.{kind}: {str(key)[:200]} is not one of allow_{kind} in the agent's settings{ask}"
    yield from (f"spec.{problem}" for problem in _names_not_allowed(spec, options))
    for number, volume in enumerate(items(spec, "volumes")):
        yield from _volume_not_allowed(f"spec.volumes[{number}]", block({"": volume}, ""), rules)
    yield from (f"spec.{problem}" for problem in _sizes_not_allowed(spec, options))
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(items(spec, kind)):
            yield from _environment_not_allowed(f"spec.{kind}[{number}]", container, options)


def _names_not_allowed(spec: Mapping[str, Any], options: KubernetesOptions) -> Iterator[str]:
    """Yield names of objects that the operator has not listed."""
    named: list[tuple[str, Any, list[str], str]] = [
        (key, spec.get(key), patterns, setting)
        for key, patterns, setting in (
            ("serviceAccountName", options.allow_service_accounts, "allow_service_accounts"),
            ("priorityClassName", options.allow_priority_classes, "allow_priority_classes"),
            ("schedulerName", options.allow_schedulers, "allow_schedulers"),
            ("runtimeClassName", options.allow_runtime_classes, "allow_runtime_classes"),
        )
    ]
    pulls, tolerations = items(spec, "imagePullSecrets"), items(spec, "tolerations")
    named += [("imagePullSecrets", _of(one, "name"), options.allow_pull_secrets, "allow_pull_secrets") for one in pulls]
    named += [("tolerations", _of(one, "key"), options.allow_tolerations, "allow_tolerations") for one in tolerations]
    for one in items(spec, "resourceClaims"):
        for key in ("resourceClaimName", "resourceClaimTemplateName"):
            named.append(("resourceClaims", _of(one, key), options.allow_resource_claims, "allow_resource_claims"))
    operators = {str(one.get("name")) for one in options.volumes}
    for where, name, patterns, setting in named:
        own = setting == "allow_pull_secrets" and str(name).startswith(OUR_VOLUMES)  # another task's password
        if name is not None and (own or not allowed(patterns, str(name))):
            yield f"{where}: {str(name)[:200]} is not one of {setting} in the agent's settings"
    for number, volume in enumerate(items(spec, "volumes")):
        if _of(volume, "name") in operators:  # else what is mounted read-only could be written
            yield f"volumes[{number}]: the volume {_of(volume, 'name')} is the operator's"


def _of(raw: Any, key: str) -> Any:
    return block({"": raw}, "").get(key)


def _volume_not_allowed(where: str, volume: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    options = rules.options
    claim = block(volume, "persistentVolumeClaim").get("claimName")
    kept = {block(one, "persistentVolumeClaim").get("claimName") for one in options.volumes}
    own = is_home(str(claim), options.home) or claim in kept  # what is mounted read-only could be written
    if claim is not None and (own or not allowed(options.allow_claims, str(claim))):
        yield f"{where}: the claim {str(claim)[:200]} is not one of allow_claims in the agent's settings"
    secret = block(volume, "secret").get("secretName")
    if secret is not None and not _allowed_secret(str(secret), options):
        yield f"{where}: the secret {str(secret)[:200]} is not one of allow_secrets in the agent's settings"
    config_map = block(volume, "configMap").get("name")
    if config_map is not None and not allowed(options.allow_config_maps, str(config_map)):
        yield f"{where}: the ConfigMap {str(config_map)[:200]} is not one of allow_config_maps in the agent's settings"
    wanted = block(block(block(volume, "ephemeral"), "volumeClaimTemplate"), "spec").get("storageClassName")
    if wanted is not None and not allowed(options.allow_storage_classes, str(wanted)):
        yield f"{where}: {str(wanted)[:200]} is not one of allow_storage_classes in the agent's settings"
    if "hostPath" in volume and rules.restricted:
        yield f"{where}: pods of this agent have no host directories (pod_security: restricted in its settings)"
    elif "hostPath" in volume:
        yield from _host_volume_not_allowed(where, block(volume, "hostPath"), rules)


def _allowed_secret(name: str, options: KubernetesOptions) -> bool:
    """Whether users may read a secret: never one of a task, whatever a pattern says."""
    return not name.startswith(OUR_VOLUMES) and allowed(options.allow_secrets, name)


def _sizes_not_allowed(spec: Mapping[str, Any], options: KubernetesOptions) -> Iterator[str]:
    """Yield amounts beyond what the operator allows, of all containers and volumes together."""
    asked: dict[str, float] = defaultdict(float)
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(items(spec, kind)):
            resources = block(block({"": container}, ""), "resources")
            for resource in {*block(resources, "limits"), *block(resources, "requests")} - _PLAIN:
                if options.gpu(str(resource)) or str(resource) not in options.allow_resources:
                    why = "its units are slots" if options.gpu(str(resource)) else "not one of allow_resources"
                    yield f"{kind}[{number}].resources: {str(resource)[:200]}: {why} in the agent's settings"
                else:
                    amounts = (block(resources, one).get(resource, 0) for one in ("limits", "requests"))
                    asked[str(resource)] += max(map(_amount, amounts))
    for resource, amount in asked.items():
        if amount > options.allow_resources[resource]:
            most = options.allow_resources[resource]
            yield f"containers: {amount:g} {resource}, and this agent allows {most} for a pod"
    size = sum(_amount(_ephemeral_size(one)) for one in items(spec, "volumes"))
    if size > quantity(options.ephemeral_volume_limit):
        yield f"volumes: ephemeral volumes of more than {options.ephemeral_volume_limit} (ephemeral_volume_limit)"


def _ephemeral_size(volume: Any) -> Any:
    claim = block(block(block(volume, "ephemeral"), "volumeClaimTemplate"), "spec")
    return block(block(claim, "resources"), "requests").get("storage", 0)


def _amount(value: Any) -> float:
    try:
        return quantity(value)
    except ValueError:
        return 0.0


def _environment_not_allowed(where: str, container: Any, options: KubernetesOptions) -> Iterator[str]:
    sources = [("env", block(one, "valueFrom")) for one in items(container, "env")]
    sources += [("envFrom", block({"": one}, "")) for one in items(container, "envFrom")]
    for what, source in sources:
        for key in ("secretKeyRef", "secretRef"):
            name = block(source, key).get("name")
            if name is not None and not _allowed_secret(str(name), options):
                yield f"{where}.{what}: the secret {str(name)[:200]} is not one of allow_secrets in the settings"
        for key in ("configMapKeyRef", "configMapRef"):
            name = block(source, key).get("name")
            if name is not None and not allowed(options.allow_config_maps, str(name)):
                yield f"{where}.{what}: the ConfigMap {str(name)[:200]} is not one of allow_config_maps there"


def check_places(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], empty: Collection[str]
) -> None:
    """Check that no mount of a config is inside of another volume, nor around one of ours.

    The node makes the folder for a mount as root, in the volume that is around it: in that of other people, too.

    Args:
        ours: Mounts of the operator and of the agent.
        theirs: Those of the config, in one container.
        empty: The config's volumes that begin empty.

    Raises:
        SetupFailed: One is in the way.
    """
    for number, one in enumerate(theirs):
        path = PurePosixPath(one["mountPath"])
        if path.root != "/" or ".." in path.parts or ":" in str(path) or len(path.parts) < 2:
            raise SetupFailed(f"the config's mount at {one['mountPath'][:200]!r}: must be a path below / without '..'")
        for other in (*ours, *theirs[:number], *theirs[number + 1 :]):
            around = PurePosixPath(other["mountPath"])
            into = path.is_relative_to(around) and (path == around or other["name"] not in empty)
            if into or (other in ours and around.is_relative_to(path)):
                instead = _INSTEAD.get(str(around), "choose a path that is in no other volume")
                raise SetupFailed(f"the config's mount at {path} is in the way of that at {around}: {instead}")


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
