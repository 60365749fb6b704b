"""A cluster of nodes that come and go, and the one agent that speaks for them, which is not always right.

The agent is the real one over a simulated runtime: the nodes of its Hello are those that the cluster lists at that
moment, its tasks are pods there. A pod may begin long after it was made; a node may vanish with what runs on it, or
only from the cluster's sight, so that its pods go on for a while and are ended when it returns.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from detlab.schemas.wire import HeldTask, Hello, Launch, NodeHello, SlotView
from detlab_agent.runtimes.base import CanceledTask, RefusedTask, TaskExit
from detlab_agent.tasks import TaskTable
from simulation.machines.node import Agent, Node, Task
from simulation.machines.trial import Launcher, written_exit

if TYPE_CHECKING:
    from detlab.launch.taskdir import TaskDir
    from simulation.machines.engines import Engines

LOOK = 0.5
"""Seconds between two looks at a pod."""
SWEEP = 2.0
"""Seconds between two looks for pods that the agent knows nothing of."""
BEGINS_AFTER = (0.0, 0.0, 0.0, 1.0, 4.0, 9.0)
"""Seconds from the making of a pod until it begins: its node pulls the image, or has no room yet."""
UNSEEN = (1.0, 3.0)
"""Seconds from when a node has vanished until its pods count as lost."""


class Pod(Task):
    """A task on a node of the cluster; see `HeldTask`."""

    machine: ClusterNode
    opened: bool = False
    lost: str = ""
    """Why the cluster says that it is no more, whatever runs there."""

    @property
    def node(self) -> str:
        """Which of the agent's nodes."""
        return self.machine.short

    @property
    def waits(self) -> bool:
        """Whether it has not begun."""
        return not self.opened and not self.lost and self.launcher.process.alive

    def open(self) -> None:
        """Its node starts it."""
        if self.launcher.process.alive and not self.lost:
            self.opened = True
            if self.launcher.trial.process.alive:
                self.launcher.start()
            else:
                self.launcher.process.kill()

    async def begun(self, say: Any) -> None:
        """See `HeldTask.begun`."""
        if self.waits:
            say("starting", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu")
        while self.waits:
            await asyncio.sleep(LOOK)

    async def finished(self) -> TaskExit:
        """See `HeldTask.finished`: a look at the pod, again and again."""
        while self.launcher.process.alive and not self.lost:
            await asyncio.sleep(LOOK)
        if self.lost:
            return TaskExit(reason="machine_restarted", message=self.lost, delivered=False)
        self.launcher.trial.end(-9)
        report = written_exit(self.directory)
        if report is not None:
            return TaskExit(exit_code=report["exit_code"])
        if self.machine_life != self.machine.life:
            return TaskExit(reason="machine_restarted", message="its node was started again", delivered=False)
        return TaskExit(reason="launcher_lost", message="the pod ended without a report", delivered=False)

    def interrupt(self, grace: float) -> None:
        """See `HeldTask.interrupt`; nobody reaches a node that has vanished."""
        if not self.machine.away:
            super().interrupt(grace)

    async def kill(self, delivery_grace: float) -> None:
        """See `HeldTask.kill`: a pod whose node does not answer is deleted by force."""
        if self.machine.away:
            self.lost = "the pod was deleted by force"
            return
        self.launcher.trial.end(-9)
        waited = 0.0
        while self.launcher.process.alive and waited < delivery_grace:
            await asyncio.sleep(LOOK)
            waited += LOOK
        self.launcher.process.kill()

    def leftovers(self) -> list[Any]:
        """Its spool is on another machine."""
        return []

    async def remove(self, *, clean: bool) -> None:
        """Forget it; what still runs on a node that has vanished is ended when that returns."""
        self.machine.speaker.known.pop((self.allocation_id, self.node), None)
        if not self.machine.away:
            self.machine.end(self)


class ClusterNode(Node):
    """A node of the cluster: a machine without an agent of its own."""

    def __init__(self, speaker: Speaker, short: str, slots: int) -> None:
        self.speaker, self.short = speaker, short
        super().__init__(speaker.world, 0, slots, name=f"{speaker.name}/{short}")
        self.away = False

    @property
    def keeper(self) -> Node:
        """See `Node`."""
        return self.speaker

    def start(self) -> None:
        """It has no agent."""

    def task_of(self, launch: Launch, directory: TaskDir) -> Pod:
        """See `Node`."""
        return Pod(self, launch, directory, Launcher(self, launch, directory), self.life)

    def end(self, pod: Task) -> None:
        """Nothing of a pod is left."""
        pod.launcher.process.kill()
        pod.launcher.trial.end(-9)
        self.tasks.pop(pod.allocation_id, None)
        shutil.rmtree(pod.directory.root, ignore_errors=True)

    def waiting(self) -> Iterator[Pod]:
        """Pods that have not begun, and may."""
        for pod in self.tasks.values():
            assert isinstance(pod, Pod)
            if not pod.opened and not pod.lost and pod.launcher.process.alive:
                yield pod

    def vanish(self, *, lives: bool) -> None:
        """The cluster does not see it any more; what runs there may go on."""
        self.away = True
        if not lives:
            self.restart()
        self.speaker.changed()
        self.world.loop.world.call_later(self.rng.uniform(*UNSEEN), self._lose)

    def _lose(self) -> None:
        if self.away:
            for pod in self.tasks.values():
                assert isinstance(pod, Pod)
                pod.lost = f"node {self.short} does not answer"

    def come_back(self) -> None:
        """It returns, and ends the pods that are not wanted any more."""
        self.away = False
        for pod in list(self.tasks.values()):
            assert isinstance(pod, Pod)
            if pod.lost or (pod.allocation_id, self.short) not in self.speaker.known:
                self.end(pod)
        self.speaker.changed()


class PodRuntime:
    """Makes pods; see `detlab_agent.runtimes.base.Runtime`."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker

    def begin(self, agent: Agent) -> None:
        """What runs beside the tasks: the search for pods that nobody knows."""
        agent.process.spawn(self._sweep())

    async def _sweep(self) -> None:
        speaker = self._speaker
        while True:
            for node in speaker.present():
                for pod in list(node.tasks.values()):
                    if (pod.allocation_id, node.short) not in speaker.known:
                        node.end(pod)
            await asyncio.sleep(SWEEP)

    async def start(self, launch: Launch, say: Any, cancelled: asyncio.Event) -> Pod:
        """Make a pod, which takes a moment.

        Raises:
            RefusedTask: Its node is gone.
            CanceledTask: It was not made in time.
        """
        speaker = self._speaker
        say("starting", "")
        await asyncio.sleep(0.05 + 0.2 * speaker.rng.random())
        if cancelled.is_set():
            raise CanceledTask
        node = speaker.nodes.get(launch.node)
        if node is None or node.away:
            raise RefusedTask(f"the cluster has no node {launch.node}")
        if (launch.allocation_id, launch.node) in speaker.made:
            raise RefusedTask("there was a pod of that name, which this agent has forgotten")
        speaker.made.add((launch.allocation_id, launch.node))
        pod = node.make(launch)
        assert isinstance(pod, Pod)
        speaker.known[pod.allocation_id, pod.node] = pod
        after = speaker.rng.choice(BEGINS_AFTER) if speaker.world.troubled else 0.0
        if after:
            speaker.world.faults.count("pod_begun_late")
        speaker.world.loop.world.call_later(after, pod.open)
        return pod

    def recover(self) -> list[Pod]:
        """The pods that the agent has made and knows."""
        return list(self._speaker.known.values())


class Speaker(Node):
    """The machine of the agent that speaks for the nodes."""

    world: Engines

    def __init__(self, world: Engines, name: str, pool: str, slots: tuple[int, ...]) -> None:
        super().__init__(world, 0, 0, pool=pool, name=name, zero_slot_tasks=0)
        self.known: dict[tuple[str, str], Pod] = {}
        self.made: set[tuple[str, str]] = set()
        self.nodes = {f"n{number}": ClusterNode(self, f"n{number}", count) for number, count in enumerate(slots)}
        self._last = len(self.nodes)
        self.lies = random.Random(f"lies {world.seed}")

    def present(self) -> list[ClusterNode]:
        """The nodes that the cluster lists."""
        return [node for node in self.nodes.values() if not node.away]

    def runtime(self) -> PodRuntime:
        """See `Node`."""
        return PodRuntime(self)

    def changed(self) -> None:
        """The set of nodes has changed: the agent says so."""
        if self.agent is not None and self.agent.process.alive and self.agent.connector is not None:
            self.agent.process.call_later(LOOK, self.agent.connector.introduce_again)

    def add(self, slots: int) -> ClusterNode:
        """The cluster gets one more node."""
        node, self._last = ClusterNode(self, f"n{self._last}", slots), self._last + 1
        self.nodes[node.short] = node
        self.changed()
        return node

    def forget_one(self) -> None:
        """The agent dies, and its record of a pod is lost with it."""
        if self.known and self.agent is not None and self.agent.process.alive:
            self.agent.process.kill()
            del self.known[self.lies.choice(sorted(self.known))]
            self.world.faults.count("task_forgotten")
            self.world.loop.world.call_later(self.lies.choice((0.1, 1.0, 3.0)), self.start)

    # --- what the agent says

    def introduced(self, hello: Hello, table: TaskTable) -> Hello:
        """See `Node`."""
        nodes = [NodeHello(name=node.short, slots=list(_slots(node)), max_zero_slot_tasks=0) for node in self.present()]
        return hello.model_copy(update={"nodes": nodes, "tasks": list(self._told(hello.tasks))})

    def _told(self, tasks: list[HeldTask]) -> Iterator[HeldTask]:
        """The tasks as the agent tells of them: some twice, elsewhere, as not begun, or not at all."""
        for task in tasks:
            kind = self.lies.choice(("twice", "elsewhere", "late", "not", *["true"] * 6))
            if not self.world.troubled:
                kind = "true"
            others = sorted(set(self.nodes) - {task.node})
            if kind == "twice":
                self.world.faults.count("task_told_twice")
                yield task
                yield task.model_copy(update={"node": self.lies.choice((task.node, *others))})
            elif kind == "elsewhere" and others:
                self.world.faults.count("task_told_on_another_node")
                yield task.model_copy(update={"node": self.lies.choice(others)})
            elif kind == "late" and task.begun and not task.exited:
                self.world.faults.count("task_told_as_not_begun")
                yield task.model_copy(update={"begun": False})
            elif kind == "not":
                self.world.faults.count("task_not_told")
            else:
                yield task

    def connection(self, end: Any) -> Any:
        """See `Node`."""
        return Tongue(self, end)


def _slots(node: ClusterNode) -> Iterator[SlotView]:
    for device in node.devices:
        holder = next((name for name, pod in node.tasks.items() if device in pod.slots), None)
        yield SlotView(id=device, allocation_id=holder)


class Tongue:
    """The agent's end of a connection, on which reports are said twice, or of another node."""

    def __init__(self, speaker: Speaker, end: Any) -> None:
        self._speaker, self._end = speaker, end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._end, name)

    async def write_message(self, message: str) -> None:
        """See `network.End`."""
        speaker, world = self._speaker, self._speaker.world
        said = json.loads(message)
        if world.troubled and said["type"].startswith("task_"):
            kind = speaker.lies.choice(("twice", "elsewhere", *["true"] * 6))
            others = sorted(set(speaker.nodes) - {said["node"]})
            if kind == "twice":
                world.faults.count("report_twice")
                self._end.say(message)
            elif kind == "elsewhere" and others:
                world.faults.count("report_on_another_node")
                self._end.say(json.dumps({**said, "node": speaker.lies.choice(others)}))
        await self._end.write_message(message)
