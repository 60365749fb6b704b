"""Trials over several agents: how their ranks meet through the master, and how they train together.

What they ask of the master is the harness's own question. In the place of the collectives between ranks there is a
`Ring`: nobody goes on while another one is away, and who misses a dead one fails, or hangs for ever, as collectives do.
"""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from detlab.backoff import Backoff
from detlab.launch.ranks import rendezvous
from simulation.loop import block

if TYPE_CHECKING:
    from detlab.launch.delivery.sender import Transport
    from detlab.schemas.wire import Launch
    from simulation.machines.trial import Trial

LOOK = 0.5
"""Seconds between two looks at the others."""
QUESTION = 20.0


def part_of(launch: Launch) -> str:
    """Which part of which attempt a launch is of; the chief's is called as the attempt."""
    return launch.allocation_id + (f"/{launch.info.container_rank}" if launch.info.container_rank else "")


class PeerLost(Exception):
    """Another rank is dead."""


class Ring:
    """The ranks of one attempt, as they reach each other past the master."""

    def __init__(self, nodes: int, *, hangs: bool) -> None:
        self._members: dict[int, Trial] = {}
        self._nodes, self._hangs = nodes, hangs
        self.over = False
        """The chief has done what there is to do."""

    @property
    def whole(self) -> bool:
        """Whether all have come."""
        return len(self._members) == self._nodes

    def join(self, rank: int, trial: Trial) -> None:
        """A rank is there."""
        self._members[rank] = trial

    def step(self) -> None:
        """Exchange gradients: wait for those that do not answer.

        Raises:
            PeerLost: One is dead.
        """
        while any(trial.process.paused for trial in self._members.values() if trial.process.alive):
            block(asyncio.sleep(LOOK))
        if all(trial.process.alive for trial in self._members.values()) or self.over:
            return
        if self._hangs:
            block(asyncio.get_running_loop().create_future())
        raise PeerLost

    def wait_for_the_chief(self) -> None:
        """What the other ranks do: as many steps as the chief.

        Raises:
            PeerLost: One is dead.
        """
        while not self.over:
            block(asyncio.sleep(LOOK))
            self.step()


def meet(trial: Trial, transport: Transport) -> None:
    """Wait until all nodes are there, through any outage of the master.

    Raises:
        MeetingError: The attempt is over.
    """
    info, rng = trial.launch.info, trial.node.rng
    told: dict[str, Any] = {"node": info.container_rank, "number": 1}
    if info.container_rank == 0:
        told |= {"port": 1, "messages_port": 2, "key": "5ec4e7"}
    body, backoff = json.dumps(told).encode(), Backoff(draw=rng.random)
    task = cast("Any", SimpleNamespace(task_dir=trial.directory.root))  # as much of it as is asked for
    while True:
        reply, _ = rendezvous._ask(task, transport, body, QUESTION)
        if reply is None:
            block(asyncio.sleep(backoff.next_pause()))
        elif reply.get("ready"):
            return
        else:
            backoff.reset()
