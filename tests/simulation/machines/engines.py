"""A search on a cluster whose nodes come and go, and one on a batch system that places by itself, beside a machine.

One agent speaks for the nodes of the cluster and is not always right (`machines.pods`); another one hands its tasks to
the batch system (`machines.batch`). In the calm at the end all nodes are back, and everything must end.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from functools import partial
from typing import Any

from detlab.errors import ResourcesError
from detlab.schemas.wire import QueueHello
from detlab_hub.core.scheduling import DEFAULT_POOL, read_pools
from detlab_hub.services import Settings
from detlab_hub.store import InlineExecutor, Store
from detlab_hub.store.queries import tokens
from simulation.checks.promises import PLACED, Promises
from simulation.loop import EPOCH, Process, as_thread, block
from simulation.machines.batch import BatchNode, ComputeNode, Controller
from simulation.machines.node import Node
from simulation.machines.pods import ClusterNode, Speaker
from simulation.world import AGAIN, TRIALS, World

TROUBLED = 24.0
"""Virtual seconds in which the engines are troubled."""
PODS, BATCH = "pods", "batch"
"""Pools."""
LATE, LATE_LENGTH = 60.0, "16"
"""When a longer trial is submitted, in the calm, and its steps: more than an agent's silence may last."""
WIDE = 4
"""Slots of a trial over two nodes; at least so many of two slots each are there in the calm."""
BATCH_SLOTS = 3
"""`max_slots` of the search on the batch system, which has fewer: of what is handed over some waits there."""


class EnginePromises(Promises):
    """What is promised of tasks that run elsewhere, beside the promises of a search."""

    world: Engines

    def __init__(self, world: Engines) -> None:
        super().__init__(world)
        self.queues = frozenset({BATCH})
        self._lost: set[tuple[str, int]] = set()

    def _check_commit(self, master: Any) -> None:
        super()._check_commit(master)
        self._check_begun()
        self._check_handed_over()
        self._check_calm()

    def _check_calm(self) -> None:
        """In the calm no part of a task is lost."""
        if self.written.is_known("lost parts", "allocation_parts"):
            return
        lost = {tuple(row) for row in self._all("SELECT allocation_id, rank FROM allocation_parts WHERE end = 'lost'")}
        if self.world.loop.time() > 1000.0 + LATE and lost - self._lost:
            self._broken("engines", f"in the calm is lost: {sorted(lost - self._lost)}")
        self._lost = lost

    def _check_begun(self) -> None:
        """What is said to run on nodes of the cluster does not wait there."""
        if self.written.is_known("begun", "allocations"):
            return
        waiting = {pod.allocation_id for node in self.world.kube.nodes.values() for pod in node.waiting()}
        for (name,) in self._all("SELECT id FROM allocations WHERE state = 'RUNNING' AND agent_id LIKE 'kube/%'"):
            if name in waiting:
                self._broken("engines", f"{name} runs, it is said, and a pod of it has not begun")
            self.checks["pods that had begun"] += 1

    def _check_handed_over(self) -> None:
        """The batch system gets no more than the job may have."""
        if self.written.is_known("handed over", "allocations"):
            return
        query = (
            f"SELECT e.id, e.max_slots, sum(a.slots_needed) FROM allocations a JOIN experiments e "
            f"ON e.id = a.experiment_id WHERE a.agent_id = '{BATCH}' AND a.state IN {PLACED!r} GROUP BY e.id"
        )
        for number, most, held in self._all(query):
            if most is not None and held > most:
                self._broken("slots", f"experiment {number} has {held} slots of the batch system, and may have {most}")
            self.checks["handed over"] += 1
            self.checks["handed over as much as may be"] += held == most

    def check_end(self) -> None:
        """Nothing is left of any task."""
        super().check_end()
        if jobs := [job.name for job in self.world.controller.living()]:
            self._broken("engines", f"jobs are left: {jobs}")
        if pods := sorted(self.world.kube.known):
            self._broken("engines", f"the agent still has {pods}")
        self.checks["engines are empty"] += 1


class Engines(World):
    """The course of things."""

    slots = (1,)
    promises: EnginePromises
    queue = QueueHello(name="Slurm", slots_per_node=1, slots=2)

    def __init__(self, seed: int, *arguments: Any, **more: Any) -> None:
        self._drawn = random.Random(f"engines {seed}")
        super().__init__(seed, *arguments, **more)
        self.loop.threads_wait = True

    def _settings(self) -> Settings:
        pools, mistakes = read_pools({DEFAULT_POOL: {}, PODS: {}, BATCH: {}})
        assert not mistakes, mistakes
        return replace(super()._settings(), pools=pools)

    def _make_promises(self) -> Promises:
        return EnginePromises(self)

    def _make_nodes(self) -> list[Node]:
        self.kube = Speaker(self, "kube", PODS, (2, 2, 1, 1))
        compute = [ComputeNode(self, 0, 1, name=f"compute{number}") for number in range(2)]
        self.controller = Controller(self, compute, random.Random(f"batch {self.seed}"))
        self.batch = BatchNode(self, BATCH, BATCH, self.controller)
        return [*super()._make_nodes(), self.kube, *self.kube.nodes.values(), self.batch, *compute]

    @property
    def troubled(self) -> bool:
        """Whether the engines may do something wrong."""
        return not self.calm and self.loop.time() < 1000.0 + TROUBLED

    # --- what people want

    def _config(self, key: str) -> dict[str, Any]:
        made = super()._config("small" if key in {"wide", "jobs", "late"} else key)
        if key == "small":
            return made
        if key == "jobs":
            searcher = {"name": "random", "metric": "loss", "max_trials": 6, "max_concurrent_trials": 6}
            resources = {"resource_pool": BATCH, "slots_per_trial": 1, "max_slots": BATCH_SLOTS}
            return made | {"name": key, "searcher": searcher, "resources": resources}
        slots = sum(len(node.devices) for node in self.kube.nodes.values())
        if key == "wide":
            return made | {"name": key, "resources": {"resource_pool": PODS, "slots_per_trial": WIDE}}
        if key == "late":
            made |= {"name": key, "environment": {"environment_variables": [f"LENGTH={LATE_LENGTH}"]}}
        elif key.startswith(AGAIN):
            made["searcher"] |= dict.fromkeys(("max_trials", "max_concurrent_trials"), slots)
        else:
            made["searcher"] |= {"max_concurrent_trials": TRIALS}
        return made | {"resources": {"resource_pool": PODS, "slots_per_trial": 1}}

    def _submit(self, key: str, pause: float) -> None:
        """See `World`; what has no node now is submitted again."""
        block(asyncio.sleep(pause))
        while True:
            try:
                super()._submit(key, 0.0)
            except ResourcesError as error:
                self.note("refused", key, error.code)
                block(asyncio.sleep(4.0))
            else:
                return

    def _start_clients(self) -> list[asyncio.Task[Any]]:
        clients = super()._start_clients()
        for key, pause in (("jobs", 1.0), ("wide", 6.0), ("late", LATE)):
            process = Process(self.loop, f"client {key}", "client")
            clients.append(process.spawn(as_thread(partial(self._submit, key, pause))))
        return clients

    def _enrol(self) -> None:
        setup = Store.open(self.db_url, holder="setup", clock=lambda: EPOCH, lease_ttl=1.0, writer=InlineExecutor())
        for node in self.nodes:
            if not isinstance(node, ClusterNode | ComputeNode):
                node.key = setup.write_sync(lambda s, name=node.name: tokens.issue(s, "agent", name, None, EPOCH))
        setup.close()

    # --- what goes wrong

    async def _conduct(self) -> None:
        self.loop.world.spawn(self.controller.go_on())
        await super()._conduct()

    async def _wreck(self) -> None:
        self.loop.world.spawn(self._move_nodes())
        self.loop.world.spawn(self._trouble_jobs())
        await super()._wreck()

    async def _move_nodes(self) -> None:
        """Nodes vanish, return, are added and removed for good; pods are deleted and forgotten."""
        while self.troubled:
            await asyncio.sleep(self._drawn.uniform(0.5, 4.0))
            self._move(self._drawn.choice(("vanish", "vanish", "return", "add", "remove", "delete", "forget")))
        for node in self.kube.nodes.values():
            if node.away:
                node.come_back()
        while sum(len(node.devices) == 2 for node in self.kube.nodes.values()) < WIDE // 2:
            self.nodes.append(self.kube.add(2))

    def _move(self, kind: str) -> None:
        here, gone = self.kube.present(), [node for node in self.kube.nodes.values() if node.away]
        self.note("cluster", kind)
        if kind == "vanish" and len(here) > 2:
            lives = self._drawn.random() < 0.5
            self._drawn.choice(here).vanish(lives=lives)
            self.faults.count("node_vanished_and_its_pods_lived" if lives else "node_vanished")
        elif kind == "return" and gone:
            self._drawn.choice(gone).come_back()
            self.faults.count("node_returned")
        elif kind == "add" and len(self.kube.nodes) < 7:
            self.nodes.append(self.kube.add(self._drawn.choice((1, 2))))
            self.faults.count("node_added")
        elif kind == "remove" and len(here) > 3:
            self._remove(self._drawn.choice([node for node in here if node.tasks] or here))
        elif kind == "delete" and (pods := [pod for node in here for pod in node.tasks.values()]):
            pod = self._drawn.choice(pods)
            pod.launcher.process.kill()
            pod.launcher.trial.end(-9)
            pod.lost = "somebody deleted the pod"
            self.faults.count("pod_deleted")
        elif kind == "forget":
            self.kube.forget_one()

    def _remove(self, node: ClusterNode) -> None:
        """A node goes for good, and its pods with it."""
        node.restart()
        for pod in list(node.tasks.values()):
            pod.lost = f"node {node.short} was removed"
            node.end(pod)
        del self.kube.nodes[node.short]
        self.nodes.remove(node)
        self.kube.changed()
        self.faults.count("node_removed")

    async def _trouble_jobs(self) -> None:
        """The controller dies, is full; jobs are lost, cancelled, and let begin anew."""
        controller = self.controller
        while self.troubled:
            await asyncio.sleep(self._drawn.uniform(1.0, 5.0))
            kind = self._drawn.choice(("die", "die", "full", "lose", "cancel", "requeue"))
            jobs = controller.living()
            job = self._drawn.choice(jobs) if jobs else None
            self.note("batch", kind)
            if kind == "die":
                controller.die(self._drawn.choice((0.5, 3.0, 8.0)))
            elif kind == "full":
                controller.full_until = self.loop.time() + self._drawn.uniform(1.0, 5.0)
            elif job is not None and kind == "lose":
                controller.lose(job)
            elif job is not None and kind == "cancel":
                controller.end(job, "CANCELLED")
                self.faults.count("job_cancelled")
            elif job is not None:
                controller.requeue(job)

    # --- the end

    def _over(self) -> bool:
        return not self.troubled and super()._over() and not self.kube.known and not self.controller.living()
