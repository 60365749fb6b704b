"""What the master and its agents say to each other: enrolment, then messages over one connection."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, FailFast, Field

from detlab.schemas.wire.base import PROTOCOL, Wire
from detlab.schemas.wire.governance.attestation import Attestation
from detlab.schemas.wire.records import ClusterInfoWire
from detlab.schemas.wire.views import SlotView


def _not_huge(value: Any) -> Any:
    """Refuse an object of very many keys at once: one mistake for each of them would be kept otherwise."""
    if isinstance(value, dict) and len(value) > MOST_KEYS:
        raise ValueError(f"more than {MOST_KEYS} keys")
    return value


MOST_KEYS = 50_000
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class EnrolRequest(Wire):
    """POST agents/enrol, authorised by an enrolment token."""

    agent_id: str
    protocol: int = PROTOCOL


class EnrolReply(Wire):
    """The agent's own key; the master keeps only its hash."""

    agent_id: str
    token: str


class HeldTask(Wire):
    """A task the agent still has: alive, or ended with the exit not yet acknowledged."""

    allocation_id: str
    run: int
    exited: bool = False
    exit_code: int | None = None
    node: str = ""
    """Which of the agent's nodes has it; "" for the agent's own."""
    begun: bool = True
    """Whether it has begun: a job or a pod may have to wait for its machine first."""


# --- from the agent ---------------------------------------------------------------------------------------


class NodeHello(Wire):
    """One of the nodes that an agent speaks for. What it does not say is as the agent's Hello says it."""

    name: str
    slots: Annotated[list[SlotView], FailFast()] = []
    slot_count: Annotated[int, Field(ge=0, le=65536)] = 0
    """Number of slots without named devices: they are called any0, any1, …, and its own runtime knows the devices."""
    labels: Annotated[dict[str, str], BeforeValidator(_not_huge)] = {}
    """Beside those of the agent's Hello."""
    pool: str | None = None
    address: str | None = None
    max_zero_slot_tasks: int | None = None
    cpus: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    """Of this node; None: they are not counted."""
    memory: Annotated[int, Field(ge=0, le=2**60)] | None = None
    """Likewise."""
    note: str = ""
    """For people: why nothing new starts there (then no slot is enabled), or that it is still to come."""
    away: bool = False
    """Whether it does not answer, as `note` says: its tasks are waited for as if it were not named."""


class Partition(Wire):
    """A partition of a batch system: a set of its nodes with rules of its own."""

    name: str = Field("", max_length=200)
    default: bool = False
    """Whether it gets the jobs that name none."""
    up: bool = True
    """Whether it starts jobs."""
    time_limit: str = Field("", max_length=40)
    """Of its jobs, as the batch system writes it; "" without one."""
    idle: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Nodes without work."""
    allocated: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Nodes with work, of whomever."""
    other: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Nodes that take none: down, drained or reserved."""


class QueueHello(Wire):
    """A batch system that places the tasks of the agent's pool itself."""

    name: str = Field("", max_length=80)
    """Of its kind, for people: Slurm."""
    slots_per_node: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Slots of its largest node; 0: not known."""
    slots: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Slots of all of its nodes; 0: not known."""
    gangs: bool = False
    """Whether it takes trials over several nodes: one Launch for all, whose `info.container_slot_counts` has the slots
    of each node. The batch system starts a launcher on each, and tells it its place (`detlab.launch.elsewhere`)."""
    partitions: Annotated[list[Partition], FailFast()] = Field([], max_length=1000)


class Hello(Wire):
    """First message of the agent, on every connection."""

    type: Literal["hello"] = "hello"
    protocol: int = PROTOCOL
    version: str = ""
    agent_id: str
    process: str = ""
    """Drawn by each process of the agent at its start, to tell apart two that run under one id."""
    serves_user: str | None = None
    """None: any user (root agent); else tasks of others are refused."""
    slots: Annotated[list[SlotView], FailFast()]
    tasks: Annotated[list[HeldTask], FailFast()] = []
    runtimes: Annotated[list[str], FailFast()] = ["process"]
    """Names of those that could start a task now."""
    address: str = "127.0.0.1"
    """Where the ports of its tasks are reached from the Hub's proxy."""
    pool: str = "default"
    """The resource pool that it belongs to."""
    labels: Annotated[dict[str, str], BeforeValidator(_not_huge)] = {}
    """Set by the operator, for tasks that require or prefer some."""
    max_zero_slot_tasks: int = 100
    """Most tasks without slots that it runs at a time."""
    cpus: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    """CPUs that its tasks may ask for together; None: it does not say, and they are not counted."""
    memory: Annotated[int, Field(ge=0, le=2**60)] | None = None
    """Bytes of memory, likewise."""
    shares: bool = False
    """Whether it starts tasks with shares of its devices; the devices of one that does not are left whole."""
    nodes: Annotated[list[NodeHello], FailFast()] = []
    """Nodes that it speaks for beside its own; the master places tasks on each, and messages name the node. Those that
    do not fit into one message follow in `MoreNodes`."""
    asks_point: bool = False
    """Whether a trial that is launched without hyperparameters asks for them when it runs (POST task/point): its job or
    pod may wait for long. The launches to one that does not say so have them."""
    node_count: Annotated[int, Field(ge=0, le=2**31)] = 0
    """How many these are with those that follow; 0: it does not say."""
    queue: QueueHello | None = None
    """The batch system that places the tasks of its pool; None: the master places them."""
    note: str = ""
    """As in a `NodeHello`."""
    uids: Annotated[dict[str, int] | None, BeforeValidator(_not_huge)] = None
    """Hub user -> uid of tasks that this node ran before the master assigned uids, and of its operator's map. None: an
    agent that assigns uids by itself."""


class MoreNodes(Wire):
    """Further nodes of the agent, after the Welcome of a master that takes them (`Welcome.takes_more`)."""

    type: Literal["nodes"] = "nodes"
    nodes: Annotated[list[NodeHello], FailFast()] = []
    tasks: Annotated[list[HeldTask], FailFast()] = []
    """Those on them."""


class Heartbeat(Wire):
    """Every 5 s both ways."""

    type: Literal["heartbeat"] = "heartbeat"
    time: float = 0.0
    queue: QueueHello | None = None
    """As in the Hello, when it has changed since; None: it has not."""
    nonce: str = ""
    """From the master: a challenge that the agent answers with an attestation; "" for none."""
    attestation: Attestation | None = None
    """From the agent: the answer to the last challenge."""
    gpus: Annotated[dict[str, Percent] | None, BeforeValidator(_not_huge)] = None
    """From the agent: the greatest utilisation of each of its GPUs since its last report, by slot; one that is left out
    could not be measured. None: this message says nothing of them."""


class TaskStarted(Wire):
    """The task's process group exists."""

    type: Literal["task_started"] = "task_started"
    allocation_id: str
    run: int
    pid: int | None = None
    address: str | None = None
    """Where its service is reached, for a launch with one."""
    port: int | None = None
    secure: bool = False
    """Whether it gets its certificate later, and so speaks TLS there."""
    machine: str = ""
    """Name of the node that it runs on, where `node` does not say it: one that an autoscaler has made since."""
    node: str = ""
    """As in the Launch."""


class TaskStage(Wire):
    """How far a launch is; for people, and so that a long pull does not look like a hang."""

    type: Literal["task_stage"] = "task_stage"
    allocation_id: str
    run: int
    stage: Literal["queued", "pulling", "starting"]
    """queued: it waits in the cluster's own queue or for a node of it, for what `message` says."""
    message: str = ""
    node: str = ""
    """As in the Launch."""


class TaskExited(Wire):
    """The task's process group is gone and its records are delivered. Repeated until `exit_ack`."""

    type: Literal["task_exited"] = "task_exited"
    allocation_id: str
    run: int
    exit_code: int | None = None
    """Of the entrypoint; negative = killed by that signal; None = unknown (the launcher died)."""
    rank: int | None = None
    """First failing rank, when known."""
    reason: str = ""
    """"" | refused (the agent would not start it) | setup (bundle, image or directory failed) | oom (ended for its
    container's memory limit) | time_limit (of its batch job) | launcher_lost | machine_restarted (it went down with its
    node, which is never its own failure)"""
    message: str = ""
    node: str = ""
    """As in the Launch."""


AgentMessage = Annotated[
    Hello | MoreNodes | Heartbeat | TaskStarted | TaskStage | TaskExited, Field(discriminator="type")
]


# --- from the master --------------------------------------------------------------------------------------


class Welcome(Wire):
    """Answer to Hello: which tasks to keep, which to kill (fenced or unknown)."""

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL
    cluster_id: str
    keep: list[str] = []
    kill: list[str] = []
    node: str = ""
    """Whose tasks these are: an agent with `nodes` gets a Welcome for each, and one for its own node ("")."""
    takes_more: bool = False
    """Whether nodes may follow in `MoreNodes`; an older master knows those of the Hello only."""
    nonce: str = ""
    """A challenge, as in a `Heartbeat`."""


class Refused(Wire):
    """Answer to a Hello that the master does not accept; it closes the connection then."""

    type: Literal["refused"] = "refused"
    message: str


class Mount(Wire):
    """A host directory inside a container."""

    host_path: str
    container_path: str
    read_only: bool = False
    propagation: str = "rprivate"


class DeviceMount(Wire):
    """A host device inside a container."""

    host_path: str
    container_path: str
    mode: str = "mrw"


class ContainerSpec(Wire):
    """How a runtime of containers makes the task's container."""

    image: str
    force_pull: bool = False
    registry_auth: dict[str, str] | None = None
    """Secret: in memory and in this message only, never in the task's directory."""
    mounts: list[Mount] = []
    devices: list[DeviceMount] = []
    add_capabilities: list[str] = []
    drop_capabilities: list[str] = []
    shm_size: int | None = None
    """Bytes; None: 4 GiB."""
    memory: int | None = None
    """Bytes; None: no limit."""
    cpus: float | None = None
    network: str | None = None
    """bridge, host, or the name of a network; None: host if the master listens on loopback only, else bridge."""
    closed: list[str] = []
    """Directories with governed data that it is not placed for: no mount may lead to one, whatever its name."""


class ServiceSpec(Wire):
    """The task serves HTTP on a port that the agent chooses: DET_SERVICE_ADDRESS and DET_SERVICE_PORT in its
    environment, `TaskStarted.address` and `.port` for the master.
    """

    certificate: str | None = None
    """PEM, for the agent's address: the Hub's proxy reaches the port over a network, by TLS. None: no TLS."""
    key: str | None = None
    """The certificate's."""
    certificate_later: bool = False
    """Whether the task is to get its certificate from the master when its address is known (POST task/certificate), if
    that is not a loopback address; `TaskStarted.secure` says then that it has one."""


class Launch(Wire):
    """Start a task. Idempotent by (allocation_id, run)."""

    type: Literal["launch"] = "launch"
    allocation_id: str
    run: int
    owner: str
    """Hub user whose uid the task gets."""
    owner_groups: list[str] = []
    """Their groups of the Hub, as at submission; older masters do not send them."""
    uid: int | None = None
    """That uid, the same on all nodes; agents that are not root run all tasks as themselves."""
    account: bool = False
    """Whether it is the uid of an account, by the operator's map: the task gets its groups and its home."""
    slots: list[str]
    entrypoint: list[str] | str
    """argv, or a line for `sh -c`."""
    environment: dict[str, str] = {}
    """From environment.environment_variables."""
    bundle: str | None = None
    info: ClusterInfoWire
    task_token: str
    run_token: str | None = None
    """Of a notebook run: with it the cells ask the master for their owner, as long as the run lasts."""
    token_expires_at: float
    token_life: float | None = None
    """Seconds from now until then, for nodes whose clock differs; older masters do not send it."""
    node: str = ""
    """Which of the agent's nodes it is for, by its name in the Hello; "" for the agent's own."""
    kind: str = "trial"
    """trial, or a taskwire.TaskKind."""
    runtime: str = "process"
    """Name of one of the runtimes of its Hello; the agent refuses one that it does not have."""
    container: ContainerSpec | None = None
    """Image, mounts and limits that the config asks for; None for the process runtime."""
    service: ServiceSpec | None = None
    point_due: bool = False
    """Whether the trial has no hyperparameters yet: its job asks for them before it starts the launcher. Only for
    agents with `Hello.asks_point`."""
    user_home: bool = False
    """HOME is the user's own persistent home on the node (notebooks, shells), not the task's."""
    holds: bool = False
    """Whether it only keeps slots for a server that the Hub starts by itself, which asks for their devices."""
    slurm_features: list[str] = []
    """Features that all nodes of a Slurm job must have, beside what the config asks for: the pool's, for what it is to
    enforce."""
    reach: list[str] = []
    """The operator's own directories that the task gets into, whatever closed ones are above them; never a path of
    the experiment's: a root agent would open other people's directories for its author."""


class Kill(Wire):
    """SIGTERM to the task's process group now, SIGKILL after `grace` seconds. Idempotent."""

    type: Literal["kill"] = "kill"
    allocation_id: str
    run: int
    grace: float = 5.0
    node: str = ""
    """As in the Launch."""


class ExitAck(Wire):
    """The exit is committed: forget the task, remove its directory when `clean`."""

    type: Literal["exit_ack"] = "exit_ack"
    allocation_id: str
    run: int
    clean: bool = True
    node: str = ""
    """As in the Launch."""


MasterMessage = Annotated[Welcome | Refused | Heartbeat | Launch | Kill | ExitAck, Field(discriminator="type")]
