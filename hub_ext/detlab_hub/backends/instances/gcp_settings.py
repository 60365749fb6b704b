"""The settings of a pool's instances on Google Cloud, by Determined's names."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from detlab.errors import DetlabError
from detlab.trust import parse_fingerprint
from detlab_hub.backends.instances.durations import as_seconds

CLUSTER_LABEL, POOL_LABEL, AGENT_LABEL = "detlab-cluster", "detlab-pool", "detlab-agent"
NAME_CHARS = 63
_AGENT_NAME = 13
"""Characters that the name of an agent has after that of its pool."""
_ALL_OF_GOOGLE = "https://www.googleapis.com/auth/cloud-platform"
_HAVE_GPUS = ("a2-", "a3-", "a4-", "a4x-", "g2-", "g4-")
"""Families of machines that come with their GPUs: none are asked for beside them."""

EXAMPLES = {
    "project": "lab-project-123",
    "zone": "europe-west4-a",
    "boot_disk_source_image": "projects/PROJECT/global/images/NAME",
    "boot_disk_type": "pd-balanced",
    "name_prefix": "det-",
    "label_key": "managed-by",
    "label_value": "detlab",
    "network_interface.network": "projects/PROJECT/global/networks/NAME",
    "network_interface.subnetwork": "projects/PROJECT/regions/REGION/subnetworks/NAME",
    "service_account.email": "NAME@PROJECT.iam.gserviceaccount.com",
    "instance_type.machine_type": "n1-standard-8",
    "instance_type.gpu_type": "nvidia-tesla-t4",
}
"""Values of settings, for who has written another thing."""
Word: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]
"""A name of Google's: of a zone, a type of machine, a tag."""
Path: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,499}$")]
"""A name, or the path of something that may be in another project."""
LabelKey: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
LabelValue: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{0,63}$")]


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NetworkInterface(_Block):
    """Where an instance is in the network.

    Attributes:
        network: A name, or `projects/PROJECT/global/networks/NAME`.
        subnetwork: A name, or `projects/PROJECT/regions/REGION/subnetworks/NAME`; "" for the network's own.
        external_ip: Whether it has an address that the world reaches.
    """

    network: Path | None = None
    subnetwork: Path | None = None
    external_ip: bool = False


class ServiceAccount(_Block):
    """As whom the instance speaks to Google; with neither it cannot.

    Attributes:
        email: The account.
        scopes: What it may be used for there; with an account and none of these, everything that the account may do.
    """

    email: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9@._-]{0,200}$")] = ""
    scopes: list[Annotated[str, StringConstraints(pattern=r"^https://www\.googleapis\.com/auth/[a-z0-9._-]+$")]] = []

    @model_validator(mode="after")
    def _together(self) -> ServiceAccount:
        if self.scopes and not self.email:
            raise ValueError("scopes are those of an account: name its email")
        return self

    @property
    def granted(self) -> list[str]:
        """What the account is used for."""
        return self.scopes or [_ALL_OF_GOOGLE]


class InstanceType(_Block):
    """The machine; the defaults are Determined's.

    Attributes:
        machine_type: Such as n1-standard-8.
        gpu_type: Such as nvidia-tesla-t4; "" for none, or for a machine that comes with its GPUs.
        gpu_num: How many GPUs it has.
        preemptible: Whether Google may take it back: it costs less.
    """

    machine_type: Word = "n1-standard-32"
    gpu_type: Annotated[str, StringConstraints(pattern=r"^(?:[a-z0-9][a-z0-9-]{0,62})?$")] = "nvidia-tesla-t4"
    gpu_num: Annotated[int, Field(ge=0, le=16)] = 4
    preemptible: bool = False

    @model_validator(mode="before")
    @classmethod
    def _own_gpus(cls, said: Any) -> Any:
        """Ask for no GPUs beside those that a machine comes with, unless they are named."""
        if isinstance(said, dict) and str(said.get("machine_type", "")).startswith(_HAVE_GPUS):
            if "gpu_num" not in said:
                raise ValueError(f"gpu_num is missing: how many GPUs does {said['machine_type']} have?")
            return {"gpu_type": "", **said}
        return said

    @model_validator(mode="after")
    def _typed(self) -> InstanceType:
        if self.gpu_num and not self.gpu_type and not self.machine_type.startswith(_HAVE_GPUS):
            raise ValueError(f"gpu_type is missing: {self.machine_type} has no GPUs of its own; or set gpu_num: 0")
        return self

    @property
    def accelerators(self) -> int:
        """How many GPUs are asked for beside the machine's own."""
        return self.gpu_num if self.gpu_type else 0


class GcpSettings(_Block):
    """The settings of a pool's instances.

    Attributes:
        project: Id of the project.
        zone: Such as europe-west4-a.
        boot_disk_size: Gigabytes.
        boot_disk_source_image: An image on which detlab is installed, or where `setup` installs it, such as
            `projects/PROJECT/global/images/NAME`.
        boot_disk_type: Such as pd-balanced; "" for Google's default.
        labels: Labels of the instances, and of their agents.
        label_key: A further label of the instances …
        label_value: … with this value.
        name_prefix: With it the names of instances begin.
        network_interface: Where they are in the network; the network `default` if none is named.
        network_tags: For the rules of the firewall.
        service_account: As whom they speak to Google.
        instance_type: The machine.
        cpu_slots_allowed: Whether an instance without GPUs has one slot; otherwise it has none.
        operation_timeout_period: Seconds, or `5m`, after which an instance that does not come is given up.
        setup: Shell commands that root runs before the agent.
        agent_command: The command that starts the agent there.
        agent_arguments: Further options of `det agent run`.
        endpoint_url: Another service with Compute Engine's API; "" for Google.
        fingerprint: Fingerprint of the master's certificate, which instances pin (`det status` prints it); "" if an
            authority in the image has signed it.
    """

    project: Annotated[str, StringConstraints(pattern=r"^(?:[a-z0-9.-]{1,100}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$")]
    zone: Annotated[str, StringConstraints(pattern=r"^[a-z]+-[a-z]+[0-9]+-[a-z]$")]
    boot_disk_source_image: Path
    boot_disk_size: Annotated[int, Field(ge=10, le=65536)] = 200
    boot_disk_type: Annotated[str, StringConstraints(pattern=r"^(?:[A-Za-z0-9][A-Za-z0-9._:/-]{0,499})?$")] = ""
    labels: dict[LabelKey, LabelValue] = {}
    label_key: LabelKey = "managed-by"
    label_value: LabelValue = "detlab"
    name_prefix: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,48}$")] = "det-"
    network_interface: NetworkInterface = NetworkInterface()
    network_tags: list[Word] = []
    service_account: ServiceAccount = ServiceAccount()
    instance_type: InstanceType = InstanceType()
    cpu_slots_allowed: bool = False
    operation_timeout_period: Annotated[float, BeforeValidator(as_seconds), Field(gt=0)] = 300.0
    setup: str = ""
    agent_command: list[str] = ["det", "agent", "run"]
    agent_arguments: list[str] = []
    endpoint_url: str = ""
    fingerprint: str = ""

    @field_validator("fingerprint")
    @classmethod
    def _is_one(cls, value: str) -> str:
        if value:
            try:
                parse_fingerprint(value)
            except DetlabError as error:
                raise ValueError(error.message) from error
        return value

    @model_validator(mode="after")
    def _ours_stay_ours(self) -> GcpSettings:
        taken = {CLUSTER_LABEL, POOL_LABEL, AGENT_LABEL} & {*self.labels, self.label_key}
        if taken:
            raise ValueError(f"the label {', '.join(sorted(taken))} says whose an instance is: choose another name")
        return self

    @property
    def region(self) -> str:
        """The zone's region."""
        return self.zone.rpartition("-")[0]

    @property
    def slots(self) -> int:
        """How many slots an instance has."""
        return self.instance_type.gpu_num or int(self.cpu_slots_allowed)

    def check_pool(self, pool: str) -> None:
        """Refuse a pool whose instances would have names that are too long.

        Raises:
            ValueError: They would.
        """
        over = len(self.name_prefix) + len(pool) + _AGENT_NAME - NAME_CHARS
        if over > 0:
            raise ValueError(
                f"name_prefix: {self.name_prefix!r}, the pool's name and {_AGENT_NAME} characters more are the name of "
                f"an instance, which has {NAME_CHARS} at most: shorten it by {over}"
            )


def label_value(text: str) -> str:
    """Return a text as the value of a label: itself where Google allows it, or what identifies it."""
    if re.fullmatch(r"[a-z0-9_-]{1,63}", text):
        return text
    import hashlib

    return "sha-" + hashlib.sha256(text.encode()).hexdigest()[:40]
