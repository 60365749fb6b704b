"""An agent that hands what it gets to a batch system, with scripted tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from services_scripted import ScriptedAgent, ScriptedTask

from detlab.errors import StaleAttempt
from detlab.schemas.wire import HeldTask, Hello, Kill, Launch, QueueHello, TaskExited
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.ingest.tokens import Tokens


@dataclass
class Batch(ScriptedAgent):
    """Takes all that it is handed, and runs some of it at a time: each job asks for its point when it begins."""

    places: int = 2
    asks: bool = True
    waiting: dict[tuple[str, int], Launch] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)

    def hello(self) -> Hello:
        waiting = [HeldTask(allocation_id=name, run=run, begun=False) for name, run in self.waiting]
        said = super().hello()
        queue = QueueHello(name="Slurm", slots=self.places, slots_per_node=1)
        return said.model_copy(update={"queue": queue, "asks_point": self.asks, "tasks": [*said.tasks, *waiting]})

    async def _launch(self, launch: Launch) -> None:
        key = (launch.allocation_id, launch.run)
        if key not in self.tasks:
            self.waiting.setdefault(key, launch)

    async def _hear(self, message: Any) -> None:
        await super()._hear(message)
        if isinstance(message, Kill):
            key = (message.allocation_id, message.run)
            if self.waiting.pop(key, None) is not None:
                await self._say(TaskExited(allocation_id=key[0], run=key[1], exit_code=-15))

    async def caller(self, launch: Launch) -> TaskCaller:
        caller = await self.world.services[Tokens].resolve(launch.task_token)
        assert isinstance(caller, TaskCaller)
        return caller

    async def turn(self) -> None:
        await super().turn()
        for key, launch in list(self.waiting.items())[: self.places - len(self.tasks)]:
            caller = await self.caller(launch)
            if launch.point_due:
                self.asked.append(key)
                try:
                    reply = await self.world.services[Tasks].point(caller, 0.0)
                except StaleAttempt:
                    continue
                if not reply.ready:
                    continue
                launch.info.hparams = reply.hparams
            del self.waiting[key]
            self.launches.append(key)
            self.tasks[key] = ScriptedTask(self.world, launch, self.world.script(launch), caller)
