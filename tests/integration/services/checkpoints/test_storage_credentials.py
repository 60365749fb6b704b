"""Short-lived credentials for a trial's storage, from the operator's function: who gets them, and who does not."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import UTC, datetime

import pytest
from services_scripted import ALICE, config

from detlab.errors import StaleAttempt, Unavailable
from detlab.schemas.wire import LogRecord, RecordBatch
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.ingest.tasks import Tasks

BLOCK = {"type": "s3", "bucket": "checkpoints", "prefix": "users/alice"}
SECRET = "hunter2-secret"


def idle(launch):
    while True:
        yield ("wait",)


async def running(make_world, give):
    """A world whose one trial runs, and that trial's caller."""
    world = await make_world(idle, storage_credentials=give)
    agent = await world.add_agent("node", slots=1)
    await world.submit(config({"name": "single", "metric": "loss", "max_length": 1}, checkpoint_storage=BLOCK))
    await world.steps(3)
    (task,) = agent.tasks.values()
    return world, task.caller


async def test_a_trial_gets_those_of_its_owner_and_storage(make_world):
    asked = []

    def give(owner, block):
        asked.append((owner, block))
        return {"access_key_id": "A", "token": None, "expires_at": datetime.fromtimestamp(5000, UTC)}

    world, caller = await running(make_world, give)
    found = await world.services[Tasks].storage_credentials(caller)
    assert (found.values, found.expires_at) == ({"access_key_id": "A"}, 5000.0)
    ((owner, block),) = asked
    assert owner == ALICE.name
    assert {key: block[key] for key in BLOCK} == BLOCK
    assert "A'" not in repr(found), "a logged reply shows none"


@pytest.mark.parametrize("give", [None, lambda owner, block: None, lambda owner, block: {}])
async def test_without_any_the_task_looks_elsewhere(make_world, give):
    world, caller = await running(make_world, give)
    found = await world.services[Tasks].storage_credentials(caller)
    assert (found.values, found.expires_at) == ({}, None)


async def test_only_the_current_attempt_gets_them(make_world):
    asked = []
    world, caller = await running(make_world, lambda *given: asked.append(given))
    old = TaskCaller(caller.allocation_id, caller.trial_id, caller.experiment_id, run=caller.run + 1)
    with pytest.raises(StaleAttempt):
        await world.services[Tasks].storage_credentials(old)
    assert asked == []


def fails(owner, block):
    raise RuntimeError(f"sts said no to {SECRET}")


@pytest.mark.parametrize(
    "give", [fails, lambda *_: SECRET, lambda *_: {"token": SECRET * 10_000}, lambda *_: {"expires_at": SECRET}]
)
async def test_what_goes_wrong_is_told_without_secrets(make_world, caplog, give):
    world, caller = await running(make_world, give)
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable) as found:
        await world.services[Tasks].storage_credentials(caller)
    assert SECRET not in str(found.value)
    assert SECRET not in caplog.text
    assert "storage_credentials failed for alice: " in caplog.text


async def test_a_slow_function_holds_up_nothing_else(make_world):
    gate = threading.Event()
    world, caller = await running(make_world, lambda *_: gate.wait(20) and None)
    asked = [asyncio.ensure_future(world.services[Tasks].storage_credentials(caller)) for _ in range(4)]
    await asyncio.sleep(0.05)
    records = RecordBatch(stream="logs", records=[LogRecord(seq=1, time=1.0, text="x")])
    assert (await world.services[Tasks].records(caller, records)).acked == 1
    gate.set()
    assert [found.values for found in await asyncio.gather(*asked)] == [{}] * 4
