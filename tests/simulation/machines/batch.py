"""A batch system that places by itself, with the real code of the runtime `slurm` on it.

In the place of Slurm's commands is `Client`: each call takes a moment, and may fail before or after it was done. The
controller refuses jobs, takes none for a while, is away, and forgets those of its last seconds, whose numbers it then
gives out again; operators cancel and requeue jobs.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from detlab.launch.taskdir import read_object
from detlab.schemas.wire import Hello, Launch, QueueHello
from detlab_agent.runtimes.base import CanceledTask
from detlab_agent.runtimes.slurm.answers import JobEnd, SlurmJob
from detlab_agent.runtimes.slurm.client import THE_AGENTS, SlurmAway, SlurmFull, SlurmRefused, Whose
from detlab_agent.runtimes.slurm.script import EXIT, REQUEUED, JobRequest, job_name
from detlab_agent.runtimes.slurm.task import SlurmTask
from detlab_agent.runtimes.slurm.watch import JobWatch
from detlab_agent.tasks import TaskTable
from simulation.loop import block
from simulation.machines.node import Agent, Node, Task

if TYPE_CHECKING:
    from simulation.machines.engines import Engines

COMMENT = "detlab agent batch"
INTERVAL = 1.0
"""Seconds between two looks of the agent at its jobs."""
TURN = 0.5
"""Seconds between two passes of the controller."""
LAST_SECONDS = 2.0
"""What a controller forgets when it dies."""
OFTEN = 0.08


@dataclass
class SimJob:
    """A job as the controller knows it."""

    number: int
    name: str
    launch: Launch
    at: float
    state: str = "PENDING"
    restarts: int = 0
    task: Task | None = None
    said: str = ""
    """Its exit file."""
    waited: bool = False

    @property
    def live(self) -> bool:
        """Whether it waits or runs."""
        return self.state in {"PENDING", "RUNNING"}


class ComputeNode(Node):
    """A node of the batch system: no agent."""

    def start(self) -> None:
        """It has no agent."""


@dataclass
class Controller:
    """The batch system: it has the jobs, and places them first come, first served."""

    world: Engines
    nodes: list[ComputeNode]
    rng: random.Random
    jobs: list[SimJob] = field(default_factory=list)
    away_until: float = 0.0
    full_until: float = 0.0
    next_number: int = 1
    given: set[int] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    """Allocations whose file in the shared folder says that they have begun."""

    # --- the passes

    async def go_on(self) -> None:
        """Place, and note what has ended, again and again."""
        while True:
            await asyncio.sleep(TURN)
            for job in self.jobs:
                self.settle(job)
            if self.world.loop.time() >= self.away_until:
                self._place()

    def settle(self, job: SimJob) -> None:
        """Note the end of a job whose launcher has ended."""
        task = job.task
        if job.state != "RUNNING" or task is None or task.launcher.process.alive:
            return
        task.launcher.trial.end(-9)
        report = read_object(task.directory.exit)
        if report is not None:
            job.said = task.directory.exit.read_text()
            job.state = "COMPLETED" if report.get("exit_code") == 0 else "FAILED"
        else:
            job.state = "NODE_FAIL" if task.machine.life != task.machine_life else "FAILED"
        self._leave(job)

    def _leave(self, job: SimJob) -> None:
        """Nothing of it runs: its node is free."""
        task, job.task = job.task, None
        if task is not None:
            task.launcher.process.kill()
            task.launcher.trial.end(-9)
            task.machine.tasks.pop(job.launch.allocation_id, None)

    def _place(self) -> None:
        for job in self.jobs:
            if job.state != "PENDING":
                continue
            count = len(job.launch.slots)
            for node in self.nodes:
                used = {slot for task in node.tasks.values() for slot in task.slots}
                free = [device for device in node.devices if device not in used]
                if len(free) >= max(count, 1) and job.launch.allocation_id not in node.tasks:
                    self._begin(job, node, free[:count])
                    break
            else:
                if not job.waited:
                    job.waited = True
                    self.world.faults.count("job_waited")
                return  # those behind wait, too

    def _begin(self, job: SimJob, node: ComputeNode, devices: list[str]) -> None:
        """Start a job's script, whose first act is to ask whether its attempt has begun before."""
        name = job.launch.allocation_id
        if job.restarts or name in self.begun:
            job.said, job.state = json.dumps({"exit_code": None, "reason": REQUEUED}), "COMPLETED"
            self.world.promises.checks["jobs that had begun before"] += 1
            return
        self.begun.add(name)
        job.task, job.state = node.begin(job.launch.model_copy(update={"slots": devices})), "RUNNING"

    # --- what happens to it

    def living(self) -> list[SimJob]:
        """Jobs that wait or run."""
        return [job for job in self.jobs if job.live]

    def end(self, job: SimJob, state: str) -> None:
        """End a job."""
        if job.live:
            self._leave(job)
            job.state = state

    def die(self, seconds: float) -> None:
        """The controller dies, and is away; what it did last is forgotten, the numbers of that come again."""
        now = self.world.loop.time()
        self.away_until = now + seconds
        self.world.faults.count("controller_away")
        forgotten = [job for job in self.jobs if job.at > now - LAST_SECONDS]
        for job in forgotten:
            if job.live:
                self.world.faults.count("job_lost")
            self._leave(job)
            self.jobs.remove(job)
        if forgotten:
            self.next_number = min(job.number for job in forgotten)

    def lose(self, job: SimJob) -> None:
        """Forget a job, whose node ends it."""
        self._leave(job)
        self.jobs.remove(job)
        self.world.faults.count("job_lost")

    def requeue(self, job: SimJob) -> None:
        """An operator lets a job begin anew."""
        if job.state == "RUNNING":
            self._leave(job)
            job.state, job.restarts, job.said = "PENDING", job.restarts + 1, ""
            self.world.faults.count("job_requeued")

    # --- what is asked of it

    def take(self, name: str, launch: Launch) -> str:
        """Take a job; return its number."""
        number, self.next_number = self.next_number, self.next_number + 1
        if number in self.given:
            self.world.faults.count("job_number_twice")
        self.given.add(number)
        self.jobs.append(SimJob(number, name, launch, self.world.loop.time()))
        return str(number)

    def of(self, job_id: str, name: str) -> SimJob | None:
        """Return a job by its number and name."""
        return next((job for job in self.jobs if (str(job.number), job.name) == (job_id, name)), None)


class Client:
    """See `detlab_agent.runtimes.slurm.client.SlurmClient`; its methods block, as threads do."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def _asks(self) -> bool:
        """Take the time of a question; return whether its answer gets lost.

        Raises:
            SlurmAway: The controller does not answer.
        """
        controller = self._controller
        block(asyncio.sleep(0.02 + 0.1 * controller.rng.random()))
        if controller.world.loop.time() < controller.away_until:
            raise SlurmAway("Unable to contact slurm controller")
        return controller.world.troubled and controller.rng.random() < OFTEN

    def _unheard(self) -> None:
        self._controller.world.faults.count("controller_unheard")
        raise SlurmAway("Socket timed out on send/recv operation")

    def submit(self, arguments: Sequence[str], script: str, whose: Whose) -> str:
        """See `SlurmClient`."""
        lost, controller = self._asks(), self._controller
        if controller.world.loop.time() < controller.full_until:
            controller.world.faults.count("controller_full")
            raise SlurmFull("Job violates accounting/QOS policy (job submit limit)")
        if controller.world.troubled and controller.rng.random() < OFTEN / 2:
            controller.world.faults.count("job_refused")
            raise SlurmRefused("Batch job submission failed: Requested node configuration is not available")
        number = controller.take(arguments[0].removeprefix("--job-name="), Launch.model_validate_json(script))
        if lost:
            self._unheard()
        return number

    def jobs(self) -> list[SlurmJob]:
        """See `SlurmClient`."""
        if self._asks():
            self._unheard()
        return [_listed(job) for job in self._controller.jobs]

    def job(self, job_id: str) -> SlurmJob | None:
        """See `SlurmClient`."""
        if self._asks():
            self._unheard()
        return next((_listed(job) for job in self._controller.jobs if str(job.number) == job_id), None)

    def end_of(self, job_id: str, name: str) -> JobEnd | None:
        """See `SlurmClient`."""
        if self._asks():
            self._unheard()
        job = self._controller.of(job_id, name)
        if job is None:
            return None
        status = {"COMPLETED": 0, "FAILED": None if job.said else 137}.get(job.state)
        return JobEnd(job.state, status, restarts=job.restarts)

    def signal(self, job_id: str, name: str, number: str, *, steps: bool) -> None:
        """See `SlurmClient`."""
        lost, job = self._asks(), self._controller.of(job_id, name)
        if job is not None and job.task is not None and job.task.launcher.process.alive:
            job.task.launcher.process.call_later(0.002, job.task.launcher.trial.end, -15 if number == "TERM" else -9)
        if lost:
            self._unheard()

    def cancel(self, job_id: str, name: str, *, at_once: bool = False) -> None:
        """See `SlurmClient`."""
        lost, job = self._asks(), self._controller.of(job_id, name)
        if job is not None and job.live:
            self._controller._leave(job)
            job.state = "CANCELLED"
        if lost:
            self._unheard()

    def addresses_of(self, node: str) -> list[str]:
        """See `SlurmClient`."""
        return [node]

    def largest_array(self) -> int:
        """See `SlurmClient`."""
        return 0

    def read(self, path: PurePath, whose: Whose) -> str:
        """See `SlurmClient`: the exit file of a job; there are no others."""
        self._asks()
        if path.suffix != EXIT:
            return ""
        return next((job.said for job in self._controller.jobs if job.name == job_name(path.stem) and job.said), "")

    def remove(self, paths: Sequence[PurePath]) -> None:
        """See `SlurmClient`."""

    def prepare(self, directory: PurePath) -> None:
        """See `SlurmClient`."""

    def size(self, partition: str) -> tuple[QueueHello, bool]:
        """See `SlurmClient`."""
        return self._controller.world.queue, True


def _listed(job: SimJob) -> SlurmJob:
    reason = "Resources" if job.state == "PENDING" else ""
    return SlurmJob(str(job.number), job.state, reason, name=job.name, comment=COMMENT)


class BatchRuntime:
    """The real tasks and the real look at the jobs; see `detlab_agent.runtimes.slurm.runtime.SlurmRuntime`."""

    def __init__(self, node: BatchNode) -> None:
        self._node = node
        self._client = Client(node.controller)
        self._watch = JobWatch(self._client, COMMENT, INTERVAL)

    def begin(self, agent: Agent) -> None:
        """Look at the jobs."""
        agent.process.spawn(self._watch.run())

    async def start(self, launch: Launch, say: Any, cancelled: asyncio.Event) -> SlurmTask:
        """Note the task; its job is submitted when it is driven."""
        say("starting", "")
        await asyncio.sleep(0.05)
        if cancelled.is_set():
            raise CanceledTask
        text = launch.model_dump_json()
        directory = self._node.directory
        name = launch.allocation_id
        request = JobRequest(name, directory, name, THE_AGENTS, (), text, lambda file, parcels: text, steps=False)
        record = self._node.directory / f"{launch.allocation_id}.json"
        task = SlurmTask(
            launch.allocation_id,
            launch.run,
            tuple(launch.slots),
            record,
            client=self._client,
            watch=self._watch,
            directory=self._node.directory,
            request=request,
        )
        task.note()
        return task

    def recover(self) -> list[SlurmTask]:
        """The tasks that are on the record."""
        return [task for record in sorted(self._node.directory.glob("*.json")) if (task := self._recovered(record))]

    def _recovered(self, record: Path) -> SlurmTask | None:
        noted = read_object(record)
        if noted is None or "run" not in noted:
            return None
        fields = SlurmTask.noted(record, noted)
        return SlurmTask(**fields, client=self._client, watch=self._watch, directory=self._node.directory)


class BatchNode(Node):
    """The machine of the agent of the batch system."""

    def __init__(self, world: Engines, name: str, pool: str, controller: Controller) -> None:
        super().__init__(world, 0, 0, pool=pool, name=name)
        self.controller = controller

    def runtime(self) -> BatchRuntime:
        """See `Node`."""
        return BatchRuntime(self)

    def introduced(self, hello: Hello, table: TaskTable) -> Hello:
        """See `Node`."""
        return hello.model_copy(update={"queue": self.controller.world.queue})
