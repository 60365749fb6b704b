"""What goes wrong greatly: masters and machines; small faults are the network's."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from simulation.machines import faults as kinds
from simulation.machines.master import Doom

if TYPE_CHECKING:
    from simulation.machines.master import Master
    from simulation.machines.node import Node
    from simulation.world import World

FAULTS_END = 16.0
"""Virtual seconds after which nothing new goes wrong."""


class LargeFaults:
    """The great faults of one seed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._outlived: set[str] = set()
        """Masters that were paused when another one took their lease"""

    async def go_on(self) -> None:
        """Great faults, one after the other and sometimes two at once; small ones are the network's."""
        wanted = self._rng.randrange(5, 9)
        for _ in range(wanted):
            await asyncio.sleep(self._rng.uniform(0.3, 2 * FAULTS_END / wanted))
            await self._great_fault(self._rng.choice(kinds.MASTER if self._rng.random() < 0.45 else kinds.NODE))
        # Enough for every seed, also where much had no effect.
        while self._world.faults.total < kinds.LEAST:
            self._world.faults.insist()
            await asyncio.sleep(0.3)

    async def _great_fault(self, kind: str) -> None:
        if kind in kinds.MASTER:
            await self._master_fault(kind)
        else:
            await self.node_fault(kind, self._rng.choice(self._world.nodes))

    async def _master_fault(self, kind: str) -> None:
        living = [
            master for master in self._world.living() if master.services is not None and not master.process.paused
        ]
        if len(living) != 1 or len(self._world.living()) != 1:
            return
        master = living[0]
        self._world.note("fault", kind, master.name)
        match kind:
            case "master_killed_at_an_await":
                master.process.light(self._rng.randrange(1, 60), partial(self._world.faults.count, kind))
            case "master_paused_past_its_lease":
                self._world.loop.world.spawn(self._pause_master(master))
            case "disk_full_database":
                self._world.loop.world.spawn(self._fill_disk())
            case _:
                master.doom = Doom(kind, self._rng.randrange(1, 8))

    def serves(self, master: Master) -> None:
        """A master has got the lease: whoever had it, and is paused, is so past its lease."""
        for other in self._world.living():
            if other is not master and other.process.paused and other.name not in self._outlived:
                self._outlived.add(other.name)
                self._world.faults.count("master_paused_past_its_lease")

    async def _pause_master(self, master: Master) -> None:
        master.process.pause()
        await asyncio.sleep(self._rng.uniform(0.0, 5.0))
        self._world.start_master()
        await asyncio.sleep(self._rng.uniform(11.0, 15.0))
        self._world.note("continues", master.name)
        master.process.resume()

    async def _fill_disk(self) -> None:
        self._world.database_full = True
        self._world.database_found_full = False
        await asyncio.sleep(self._rng.uniform(1.0, 6.0))
        self._world.database_full = False

    async def node_fault(self, kind: str, node: Node) -> None:
        """Let something happen to a machine; it is counted here where it has its effect at once."""
        tasks = [
            task for task in node.tasks.values() if task.launcher.process.alive and task.launcher.trial.process.alive
        ]
        task = self._rng.choice(tasks) if tasks else None
        self._world.note("fault", kind, node.name)
        match kind:
            case "partition":
                self._world.network.partition(node.name, self._rng.choice((1.0, 4.0, 9.0, 14.0)))
                return
            case "agent_killed" if node.agent is not None and node.agent.process.alive:
                node.agent.process.kill()
                self._world.loop.world.spawn(self._back(node))
            case "launcher_killed" if task is not None:
                task.launcher.process.kill()
            case "trial_killed" if task is not None:
                task.launcher.trial.end(-9)
            case "trial_killed_torn_spool" if task is not None:
                task.launcher.trial.end(-9)
                with task.directory.stream("metrics").open("ab") as file:
                    file.write(b'{"kind":"metrics","seq":')
            case "trial_killed_torn_checkpoint" if task is not None:
                task.launcher.trial.dies_saving = self._rng.choice(("files", "manifest", "commit"))
                return
            case "machine_restarted" if node.processes():
                node.restart()
                self._world.loop.world.spawn(self._back(node))
            case "machine_paused_shortly" | "machine_paused_past_reconnect":
                self._world.loop.world.spawn(self._freeze(node, past=kind == "machine_paused_past_reconnect"))
                return
            case "disk_full_spool":
                node.disk_full = 1
                return
            case "clock_jump_forward" | "clock_jump_back":
                machine = self._rng.choice(("master", node.name))
                jump = self._rng.choice((0.5, 5.0, 40.0, 200.0))
                self._world.skew[machine] = self._world.skew.get(machine, 0.0) + (
                    jump if kind.endswith("forward") else -jump
                )
            case _:
                return
        self._world.faults.count(kind)

    async def _back(self, node: Node) -> None:
        await asyncio.sleep(self._rng.choice((0.1, 1.0, 5.0, 10.0)))
        node.start()

    async def _freeze(self, node: Node, *, past: bool) -> None:
        """Pause all that runs on a machine; past the time in which it may connect again, it comes back as a zombie."""
        frozen = [process for process in node.processes() if not process.paused]
        for process in frozen:
            process.pause()
        if past:
            await asyncio.sleep(self._world.settings.agent_reconnect_wait)
        if any(process.alive for process in frozen):
            self._world.faults.count("machine_paused_past_reconnect" if past else "machine_paused_shortly")
        await asyncio.sleep(self._rng.choice((1.0, 6.0)) if past else 3.0)
        for process in frozen:
            process.resume()
