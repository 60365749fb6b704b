"""User tasks from submit to end, with scripted agents, on either database."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, BOB, ROOT, World, config, training

from detlab.errors import ConfigError, NotFound, ResourcesError
from detlab.schemas.taskwire import DEFAULT_ENTRYPOINTS, CreateTask, TaskEnd, TaskKind
from detlab.schemas.wire import TrialState
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import TaskRow


def command(slots: int = 1, **more):
    return CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": slots}}, **more)


def spread(slots: int):
    resources = {"slots": slots, "is_single_node": False}
    return CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": resources})


def by_kind(code: int = 0):
    """Trials train, everything else says a line and exits."""

    def script(launch):
        if launch.kind == "trial":
            yield from training(3)(launch)
            return
        yield ("log", None, "hello <b>")
        yield ("metrics", "validation", 1, {"loss": 1.0})
        yield ("exit", code)

    return script


def forever(launch):
    while True:
        yield ("wait",)


async def start(world: World, request: CreateTask, caller=ALICE):
    reply = await world.services[UserTasks].create(caller, request)
    return reply.task


async def ended(world: World, task_id: str):
    async def over() -> bool:
        return (await world.services[UserTasks].get(ROOT, task_id)).state.terminal

    await world.until(over)
    return await world.services[UserTasks].get(ROOT, task_id)


@pytest.mark.parametrize("kind", [TaskKind.CELL, TaskKind.NOTEBOOK_RUN])
async def test_a_cell_or_notebook_that_says_no_entrypoint_runs_what_its_kind_runs(make_world, kind):
    """Stored without one, it made no launch, and the scheduler stood still for everybody."""
    launches = []

    def script(launch):
        launches.append(launch)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    task = await start(world, CreateTask(kind=kind))
    assert (await ended(world, task.id)).state is TrialState.COMPLETED
    assert [launch.entrypoint for launch in launches] == [DEFAULT_ENTRYPOINTS[kind]]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"entrypoint": None, "resources": {"slots": 1}}, "entrypoint"),
        ({"resources": {"slots": 1}}, "KeyError 'entrypoint'"),
        ({"entrypoint": {"password": "hunter2"}, "resources": {"slots": 1}}, "entrypoint"),
    ],
)
async def test_a_stored_task_that_makes_no_launch_ends_with_a_card_and_stops_nobody_else(make_world, broken, said):
    world = await make_world(by_kind())
    await world.add_agent(slots=1)
    poisoned = await start(world, command())

    def spoil(unit):
        unit.session.get_one(TaskRow, poisoned.id).config = broken

    await world.services.context.write(spoil)
    world.now += 1
    other = await start(world, command(), BOB)
    assert (await ended(world, other.id)).state is TrialState.COMPLETED
    view = await ended(world, poisoned.id)
    assert view.state is TrialState.ERROR
    assert "not a valid launch" in view.failure.message
    assert said in view.failure.message
    assert "hunter2" not in view.failure.model_dump_json()


@pytest.mark.parametrize(("code", "state", "end"), [(0, "COMPLETED", "completed"), (3, "ERROR", "failed")])
async def test_usertask_from_submit_to_end(make_world, code, state, end):
    world = await make_world(by_kind(code))
    agent = await world.add_agent()
    task = await start(world, command(name="greet"))
    assert (task.display_state, task.place) == ("QUEUED", None)
    view = await ended(world, task.id)
    assert (view.state, view.end_reason, view.exit_code, view.name) == (state, end, code, "greet")
    assert view.started_at is not None
    assert view.ended_at is not None
    lines, _ = await world.services[UserTasks].logs(ALICE, task.id)
    assert [(line.text, line.task_id, line.trial_id) for line in lines] == [("hello <b>", task.id, 0)]
    assert [refused.code for refused in world.refused] == ["record.task"]  # a command reports no metrics
    assert (view.failure is not None) is bool(code)
    await world.step()
    assert not agent.tasks  # acknowledged and forgotten


async def test_a_command_that_may_be_on_several_nodes_starts_on_each_and_another_one_is_refused(make_world):
    launches = []

    def script(launch):
        launches.append(launch)
        yield ("log", launch.info.container_rank, f"node {launch.info.container_rank}")
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent("left", 2)
    await world.add_agent("right", 2)
    with pytest.raises(ResourcesError, match="the largest agent has 2"):
        await start(world, command(4))
    with pytest.raises(ConfigError, match="is_single_node"):
        await start(world, CreateTask(kind=TaskKind.CELL, config={"resources": {"is_single_node": False}}))
    task = await start(world, spread(4))
    view = await ended(world, task.id)
    assert view.state is TrialState.COMPLETED
    infos = {launch.info.container_rank: launch.info for launch in launches}
    assert {rank: info.agent_id for rank, info in infos.items()} == {0: "left", 1: "right"}
    assert all(info.container_slot_counts == [2, 2] and len(info.container_addrs) == 2 for info in infos.values())
    assert view.slots == ["left/left-0", "left/left-1", "right/right-0", "right/right-1"]
    lines, _ = await world.services[UserTasks].logs(ALICE, task.id)
    assert sorted(line.text for line in lines) == ["node 0", "node 1"], "each node counts its own records"
    # What fits on one is on one.
    small = await start(world, spread(2))
    assert len({slot.partition("-")[0] for slot in (await ended(world, small.id)).slots}) == 1


async def test_a_command_waits_for_all_its_nodes_and_a_kill_ends_all(make_world):
    world = await make_world(forever)
    left = await world.add_agent("left", 2)
    right = await world.add_agent("right", 2)
    first = await start(world, command())
    await world.steps(3)
    world.now += 1
    both = await start(world, spread(4))
    await world.steps(3)
    assert len(left.tasks) + len(right.tasks) == 1
    await world.services[UserTasks].end(ALICE, first.id)
    await ended(world, first.id)
    await world.steps(4)
    assert len(left.tasks) == len(right.tasks) == 1
    await world.services[UserTasks].end(ALICE, both.id)
    assert (await ended(world, both.id)).end_reason is TaskEnd.KILLED
    await world.step()
    assert not left.tasks
    assert not right.tasks


async def test_usertask_and_trial_wait_in_one_queue(make_world):
    world = await make_world(by_kind())
    await world.add_agent(slots=1)
    made = await world.submit(config())
    await world.services.schedule()
    task = await start(world, command())
    await world.services.schedule()
    waiting = await world.services[UserTasks].get(ALICE, task.id)
    assert waiting.place == 1
    assert "needs 1 slot" in waiting.pending_reason
    assert (await world.finish(made.id)).state == "COMPLETED"
    assert (await ended(world, task.id)).state is TrialState.COMPLETED


async def test_usertask_killed_while_queued_and_while_running(make_world):
    world = await make_world(forever)
    await world.add_agent(slots=1)
    first = await start(world, command())
    world.now += 1
    second = await start(world, command())
    await world.steps(3)
    assert (await world.services[UserTasks].get(ALICE, first.id)).display_state == "RUNNING"
    queued = await world.services[UserTasks].end(ALICE, second.id)
    assert (queued.state, queued.end_reason) == (TrialState.CANCELED, TaskEnd.CANCELED)
    await world.services[UserTasks].end(ALICE, first.id)
    killed = await ended(world, first.id)
    assert (killed.state, killed.end_reason) == (TrialState.CANCELED, TaskEnd.KILLED)
    again = await world.services[UserTasks].end(ALICE, first.id)
    assert again.end_reason is TaskEnd.KILLED


async def test_usertask_of_a_lost_agent_is_lost_and_one_that_never_began_is_asked_for_again(make_world):
    world = await make_world(forever)
    agent = await world.add_agent("one", slots=1)
    task = await start(world, command())
    await world.services.schedule()  # assigned; the agent never hears of it
    agent.drop()
    agent.online = False
    await world.steps(80, 1.0)
    waiting = await world.services[UserTasks].get(ALICE, task.id)
    assert waiting.state is TrialState.ACTIVE
    other = await world.add_agent("two", slots=1)
    await world.steps(3)
    assert (await world.services[UserTasks].get(ALICE, task.id)).agent_id == "two"
    other.drop()
    other.online = False
    await world.steps(80, 1.0)
    lost = await world.services[UserTasks].get(ALICE, task.id)
    assert (lost.state, lost.end_reason) == (TrialState.ERROR, TaskEnd.LOST)


async def test_usertask_survives_the_master_and_says_everything_twice(make_world):
    world = await make_world(by_kind())
    world.twice = True
    await world.add_agent()
    task = await start(world, command())
    await world.step()
    await world.reboot()
    view = await ended(world, task.id)
    assert view.state is TrialState.COMPLETED
    lines, _ = await world.services[UserTasks].logs(ALICE, task.id)
    assert len(lines) == 1


async def test_usertask_key_makes_one_task(make_world):
    world = await make_world(by_kind())
    one = await world.services[UserTasks].create(ALICE, command(idempotency_key="k"))
    two = await world.services[UserTasks].create(ALICE, command(idempotency_key="k"))
    assert (one.task.id, one.created, two.created) == (two.task.id, True, False)
    others = await world.services[UserTasks].create(BOB, command(idempotency_key="k"))
    assert others.task.id != one.task.id


async def test_usertask_of_another_user_is_not_there(make_world):
    world = await make_world(by_kind())
    task = await start(world, command())
    tasks = world.services[UserTasks]
    for call in (tasks.get(BOB, task.id), tasks.end(BOB, task.id), tasks.logs(BOB, task.id)):
        with pytest.raises(NotFound):
            await call
    assert (await tasks.list(BOB)).items == []
    assert [view.id for view in (await tasks.list(ROOT)).items] == [task.id]
    with pytest.raises(NotFound):
        await tasks.get(ALICE, "../../etc/passwd")


async def test_usertask_mistakes_are_said_all_at_once(make_world):
    world = await make_world(by_kind())
    wrong = CreateTask(
        kind=TaskKind.COMMAND,
        config={"resources": {"slots": -1, "slot": 2}, "idle_timeout": "soon", "runtime": "a vm"},
    )
    with pytest.raises(ConfigError) as caught:
        await world.services[UserTasks].create(ALICE, wrong)
    paths = {problem.path for problem in caught.value.problems}
    assert paths >= {"entrypoint", "resources.slots", "resources.slot", "idle_timeout", "runtime"}
    with pytest.raises(ConfigError, match="was not uploaded"):
        await world.services[UserTasks].create(ALICE, command(bundle="sha256:" + "0" * 64))
    docker = {"entrypoint": "true", "runtime": "docker"}
    with pytest.raises(ConfigError, match="has no default"):
        await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=docker))


async def test_usertask_in_a_container_waits_for_an_agent_that_has_them(make_world):
    world = await make_world(by_kind())
    await world.add_agent()
    docker = {"entrypoint": "true", "runtime": "docker", "environment": {"image": "a:1"}}
    task = await start(world, CreateTask(kind=TaskKind.COMMAND, config=docker))
    await world.services.schedule()
    assert "no agent can run containers" in (await world.services[UserTasks].get(ALICE, task.id)).pending_reason


async def test_usertask_pages_go_on_where_the_last_one_ended(make_world):
    world = await make_world(by_kind())
    made = []
    for _ in range(5):
        made.append((await start(world, command())).id)
        world.now += 1
    first = await world.services[UserTasks].list(ALICE, limit=2)
    second = await world.services[UserTasks].list(ALICE, limit=10, before=first.next)
    assert [view.id for view in [*first.items, *second.items]] == made[::-1]
    assert second.next is None


async def test_usertask_pages_begin_at_no_task_of_another(make_world):
    """A page that began there would tell when it was made; one that is not there is refused in the same words."""
    world = await make_world(by_kind())
    task = await start(world, command())
    refused = []
    for name in (task.id, "command-000000000000"):
        with pytest.raises(NotFound) as caught:
            await world.services[UserTasks].list(BOB, before=name)
        refused.append(caught.value.message.replace(name, "ID"))
    assert refused[0] == refused[1]
    assert (await world.services[UserTasks].list(ROOT, before=task.id)).items == []
