"""Tokens of tasks outlive any run, however long, and end with their allocation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE, ROOT, ScriptedTask, World, config, training
from sqlalchemy import select

from detlab.core.metrics.spool import Spool
from detlab.errors import AuthError, DetlabError, StaleAttempt
from detlab.launch.delivery.sender import Deliverer, DeliveryEnding, Mode, SpoolSource
from detlab.launch.delivery.shipping import RecordRefusal, StreamShipper
from detlab.launch.delivery.spool import SpoolReader, open_regular
from detlab.launch.delivery.tokens import TokenKeeper
from detlab.schemas.wire import RecordBatch, TrialState
from detlab_hub.services import TaskCaller
from detlab_hub.services.cluster.credentials import Credentials
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.store.tables import TokenRow
from detlab_hub.web.base import error_view, status_of

TTL = 3600.0
RENEWALS = 10


class Door:
    """The master's side of a task's requests, in place of HTTP, for a thread beside the loop."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = asyncio.get_running_loop()
        self.statuses: list[int] = []
        self.renewals = 0

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        """See `detlab.launch.delivery.sender.Transport`."""
        answer = asyncio.run_coroutine_threadsafe(self._answer(path, body, token), self.loop).result(20)
        self.statuses.append(answer[0])
        return answer

    def close(self) -> None:
        """Nothing to close."""

    async def _answer(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        services = self.world.services
        try:
            caller = await services[Tokens].resolve(token)
            if not isinstance(caller, TaskCaller):
                raise AuthError("unknown or expired")
            reply: Any
            if path == "task/token":
                reply = await services[Tasks].renew_token(caller)
                self.renewals += 1
            else:
                reply = await services[Tasks].records(caller, RecordBatch.model_validate_json(body))
        except DetlabError as error:
            return status_of(error), error_view(error).model_dump_json().encode()
        return 200, reply.model_dump_json().encode()


class NoMarks:
    """Where the launcher would note how far it is."""

    def __init__(self) -> None:
        self.refusals: list[RecordRefusal] = []

    def committed(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Nothing to note."""

    def damaged(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Nobody but its writers touches a spool."""
        raise AssertionError(reader.damage)

    def refused(self, refusals: Sequence[RecordRefusal]) -> None:
        """For the test to see."""
        self.refusals += refusals


class LongRun:
    """A task's launcher, with its own code, whose time goes by the hour while it waits."""

    def __init__(self, world: World, task: ScriptedTask, folder: Path) -> None:
        self.world, self.task = world, task
        self.door, self.marks = Door(world), NoMarks()
        self.tokens = [task.launch.task_token]
        self.spool = Spool(folder, clock=world.clock)
        self.steps = 0
        self.keeper = TokenKeeper(self.tokens[0], task.launch.token_expires_at, world.now)
        reader = SpoolReader(lambda: open_regular(folder / "metrics.jsonl"), after=0)
        self.deliverer = Deliverer(
            lambda: self.door,
            "task/records",
            [SpoolSource(reader, StreamShipper("metrics", acked=0))],
            self.keeper,
            self.marks,
            renew_path="task/token",
            on_token=self.tokens.append,
            clock=world.clock,
            wall=world.clock,
            pause=self.wait,
        )

    def wait(self, seconds: float) -> None:
        """Ten minutes go by, in which the task reports once."""
        self.world.now += 600.0
        if self.door.renewals > RENEWALS:
            self.deliverer.ask(Mode.FINISH)
            return
        self.steps += 1
        metrics = {"loss": 1.0 / self.steps}
        self.spool.append("metrics", {"group": "training", "steps_completed": self.steps, "metrics": metrics})


async def long_run(make_world: Any, folder: Path) -> LongRun:
    """A trial that has run for longer than ten of its tokens last."""
    world = await make_world(training(10_000), task_token_ttl=TTL, agent_reconnect_wait=1e9)
    agent = await world.add_agent()
    await world.submit(config())
    await world.step()
    (task,) = agent.tasks.values()
    run = LongRun(world, task, folder)
    await asyncio.to_thread(run.deliverer.run)
    return run


async def test_a_task_token_is_renewed_more_than_ten_times_and_no_report_is_refused(make_world, tmp_path):
    run = await long_run(make_world, tmp_path)
    world, began = run.world, run.task.launch.token_expires_at - TTL
    assert run.deliverer.ending is DeliveryEnding.DELIVERED
    assert world.now - began > 5 * TTL
    assert run.door.renewals > RENEWALS
    assert set(run.door.statuses) == {200}
    (trial,) = await world.trials(1)
    (losses,) = await world.services[Trials].metrics(ALICE, trial.id, names=["loss"])
    assert losses.steps == list(range(1, run.steps + 1))
    assert not run.marks.refusals
    # each one works for its own hour only, and no heap of them is left
    assert len(set(run.tokens)) == run.door.renewals + 1
    works = [await world.services[Tokens].resolve(token) == run.task.caller for token in run.tokens]
    assert works == sorted(works)
    assert 1 <= sum(works) <= 2
    await world.services.tidy()
    rows = world.store.read_sync(lambda s: s.scalars(select(TokenRow.subject).where(TokenRow.kind == "task")).all())
    assert list(rows) == [run.task.launch.allocation_id] * sum(works)


async def test_task_tokens_die_with_their_allocation(make_world, tmp_path):
    run = await long_run(make_world, tmp_path)
    world, live = run.world, run.tokens[-1]
    assert await world.services[Tokens].resolve(live) == run.task.caller
    assert run.task.launch.allocation_id in [t.subject for t in (await world.services[Credentials].list(ROOT)).items]
    (trial,) = await world.trials(1)
    await world.services[Trials].kill(ALICE, trial.id)
    await world.steps(4)
    (trial,) = await world.trials(1)
    assert trial.state is TrialState.CANCELED
    assert run.task.launch.allocation_id not in [
        t.subject for t in (await world.services[Credentials].list(ROOT)).items
    ]
    with pytest.raises(StaleAttempt):
        await world.services[Tokens].resolve(live)
    with pytest.raises(StaleAttempt):
        await world.services[Tasks].renew_token(run.task.caller)
    for path, body in (("task/token", b""), ("task/records", b'{"stream": "metrics", "records": []}')):
        status, _ = await asyncio.to_thread(run.door.post, path, body, live)
        assert status == 409
    # a restart of the master, which prolongs the tokens of tasks that run, does not bring it back
    await world.reboot()
    with pytest.raises(StaleAttempt):
        await world.services[Tokens].resolve(live)
    world.now += TTL
    await world.services.tidy()
    assert await world.services[Tokens].resolve(live) is None
    assert not world.store.read_sync(lambda s: s.scalars(select(TokenRow).where(TokenRow.kind == "task")).all())
