"""A master that is away for an hour of virtual time, while 64 trials train on.

The periods are the product's own: heartbeats, silence, reconnections, tokens of an hour, back-offs of the harness. What
is coarser than in life is said beside it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from detlab_agent import connection
from detlab_hub.services import Settings
from simulation.loop import Process, as_thread
from simulation.machines.node import AgentPace
from simulation.machines.trial import Course
from simulation.world import World

TRIALS = 64
HOUR = 3600.0
STEP = 75.0
"""Seconds of a step, so that an hour has 48 of them for each trial."""
LENGTH = 54
SAVER_LENGTH = 8
SAVED_STEP = 5
"""The step after which savers make a checkpoint, a minute or more into the outage."""
SEEN = 2
"""Steps that every trial has reported when the master goes."""


def saver(trial_id: int) -> bool:
    """Whether a trial makes a checkpoint in the outage: it waits for its commit, and so reports nothing more in it."""
    return trial_id % 4 == 0


class LongCourse(Course):
    """Trials that report all through the hour, and some that make a checkpoint in it."""

    look = 15.0
    """Coarser than the launcher's 50 ms: it is only how soon a report leaves."""
    asks = 20.0
    """Coarser than the harness's 5 s at most: they are all in vain."""

    def length(self, trial_id: int) -> int:
        """See `Course`."""
        return SAVER_LENGTH if saver(trial_id) else LENGTH

    def pace(self, seed: int, allocation_id: str) -> float:
        """See `Course`."""
        return STEP

    def saves(self, trial_id: int, step: int) -> bool:
        """See `Course`."""
        return saver(trial_id) and step == SAVED_STEP


class Outage(World):
    """The course of things; no other fault happens.

    Attributes:
        left: Virtual time at which the master was killed, on its machine's clock.
        back: When the next one was started.
    """

    slots = (4,) * (TRIALS // 4)
    course = LongCourse()
    agent_pace = AgentPace(connection.HEARTBEAT, connection.SILENCE, cap=15.0)
    turns = 5_000_000
    left = back = 0.0

    def _settings(self) -> Settings:
        storage = {"type": "directory", "container_path": str(self.checkpoints)}
        # All of it as an operator who sets nothing has it, but for how often the master looks at deadlines.
        return Settings(self.folder, self.folder / "bundles", default_checkpoint_storage=storage, tick=2.0)

    def _config(self, key: str) -> dict[str, Any]:
        return {
            "name": key,
            "entrypoint": "true",
            "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
            "searcher": {
                "name": "random",
                "metric": "loss",
                "max_trials": TRIALS,
                "max_concurrent_trials": TRIALS,
            },
            "reproducibility": {"experiment_seed": self.seed},
            "resources": {"slots_per_trial": 1},
            "max_restarts": 5,
        }

    async def _conduct(self) -> None:
        self._enrol()
        self.start_master()
        for node in self.nodes:
            node.start()
        client = Process(self.loop, "client", "client")
        await client.spawn(as_thread(lambda: self._submit("search", 0.5)))
        while not self._all_reported(SEEN):
            await asyncio.sleep(1.0)
        master = self.living()[0]
        master.process.kill()
        master.close()
        self.left = self.clock("master")
        await asyncio.sleep(HOUR)
        self.back = self.clock("master")
        self.start_master()
        await self._until_over()
        self.promises.check_end()
        self.loop.stop()

    async def _until_over(self) -> None:
        deadline = self.loop.time() + 2 * LENGTH * STEP
        while self.loop.time() < deadline and not self._over():
            await asyncio.sleep(5.0)

    def _all_reported(self, steps: int) -> bool:
        """Whether the master has so many steps of every trial."""
        (count,) = self.promises._one("SELECT count(*) FROM allocations WHERE metrics_seq >= ?", steps)
        return bool(count == TRIALS)
