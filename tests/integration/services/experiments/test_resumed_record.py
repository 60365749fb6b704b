"""A trial that resumes from an older checkpoint than the master thinks: points beyond are superseded from there."""

from __future__ import annotations

import math
from typing import Any

import pytest
from services_scripted import ALICE, config, report

from detlab.schemas.wire import MetricsRecord, RecordBatch, ResumedRecord
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.store.tables import AllocationRow


def script(launch: Any) -> Any:
    """The first attempt reports six steps, the last one the best, saves at 2 and 6 and fails; the next one waits."""
    if launch.run == 1:
        for step in range(1, 7):
            yield report(step, loss=10.0 - step, table=[step])
            if step in (2, 6):
                yield ("save", step)
        yield ("exit", 1)
    while True:
        yield ("wait",)


def metrics(seq: int, step: int, **values: Any) -> MetricsRecord:
    return MetricsRecord(seq=seq, time=5.0, group="validation", steps_completed=step, metrics=values)


def resumed(seq: int, step: int) -> ResumedRecord:
    return ResumedRecord(seq=seq, time=5.0, steps_completed=step)


@pytest.fixture
async def second_run(make_world: Any) -> Any:
    """A world and the task of a second attempt, which the master takes to resume at step 6."""
    world, made, task = await at_second_run(make_world, script)
    assert resume_step(world, task) == 6
    return world, made, task


async def at_second_run(make_world: Any, script: Any) -> Any:
    world = await make_world(script)
    agent = await world.add_agent()
    made = await world.submit(config())

    async def there() -> bool:
        return any(task.launch.run == 2 for task in agent.tasks.values())

    await world.until(there)
    await world.step()
    (task,) = agent.tasks.values()
    return world, made, task


def resume_step(world: Any, task: Any) -> int | None:
    def read(s: Any) -> Any:
        return s.get(AllocationRow, task.launch.allocation_id).resume_step

    return world.store.write_sync(read)


async def curve(world: Any, task: Any) -> dict[int, float]:
    series = await world.services[Trials].metrics(ALICE, task.caller.trial_id, group="validation", names=["loss"])
    return dict(zip(series[0].steps, series[0].values, strict=True))


async def test_resumed_supersedes_from_the_older_step_once(second_run: Any) -> None:
    world, made, task = second_run
    first = [resumed(1, 2), metrics(2, 3, loss=9.0)]
    assert (await task.send("metrics", *first)).refused == []
    assert (await task.send("metrics", *first, metrics(3, 4, loss=8.5))).acked == 3
    assert await curve(world, task) == {1: 9.0, 2: 8.0, 3: 9.0, 4: 8.5}
    values, _ = await world.services[Trials].values(ALICE, task.caller.trial_id)
    assert [value["steps_completed"] for value in values] == [1, 2]
    trial = await world.services[Trials].get(ALICE, task.caller.trial_id)
    assert (trial.steps_completed, trial.best_validation) == (4, 8.0)
    best = (await world.view(made.id)).best
    assert (best.steps_completed, best.value) == (2, 8.0)


async def test_resumed_alone_changes_no_point(second_run: Any) -> None:
    world, _made, task = second_run
    await task.send("metrics", resumed(1, 2))
    assert len(await curve(world, task)) == 6
    assert resume_step(world, task) == 2


async def test_resumed_survives_a_restart_of_the_master(second_run: Any) -> None:
    world, _made, task = second_run
    await task.send("metrics", resumed(1, 2))
    await world.reboot()
    await world.steps(2)
    await task.send("metrics", resumed(1, 2), metrics(2, 3, loss=1.0))
    assert sorted(await curve(world, task)) == [1, 2, 3]


async def test_resumed_the_oldest_of_several_counts(second_run: Any) -> None:
    world, _made, task = second_run
    await task.send("metrics", resumed(1, 4), resumed(2, 2), resumed(3, 5))
    assert resume_step(world, task) == 2


async def test_resumed_never_keeps_more_than_the_master_knows(second_run: Any) -> None:
    world, _made, task = second_run
    ack = await task.send("metrics", resumed(1, 50), metrics(2, 7, loss=1.0))
    assert ack.refused == []
    assert sorted(await curve(world, task)) == [1, 2, 3, 4, 5, 6, 7]
    assert resume_step(world, task) == 6


async def test_resumed_after_the_first_metrics_is_refused(second_run: Any) -> None:
    world, _made, task = second_run
    ack = await task.send("metrics", metrics(1, 7, loss=1.0), resumed(2, 2), resumed(3, 6), resumed(4, -1))
    assert [(refused.seq, refused.code) for refused in ack.refused] == [(2, "record.late"), (4, "record.step")]
    assert len(await curve(world, task)) == 7


async def test_resumed_of_a_trial_from_scratch_means_nothing(make_world: Any) -> None:
    world = await make_world(lambda launch: iter([("wait",)] * 1000))
    agent = await world.add_agent()
    await world.submit(config())
    await world.steps(2)
    (task,) = agent.tasks.values()
    ack = await task.send("metrics", resumed(1, 3), metrics(2, 1, loss=1.0))
    assert ack.refused == []
    assert await curve(world, task) == {1: 1.0}


async def test_resumed_is_no_log_line(second_run: Any) -> None:
    _world, _made, task = second_run
    ack = await task.send("logs", resumed(1, 2))
    assert [refused.code for refused in ack.refused] == ["record.stream"]


def test_resumed_is_a_record_on_the_wire() -> None:
    raw = {"stream": "metrics", "records": [{"kind": "resumed", "seq": 1, "time": 2.0, "steps_completed": 3}]}
    (record,) = RecordBatch.model_validate(raw).records
    assert isinstance(record, ResumedRecord)
    assert record.steps_completed == 3


def diverges(launch: Any) -> Any:
    """The first attempt reports minus infinity, then numbers, saves at 2 and fails; the next one waits."""
    if launch.run == 1:
        for step, loss in ((1, -math.inf), (2, 5.0)):
            yield report(step, loss=loss)
        yield ("save", 2)
        yield report(3, loss=3.0)
        yield ("exit", 1)
    while True:
        yield ("wait",)


async def test_resumed_after_minus_infinity_keeps_the_best_number(make_world: Any) -> None:
    """The best was lost with the first report of the new attempt, since minus infinity hid it."""
    world, made, task = await at_second_run(make_world, diverges)
    assert resume_step(world, task) == 2
    assert (await world.view(made.id)).best.value == 3.0
    await task.send("metrics", metrics(1, 3, loss=7.0))
    assert (await world.services[Trials].get(ALICE, task.caller.trial_id)).best_validation == 5.0
    best = (await world.view(made.id)).best
    assert (best.steps_completed, best.value) == (2, 5.0)
