"""Where a trial runs: the environment and resources blocks, mounts and devices."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from detlab.schemas.expconf.blocks.affinity import AffinityConfig
from detlab.schemas.expconf.blocks.scalars import (
    SECONDS_SHORTHAND,
    Block,
    FilledText,
    Flag,
    Int,
    NonNegativeInt,
    NonNegativeNumber,
    PortNumber,
    Shorthand,
    Text,
    as_filled_text,
    as_int,
    as_number,
    as_seconds,
    as_text,
    describe,
    ignored,
    refuse,
)
from detlab.schemas.runtimes import is_capability
from detlab.schemas.wire.governance.capabilities import CAPABILITIES

DEVICE_KINDS = ("cpu", "cuda", "rocm")

DEFAULT_IMAGE = "determinedai/pytorch-ngc-dev:0736b6d"
DEFAULT_ROCM_IMAGE = "determinedai/environments:rocm-5.6-pytorch-1.3-tf-2.10-rocm-mpich-0736b6d"

LEAST_MEMORY = 16 * 1024**2
"""Bytes; a launcher alone needs about as much."""
SIZE_PATTERN = r"^([0-9]*[.])?[0-9]+ ?(([kmgtpKMGTP]([iI]?[bB])?)|[bB])?$"
_SIZE_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_size(text: str) -> int:
    """Return the bytes that a size such as `1.5G` or `512 MiB` stands for; all units are powers of 1024.

    Raises:
        ValueError: The text is not a size.
    """
    if re.fullmatch(SIZE_PATTERN, text) is None:
        raise ValueError(f"not a memory size: {text!r}")
    match = re.match(r"[0-9.]+", text)
    digits = match.group(0) if match else ""
    unit = text[len(digits) :].strip().lower()[:1]
    return int(float(digits) * 1024 ** _SIZE_POWERS[unit])


def as_bytes(value: object) -> object:
    """Accept bytes, or a memory size such as `1.5G`."""
    if isinstance(value, str):
        try:
            return parse_size(value)
        except ValueError:
            refuse(f"must be a memory size, not {describe(value)}", 'write bytes, or a text such as "1.5G"')
    return as_int(value)


def _gpu_is_cuda(raw: object) -> object:
    if not isinstance(raw, dict) or "gpu" not in raw:
        return raw
    renamed = {key: value for key, value in raw.items() if key != "gpu"}
    if renamed.get("cuda") is None:
        renamed["cuda"] = raw["gpu"]
    return renamed


class ImageMap(Block):
    """Container image for each kind of device."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"gpu"})

    cpu: FilledText = Field(DEFAULT_IMAGE, description="Image for CPU slots.")
    cuda: FilledText = Field(DEFAULT_IMAGE, description="Image for NVIDIA GPUs.")
    rocm: FilledText = Field(DEFAULT_ROCM_IMAGE, description="Image for AMD GPUs.")
    gpu: FilledText | None = Field(None, description="Old name of `cuda`.")

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, raw: object) -> object:
        return _gpu_is_cuda(raw)


def _same_image(value: object) -> object:
    return dict.fromkeys(DEVICE_KINDS, value) if isinstance(value, str) else value


def as_assignment(value: object) -> object:
    """Accept `NAME=VALUE`; a name alone is passed on as it is."""
    text = as_filled_text(value)
    if isinstance(text, str) and text.startswith("="):
        refuse(f"must be NAME=VALUE, not {describe(value)}")
    return text


Assignment = Annotated[Text, BeforeValidator(as_assignment)]


class EnvironmentVariablesMap(Block):
    """Environment variables, as `NAME=VALUE`, for each kind of device."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"gpu"})

    cpu: list[Assignment] = Field([], description="On CPU slots.")
    cuda: list[Assignment] = Field([], description="On NVIDIA GPUs.")
    rocm: list[Assignment] = Field([], description="On AMD GPUs.")
    gpu: list[Assignment] | None = Field(None, description="Old name of `cuda`.")

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, raw: object) -> object:
        return _gpu_is_cuda(raw)


def _same_variables(value: object) -> object:
    if not isinstance(value, list):
        return value
    # judged here, so that a mistake is reported once and not for each kind of device
    entries = [_at_index(index, item) for index, item in enumerate(value)]
    return {kind: list(entries) for kind in DEVICE_KINDS}


def _at_index(index: int, item: object) -> object:
    if not isinstance(item, str):
        pair = isinstance(item, dict) and len(item) == 1
        hint = "write NAME=VALUE, not NAME: VALUE" if pair else None
        refuse(f"entry {index} must be a text NAME=VALUE, not {describe(item)}", hint)
    return as_assignment(item)


class RegistryAuth(Block):
    """Credentials for the image registry."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(
        {"username", "password", "auth", "email", "serveraddress", "identitytoken", "registrytoken"}
    )

    username: Text | None = Field(None, description="User name.")
    password: Text | None = Field(None, description="Password.")
    auth: Text | None = Field(None, description="Encoded user name and password.")
    email: Text | None = Field(None, description="Mail address.")
    serveraddress: Text | None = Field(None, description="Address of the registry.")
    identitytoken: Text | None = Field(None, description="Identity token.")
    registrytoken: Text | None = Field(None, description="Registry token.")


class ProxyPort(Block):
    """A port of the first container that the cluster exposes."""

    proxy_port: PortNumber = Field(..., description="Port number.")
    proxy_tcp: Flag = Field(False, description="Raw TCP instead of HTTP.")
    unauthenticated: Flag = Field(False, description="Whether anybody may use it.")
    default_service_id: Flag = Field(False, description="Whether it is the task's main service.")


def as_capability(value: object) -> object:
    """Accept the name of a Linux capability, such as SYS_PTRACE."""
    text = as_text(value)
    if isinstance(text, str) and not is_capability(text):
        refuse(f"must be the name of a capability, such as SYS_PTRACE, not {describe(value)}")
    return text


Capability = Annotated[Text, BeforeValidator(as_capability)]


class EnvironmentConfig(Block):
    """Container image, environment variables, ports and capabilities."""

    image: Annotated[ImageMap, BeforeValidator(_same_image), Shorthand({"type": "string", "minLength": 1})] = Field(
        default_factory=ImageMap, description="One image, or one for each kind of device."
    )
    environment_variables: Annotated[
        EnvironmentVariablesMap,
        BeforeValidator(_same_variables),
        Shorthand({"type": "array", "items": {"type": "string"}}),
    ] = Field(
        default_factory=EnvironmentVariablesMap,
        description="`NAME=VALUE` entries, or lists of them for each kind of device.",
    )
    proxy_ports: list[ProxyPort] = Field([], description="Ports to expose.")
    ports: dict[str, Int] = Field({}, description="Named ports.")
    force_pull_image: Flag = Field(False, description="Whether to pull the image even if the node has it.")
    registry_auth: RegistryAuth | None = Field(None, description="Credentials for the image registry.")
    add_capabilities: list[Capability] = Field([], description="Linux capabilities to add.")
    drop_capabilities: list[Capability] = Field([], description="Linux capabilities to drop.")
    pod_spec: dict[str, Any] | None = Field(
        None, description="Fields of the pod, on Kubernetes: those that docs/reference/kubernetes-settings.md lists."
    )


class Device(Block):
    """A host device inside the container."""

    host_path: Text = Field(..., description="Path on the host.")
    container_path: Text = Field(..., description="Path in the container.")
    mode: Text = Field("mrw", description="Allowed operations: m(knod), r(ead), w(rite).")


def split_device(value: object) -> object:
    """Turn `host:container` or `host:container:mode` into a mapping."""
    if not isinstance(value, str):
        return value
    parts = value.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        refuse(f"must be host_path:container_path[:mode], not {describe(value)}")
    return dict(zip(("host_path", "container_path", "mode"), parts, strict=False))


DeviceEntry = Annotated[
    Device,
    BeforeValidator(split_device),
    Shorthand({"type": "string", "pattern": "^[^:]+:[^:]+(:[^:]+)?$"}),
]


ByteSize = Annotated[NonNegativeInt, BeforeValidator(as_bytes), Shorthand({"type": "string", "pattern": SIZE_PATTERN})]
"""Bytes, or a text such as `1.5G`."""


def _enough(size: int) -> int:
    if 0 < size < LEAST_MEMORY:
        refuse(
            f"is {size:,} bytes, in which no task can start (at least {LEAST_MEMORY:,})",
            f'write a unit, such as "{size}G"' if size < LEAST_MEMORY // 1024 else None,
        )
    return size


MemoryLimit = Annotated[ByteSize, AfterValidator(_enough)]
"""Most memory of a container; 0 is no limit."""
Cpus = Annotated[float, Field(ge=0.01), BeforeValidator(as_number)]
"""Processors, of which a container may get a part."""


MaxTime = Annotated[float, Field(gt=0, le=366 * 86400.0), BeforeValidator(as_seconds), SECONDS_SHORTHAND]
"""How long something may run, in seconds."""


class ConstraintsConfig(Block):
    """What the agent of a trial or task must be like. Only in detlab."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"affinity"})

    slot_type: Literal["cpu", "cuda", "rocm"] | None = Field(None, description="Type of its slots; default: any.")
    gpu: Text = Field("", description="Words in the GPU's model name, such as H100; empty: any.")
    memory: ByteSize | None = Field(None, description='Least memory of each GPU, in bytes or as "40G"; default: any.')
    labels: dict[str, Text] = Field({}, description="Labels that it must have (`det agent run --label NAME=VALUE`).")
    affinity: AffinityConfig | None = Field(None, description="Rules for its labels; default: none.")


def _capability(value: str) -> str:
    if value not in CAPABILITIES:
        near = ", ".join(CAPABILITIES)
        refuse(f"must be a capability that detlab knows, not {describe(value)}", f"one of {near}")
    return value


Requires = list[Annotated[Text, AfterValidator(_capability)]]
"""What the pool must enforce."""


class ResourcesConfig(Block):
    """How many slots a trial takes, where, and with which priority."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(
        {"memory", "cpus", "slots", "agent_label", "constraints", "max_time", "requires"}
    )

    slots_per_trial: NonNegativeInt = Field(1, description="Slots (GPUs, or CPU slots) of each trial.")
    max_slots: NonNegativeInt | None = Field(None, description="Most slots that the experiment may use at once.")
    weight: NonNegativeNumber = Field(
        1.0, description="Share of the pool's slots, relative to the weights of other experiments."
    )
    priority: Annotated[int, Field(ge=1, le=99), BeforeValidator(as_int)] | None = Field(
        None, description="1 to 99; a lower number starts first. Default: the pool's setting."
    )
    resource_pool: Text = Field("", description="Resource pool; empty: the default pool.")
    shm_size: ByteSize | None = Field(None, description='Shared memory, in bytes or as "1.5G"; default: 4 GiB.')
    memory: MemoryLimit | None = Field(
        None,
        description='Memory, in bytes or as "8G", that must be free on each node it runs on. It is also the limit,'
        " enforced for containers, and for processes if the agent runs as root."
        " If it is left out, memory is neither counted nor limited. Only in detlab.",
    )
    cpus: Cpus | None = Field(
        None,
        description="Processors, such as 1.5, that must be free on each node it runs on. It is also the limit,"
        " enforced for containers. If it is left out, processors are neither counted nor limited. Only in detlab.",
    )
    max_time: MaxTime | None = Field(
        None,
        description='Longest time that an attempt of a trial may run, in seconds or as "2h". Then it stops at its next'
        " checkpoint, within `preemption_timeout`, and is not restarted. Default: no limit. Only in detlab.",
    )
    constraints: ConstraintsConfig | None = Field(
        None, description="Which nodes it may run on; default: any. Only in detlab."
    )
    requires: Requires | None = Field(
        None,
        description="What its pool must enforce of policies, such as gov.direct@1, beside what `governance` needs."
        " Only in detlab.",
    )
    is_single_node: Flag | None = Field(None, description="Whether all slots must be on one node.")
    devices: list[DeviceEntry] = Field([], description="Host devices for the container.")
    native_parallel: Flag = ignored(False, "Unused.", "it has had no effect for years")
    slots: NonNegativeInt | None = ignored(None, "Slots of a notebook, shell or command.", "use slots_per_trial")
    agent_label: Text | None = ignored(None, "Unused.", "agent labels were removed; use resource_pool")


def _absolute(value: object) -> object:
    text = as_text(value)
    if isinstance(text, str) and not text.startswith("/"):
        refuse(f"must be an absolute path, not {describe(value)}")
    return text


def _not_dot(value: object) -> object:
    text = as_filled_text(value)
    if text == ".":
        refuse('must not be "."')
    return text


class BindMount(Block):
    """A host directory inside the container."""

    host_path: Annotated[Text, BeforeValidator(_absolute)] = Field(..., description="Absolute path on the host.")
    container_path: Annotated[Text, BeforeValidator(_not_dot)] = Field(..., description="Path in the container.")
    read_only: Flag = Field(False, description="Whether the container may not write.")
    propagation: Literal["private", "rprivate", "slave", "rslave", "shared", "rshared"] = Field(
        "rprivate", description="Mount propagation."
    )
