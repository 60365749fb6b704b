"""The options of an agent for Kubernetes: a few on the command line, the rest in a file of settings."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from detlab_agent.settings import AgentError

GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu")
_Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pool(_Block):
    """A resource pool: the nodes with some labels."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    node_labels: dict[str, str]


class Options(_Block):
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
    pools: list[Pool] = []
    """The pool of a node is the first whose labels it has; else the agent's `--pool`."""
    count_others: bool = True
    """Whether GPUs that others' pods have are not offered; needs the right to list the pods of all namespaces."""
    tolerations: list[dict[str, Any]] = []
    """Of every pod. Nodes with other taints are not used."""
    gang: Annotated[str, Field(pattern="^(queue|kueue)$")] = "queue"
    """Who admits the pods of an allocation, always all together: detlab's own queue alone, or after it Kueue too."""
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
    allow_claims: list[str] = []
    """PersistentVolumeClaims that users may mount by pod_spec (patterns with `*`)."""
    allow_secrets: list[str] = []
    """Secrets of the namespace that they may use. Those of tasks are there too, so never `*`."""
    allow_service_accounts: list[str] = []
    allow_priority_classes: list[str] = []
    ephemeral_storage: str = ""
    """Request and limit of every pod, such as 20Gi."""
    pending_limit: Annotated[float, Field(gt=0)] = 300.0
    """Seconds that a pod may wait for its node before its place is given up; others may use the node too."""
    image_limit: Annotated[float, Field(gt=0)] = 120.0
    """Seconds for which an image that cannot be pulled is tried again."""

    def gpu(self, resource: str) -> bool:
        """Whether a unit of a resource is a slot."""
        return allowed(self.gpu_resources, resource)


def allowed(patterns: list[str], name: str) -> bool:
    """Whether a name matches one of the patterns."""
    return any(fnmatch.fnmatchcase(name, one) for one in patterns)


def read_options(path: Path | None) -> Options:
    """Read a file of settings; None: all as they are without one.

    Raises:
        AgentError: It cannot be read, or something in it is wrong; each mistake is named.
    """
    if path is None:
        return Options()
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AgentError(f"--kubernetes-settings {path}: {error}") from error
    if not isinstance(raw, Mapping):
        raise AgentError(f"--kubernetes-settings {path}: must be a mapping, such as 'image: registry/image:tag'")
    try:
        found = Options.model_validate(raw)
    except ValidationError as error:
        mistakes = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise AgentError(f"--kubernetes-settings {path}: {mistakes}") from error
    if found.gang == "kueue" and not found.kueue_queue:
        raise AgentError(f"--kubernetes-settings {path}: gang: kueue needs kueue_queue, the name of a LocalQueue")
    if any(set(name) <= {"*", "?"} for name in found.allow_secrets):
        raise AgentError(f"--kubernetes-settings {path}: allow_secrets: '*' would give the secrets of all tasks away")
    return found
