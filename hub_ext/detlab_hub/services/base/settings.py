"""The operator's settings of the master: a record that `detlab_hub.app` fills from its traitlets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detlab.errors import Conflict
from detlab.launch.host.identity import DEFAULT_RANGE
from detlab.schemas.storage_types import StorageHolder
from detlab_hub.core.scheduling import Pools
from detlab_hub.core.scheduling.governing import GovernedMounts
from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.base.server_certificates import ServerAuthority

MIB = 1024 * 1024
A_COPY = (
    "this cluster is a copy: it starts nothing and changes no checkpoint, which are the original's, until it takes over"
    " (in its own folder: det down && det up --take-over, once the original is stopped for good)"
)


@dataclass(frozen=True)
class UidPolicy:
    """The operator's settings of uids.

    Attributes:
        range: First and last uid that may be assigned.
        mapped: Hub user -> uid of an account, by the operator; wins over assignment.
        given: Hub user -> uid that the agents of earlier versions kept in a file; taken over once.
        taken: Whether a uid belongs to an account of the master's machine.
        checks_files: Whether the master reads and removes files for users only if they belong to their uid: it is root.
    """

    range: tuple[int, int] = DEFAULT_RANGE
    mapped: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    taken: Callable[[int], bool] = lambda uid: False
    checks_files: bool = False


def errors_in(policy: UidPolicy) -> list[str]:
    """Return what is wrong with a user map."""
    found, owners = [], dict[int, str]()
    for name, uid in policy.mapped.items():
        if isinstance(uid, bool) or not isinstance(uid, int) or uid < 1:
            found.append(f"{name!r} has the uid {uid!r}: tasks never run as root")
        elif uid in owners:
            found.append(f"{name!r} and {owners[uid]!r} have the same uid {uid}: each would read the other's files")
        else:
            owners[uid] = name
    return found


@dataclass(frozen=True)
class Webhook:
    """An address that is told what happens.

    Attributes:
        url: Where it is posted to; https, or http on the operator's own networks.
        events: Names of what it is told, such as `model.label`; `*` is all, `model.*` all of models.
        secret: Signs the calls; empty: they are not signed.
    """

    url: str
    events: tuple[str, ...] = ("*",)
    secret: str = field(default="", repr=False)

    def wants(self, event: str) -> bool:
        """Whether it is told of an event."""
        return any(event == name or (name.endswith("*") and event.startswith(name[:-1])) for name in self.events)


@dataclass(frozen=True)
class SmtpServer:
    """The operator's mail server.

    Attributes:
        host: Its name or address, on any network: it is the operator's word.
        port: Its port.
        security: `starttls`, `tls` from the first byte, or `none`.
        user: Who logs in; empty: nobody does.
        password_file: File with the password, read for each connection.
        sender: The address that mails are from.
        sender_name: The name beside it.
        ca_file: Certificates of authorities to believe instead of the system's; empty: these.
        domains: Those to whose addresses mail is sent; empty: any.
    """

    host: str
    port: int
    security: str
    sender: str
    sender_name: str = ""
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    domains: tuple[str, ...] = ()

    def takes(self, address: str) -> bool:
        """Whether mail is sent to an address."""
        return not self.domains or address.rpartition("@")[2] in self.domains


@dataclass(frozen=True)
class Settings:
    """Everything the services are configured with; times in seconds, sizes in bytes."""

    state_dir: Path
    bundles_dir: Path
    default_checkpoint_storage: dict[str, Any] = field(default_factory=dict)
    """The `checkpoint_storage` block of experiments that name none."""
    checkpoint_stores: tuple[Mapping[str, Any], ...] = ()
    """Blocks of further object stores of the cluster's own."""
    outgoing_allowed: tuple[str, ...] = ()
    """Networks, addresses and hosts that are not public and may be called nevertheless."""
    storage_credentials: Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None] | None = None
    """Gives the owner of a task short-lived credentials for a `checkpoint_storage` block, or None."""
    evidence_signer: tuple[str, ...] = ()
    """Program and arguments that sign evidence of checkpoints in place of the master's own key."""
    evidence_signer_key: str = ""
    """Its public key: 32 bytes in hex."""
    service_url: str = "http://127.0.0.1:8642/services/detlab/"
    """How tasks reach the service; ends with `/services/detlab/`."""
    public_url: str = ""
    """Address that people open; empty: the same as `service_url`."""
    cluster_id: str = "detlab"
    holder: StorageHolder | None = None
    """This installation of the cluster, which owns its checkpoints; None: nothing asks."""
    is_copy: bool = False
    """It is a copy that was not told to take over: it starts nothing, and changes no checkpoint."""
    version: str = ""
    enrolment_secret_hash: str | None = None
    """SHA-256 (hex) of an enrolment token that never expires (the embedded cluster's own agent)."""
    hub_secret_hash: str | None = None
    """SHA-256 (hex) of the token of the Hub's spawners."""
    server_authority: ServerAuthority | None = None
    """Signs the certificates of servers on other nodes; None: the Hub's proxy reaches them by plain HTTP."""
    idle_timeouts: dict[str, float] = field(default_factory=dict)
    """Seconds without use after which a server is ended, by kind; a task's own config wins. 0: never."""
    spawn_lease: float = 30.0
    """Seconds without contact from the Hub after which the start of a server is abandoned."""
    idle_warning: float = 300.0
    """Seconds before that in which its user is warned; at most a quarter of the timeout."""
    pools: Pools = field(default_factory=Pools)
    currency: str = ""
    """What prices are in, for people."""
    preemptions_per_hour: int = 6
    """Preemptions within an hour after which a trial keeps its slots (I10)."""
    checkpoint_near: float = 15.0
    """A trial whose checkpoint is due within this many seconds is preempted after it; 0: immediately."""
    agent_suspect_after: float = 10.0
    """Seconds without a heartbeat after which an agent gets no new work."""
    agent_reconnect_wait: float = 25.0
    """Seconds without a heartbeat after which an agent is lost and its tasks run elsewhere."""
    heartbeat_period: float = 5.0
    task_token_ttl: float = 3600.0
    bundle_limit: int = 95 * MIB
    outputs_limit: int = 200 * MIB
    """Bytes that one user task may have handed over at a time."""
    artifact_limit: int = 10 * 1024 * MIB
    """Bytes of one file that a client of MLflow uploads."""
    media_objects: int = 50_000
    """Images and other media that one trial may log …"""
    media_bytes: int = 5 * 1024 * MIB
    """… and their bytes."""
    preemption_timeout_default: float = 3600.0
    """Seconds that a task may take to checkpoint and leave when it is paused, preempted, canceled or drained."""
    stop_grace: float = 10.0
    """SIGTERM comes this long after a stop by the searcher that the task did not acknowledge …"""
    stop_acked_grace: float = 60.0
    """… and this long after one that it did."""
    kill_grace: float = 5.0
    """SIGKILL comes this long after SIGTERM."""
    event_keep: int = 200_000
    """Events kept for resuming streams; older cursors get a resync."""
    tasks_keep: float = 30 * 86400.0
    """Seconds for which ended user tasks, their output and their files are kept; 0: for ever."""
    bundles_keep: float = 90 * 86400.0
    """Seconds for which code stays that no experiment and no task names any more; 0: for ever."""
    trash_window: float = 7 * 86400.0
    """Seconds for which a deleted or collected checkpoint can be restored; 0: its files go at once."""
    gc_delay: float = 60.0
    """Seconds after the end of an experiment at which its checkpoints are collected by its policy."""
    log_retention_days: int = -1
    """Days for which the output of ended trials is kept unless their experiments set it; -1: for ever."""
    log_cleaning_hour: int = 3
    """Hour of the day, in the master's time zone, at which older output is removed."""
    audit_keep: float = 400 * 86400.0
    """Seconds for which entries of the audit log are kept."""
    tick: float = 0.5
    """Period in seconds of the check for passed deadlines and lost agents."""
    checkpoint_file_limit: int = 100_000
    default_runtime: str = "process"
    """The runtime of tasks that name none."""
    default_image: dict[str, str] = field(default_factory=dict)
    """The image, by kind of slot (cpu, cuda, rocm), of tasks that name none; empty: Determined's names."""
    task_container_defaults: Mapping[str, Any] = field(default_factory=dict)
    """What the cluster lays under the configs of all tasks, as a part of a config."""
    governed_mounts: GovernedMounts = field(default_factory=GovernedMounts)
    """What pools must enforce for data that lies on their nodes."""
    uids: UidPolicy = field(default_factory=UidPolicy)
    """Under which uids tasks run."""
    agent_nodes_limit: int = 10_000
    """Most nodes that an agent may speak for; those beyond are left out."""
    agent_slots_limit: int = 1024
    """Most slots that an agent may offer …"""
    agent_zero_slot_tasks_limit: int = 1000
    """… and most tasks without slots that it may run at a time."""
    stream_bytes_per_user: int = 16 * MIB
    """Most bytes buffered in all streams of a user together for clients that read too slowly."""
    stream_slow_limit: float = 30.0
    """Seconds after which the stream of a client that does not read is closed; it resumes at its cursor."""
    webhooks: tuple[Webhook, ...] = ()
    """Who is told what happens."""
    smtp: SmtpServer | None = None
    """By which users are told by e-mail; None: they are not."""
    limits: PerUserLimits = field(default_factory=PerUserLimits)
    """The limits of one user."""

    @property
    def cluster_stores(self) -> tuple[Mapping[str, Any], ...]:
        """The blocks whose stores are the cluster's own: the default one first."""
        return (self.default_checkpoint_storage, *self.checkpoint_stores)

    def check_not_a_copy(self, otherwise: str = "nothing is removed") -> None:
        """Check that this installation may remove checkpoints, and start tasks.

        Args:
            otherwise: What follows if it is a copy, for the message.

        Raises:
            Conflict: It is a copy of a cluster that was not told to take over.
        """
        if self.is_copy:
            raise Conflict(f"{otherwise}: {A_COPY}", hint="det storage usage and all other reading works")

    @property
    def outputs_dir(self) -> Path:
        """Where the files lie that user tasks hand over."""
        return self.state_dir / "outputs"

    @property
    def artifacts_dir(self) -> Path:
        """Where the files of runs lie that clients of MLflow upload."""
        return self.state_dir / "artifacts"

    @property
    def media_dir(self) -> Path:
        """Where the media of trials lie: images, tables and other things that are no numbers."""
        return self.state_dir / "media"
