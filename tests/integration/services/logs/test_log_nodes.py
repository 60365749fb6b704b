"""Output of trials over several nodes tells where each line was written, and is found by it."""

from __future__ import annotations

from services_scripted import ALICE, config, deaf

from detlab.schemas.wire import LogRecord, RecordBatch
from detlab_hub.services import TaskCaller
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.records import take


def said(*texts: str, rank: int | None = None) -> RecordBatch:
    records = [LogRecord(seq=seq, time=seq, rank=rank, text=text) for seq, text in enumerate(texts, 1)]
    return RecordBatch(stream="logs", records=records)


async def test_lines_of_several_nodes_tell_theirs_and_are_found_by_it(make_world):
    world = await make_world(deaf(0))
    for name in ("east", "west"):
        await world.add_agent(name, slots=2)
    made = await world.submit(config(resources={"slots_per_trial": 4}))
    await world.steps(4)
    (trial,) = await world.trials(made.id)
    caller: TaskCaller = next(task.caller for agent in world.agents.values() for task in agent.tasks.values())
    first, second = sorted({slot.partition("/")[0] for slot in trial.slots}, key=lambda name: name != trial.agent_id)

    async def tell(node: int, batch: RecordBatch) -> None:
        await world.services.context.write(lambda unit: take(unit, caller, batch, node))

    await tell(0, said("a", "b", rank=0))
    await tell(1, said("c", rank=3))
    await tell(1, RecordBatch(stream="logs", records=[LogRecord(seq=2, time=9, stdtype="launcher", text="d")]))

    async def logs(**wanted) -> list[tuple[str, str | None]]:
        lines, _ = await world.services[Trials].logs(ALICE, trial.id, **wanted)
        return [(line.text, line.node) for line in lines]

    own = [("a", first), ("b", first)], [("c", second), ("d", second)]
    assert await logs() == [*own[0], *own[1]], "launchers have no rank: theirs are told, too"
    assert await logs(node=first) == own[0]
    assert await logs(node=second) == own[1]
    assert await logs(node=second, tail=1) == own[1][1:]
    assert await logs(node=second, regex="^d") == own[1][1:]
    assert await logs(node="north") == []


async def test_lines_of_one_node_tell_it_attempt_by_attempt(make_world):
    world = await make_world(deaf(0))
    one = await world.add_agent("one")
    made = await world.submit(config())
    await world.steps(4)
    (trial,) = await world.trials(made.id)
    (task,) = one.tasks.values()
    await world.services.context.write(lambda unit: take(unit, task.caller, said("here", rank=0)))
    lines, _ = await world.services[Trials].logs(ALICE, trial.id, node="one")
    assert [(line.text, line.node) for line in lines] == [("here", "one")]
    assert (await world.services[Trials].logs(ALICE, trial.id, node="two"))[0] == []
