"""The options of an agent for Kubernetes: a few on the command line, the rest in a file of settings."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from detlab.schemas.podspec import OUR_VOLUMES, USERS_LABELS, reserved
from detlab_agent.settings import AgentError

GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu")
_Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KubernetesPool(_Block):
    """A resource pool: the nodes with some labels."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    node_labels: dict[str, str]


class NodeGroup(_Block):
    """Nodes of one kind that a cluster autoscaler adds when pods wait for them."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?$")]
    node_labels: Annotated[dict[str, str], Field(min_length=1)]
    """Labels that all of its nodes have, and no others."""
    slots: Annotated[int, Field(ge=1, le=1024)]
    """Of each node."""
    most: Annotated[int, Field(ge=1, le=500)]
    """Nodes that there may be, as in the settings of the autoscaler."""
    resource: str = "nvidia.com/gpu"
    cpus: Annotated[float, Field(gt=0)] | None = None
    memory: str = ""
    """Both of each node, for tasks that ask for some."""
    limit: Annotated[float, Field(gt=0)] = 900.0
    """Seconds that a pod may wait for a new node."""


class Home(_Block):
    """Where notebooks and shells keep the files of their user; `{user}` stands for the user's name."""

    claim: Annotated[str, Field(pattern=r"^[a-z0-9{]([-a-z0-9.{}]{0,150}[a-z0-9}])?$")] = "detlab-home-{user}"
    """Name of the PersistentVolumeClaim."""
    size: str = ""
    """Of a claim that the agent makes when a user has none, such as 10Gi; "": somebody else makes them."""
    storage_class: str | None = None
    access_modes: list[str] = ["ReadWriteOnce"]
    """With ReadWriteOnce all servers of a user must be on one node at a time."""
    sub_path: Annotated[str, Field(pattern=r"^([-A-Za-z0-9_{}]+/)*[-A-Za-z0-9_{}]*$")] = ""
    """Folder of the volume that is mounted: where one claim is for all users, `{user}`."""
    path: Annotated[str, Field(pattern=r"^/[^:]+$")] = "/home/detlab"
    """HOME in the container."""


class GroupPlace(_Block):
    """Where tasks of a group or user run, instead of where all others do."""

    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None
    service_account: _Name | None = None
    kueue_queue: _Name | None = None
    """LocalQueue of that namespace, for `gang: kueue`."""


class KubernetesOptions(_Block):
    """What an operator may set in the file of `--kubernetes-settings` (YAML). Each key is optional."""

    image: str = ""
    """For tasks whose config names none."""
    image_pull_policy: Annotated[str, Field(pattern="^(Always|IfNotPresent|Never)$")] | None = None
    image_pull_secrets: list[_Name] = []
    gpu_resources: list[str] = list(GPU_RESOURCES)
    """Names of resources, each unit of which is a slot; `*` is for any characters."""
    cpu_slots: Annotated[int, Field(ge=0, le=1024)] = 0
    """Slots of a node without GPUs."""
    node_selector: dict[str, str] = {}
    """Only nodes with these labels are offered."""
    pools: list[KubernetesPool] = []
    """The pool of a node is the first whose labels it has; else the agent's `--pool`."""
    autoscaled: list[NodeGroup] = []
    """Groups of nodes that a cluster autoscaler makes."""
    count_others: bool = True
    """Whether GPUs that others' pods have are not offered; needs the right to list the pods of all namespaces."""
    tolerations: list[dict[str, Any]] = []
    """Of every pod. Nodes with other taints are not used."""
    gang: Annotated[str, Field(pattern="^(queue|kueue|native)$")] = "queue"
    """Who admits the pods of an allocation, always all together: detlab's own queue alone, or after it Kueue, too, or
    the cluster's own scheduler where that has pod groups."""
    kueue_queue: str = ""
    """The LocalQueue of the namespace, for `gang: kueue`."""
    priority_class: str = ""
    service_account: str = ""
    """For the pods, which get no token of it; "": the namespace's default."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    volumes: list[dict[str, Any]] = []
    """Volumes of every pod, as in a pod's spec."""
    volume_mounts: list[dict[str, Any]] = []
    home: Home | None = None
    """Homes of users for their notebooks and shells; without, these have files only as long as they run."""
    pod_security: Literal["restricted", "privileged"] | None = None
    """Level of Pod Security that all pods meet. None: restricted, unless the command line allows host directories or
    capabilities, which that level does not have."""
    groups: dict[str, GroupPlace] = {}
    """Groups of the Hub whose tasks run elsewhere; of several the first one here counts."""
    users: dict[str, GroupPlace] = {}
    """The same for users; it comes before their groups."""
    allow_labels: list[str] = [f"{USERS_LABELS}/*"]
    """Keys of labels that users may set by pod_spec (patterns with `*`); never those by which Services find pods."""
    allow_annotations: list[str] = [f"{USERS_LABELS}/*"]
    allow_claims: list[str] = []
    """PersistentVolumeClaims that users may mount by pod_spec (patterns with `*`); never the homes of users."""
    allow_secrets: list[str] = []
    """Secrets of the namespace that they may use. Those of tasks are there too, so never `*`."""
    allow_config_maps: list[str] = []
    allow_pull_secrets: list[str] = []
    """Secrets with which their images may be pulled, beside image_pull_secrets."""
    allow_service_accounts: list[str] = []
    allow_priority_classes: list[str] = []
    allow_schedulers: list[str] = []
    allow_runtime_classes: list[str] = []
    allow_resource_claims: list[str] = []
    """ResourceClaims and templates of them."""
    allow_storage_classes: list[str] = []
    """Of ephemeral volumes."""
    ephemeral_volume_limit: str = "100Gi"
    """Most of all ephemeral volumes of a pod together."""
    allow_resources: dict[str, Annotated[int, Field(ge=1)]] = {}
    """Resources of nodes other than slots, such as `rdma/hca`, and how much of each a pod may have."""
    allow_tolerations: list[str] = []
    """Keys of taints that a pod_spec may tolerate."""
    ephemeral_storage: str = ""
    """Request and limit of every pod, such as 20Gi."""
    pending_limit: Annotated[float, Field(gt=0)] = 300.0
    """Seconds that a pod may wait for its node before its place is given up; others may use the node too."""
    image_limit: Annotated[float, Field(gt=0)] = 120.0
    """Seconds for which an image that cannot be pulled is tried again."""
    start_limit: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds in which the node of a pod must have its image, volumes and network ready."""

    def gpu(self, resource: str) -> bool:
        """Whether a unit of a resource is a slot."""
        return allowed(self.gpu_resources, resource)


@dataclass(frozen=True)
class Rules:
    """What pods may be, by the agent's settings.

    Attributes:
        options: The operator's.
        agent: Name of the agent, as a label.
        allow_mounts: Host directories of which pods may mount parts.
        volumes: Host directories that each pod mounts: `HOST[:CONTAINER][:ro]`.
        privileges: Whether a config may add capabilities.
        memory: Bytes for a task that requests none.
        restricted: Whether pods meet the level "restricted" of Pod Security.
    """

    options: KubernetesOptions
    agent: str
    allow_mounts: tuple[Path, ...] = ()
    volumes: tuple[str, ...] = ()
    privileges: bool = False
    memory: int | None = None
    restricted: bool = True

    def namespaces(self, usual: str) -> list[str]:
        """Return the namespaces of groups and users, beside the usual one."""
        options = self.options
        named = [place.namespace for place in (*options.groups.values(), *options.users.values())]
        return sorted({name for name in named if name is not None} - {usual})

    def place(self, owner: str, groups: Sequence[str]) -> GroupPlace:
        """Return where tasks of a user run."""
        options = self.options
        if owner in options.users:
            return options.users[owner]
        return next((place for name, place in options.groups.items() if name in groups), GroupPlace())


def allowed(patterns: list[str], name: str) -> bool:
    """Whether a name matches one of the patterns."""
    return any(fnmatch.fnmatchcase(name, one) for one in patterns)


def read_options(path: Path | None) -> KubernetesOptions:
    """Read a file of settings; None: all as they are without one.

    Raises:
        AgentError: It cannot be read, or something in it is wrong; each mistake is named.
    """
    if path is None:
        return KubernetesOptions()
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AgentError(f"--kubernetes-settings {path}: {error}") from error
    if not isinstance(raw, Mapping):
        raise AgentError(f"--kubernetes-settings {path}: must be a mapping, such as 'image: registry/image:tag'")
    try:
        found = KubernetesOptions.model_validate(raw)
    except ValidationError as error:
        mistakes = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise AgentError(f"--kubernetes-settings {path}: {mistakes}") from error
    if found.gang == "kueue" and not found.kueue_queue:
        raise AgentError(f"--kubernetes-settings {path}: gang: kueue needs kueue_queue, the name of a LocalQueue")
    if found.home is not None and "{user}" not in found.home.claim + found.home.sub_path:
        raise AgentError(
            f"--kubernetes-settings {path}: home: {{user}} must be in claim or in sub_path: homes are private"
        )
    if mistakes := "; ".join(_too_much(found)):
        raise AgentError(f"--kubernetes-settings {path}: {mistakes}")
    return found


def _too_much(options: KubernetesOptions) -> Iterator[str]:
    """Yield what would give away more than any operator can mean."""
    why = {
        "allow_secrets": "would give the secrets of all tasks away",
        "allow_claims": "would give the homes of all users away",
        "allow_config_maps": "would give every ConfigMap of the namespace away",
        "allow_labels": "would let pods of users join Services",
        "allow_annotations": "would let users change how their pods are run",
    }
    for name, reason in why.items():
        for pattern in getattr(options, name):
            if set(pattern) <= {"*", "?"}:
                yield f"{name}: '{pattern}' {reason}"
            elif name in {"allow_labels", "allow_annotations"} and reserved(pattern):
                yield f"{name}: '{pattern}' is never for users: Services, policies and controllers go by it"
            elif name == "allow_secrets" and pattern.startswith(OUR_VOLUMES):
                yield f"{name}: '{pattern}' are the secrets of tasks"
    for resource in options.allow_resources:
        if options.gpu(resource):
            yield f"allow_resources: {resource} is one of gpu_resources: its units are slots"
