"""The command line of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from detlab.launch.host.identity import ACCEPTED_RANGE
from detlab_agent.endpoints import Endpoints

DEFAULT_PIDS = 8192
"""Processes and threads of one task: far more than a large trial has, far fewer than would stop the machine."""

LOOPBACK = "127.0.0.1"


class AgentError(Exception):
    """The agent cannot start; the message says why and what to do."""


@dataclass(frozen=True)
class AgentSettings:
    """The options on the command line.

    Attributes:
        endpoints: The master.
        directory: State directory of the agent, made if missing.
        agent_id: Stable name of this agent.
        slots: CPU slots, or the most GPUs to offer; None for all.
        pool: Resource pool that it belongs to.
        labels: Labels, for tasks that request some.
        max_zero_slot_tasks: Tasks without slots that run here at a time.
        cpus: CPUs that tasks may request together; None for all, 0 for any number.
        memory: Bytes that they may request together; None and 0 likewise.
        enrolment_token_file: File with the token for the first connection.
        users_file: hub user -> uid, as a root agent of an earlier version kept it.
        uid_range: uids that a root agent accepts from the master.
        user_map: hub user -> uid that the master must agree with.
        serves_user: The only user of an agent that is not root.
        runtimes: Names of runtimes; empty for processes, and containers if a root agent finds an engine.
        docker_host: Address of the engine; empty for DOCKER_HOST, or its usual socket.
        allow_mounts: Host directories whose parts containers may mount.
        allow_privileges: Whether containers may be given capabilities and devices.
        volumes: Mounts of every container, each as `HOST[:CONTAINER][:ro|rw]`.
        address: The address at which the Hub's proxy reaches ports of tasks.
        service_ports: First and last port that services may use; None for any.
        homes: Homes of users who have none; None for `homes` in the directory.
        warm_pool: Whether trials are forked from a process that has imported torch.
        task_network: Whether each task has a private network; auto: if that works.
        task_subnet: Addresses for these networks; None for free ones.
        task_ports: Ports of this machine's loopback that all tasks reach.
        task_metadata: Whether tasks reach a cloud's metadata service, which has this machine's credentials.
        task_memory: Bytes for a task that does not request any; None for no limit.
        task_pids: Processes and threads that a task may have; 0 for no limit.
        mark: What tells this agent from the one whose directory it has a copy of; "" where it is none.
        of_runtimes: What the options of single runtimes say, by the runtime's name; see `runtimes.flags`.
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
    address: str = LOOPBACK
    service_ports: tuple[int, int] | None = None
    homes: Path | None = None
    warm_pool: bool = False
    task_network: Literal["private", "host", "auto"] = "auto"
    task_subnet: str | None = None
    task_ports: tuple[int, ...] = ()
    task_metadata: Literal["allow", "block"] = "allow"
    task_memory: int | None = None
    task_pids: int = DEFAULT_PIDS
    of_runtimes: Mapping[str, Any] = field(default_factory=dict)
    mark: str = ""

    @property
    def marked_id(self) -> str:
        """The name by which containers, pods and jobs are known as this agent's."""
        return f"{self.agent_id}-{self.mark}" if self.mark else self.agent_id


def for_cluster(settings: AgentSettings, runtime: str) -> AgentSettings:
    """Return the settings of an agent that speaks for a cluster: it runs nothing on its own machine.

    Raises:
        AgentError: They ask for tasks on this machine too.
    """
    others = [name for name in settings.runtimes if name != runtime]
    if others:
        raise AgentError(
            f"--{runtime} and --runtime {','.join(others)} do not go together: an agent speaks for a cluster or for "
            "its machine; run two, each with its own --name and --dir"
        )
    address = "" if settings.address == LOOPBACK else settings.address  # pods and jobs have their own
    return replace(settings, runtimes=(runtime,), slots=0, max_zero_slot_tasks=0, cpus=0, memory=0, address=address)
