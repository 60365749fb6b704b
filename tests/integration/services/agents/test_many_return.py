"""A master that was started anew while many tasks ran: all are taken up again, in few statements, and none restarts."""

from __future__ import annotations

from contextlib import contextmanager

from services_scripted import config
from sqlalchemy import event, func, select, update

from detlab.schemas.wire import AllocationState, HeldTask
from detlab_hub.store.tables import AllocationRow, TrialRow

TASKS = 300


@contextmanager
def statements(world):
    """What is asked of the database meanwhile, whichever way."""
    asked: list[str] = []

    def note(*arguments) -> None:
        asked.append(arguments[2])

    engine = world.store._write_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def test_hundreds_of_tasks_are_taken_up_again_in_few_statements(make_world):
    world = await make_world()
    agent = await world.add_agent("large", slots=TASKS)
    searcher = {"name": "random", "metric": "loss", "max_trials": TASKS, "max_concurrent_trials": TASKS}
    made = await world.submit(config(searcher))
    await world.services.tick()  # the second part of the trials
    await world.services.schedule()

    def run(unit) -> list[str]:
        """As if the agent had said of each that it started."""
        unit.session.execute(update(AllocationRow).values(state=AllocationState.RUNNING, started_at=unit.now))
        return list(unit.session.scalars(select(AllocationRow.id)))

    names = await world.services.context.write(run)
    assert len(names) == TASKS
    plain = agent.hello()
    running = [HeldTask(allocation_id=name, run=1) for name in names]
    agent.hello = lambda: plain.model_copy(update={"tasks": running})

    await world.reboot()
    with statements(world) as asked:
        await agent.connect()
        await world.services.schedule()
    welcome = agent.inbox.popleft()
    assert sorted(welcome.keep) == sorted(names)
    assert not welcome.kill
    assert not agent.inbox, "nothing is launched anew"
    assert len(asked) < 60, f"{len(asked)} statements for {TASKS} tasks"

    def count(s) -> tuple[int, int]:
        same = select(func.count()).where(AllocationRow.state == AllocationState.RUNNING, AllocationRow.run == 1)
        again = select(func.count()).where(TrialRow.experiment_id == made.id, TrialRow.restarts + TrialRow.run != 1)
        return s.scalar(same), s.scalar(again)

    assert await world.services.context.read(count) == (TASKS, 0)
