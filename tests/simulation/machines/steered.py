"""Searches that pause their trials and resume or clone them, steered by a user while everything goes wrong.

Of three seeds one searches by promotion ASHA, one by hyperband, one by PBT. The user extends the search, adds points,
changes the concurrency, stops and promotes trials, pauses and activates the experiment.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from detlab.client.operations.experiments import act
from detlab.client.operations.searches import steer
from detlab.client.transport.calls import Flow, Retries
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.session import Session
from detlab.errors import DetlabError
from simulation.checks.promises import Promises
from simulation.loop import Process, as_thread, block
from simulation.machines.trial import Course, HttpBridge
from simulation.world import World

USER = "alice"
LENGTH = 6
ACTS = 8
BY_HAND = "('extended', 'points_added', 'concurrency_set', 'stop_requested', 'promotion_requested')"
_TIMED = {"metric": "loss", "time_metric": "batches"}
_RUNGS = {"max_time": LENGTH, "divisor": 2, "max_trials": 6, "max_concurrent_trials": 3}
SEARCHES: tuple[dict[str, Any], ...] = (
    {"name": "asha", **_TIMED, **_RUNGS, "num_rungs": 3},
    {"name": "hyperband", **_TIMED, **_RUNGS},
    {
        "name": "pbt",
        **_TIMED,
        "population_size": 4,
        "num_rounds": 3,
        "length_per_round": 2,
        "replace_function": {"truncate_fraction": 0.25},
    },
)


class SteeredPromises(Promises):
    """The promises of a search that is steered, beside those of any."""

    world: Steered

    def check_end(self) -> None:
        """Each act that was acknowledged is in the journal, once (I1); clones started from checkpoints that exist."""
        super().check_end()
        kind = "json_extract(event, '$.type')"
        query = f"SELECT {kind} FROM searcher_journal WHERE {kind} IN {BY_HAND}"
        journaled = sorted(one for (one,) in self._all(query))
        if journaled != sorted(self.world.acknowledged):
            self._broken("I1", f"acts {sorted(self.world.acknowledged)} were acknowledged, the journal has {journaled}")
        self.checks["I1 acts"] += len(journaled)
        decided = "FROM searcher_journal j, json_each(j.decisions) d WHERE json_extract(d.value, '$.type') = "
        for kind in ("pause_trial", "resume_trial"):
            self.checks[kind] += self._one(f"SELECT count(*) {decided} ?", kind)[0]
        parents = self._all(f"SELECT json_extract(d.value, '$.parent') {decided} 'create_trial'")
        known = {uuid for (uuid,) in self._all("SELECT uuid FROM checkpoints")}
        for (parent,) in parents:
            if parent is not None and parent not in known:
                self._broken("I6", f"a clone's parent {parent} is no checkpoint")
            self.checks["clones"] += parent is not None


class Longer(Course):
    """Trials that reach the highest rung."""

    def length(self, trial_id: int) -> int:
        """Steps of a trial."""
        return LENGTH

    def saves(self, trial_id: int, step: int) -> bool:
        """They save when they leave, and in the middle."""
        return step == LENGTH // 2


class Steered(World):
    """The course of things."""

    course = Longer()
    promises: SteeredPromises

    def __init__(self, seed: int, *arguments: Any, **more: Any) -> None:
        self.acknowledged: list[str] = []
        self._acts = random.Random(f"acts {seed}")
        super().__init__(seed, *arguments, **more)

    def _make_promises(self) -> Promises:
        return SteeredPromises(self)

    def _config(self, key: str) -> dict[str, Any]:
        made = super()._config(key)
        return made if key == "small" else made | {"searcher": SEARCHES[self.seed % len(SEARCHES)]}

    def _start_clients(self) -> list[asyncio.Task[Any]]:
        user = Process(self.loop, "client user", "client")
        return [*super()._start_clients(), user.spawn(as_thread(self._steer))]

    def _finished(self, clients: list[asyncio.Task[Any]]) -> bool:
        return all(client.done() for client in clients) and self._over()

    # --- the user

    def _steer(self) -> None:
        session = Session(
            ClusterAddress("http://master/services/detlab/", f"user-{USER}", "the simulation"),
            backoff=Retries(attempts=400, refused=400),
            transport=HttpBridge(self.nodes[0]),
            sleep=lambda seconds: block(asyncio.sleep(seconds)),
        )
        while "search" not in self.promises.submitted:
            block(asyncio.sleep(0.5))
        number = self.promises.submitted["search"]
        for _ in range(ACTS):
            block(asyncio.sleep(self._acts.uniform(0.2, 4.0)))
            kind, flow = self._draw(number)
            if self._done(session, kind, flow) and kind != "paused":
                self.acknowledged.append(kind)
            if kind == "paused":
                block(asyncio.sleep(self._acts.uniform(0.2, 4.0)))
                self._done(session, "activated", act(number, "activate"))
        while not self._ended(number):  # a population that has lost its checkpoints waits for its user
            block(asyncio.sleep(5.0))
            if self._state(number) == "PAUSED":
                self._done(session, "activated", act(number, "activate"))

    def _state(self, number: int) -> str:
        found: str = self.promises._one("SELECT state FROM experiments WHERE id = ?", number)[0]
        return found

    def _ended(self, number: int) -> bool:
        return self._state(number) in ("COMPLETED", "CANCELED", "ERROR")

    def _done(self, session: Session, kind: str, flow: Flow[Any]) -> bool:
        try:
            session.run(flow)
        except DetlabError as error:
            self.note("refused", kind, error.code)
            self.promises.checks[f"acts refused: {kind}"] += 1
            return False
        self.note("did", kind)
        self.promises.checks[f"act {kind}"] += 1
        return True

    def _draw(self, number: int) -> tuple[str, Flow[Any]]:
        trials = [
            one for (one,) in self.promises._all("SELECT id FROM trials WHERE experiment_id = ? ORDER BY 1", number)
        ]
        some = self._acts.choice(trials) if trials else 0
        acts: dict[str, Flow[Any]] = {
            "extended": steer(number, "extend", trials=1) if self.seed % 3 < 2 else steer(number, "extend", units=1),
            "points_added": steer(number, "add", points=[{"lr": 0.01}]),
            "concurrency_set": steer(number, "concurrency", limit=self._acts.choice((1, 2, 4))),
            "stop_requested": steer(number, "stop", trial_ids=[some]),
            "promotion_requested": steer(number, "promote", trial_ids=[some]),
            "paused": act(number, "pause"),
        }
        kind = self._acts.choice(list(acts))
        return kind, acts[kind]
