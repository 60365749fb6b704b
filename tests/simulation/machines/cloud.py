"""A provider of machines as clouds are: slow, forgetful, and not always heard; and the machines that it has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from detlab.schemas.wire import EnrolReply, EnrolRequest
from detlab_agent.enrolment import MasterAway, NotEnrolled
from detlab_hub.backends.instances import InstanceOrder, ProviderError, Trouble
from detlab_hub.core.provisioning import Instance, InstanceState
from simulation.loop import EPOCH, block
from simulation.machines.faults import CLOUD
from simulation.machines.network import Request
from simulation.machines.node import Node

if TYPE_CHECKING:
    from simulation.elastic import Elastic

OLD = (0.0, 0.0, 0.0, 3.0, 12.0, 40.0)
"""Seconds by which a list may be old, each time anew: two lists may come from two places, the later one older."""
ENDS_IN = 3.0
"""Seconds from the order to end until a machine is listed no more."""
OFTEN = 0.12
"""How often each call goes wrong while anything does."""


class MachineKeys:
    """The key of a new machine's agent, asked for with the token of its order."""

    enrolment_token_file = None

    def __init__(self, node: CloudNode) -> None:
        self._node = node
        self.agent_id = node.name

    def token(self) -> str:
        """The key that it has."""
        return str(self._node.key)

    async def ensure(self) -> str:
        """The key; see `detlab_agent.enrolment.KeyRing`."""
        node = self._node
        if not node.key:
            body = EnrolRequest(agent_id=node.name).model_dump_json().encode()
            status, said = await node.world.network.request(
                Request("POST", "agents/enrol", {}, body, node.enrolment_token)
            )
            if status >= 500:
                raise MasterAway(f"status {status}")
            if status != 200:
                node.world.note("cannot enrol", node.name, status)
                raise NotEnrolled(f"status {status}")
            node.key = EnrolReply.model_validate_json(said).token
        return node.key


class CloudNode(Node):
    """A machine that was launched; it goes for ever."""

    def __init__(self, world: Elastic, order: InstanceOrder) -> None:
        super().__init__(world, len(world.cloud.machines) + len(world.slots), world.instance_slots, name=order.agent_id)
        self.enrolment_token = order.enrolment_token
        self.there = True

    def keys(self) -> MachineKeys:
        """See `Node`."""
        return MachineKeys(self)

    def start(self) -> None:
        """See `Node`; what was given back is not started any more."""
        if self.there:
            super().start()

    def vanish(self) -> None:
        """Nothing of it is left."""
        self.there = False
        self.restart()
        self.tasks.clear()
        if self in self.world.nodes:
            self.world.nodes.remove(self)


@dataclass
class Machine:
    """What the provider knows of one."""

    instance: Instance
    node: CloudNode
    was: list[tuple[float, InstanceState | None]] = field(default_factory=list)
    """Since when it is in which state; None: it is listed no more."""

    def at(self, time: float) -> InstanceState | None:
        """Its state at a time; None: not listed."""
        found = None
        for since, state in self.was:
            if since <= time:
                found = state
        return found

    @property
    def alive(self) -> bool:
        """Whether it costs money."""
        return self.was[-1][1] in {InstanceState.PENDING, InstanceState.RUNNING}


class Cloud:
    """See `detlab_hub.backends.instances.Provider`; its methods block, as threads do."""

    def __init__(self, world: Elastic) -> None:
        self._world = world
        self._rng = random.Random(f"cloud {world.seed}")
        self.machines: dict[str, Machine] = {}
        """By agent."""
        self.orders: set[str] = set()

    # --- what a pool asks

    def launch(self, order: InstanceOrder) -> Instance:
        """Make a machine; the same order again is the same machine."""
        self._takes(2.0)
        self.orders.add(order.agent_id)
        wrong = self._goes_wrong("launch_refused", "launch_lost", "launch_unanswered", "master_killed_at_a_launch")
        if wrong == "launch_refused":
            raise ProviderError(Trouble.CAPACITY, "there are none left")
        if wrong == "launch_lost":
            self._unheard()
        if order.agent_id not in self.machines:
            self._make(order)
        if wrong == "master_killed_at_a_launch":
            self._world.kill_master()
        self._takes(1.0)
        if wrong == "launch_unanswered":
            self._unheard()
        return self._told(self.machines[order.agent_id], self._now())

    def list(self) -> tuple[Instance, ...]:
        """What there was a while ago."""
        self._takes(0.3)
        wrong = self._goes_wrong("list_unanswered")
        if wrong is not None:
            self._unheard()
        now = self._now()
        at = now - (self._rng.choice(OLD) if self._world.troubled else 0.0)
        then = tuple(self._told(one, at) for one in self.machines.values() if one.at(at) is not None)
        if then != tuple(self._told(one, now) for one in self.machines.values() if one.at(now) is not None):
            self._world.faults.count("list_is_old")
        self._takes(0.3)
        return then

    def terminate(self, ids: Collection[str]) -> None:
        """End machines."""
        self._takes(1.0)
        wrong = self._goes_wrong("end_lost", "end_unanswered")
        if wrong == "end_lost":
            self._unheard()
        for machine in self.machines.values():
            if machine.instance.id in ids and machine.at(self._now()) is not None:
                self._end(machine)
        if wrong == "end_unanswered":
            self._unheard()

    # --- what happens by itself

    def lose_one(self) -> None:
        """A machine is taken back, as those are that cost less: it stays in the list as stopped, or does not."""
        there = [machine for machine in self.machines.values() if machine.alive]
        if there:
            machine = self._rng.choice(there)
            self._world.faults.count("instance_lost")
            self._world.note("is lost", machine.instance.id)
            machine.node.vanish()
            machine.was.append((self._now(), self._rng.choice((None, InstanceState.STOPPED))))

    def living(self) -> list[Machine]:
        """Those that cost money."""
        return [machine for machine in self.machines.values() if machine.alive]

    def left(self) -> list[Machine]:
        """Those that are there in any way, ended ones included that nobody removed."""
        return [machine for machine in self.machines.values() if machine.was[-1][1] is not None]

    # --- how

    def _now(self) -> float:
        return EPOCH + self._world.loop.time()

    def _takes(self, most: float) -> None:
        block(asyncio.sleep(most * self._rng.random()))

    def _goes_wrong(self, *kinds: str) -> str | None:
        if not self._world.troubled or self._rng.random() > OFTEN * len(kinds):
            return None
        kind = self._rng.choice(kinds)
        assert kind in CLOUD
        self._world.faults.count(kind)
        self._world.note("cloud", kind)
        return kind

    def _unheard(self) -> None:
        self._takes(3.0)
        raise ProviderError(Trouble.UNREACHABLE, "no answer")

    def _make(self, order: InstanceOrder) -> None:
        node = CloudNode(self._world, order)
        instance = Instance(f"i-{order.agent_id}", order.agent_id, launched_at=self._now())
        machine = Machine(instance, node, [(self._now(), InstanceState.PENDING)])
        self.machines[order.agent_id] = machine
        self._world.nodes.append(node)
        self._world.note("launched", instance.id)
        self._world.promises.launched()
        self._world.loop.world.spawn(self._boot(machine))

    async def _boot(self, machine: Machine) -> None:
        await asyncio.sleep(self._rng.uniform(0.5, 6.0))
        if not machine.alive:
            return
        machine.was.append((self._now(), InstanceState.RUNNING))
        if self._goes_wrong("instance_without_agent") is None:
            machine.node.start()

    def _end(self, machine: Machine) -> None:
        if machine.alive:
            self._world.promises.ends(machine)
        self._world.note("ended", machine.instance.id)
        machine.node.vanish()
        machine.was.append((self._now(), InstanceState.ENDING))
        machine.was.append((self._now() + ENDS_IN, None))

    def _told(self, machine: Machine, at: float) -> Instance:
        known = machine.instance
        return Instance(known.id, known.agent_id, machine.at(at) or InstanceState.ENDING, known.launched_at)
