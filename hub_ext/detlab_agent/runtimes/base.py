"""The interface of a way to run tasks (processes, containers, pods, jobs): start, find again, end, forget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from detlab.launch.delivery.sender import SpoolSource
from detlab.schemas.wire import Launch

Stage = Literal["queued", "pulling", "starting"]
Say = Callable[[Stage, str], None]
"""Reports how far a launch is, or what it waits for."""


_LARGEST = 2**31
MOST_SAID = 8000
"""Characters of what is said of a task's end."""


class RefusedTask(Exception):
    """This agent will not run the task; the message says why."""


class SetupFailed(Exception):
    """The task's bundle, image or directory could not be made ready; the message says why."""


class CanceledTask(Exception):
    """The task was told to end before it had started."""


@dataclass(frozen=True)
class TaskExit:
    """How a task ended. Parts of it may come from the task's user; no value is one that the agent could not send.

    Attributes:
        exit_code: Of the entrypoint; negative if a signal ended it; None if unknown.
        rank: First rank that failed, when known.
        reason: "", "refused", "setup", "oom", "launcher_lost" or "machine_restarted".
        message: For people.
        delivered: Whether the launcher has delivered the task's reports and output; else the agent does.
    """

    exit_code: int | None = None
    rank: int | None = None
    reason: str = ""
    message: str = ""
    delivered: bool = True

    def __post_init__(self) -> None:
        # One that cannot be sent would end each connection of the agent, and so cut off everybody's tasks.
        for name in ("exit_code", "rank"):
            number = getattr(self, name)
            if number is not None and not -_LARGEST < number < _LARGEST:
                object.__setattr__(self, name, None)
        for name in ("reason", "message"):
            text = getattr(self, name)[:MOST_SAID].replace("\0", "?").encode(errors="replace").decode()
            object.__setattr__(self, name, text)


class RunningTask(Protocol):
    """A task whose launcher was started, now or before the agent's restart."""

    @property
    def allocation_id(self) -> str:
        """The allocation that it runs."""
        ...

    @property
    def node(self) -> str:
        """Which of the agent's nodes it is on; "" for the agent's own."""
        ...

    @property
    def run(self) -> int:
        """Number of the attempt."""
        ...

    @property
    def slots(self) -> Sequence[str]:
        """Ids of the slots it has."""
        ...

    @property
    def pid(self) -> int | None:
        """Pid of the launcher; None if it ended before the agent looked."""
        ...

    @property
    def address(self) -> str | None:
        """Address of its service; None if it has none."""
        ...

    @property
    def port(self) -> int | None:
        """Port of its service."""
        ...

    @property
    def secure(self) -> bool:
        """Whether its service has got its certificate only when its address was known; see `ServiceSpec`."""
        ...

    @property
    def host(self) -> str:
        """Name of the machine it runs on, where neither the agent nor its node is named so; else "".

        Known once `begun` has returned.
        """
        ...

    @property
    def waits(self) -> bool:
        """Whether it may still have to wait for its machine; false once `begun` has returned."""
        ...

    async def begun(self, say: Say) -> None:
        """Wait until it runs or has ended; from then on `address` and `port` say where its service is reached.

        A task on this machine runs when it was made. One elsewhere may have to wait for its machine first.

        Args:
            say: Called with what it waits for.
        """
        ...

    async def finished(self) -> TaskExit:
        """Wait until no process of the task is left, and return how it ended."""
        ...

    def interrupt(self, grace: float) -> None:
        """Ask the task to end (SIGTERM).

        Args:
            grace: Seconds until it is killed, as far as is known now.
        """
        ...

    async def kill(self, delivery_grace: float) -> None:
        """End every process of the task; the launcher gets `delivery_grace` seconds to deliver the rest."""
        ...

    def leftovers(self) -> list[SpoolSource]:
        """List the spools of dead launchers, for the agent to ship."""
        ...

    async def remove(self, *, clean: bool) -> None:
        """Forget the task; delete what it left on this node if `clean`."""
        ...


class Runtime(Protocol):
    """Start tasks, and find them again after the agent's own death."""

    async def start(self, launch: Launch, say: Say, cancelled: asyncio.Event) -> RunningTask:
        """Make everything ready and start the task.

        Args:
            launch: The master's message.
            say: Called with how far it is.
            cancelled: Set when the task is to end before it has started.

        Raises:
            RefusedTask: It may not run here.
            SetupFailed: Its bundle, image or directory could not be made ready.
            CanceledTask: `cancelled` was set in time.
        """
        ...

    def recover(self) -> list[RunningTask]:
        """Return the tasks from before the agent's restart: running, or ended and not yet acknowledged."""
        ...
