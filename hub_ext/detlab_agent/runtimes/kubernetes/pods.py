"""The pod of a task, and the secret with its parcel, as objects for the API server."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from detlab.launch.elsewhere import VARIABLE
from detlab.launch.ranks.rendezvous import NODE_ADDRESS
from detlab.schemas.podspec import MAIN_CONTAINER, block, items
from detlab.schemas.runtimes import is_capability, is_image
from detlab.schemas.wire import ContainerSpec
from detlab_agent.runtimes.base import RefusedTask, SetupFailed
from detlab_agent.runtimes.closed_places import check_root
from detlab_agent.runtimes.kubernetes.api import Object
from detlab_agent.runtimes.kubernetes.homes import claim, mounted
from detlab_agent.runtimes.kubernetes.nodes import TO_COME, closed, gpu_resource
from detlab_agent.runtimes.kubernetes.options import GroupPlace, Home, KubernetesOptions, Rules
from detlab_agent.runtimes.kubernetes.userspecs import DIRECTORY, check_host_path, check_places, checked
from detlab_agent.runtimes.preparation import Order

AGENT_LABEL, TASK_LABEL = "detlab.io/agent", "detlab.io/task"
OWNER_LABEL, KIND_LABEL, TRIAL_LABEL = "detlab.io/owner", "detlab.io/kind", "detlab.io/trial"
ALLOCATION_NOTE, RUN_NOTE = "detlab.io/allocation", "detlab.io/run"
NODE_NOTE, SLOTS_NOTE, PORT_NOTE = "detlab.io/node", "detlab.io/slots", "detlab.io/port"
KUEUE_QUEUE, KUEUE_GROUP = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name"
POD_GROUPS = "scheduling.k8s.io/v1beta1"
"""Where the cluster's own scheduler has pod groups; older versions of that name have other objects only."""
KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
SERVICE_PORT = 8888
"""Where the service of a task listens in its pod, which has an address of its own."""
_PULLS = ".dockerconfigjson"
"""The key of a secret with which images are pulled."""
_DOCKER_HUB = "https://index.docker.io/v1/"
EXIT_FILE = "/dev/termination-log"
SHM, DEFAULT_SHM = "/dev/shm", 4 << 30  # noqa: S108 - in its own pod
HOLD = {"cpu": "10m", "memory": "128Mi"}
"""What a pod requests that only keeps slots."""
GRACE = 30
"""Seconds that a pod gets which somebody else ends, unless its pod_spec says another number."""
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


def label_value(text: str) -> str:
    """Return a text as the value of a label: what does not fit is replaced by a digest."""
    plain = _PLAIN.sub("-", text).strip("-._")
    if plain == text and 0 < len(text) <= 63:
        return text
    return f"{plain[:46].strip('-._') or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def pod_name(record: str) -> str:
    """Return the name of a task's pod and secret, the same at each try: a task cannot have two."""
    plain = re.sub(r"[^a-z0-9-]+", "-", record.lower()).strip("-")[:40].strip("-")
    return f"det-{plain or 'task'}-{hashlib.sha256(record.encode()).hexdigest()[:10]}"


def group_name(allocation_id: str) -> str:
    """Return the name of the group of an allocation's pods: of a PodGroup, or of Kueue's Workload."""
    return pod_name(allocation_id)


def place_of(order: Order, rules: Rules) -> GroupPlace:
    """Return where a task runs: its user or one of their groups may have a namespace of their own."""
    return rules.place(order.launch.owner, order.launch.owner_groups)


def pod_group(order: Order, rules: Rules) -> Object | None:
    """Return the PodGroup of an allocation over several pods, to be made before them; None: it needs none."""
    count = len(order.launch.info.container_addrs)
    if rules.options.gang != "native" or count < 2:
        return None
    labels = {AGENT_LABEL: rules.agent, OWNER_LABEL: label_value(order.launch.owner)}
    meta = {"name": group_name(order.launch.allocation_id), "labels": labels}
    policy = {"gang": {"minCount": count}}
    return {"apiVersion": POD_GROUPS, "kind": "PodGroup", "metadata": meta, "spec": {"schedulingPolicy": policy}}


def secret(order: Order, name: str, rules: Rules) -> Object:
    """Return the secret with the task's parcel, and with the password of its registry if the config has that.

    It is one for both: it goes with the pod, and with it both do.

    Raises:
        SetupFailed: It is too long.
    """
    service = ("0.0.0.0", SERVICE_PORT) if order.launch.service is not None else None  # noqa: S104 - its pod has an address of its own
    kind, data = "Opaque", {VARIABLE: order.parcel(service)}
    asked = order.launch.container
    if asked is not None and asked.registry_auth:
        kind, data[_PULLS] = "kubernetes.io/dockerconfigjson", _docker_config(asked.image, asked.registry_auth)
    labels = {AGENT_LABEL: rules.agent, TASK_LABEL: label_value(order.record.stem)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name, "labels": labels},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def _docker_config(image: str, auth: Mapping[str, str]) -> str:
    """Return a password as `docker login` would store it, for the registry of the image."""
    first = image.partition("/")[0]
    host = first if "/" in image and ("." in first or ":" in first or first == "localhost") else _DOCKER_HUB
    words = f"{auth.get('username', '')}:{auth.get('password', '')}"
    entry = {**auth, "auth": base64.b64encode(words.encode()).decode()}
    return json.dumps({"auths": {auth.get("serveraddress") or auth.get("server_address") or host: entry}})


def pod(order: Order, name: str, node: Object | None, rules: Rules) -> Object:
    """Return the pod of a task.

    Args:
        order: The task.
        name: The pod's.
        node: Where it goes, as the master chose.
        rules: The agent's.

    Raises:
        RefusedTask: The node does not take it.
        SetupFailed: Its config asks for what this agent does not allow.
    """
    wanted = checked(order, rules)
    asked = order.launch.container or ContainerSpec(image="")
    image = asked.image or rules.options.image
    if not image:
        raise SetupFailed(
            "no image: set environment.image, or ask the operator for one (image in the agent's settings)"
        )
    if not is_image(image):
        raise SetupFailed(f"environment.image: {image[:200]!r} is no image: write for example registry/name:tag")
    inner = copy.deepcopy(dict(block(wanted, "spec")))
    containers = [dict(one) for one in items(inner, "containers") if isinstance(one, Mapping)]
    main = next((one for one in containers if one.get("name") == MAIN_CONTAINER), {"name": MAIN_CONTAINER})
    others = [one for one in containers if one is not main]
    inner["tolerations"] = [*rules.options.tolerations, *items(inner, "tolerations")]
    if node is not None and (why := closed(node, inner["tolerations"])):
        raise RefusedTask(why)
    volumes, mounts = _volumes(asked, rules)
    security = _security(order, asked, rules)
    home = _home(order, rules)
    if home is not None:
        volume, mount = mounted(home, order.launch.owner)
        volumes, mounts = [*volumes, volume], [*mounts, mount]
    own = {one["name"] for one in items(inner, "volumes") if "emptyDir" in one}
    check_places(mounts, items(main, "volumeMounts"), own)
    for container in (*others, *items(inner, "initContainers")):
        check_places([], items(container, "volumeMounts"), own)
    main |= {
        "image": image,
        "command": ["python3", *order.program(), "--exit-file", EXIT_FILE],
        "env": [
            {"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": name, "key": VARIABLE}}},
            {"name": NODE_ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *([] if home is None else [{"name": "HOME", "value": home.path}]),
        ],
        "resources": _resources(order, asked, node, rules, block(main, "resources")),
        "volumeMounts": [*mounts, *items(main, "volumeMounts")],
        "securityContext": security,
        "terminationMessagePath": EXIT_FILE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    policy = "Always" if asked.force_pull else rules.options.image_pull_policy
    if policy:
        main["imagePullPolicy"] = policy
    for other in (*others, *items(inner, "initContainers")):
        _beside(other, security, rules)
    inner |= {
        "containers": [main, *others],
        "volumes": [*volumes, *items(inner, "volumes")],
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"fsGroup": order.identity.gid, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    inner.setdefault("terminationGracePeriodSeconds", GRACE)
    if (group := pod_group(order, rules)) is not None:
        inner["schedulingGroup"] = {"podGroupName": group["metadata"]["name"]}
    _defaults(inner, rules.options, place_of(order, rules), [name] if asked.registry_auth else [])
    if node is not None and TO_COME in node:
        inner["nodeSelector"] = {**block(inner, "nodeSelector"), **node["labels"]}
    elif node is not None:
        inner["affinity"] = _bound(block(inner, "affinity"), node["name"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **_notes(order, wanted, rules)},
        "spec": inner,
    }


def _beside(container: Object, security: Object, rules: Rules) -> None:
    """Complete a container of the pod_spec, with what the task's own has, too."""
    container["securityContext"] = security
    if rules.options.image_pull_policy:
        container["imagePullPolicy"] = rules.options.image_pull_policy
    given = block(container, "resources")
    limits, requests = dict(block(given, "limits")), dict(block(given, "requests"))
    if rules.memory and "memory" not in limits:
        limits["memory"] = requests["memory"] = str(rules.memory)
    container["resources"] = {**given, "limits": limits, "requests": requests}


def _notes(order: Order, wanted: Mapping[str, Any], rules: Rules) -> Object:
    """Return labels and annotations: by them the pod is found again, and known, when its record here is lost."""
    launch, given = order.launch, block(wanted, "metadata")
    labels = {
        **{str(key): str(value) for key, value in block(given, "labels").items()},
        **rules.options.labels,
        "app.kubernetes.io/managed-by": "detlab",
        AGENT_LABEL: rules.agent,
        TASK_LABEL: label_value(order.record.stem),
        OWNER_LABEL: label_value(launch.owner),
        KIND_LABEL: label_value(launch.kind),
    }
    if launch.info.trial_id:
        labels[TRIAL_LABEL] = str(launch.info.trial_id)
    annotations = {
        **{str(key): str(value) for key, value in block(given, "annotations").items()},
        **rules.options.annotations,
        ALLOCATION_NOTE: launch.allocation_id,
        RUN_NOTE: str(launch.run),
        NODE_NOTE: launch.node,
        SLOTS_NOTE: ",".join(launch.slots),
        **({PORT_NOTE: str(SERVICE_PORT)} if launch.service is not None else {}),
    }
    if rules.options.gang == "kueue":
        queue = place_of(order, rules).kueue_queue or rules.options.kueue_queue
        labels |= {KUEUE_QUEUE: queue, KUEUE_GROUP: group_name(launch.allocation_id)}
        annotations[KUEUE_TOTAL] = str(max(1, len(launch.info.container_addrs)))
    return {"labels": labels, "annotations": annotations}


def _defaults(inner: Object, options: KubernetesOptions, place: GroupPlace, more: Sequence[str]) -> None:
    """Add what the operator sets for all pods, where the config says nothing."""
    if options.priority_class:
        inner.setdefault("priorityClassName", options.priority_class)
    if account := place.service_account or options.service_account:
        inner.setdefault("serviceAccountName", account)
    named = [*options.image_pull_secrets, *more]
    if named:
        inner["imagePullSecrets"] = [*({"name": name} for name in named), *items(inner, "imagePullSecrets")]


def _bound(affinity: Mapping[str, Any], node: str) -> Object:
    """Return an affinity that admits one node only; the scheduler of the cluster still checks whether the pod fits."""
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    found = copy.deepcopy(dict(affinity))
    near = dict(block(found, "nodeAffinity"))
    terms = items(block(near, "requiredDuringSchedulingIgnoredDuringExecution"), "nodeSelectorTerms") or [{}]
    near["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{**term, "matchFields": [*items(term, "matchFields"), here]} for term in terms]
    }
    found["nodeAffinity"] = near
    return found


def _home(order: Order, rules: Rules) -> Home | None:
    """Return which home a task has; None: it is no server of a user, or the operator has set none up."""
    return rules.options.home if order.launch.user_home and not order.launch.holds else None


def home_claim(order: Order, rules: Rules) -> Object | None:
    """Return the claim of the home of a task, to be made if it is not there; None: the agent makes none for it."""
    home = _home(order, rules)
    labels = {"app.kubernetes.io/managed-by": "detlab", OWNER_LABEL: label_value(order.launch.owner)}
    return None if home is None else claim(home, order.launch.owner, labels)


def _resources(
    order: Order, asked: ContainerSpec, node: Object | None, rules: Rules, given: Mapping[str, Any]
) -> Object:
    """Return requests and limits: devices and memory are both, CPUs may be less than the limit of the pod_spec."""
    if order.launch.holds:  # what is asked for is requested by the pod that it is for
        return {"requests": dict(HOLD)}
    limits: Object = dict(block(given, "limits"))
    requests: Object = dict(block(given, "requests"))
    devices = [slot for slot in order.slots if slot.kind != "cpu"]
    if devices and node is not None:
        resource, _ = gpu_resource(node, rules.options)
        limits[resource] = requests[resource] = str(len(devices))
    memory = asked.memory or rules.memory
    if memory:
        limits["memory"] = requests["memory"] = str(memory)
    if asked.cpus:
        limits["cpu"] = requests["cpu"] = f"{round(asked.cpus * 1000)}m"
    if rules.options.ephemeral_storage:
        limits["ephemeral-storage"] = requests["ephemeral-storage"] = rules.options.ephemeral_storage
    claims = items(given, "claims")
    return {"limits": limits, "requests": requests, **({"claims": claims} if claims else {})}


def _security(order: Order, asked: ContainerSpec, rules: Rules) -> Object:
    """Return under which uid a container runs, and that it gets no rights beyond.

    Raises:
        SetupFailed: It asks for capabilities, which this agent does not give.
    """
    if asked.add_capabilities and (rules.restricted or not rules.privileges):
        setting = ", and pod_security: privileged in its settings" if rules.restricted else ""
        raise SetupFailed(
            f"environment.add_capabilities: this agent gives none (det agent run --allow-privileges{setting})"
        )
    if wrong := [name for name in asked.add_capabilities if not is_capability(name)]:
        raise SetupFailed(f"environment.add_capabilities: {wrong[0][:40]!r} is no capability")
    if order.identity.uid == 0:
        raise SetupFailed("the task would run as root, which no pod of this agent does")
    capabilities: Object = {"drop": ["ALL"]}
    if asked.add_capabilities:
        capabilities["add"] = [name.removeprefix("CAP_") for name in asked.add_capabilities]
    return {
        "runAsUser": order.identity.uid,
        "runAsGroup": order.identity.gid,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": capabilities,
    }


def _volumes(asked: ContainerSpec, rules: Rules) -> tuple[list[Object], list[Object]]:
    """Return the volumes of a pod and their mounts: shared memory, the operator's, and the bind mounts of the config.

    Raises:
        SetupFailed: A host directory may not be mounted.
    """
    size = asked.shm_size or DEFAULT_SHM
    volumes: list[Object] = [
        {"name": "det-shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}},
        *rules.options.volumes,
    ]
    mounts: list[Object] = [{"name": "det-shm", "mountPath": SHM}, *rules.options.volume_mounts]
    if asked.mounts and rules.restricted:
        raise SetupFailed(
            "bind_mounts: pods of this agent have no host directories (pod_security: restricted in its settings); use "
            "a claim in pod_spec"
        )
    for number, (host, inside, read_only) in enumerate(map(_parsed_volume, rules.volumes)):
        volumes.append({"name": f"det-host-{number}", "hostPath": {"path": host}})
        mounts.append({"name": f"det-host-{number}", "mountPath": inside, "readOnly": read_only})
    check_places(mounts, [{"name": "", "mountPath": one.container_path} for one in asked.mounts], ())
    for number, one in enumerate(asked.mounts, len(rules.volumes)):
        root, sub = check_host_path(one.host_path, rules, "bind_mounts")
        check_root(root, asked.closed)
        volumes.append({"name": f"det-host-{number}", "hostPath": {"path": root, "type": DIRECTORY}})
        mount = {"name": f"det-host-{number}", "mountPath": one.container_path, "readOnly": one.read_only}
        mounts.append({**mount, **({"subPath": sub} if sub else {})})
    if asked.devices:
        raise SetupFailed("resources.devices: pods get devices by resources of their node (pod_spec), not by paths")
    return volumes, mounts


def _parsed_volume(text: str) -> tuple[str, str, bool]:
    host, *rest = text.split(":")
    read_only = rest[-1:] == ["ro"]
    inside = rest[0] if rest and rest[0] not in {"ro", "rw"} else host
    return host, inside, read_only
