"""The fields of a pod that a user may set, all of them; a field that is not here does not exist for a pod_spec."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from detlab.schemas.expconf.podspec.scalars import (
    Count,
    DataKey,
    Flag,
    Image,
    Key,
    LabelValue,
    Mode,
    MountPath,
    Name,
    ObjectName,
    PodBlock,
    Quantity,
    SubPath,
    Text,
    Variable,
)

Words = Annotated[list[Text], Field(max_length=500)]
Own = Literal["metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.podIP", "status.hostIP"]
"""What a pod may be told of itself."""


# --- volumes


class KeyToPath(PodBlock):
    """An entry of a ConfigMap or secret, as a file."""

    key: DataKey
    path: SubPath
    mode: Mode | None = None


class ConfigMapVolume(PodBlock):
    """Files of a ConfigMap, if the operator allows it."""

    name: ObjectName
    items: Annotated[list[KeyToPath], Field(max_length=200)] | None = None
    default_mode: Mode | None = None
    optional: Flag | None = None


class SecretVolume(PodBlock):
    """Files of a secret, if the operator allows it."""

    secret_name: ObjectName
    items: Annotated[list[KeyToPath], Field(max_length=200)] | None = None
    default_mode: Mode | None = None
    optional: Flag | None = None


class EmptyDir(PodBlock):
    """A directory that goes with the pod."""

    medium: Literal["", "Memory", "HugePages", "HugePages-2Mi", "HugePages-1Gi"] | None = None
    size_limit: Quantity | None = None


class ClaimVolume(PodBlock):
    """A volume of the namespace, if the operator allows it."""

    claim_name: ObjectName
    read_only: Flag | None = None


class HostPath(PodBlock):
    """A directory of the node, if the operator allows it."""

    path: Text
    type: Literal["", "Directory"] | None = None


class FieldRef(PodBlock):
    """Something that the pod knows of itself."""

    field_path: Own


class ResourceFieldRef(PodBlock):
    """A limit or request of a container."""

    resource: Literal[
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
    ]
    container_name: Name | None = None
    divisor: Quantity | None = None


class DownwardFile(PodBlock):
    """A file with something that the pod knows of itself."""

    path: SubPath
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    mode: Mode | None = None


class DownwardVolume(PodBlock):
    """Files with what the pod knows of itself."""

    items: Annotated[list[DownwardFile], Field(max_length=50)]
    default_mode: Mode | None = None


class StorageRequest(PodBlock):
    """How much an ephemeral volume has."""

    storage: Quantity


class StorageRequests(PodBlock):
    """The requests of an ephemeral volume."""

    requests: StorageRequest


class ClaimSpec(PodBlock):
    """An ephemeral volume: new and empty, of a class that the operator allows."""

    access_modes: Annotated[list[Literal["ReadWriteOnce", "ReadWriteOncePod"]], Field(min_length=1, max_length=1)]
    resources: StorageRequests
    storage_class_name: ObjectName


class ClaimTemplate(PodBlock):
    """The claim of an ephemeral volume."""

    spec: ClaimSpec


class EphemeralVolume(PodBlock):
    """A volume that is made with the pod and goes with it."""

    volume_claim_template: ClaimTemplate


class Volume(PodBlock):
    """A volume, of one source."""

    name: Name
    config_map: ConfigMapVolume | None = None
    downward_api: DownwardVolume | None = Field(None, alias="downwardAPI")
    empty_dir: EmptyDir | None = None
    ephemeral: EphemeralVolume | None = None
    host_path: HostPath | None = None
    persistent_volume_claim: ClaimVolume | None = None
    secret: SecretVolume | None = None


# --- containers


class VolumeMount(PodBlock):
    """Where a volume of the pod_spec is in a container."""

    name: Name
    mount_path: MountPath
    read_only: Flag | None = None
    sub_path: SubPath | None = None


class KeyRef(PodBlock):
    """An entry of a ConfigMap or secret, if the operator allows it."""

    name: ObjectName
    key: DataKey
    optional: Flag | None = None


class EnvSource(PodBlock):
    """Where the value of a variable comes from."""

    config_map_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(PodBlock):
    """An environment variable."""

    name: Variable
    value: Text | None = None
    value_from: EnvSource | None = None


class EnvRef(PodBlock):
    """A ConfigMap or secret, if the operator allows it."""

    name: ObjectName
    optional: Flag | None = None


class EnvFrom(PodBlock):
    """Environment variables of a ConfigMap or secret."""

    config_map_ref: EnvRef | None = None
    secret_ref: EnvRef | None = None
    prefix: Variable | None = None


class ResourceClaimRef(PodBlock):
    """A resource claim of the pod."""

    name: Name
    request: Name | None = None


class Resources(PodBlock):
    """CPUs, memory and disk; other resources of nodes if the operator allows them, and never those that slots are."""

    limits: Annotated[dict[Key, Quantity], Field(max_length=20)] | None = None
    requests: Annotated[dict[Key, Quantity], Field(max_length=20)] | None = None
    claims: Annotated[list[ResourceClaimRef], Field(max_length=10)] | None = None


class Exec(PodBlock):
    """A command that is run in the container."""

    command: Annotated[list[Text], Field(min_length=1, max_length=500)]


class Probe(PodBlock):
    """Whether a container has started, lives or is ready: by a command in it."""

    exec: Exec
    initial_delay_seconds: Count | None = None
    timeout_seconds: Count | None = None
    period_seconds: Count | None = None
    success_threshold: Count | None = None
    failure_threshold: Count | None = None


class Handler(PodBlock):
    """A command that is run in the container at its start or end."""

    exec: Exec


class Lifecycle(PodBlock):
    """What is run at a container's start and end."""

    post_start: Handler | None = None
    pre_stop: Handler | None = None


class Container(PodBlock):
    """A container beside the task's, under the same user; of the task's own: name, resources and volumeMounts."""

    name: Name
    image: Image | None = None
    command: Words | None = None
    args: Words | None = None
    working_dir: MountPath | None = None
    env: Annotated[list[EnvVar], Field(max_length=500)] | None = None
    env_from: Annotated[list[EnvFrom], Field(max_length=50)] | None = None
    resources: Resources | None = None
    volume_mounts: Annotated[list[VolumeMount], Field(max_length=100)] | None = None
    image_pull_policy: Literal["Always"] | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None


class InitContainer(Container):
    """A container that runs before the others; with `restartPolicy: Always` beside them (Kubernetes 1.28)."""

    restart_policy: Literal["Always"] | None = None


# --- placement


class Toleration(PodBlock):
    """A taint that does not keep the pod away, if the operator allows its key."""

    key: Key
    operator: Literal["Exists", "Equal"] | None = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Count | None = None


class Requirement(PodBlock):
    """What a label of a node must be."""

    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[list[LabelValue], Field(max_length=200)] | None = None


class NodeTerm(PodBlock):
    """Requirements, all of which must be met."""

    match_expressions: Annotated[list[Requirement], Field(min_length=1, max_length=50)]


class NodeTerms(PodBlock):
    """Terms, one of which must be met."""

    node_selector_terms: Annotated[list[NodeTerm], Field(min_length=1, max_length=20)]


class PreferredTerm(PodBlock):
    """A term that counts for a node."""

    weight: Annotated[Count, Field(ge=1, le=100)]
    preference: NodeTerm


class NodeAffinity(PodBlock):
    """Which nodes may have the pod."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[list[PreferredTerm], Field(max_length=50)] | None
    ) = None


class Affinity(PodBlock):
    """Which nodes may have the pod; which other pods are there is not its affair."""

    node_affinity: NodeAffinity | None = None


# --- the pod


class PullSecret(PodBlock):
    """A secret with which images are pulled, if the operator allows it."""

    name: ObjectName


class PodResourceClaim(PodBlock):
    """A resource claim, or a template of one, if the operator allows it."""

    name: Name
    resource_claim_name: ObjectName | None = None
    resource_claim_template_name: ObjectName | None = None


class PodFields(PodBlock):
    """The spec of a pod."""

    containers: Annotated[list[Container], Field(max_length=10)] | None = None
    init_containers: Annotated[list[InitContainer], Field(max_length=10)] | None = None
    volumes: Annotated[list[Volume], Field(max_length=50)] | None = None
    node_selector: Annotated[dict[Key, LabelValue], Field(max_length=50)] | None = None
    tolerations: Annotated[list[Toleration], Field(max_length=50)] | None = None
    affinity: Affinity | None = None
    priority_class_name: ObjectName | None = None
    service_account_name: ObjectName | None = None
    scheduler_name: ObjectName | None = None
    runtime_class_name: ObjectName | None = None
    image_pull_secrets: Annotated[list[PullSecret], Field(max_length=10)] | None = None
    resource_claims: Annotated[list[PodResourceClaim], Field(max_length=10)] | None = None
    termination_grace_period_seconds: Annotated[Count, Field(ge=1, le=600)] | None = None


class Metadata(PodBlock):
    """Labels and annotations, whose keys the operator allows."""

    labels: Annotated[dict[Key, LabelValue], Field(max_length=32)] | None = None
    annotations: Annotated[dict[Key, Text], Field(max_length=32)] | None = None


class PodSpec(PodBlock):
    """`environment.pod_spec`."""

    api_version: Literal["v1"] | None = None
    kind: Literal["Pod"] | None = None
    metadata: Metadata | None = None
    spec: PodFields | None = None
