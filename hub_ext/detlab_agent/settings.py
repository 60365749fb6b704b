"""What the command line of an agent says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from detlab.launch.host.identity import ACCEPTED_RANGE
from detlab_agent.endpoints import Endpoints

DEFAULT_PIDS = 8192
"""Processes and threads of one task: far more than a large trial has, far fewer than would stop the machine."""


class AgentError(Exception):
    """The agent cannot start; the message says why and what to do."""


@dataclass(frozen=True)
class AgentSettings:
    """What the command line says.

    Attributes:
        endpoints: The master.
        directory: State of the agent, made if missing.
        agent_id: Stable name of this agent.
        slots: CPU slots, or the most GPUs to offer; None for what there is.
        pool: Resource pool that it belongs to.
        labels: For tasks that ask for some.
        max_zero_slot_tasks: Tasks without slots that run here at a time.
        cpus: CPUs that tasks may ask for together; None for what there is, 0 for any number.
        memory: Bytes that they may ask for together; None and 0 likewise.
        enrolment_token_file: For the first connection.
        users_file: hub user -> uid, as a root agent of an earlier version kept it.
        uid_range: uids that a root agent accepts of the master.
        user_map: hub user -> uid that the master must agree with.
        serves_user: The only user of an agent that is not root.
        runtimes: Names of runtimes; empty for processes, and containers where a root agent finds an engine.
        docker_host: Address of the engine; empty for DOCKER_HOST, or its usual socket.
        allow_mounts: Host directories whose parts containers may be given.
        allow_privileges: Whether containers may be given capabilities and devices.
        volumes: What every container has, each as `HOST[:CONTAINER][:ro|rw]`.
        address: Where ports of tasks are reached from the Hub's proxy.
        service_ports: First and last port that services may use; None for any.
        homes: Homes of users who have none; None for `homes` in the directory.
        warm_pool: Whether trials are forked from a process that has imported torch.
        task_network: Whether each task has a network of its own; auto: where that works.
        task_subnet: Addresses for these networks; None for some that are free.
        task_ports: Ports of this machine's loopback that all tasks reach.
        task_memory: Bytes that a task may have which does not ask for some; None for any.
        task_pids: Processes and threads that a task may have; 0 for any number.
    """

    endpoints: Endpoints
    directory: Path
    agent_id: str
    slots: int | None = None
    pool: str = "default"
    labels: dict[str, str] = field(default_factory=dict)
    max_zero_slot_tasks: int = 100
    cpus: float | None = None
    memory: int | None = None
    enrolment_token_file: Path | None = None
    users_file: Path | None = None
    uid_range: tuple[int, int] = ACCEPTED_RANGE
    user_map: dict[str, int] | None = None
    serves_user: str | None = None
    runtimes: tuple[str, ...] = ()
    docker_host: str = ""
    allow_mounts: tuple[Path, ...] = ()
    allow_privileges: bool = False
    volumes: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    service_ports: tuple[int, int] | None = None
    homes: Path | None = None
    warm_pool: bool = False
    task_network: Literal["private", "host", "auto"] = "auto"
    task_subnet: str | None = None
    task_ports: tuple[int, ...] = ()
    task_memory: int | None = None
    task_pids: int = DEFAULT_PIDS
