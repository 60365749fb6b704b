"""A search on a pool that grows and shrinks, over a cloud that lags, forgets to answer, refuses and takes back.

Three machines are always there, beside them at most as many instances as the pool may have. While anything goes wrong,
masters die also in the middle of a launch; in the calm demand comes once more, and then all instances have to go.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

from detlab_hub.backends.instances.configuration import ElasticPool, like_of
from detlab_hub.core.provisioning import PoolLimits
from detlab_hub.core.scheduling import DEFAULT_POOL, Agent, read_pools
from detlab_hub.services import Settings
from simulation.checks.promises import PLACED, Promises
from simulation.loop import Process, as_thread
from simulation.machines.cloud import Cloud, Machine
from simulation.world import TRIALS, World

TROUBLED = 60.0
"""Virtual seconds in which the cloud is troubled; machines and masters are for less."""
GONE = 150.0
"""Virtual seconds of calm without demand after which no instance is left that nobody wants."""
BELIEVED = 130.0
"""Seconds for which a master's clock that was put forward makes it forget what it waits for: launches of less long ago
than the two minutes for which a list may lag."""
WAVES = (30.0, 70.0)
"""When more is asked for: while the cloud is troubled, and in the calm."""


class ElasticPromises(Promises):
    """The promises of an elastic pool, beside those of a search."""

    world: Elastic

    def launched(self) -> None:
        """There is one instance more: never more than there may be."""
        world = self.world
        there = [machine.instance.id for machine in world.cloud.living()]
        if len(there) > world.limits.max_instances:
            if world.loop.time() - world.put_forward_at > BELIEVED:
                self._broken("elastic", f"there are {there}, {world.limits.max_instances} instances may be")
            self.checks["instances too many after a clock jump"] += 1
        self.checks["instances launched"] += 1
        self.checks["pools as large as may be"] += len(there) == world.limits.max_instances

    def ends(self, machine: Machine) -> None:
        """An instance that lives is ended: nothing may be placed there."""
        name = machine.node.name
        placed = self._all(f"SELECT id FROM allocations WHERE agent_id = ? AND state IN {PLACED!r}", name)
        if placed:
            self._broken("elastic", f"{name} is ended, and {placed} are placed there")
        self.checks["instances ended that ran nothing"] += 1

    def check_gone(self) -> None:
        """Nobody wants any: all that are left are those that always are, and the list of agents has no others."""
        world = self.world
        left = sorted(machine.node.name for machine in world.cloud.left())
        if len(left) > world.limits.min_instances:
            self._broken("elastic", f"instances leak: {left}, and nobody wants more than {world.limits.min_instances}")
        if strangers := self.strangers():
            self._broken("elastic", f"agents of instances that are gone are listed: {strangers}")
        self.checks["pools small again"] += 1

    def strangers(self) -> list[str]:
        """Agents in the list whose machines are not there."""
        known = {name for (name,) in self._all("SELECT id FROM agents")}
        return sorted(known - {node.name for node in self.world.nodes})


class Elastic(World):
    """The course of things."""

    slots = (1, 1, 1)
    promises: ElasticPromises

    def __init__(self, seed: int, *arguments: Any, **more: Any) -> None:
        drawn = random.Random(f"elastic {seed}")
        self.instance_slots = drawn.choice((1, 1, 2))
        self.limits = PoolLimits(
            min_instances=drawn.choice((0, 0, 1)),
            max_instances=drawn.choice((1, 2, 3, 4)),
            max_idle_agent_period=drawn.choice((4.0, 12.0)),
            max_agent_starting_period=drawn.choice((20.0, 40.0)),
            max_disconnected_period=drawn.choice((10.0, 20.0)),
            launch_rate=drawn.choice((4, 20)),
            retry_after=drawn.choice((1.0, 5.0)),
            retry_at_most=20.0,
        )
        self.provider = {
            "type": "aws",
            "region": "r",
            "instance_type": "i",
            "image_id": "a",
            "slots": self.instance_slots,
            "max_instances": self.limits.max_instances,
            "min_instances": self.limits.min_instances,
        }
        super().__init__(seed, *arguments, **more)
        self.loop.threads_wait = True
        self.cloud = Cloud(self)
        self.put_forward_at = -BELIEVED
        self._skew_before = 0.0

    def _settings(self) -> Settings:
        pools, mistakes = read_pools({DEFAULT_POOL: {"provider": self.provider}})
        assert not mistakes, mistakes
        return replace(super()._settings(), pools=pools)

    def _make_promises(self) -> Promises:
        return ElasticPromises(self)

    def elastic(self) -> list[ElasticPool]:
        """See `World`."""
        template = Agent("template", self.instance_slots)
        return [ElasticPool(DEFAULT_POOL, self.cloud, self.limits, template, like_of(self.provider))]

    @property
    def troubled(self) -> bool:
        """Whether the cloud may do something wrong."""
        return not self.calm and self.loop.time() < 1000.0 + TROUBLED

    def kill_master(self) -> None:
        """The master that asks the cloud dies while it does."""
        self.loop.process().kill()

    def _start_clients(self) -> list[asyncio.Task[Any]]:
        clients = super()._start_clients()
        for number, pause in enumerate(WAVES):
            process = Process(self.loop, f"client wave{number}", "client")
            key = f"wave{number}"
            clients.append(process.spawn(as_thread(lambda key=key, pause=pause: self._submit(key, pause))))
        return clients

    def _config(self, key: str) -> dict[str, Any]:
        """See `World`; more at a time than the three machines that are always there can run."""
        made = super()._config("small" if key.startswith("wave") else key)
        if key == "search":
            made["searcher"]["max_concurrent_trials"] = TRIALS
        elif key.startswith("wave"):
            made |= {"name": key, "searcher": {**made["searcher"], "max_trials": 4}}
        return made

    # --- what goes wrong

    async def _wreck(self) -> None:
        self.loop.world.spawn(self._take_back())
        self.loop.world.spawn(self._watch_clock())
        await super()._wreck()

    async def _take_back(self) -> None:
        rng = random.Random(f"taken back {self.seed}")
        while self.troubled:
            await asyncio.sleep(rng.uniform(4.0, 30.0))
            if self.troubled:
                self.cloud.lose_one()

    async def _watch_clock(self) -> None:
        """Note when the master's clock is put forward."""
        while True:
            skew = self.skew.get("master", 0.0)
            if skew > self._skew_before:
                self.put_forward_at = self.loop.time()
            self._skew_before = skew
            await asyncio.sleep(0.05)

    # --- the end

    async def _go_on(self, clients: list[asyncio.Task[Any]]) -> None:
        await super()._go_on(clients)
        begun = self.loop.time()
        while self.loop.time() < begun + GONE and not self._small():
            await asyncio.sleep(1.0)
        self.promises.checks["seconds until pools are small"] += int(self.loop.time() - begun)
        self.promises.check_gone()

    def _small(self) -> bool:
        return len(self.cloud.left()) <= self.limits.min_instances and not self.promises.strangers()
