"""What an operator decides about the master: a record that `detlab_hub.app` fills from its traitlets."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detlab.errors import StorageError
from detlab.launch.identity import IdentityError, UserIds
from detlab_hub.core.scheduling import Pools
from detlab_hub.services.limits.model import Limits
from detlab_hub.services.servercerts import ServerAuthority

MIB = 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """Everything the services are configured with; times in seconds, sizes in bytes."""

    state_dir: Path
    bundles_dir: Path
    default_checkpoint_storage: dict[str, Any] = field(default_factory=dict)
    """The `checkpoint_storage` block of experiments that name none."""
    service_url: str = "http://127.0.0.1:8642/services/detlab/"
    """How tasks reach the service; ends with `/services/detlab/`."""
    public_url: str = ""
    """Address that people open; empty: the same as `service_url`."""
    cluster_id: str = "detlab"
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
    """A server that is being started and whose Hub is not heard for so long is given up."""
    idle_warning: float = 300.0
    """So long before that its user is warned; at most a quarter of the timeout."""
    pools: Pools = field(default_factory=Pools)
    preemptions_per_hour: int = 6
    """A trial that was preempted so often within an hour keeps its slots (I10)."""
    checkpoint_near: float = 15.0
    """A trial whose checkpoint is due within so many seconds is preempted after it; 0: at once."""
    agent_suspect_after: float = 10.0
    """Without a heartbeat for this long an agent gets no new work."""
    agent_reconnect_wait: float = 25.0
    """Without a heartbeat for this long an agent is lost and its tasks run elsewhere."""
    heartbeat_period: float = 5.0
    task_token_ttl: float = 3600.0
    bundle_limit: int = 95 * MIB
    outputs_limit: int = 200 * MIB
    """Bytes that one user task may have handed over at a time."""
    preemption_timeout_default: float = 3600.0
    """How long a task may take to checkpoint and leave when it is paused, preempted, canceled or drained."""
    stop_grace: float = 10.0
    """SIGTERM comes this long after a stop by the searcher that the task did not acknowledge …"""
    stop_acked_grace: float = 60.0
    """… and this long after one that it did."""
    kill_grace: float = 5.0
    """SIGKILL comes this long after SIGTERM."""
    event_keep: int = 200_000
    """Events kept for resuming streams; older cursors get a resync."""
    tasks_keep: float = 30 * 86400.0
    """Ended user tasks, their output and their files are kept for so long; 0: for ever."""
    log_retention_days: int = -1
    """Output of ended trials is kept for so many days where their experiments do not say it; -1: for ever."""
    log_cleaning_hour: int = 3
    """At this hour, in the master's time zone, what is older is removed."""
    audit_keep: float = 400 * 86400.0
    """The audit log says for this long who did what."""
    tick: float = 0.5
    """Period of the guard that looks for passed deadlines and lost agents."""
    checkpoint_file_limit: int = 100_000
    default_runtime: str = "process"
    """How tasks run that do not say it: process or docker."""
    default_image: dict[str, str] = field(default_factory=dict)
    """Image by kind of slot (cpu, cuda, rocm) of tasks that name none; empty: Determined's names."""
    limits: Limits = field(default_factory=Limits)
    """What one user may ask for."""
    users: UserIds | None = None
    """Whose files a master run by root may read and remove for a user; None for one that is not root."""

    @property
    def outputs_dir(self) -> Path:
        """Where the files lie that user tasks hand over."""
        return self.state_dir / "outputs"

    def files_of(self, owner: str) -> int | None:
        """Return the uid that checkpoint files of a user must have; None: the kernel judges by itself.

        Raises:
            StorageError: This master is root, and does not know under which uid the user's tasks run.
        """
        if self.users is None:
            return None
        try:
            uid = self.users.known(owner)
        except IdentityError as error:
            raise StorageError(str(error)) from error
        if uid is None:
            raise StorageError(
                f"the master runs as root and does not know under which uid the tasks of {owner!r} run",
                hint="set DetHub.users_file (and DetHub.user_map_file) to the agents' own",
            )
        return uid
