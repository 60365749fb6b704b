"""I9: an experiment is its owner's; whom they let look at it or change it may do that, no more, and no longer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from services_scripted import ALICE, BOB, ROOT, config, seen_storage, training

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import GrantRequest, GrantTo
from detlab_hub.services import TaskCaller
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.cluster.overview import Overview
from detlab_hub.services.experiments import grants
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.timeline import Timeline
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.streams.stream import Stream
from detlab_hub.services.usertasks.usertasks import UserTasks, unknown

VISION = replace(BOB, name="vera", groups=frozenset({"vision", "staff"}))
SPEECH = replace(BOB, name="sam", groups=frozenset({"speech"}))


async def looks(world, caller, experiment, trial, uuid):
    """Everything that one may look at; the names of those that were refused."""
    services = world.services
    refused = []
    for name, look in {
        "get": lambda: services[Experiments].get(caller, experiment),
        "trials": lambda: services[Experiments].trials(caller, experiment),
        "checkpoints": lambda: services[Experiments].checkpoints(caller, experiment),
        "curves": lambda: services[Experiments].curves(caller, experiment),
        "grants": lambda: services[grants.Grants].list(caller, experiment),
        "timeline": lambda: services[Timeline].view(caller, experiment),
        "trial": lambda: services[Trials].get(caller, trial),
        "metrics": lambda: services[Trials].metrics(caller, trial),
        "values": lambda: services[Trials].values(caller, trial),
        "logs": lambda: services[Trials].logs(caller, trial),
        "checkpoint": lambda: services[Checkpoints].get(caller, uuid),
    }.items():
        try:
            await look()
        except NotFound:
            refused.append(name)
    return refused


ALL_LOOKS = 11


async def read_to_the_end(stream):
    async for _ in stream:
        pass


@pytest.fixture
async def shared(make_world, tmp_path):
    """A world with an ended experiment of Alice's that has a checkpoint, and the ids of all three."""
    world = await make_world(training(4), **seen_storage(tmp_path))
    await world.add_agent()
    mine = await world.submit(config(name="mine"))
    await world.finish(mine.id)
    (trial,) = await world.trials(mine.id)
    (checkpoint, *_) = await world.services[Experiments].checkpoints(ALICE, mine.id)
    return world, mine.id, trial.id, checkpoint.uuid


async def test_i9_what_is_not_shared_is_not_there(shared) -> None:
    world, experiment, trial, uuid = shared
    assert len(await looks(world, BOB, experiment, trial, uuid)) == ALL_LOOKS
    assert await looks(world, ALICE, experiment, trial, uuid) == []
    for action in (world.services[Experiments].kill, world.services[Experiments].delete):
        with pytest.raises(NotFound):
            await action(BOB, experiment)
    with pytest.raises(NotFound):
        await world.services[grants.Grants].put(BOB, experiment, GrantRequest(kind="user", name="bob"))
    assert await world.services[Experiments].list(BOB) == ([], None)


async def test_i9_who_may_look_may_not_change(shared) -> None:
    world, experiment, trial, uuid = shared
    services = world.services
    await services[grants.Grants].put(ALICE, experiment, GrantRequest(kind="user", name="bob"))
    assert await looks(world, BOB, experiment, trial, uuid) == []
    assert [view.id for view in (await services[Experiments].list(BOB))[0]] == [experiment]
    assert (await services[Experiments].list(BOB, owner="bob"))[0] == []
    assert [view.id for view in (await services[Experiments].list(BOB, owner="alice"))[0]] == [experiment]
    for action in (
        services[Experiments].pause,
        services[Experiments].activate,
        services[Experiments].cancel,
        services[Experiments].kill,
        services[Experiments].delete,
    ):
        with pytest.raises(Forbidden, match="alice"):
            await action(BOB, experiment)
    with pytest.raises(Forbidden):
        await services[Trials].kill(BOB, trial)
    with pytest.raises(Forbidden):
        await services[grants.Grants].put(BOB, experiment, GrantRequest(kind="user", name="carol"))
    with pytest.raises(Forbidden):
        await services[grants.Grants].remove(BOB, experiment, GrantTo(kind="user", name="bob"))
    assert len(await looks(world, SPEECH, experiment, trial, uuid)) == ALL_LOOKS, "shared with bob alone"


async def test_i9_a_group_and_who_is_in_it_when_they_ask(shared) -> None:
    world, experiment, trial, uuid = shared
    await world.services[grants.Grants].put(ALICE, experiment, GrantRequest(kind="group", name="vision"))
    assert await looks(world, VISION, experiment, trial, uuid) == []
    assert len(await looks(world, SPEECH, experiment, trial, uuid)) == ALL_LOOKS
    left = replace(VISION, groups=frozenset({"staff"}))
    assert len(await looks(world, left, experiment, trial, uuid)) == ALL_LOOKS
    named_so = replace(BOB, name="vision")
    assert len(await looks(world, named_so, experiment, trial, uuid)) == ALL_LOOKS, "a user named like the group"


async def test_write_is_for_steering_and_not_for_owning(make_world) -> None:
    world = await make_world(training(50))
    await world.add_agent()
    mine = await world.submit(config(name="mine"))
    await world.steps(3)
    services = world.services
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="vera"))
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="group", name="vision", write=True))
    assert (await services[Experiments].pause(VISION, mine.id)).state == "PAUSED", "the best of both grants counts"
    assert (await services[Experiments].activate(VISION, mine.id)).state == "ACTIVE"
    (trial,) = await world.trials(mine.id)
    await services[Trials].kill(VISION, trial.id)
    await services[Experiments].kill(VISION, mine.id)
    await world.finish(mine.id)
    with pytest.raises(Forbidden, match="only they, admins of its workspace and"):
        await services[Experiments].delete(VISION, mine.id)
    with pytest.raises(Forbidden):
        await services[grants.Grants].put(VISION, mine.id, GrantRequest(kind="user", name="sam"))
    actions = [(item.actor, item.action, item.detail) for item in (await services[Audit].page(ROOT, limit=50)).items]
    assert ("vera", "experiment.pause", "mine") in actions
    assert ("alice", "experiment.share", "group vision may change it") in actions


async def test_i9_what_is_taken_back_is_gone_and_streams_end(make_world) -> None:
    world = await make_world(training(50))
    await world.add_agent()
    mine = await world.submit(config(name="mine"))
    services = world.services
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="bob"))
    one = services[Stream].events(BOB, mine.id, after=0)
    everything = services[Stream].events(BOB, None, after=0)
    async with asyncio.timeout(20):
        assert {event.experiment_id for event in await anext(one)} == {mine.id}
        assert mine.id in {event.experiment_id for event in await anext(everything)}
        await services[grants.Grants].remove(ALICE, mine.id, GrantTo(kind="user", name="bob"))
        with pytest.raises(NotFound):
            await read_to_the_end(one)
        other = await world.submit(config(name="bob's"), caller=BOB)
        await world.step()
        seen: set[int | None] = set()
        while other.id not in seen:
            seen |= {event.experiment_id for event in await anext(everything)}
    assert mine.id not in seen
    await everything.aclose()
    with pytest.raises(NotFound, match="no experiment"):
        await services[grants.Grants].remove(BOB, mine.id, GrantTo(kind="user", name="bob"))
    with pytest.raises(NotFound, match="not shared with the user 'bob'"):
        await services[grants.Grants].remove(ALICE, mine.id, GrantTo(kind="user", name="bob"))


async def test_i9_a_followed_log_ends_when_the_right_is_taken_back(make_world) -> None:
    world = await make_world(training(50))
    await world.add_agent()
    mine = await world.submit(config(name="mine"))
    await world.steps(3)
    (trial,) = await world.trials(mine.id)
    services = world.services
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="bob"))
    reading = asyncio.ensure_future(read_to_the_end(services[Stream].logs(BOB, trial.id)))
    while not services.context.wakeups.has_waiters(("logs", trial.id)):
        await asyncio.sleep(0)
    await services[grants.Grants].remove(ALICE, mine.id, GrantTo(kind="user", name="bob"))
    async with asyncio.timeout(20):
        with pytest.raises(NotFound):
            await reading


async def test_i9_a_right_taken_back_while_a_stream_is_opened_counts(make_world, monkeypatch) -> None:
    world = await make_world(training(50))
    mine = await world.submit(config(name="mine"))
    services = world.services
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="bob"))
    read, reads = services.context.read, []

    async def read_then_take_back(look):
        found = await read(look)
        reads.append(look)
        if len(reads) == 1:
            await services[grants.Grants].remove(ALICE, mine.id, GrantTo(kind="user", name="bob"))
        return found

    monkeypatch.setattr(services.context, "read", read_then_take_back)
    async with asyncio.timeout(20):
        with pytest.raises(NotFound):
            await read_to_the_end(services[Stream].events(BOB, mine.id, after=0))


async def test_an_experiment_has_a_bounded_number_of_grants(make_world, monkeypatch) -> None:
    monkeypatch.setattr(grants, "MOST", 2)
    world = await make_world(training(3))
    mine = await world.submit(config(name="mine"))
    for name in ("bob", "carol"):
        await world.services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name=name))
    with pytest.raises(Conflict, match="shared 2 times"):
        await world.services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="dave"))


async def test_a_user_tasks_token_has_no_experiment_to_ask_about(make_world) -> None:
    world = await make_world(training(3))
    task = TaskCaller(allocation_id="x", trial_id=None, experiment_id=None, run=1, task_id="notebook-1")
    assert (await world.services[Tasks].best_validation(task)).value is None


async def test_a_view_says_what_the_one_who_gets_it_may_do(make_world) -> None:
    world = await make_world(training(50))
    await world.add_agent()
    mine = await world.submit(config(name="mine"))
    services = world.services
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="bob"))
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="vera"))
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="group", name="vision", write=True))
    own = await world.submit(config(name="vera's"), caller=VISION)
    assert (mine.may, own.may) == ("own", "own")
    for caller, may in ((ALICE, "own"), (ROOT, "own"), (VISION, "write"), (BOB, "read")):
        listed = {view.id: view.may for view in (await services[Experiments].list(caller))[0]}
        assert listed[mine.id] == may
        assert listed.get(own.id) == {"vera": "own", ROOT.name: "own"}.get(caller.name)
        assert (await services[Experiments].get(caller, mine.id)).may == may
        assert (await services[Experiments].curves(caller, mine.id)).experiment.may == may
    assert [view.may for view in (await services[Overview].view(ALICE)).experiments] == ["own"]
    assert {view.may for view in (await services[Overview].view(ROOT, everybody=True)).experiments} == {"own"}
    assert (await services[Experiments].pause(VISION, mine.id)).may == "write"
    assert (await services[Experiments].kill(ALICE, mine.id)).may == "own"


@pytest.mark.parametrize("of_all", [False, True])
async def test_i9_each_reader_of_a_stream_is_told_their_own_right(make_world, of_all: bool) -> None:
    """The event is one, its readers are three, and each gets a view of their own, also when the right changes."""
    world = await make_world(training(50))
    mine = await world.submit(config(name="mine"))
    services = world.services
    for name, write in (("bob", False), ("vera", True)):
        await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name=name, write=write))
    streams = {
        caller.name: services[Stream].events(caller, None if of_all else mine.id, after=0)
        for caller in (ALICE, BOB, VISION)
    }

    async def told(name: str, may: str) -> None:
        """Read until the right is this one; every view before says another."""
        async for batch in streams[name]:
            if [event.data["may"] for event in batch if event.kind == "experiment"][-1:] == [may]:
                return

    async with asyncio.timeout(20):
        for name, may in (("alice", "own"), ("bob", "read"), ("vera", "write")):
            await told(name, may)
        await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="bob", write=True))
        await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="vera"))
        for name, may in (("alice", "own"), ("bob", "write"), ("vera", "read")):
            await told(name, may)
    for stream in streams.values():
        await stream.aclose()


async def test_a_grant_that_comes_later_shows_on_an_open_stream(make_world) -> None:
    world = await make_world(training(50))
    await world.add_agent()
    mine = await world.submit(config(name="mine"))
    services = world.services
    stream = services[Stream].events(BOB, None)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    await world.step()
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="bob"))
    async with asyncio.timeout(20):
        seen = {event.experiment_id for event in await waiting}
        while mine.id not in seen:
            seen |= {event.experiment_id for event in await anext(stream)}
    await stream.aclose()


async def test_what_is_shared_may_be_started_from_and_shown(shared) -> None:
    world, experiment, trial, uuid = shared
    warm = config(name="warm")
    warm["searcher"]["source_checkpoint_uuid"] = uuid
    board = CreateTask(kind=TaskKind.TENSORBOARD, experiment_ids=[experiment], trial_ids=[trial], config={})
    with pytest.raises(ConfigError, match="source_checkpoint_uuid"):
        await world.submit(warm, caller=VISION)
    await world.services[grants.Grants].put(ALICE, experiment, GrantRequest(kind="group", name="vision"))
    assert (await world.submit(warm, caller=VISION)).owner == "vera"
    assert await world.services.context.read(lambda s: unknown(s, VISION, board)) == []
    assert len(await world.services.context.read(lambda s: unknown(s, SPEECH, board))) == 2


async def test_i9_a_warm_start_reads_nothing_that_came_after_its_submit(make_world) -> None:
    """Bob started from a trial of Alice's; of what she saves after that, his trials can read nothing."""
    world = await make_world(training(50))
    await world.add_agent(slots=2)
    services = world.services
    mine = await world.submit(config(name="mine"))
    await world.steps(6)
    await services[grants.Grants].put(ALICE, mine.id, GrantRequest(kind="user", name="bob"))
    (trial,) = await world.trials(mine.id)
    warm = config(name="warm")
    warm["searcher"]["source_trial_id"] = trial.id
    his = await world.submit(warm, caller=BOB)
    await services[grants.Grants].remove(ALICE, mine.id, GrantTo(kind="user", name="bob"))
    await world.steps(6)
    (later,) = await world.trials(mine.id)
    assert later.latest_checkpoint != trial.latest_checkpoint
    (run,) = (await services[Experiments].trials(BOB, his.id))[0]
    task = TaskCaller(allocation_id="x", trial_id=run.id, experiment_id=his.id, run=1)
    assert (await services[Tasks].get_checkpoint(task, trial.latest_checkpoint)).trial_id == trial.id
    with pytest.raises(NotFound):
        await services[Tasks].get_checkpoint(task, later.latest_checkpoint)


async def test_grants_go_with_their_experiment_and_a_second_says_the_same(shared) -> None:
    world, experiment, _, _ = shared
    services = world.services
    hostile = "<b>\N{RIGHT-TO-LEFT OVERRIDE}\x00'; DROP TABLE grants;--"
    for _ in range(2):
        found = await services[grants.Grants].put(
            ALICE, experiment, GrantRequest(kind="user", name=hostile, write=True)
        )
    assert [(one.kind, one.write, one.granted_by) for one in found.items] == [("user", True, "alice")]
    found = await services[grants.Grants].put(ALICE, experiment, GrantRequest(kind="user", name=hostile))
    assert [one.write for one in found.items] == [False]
    assert (await services[grants.Grants].remove(ALICE, experiment, GrantTo(kind="user", name=hostile))).items == []
    await services[grants.Grants].put(ROOT, experiment, GrantRequest(kind="user", name="bob"))
    await services[Experiments].delete(ALICE, experiment)
    assert await services[Experiments].list(BOB) == ([], None)


async def test_a_user_opens_what_they_own_whatever_characters_their_name_has(make_world):
    """Names were compared as they came, with owners as the database holds them: what was listed could not be opened."""
    world = await make_world(training(2))
    await world.add_agent()
    odd = replace(ALICE, name="ali\x00ce", groups=frozenset({"vi\x00sion"}))
    mine = await world.submit(config(name="mine"), odd)
    made = await world.services[UserTasks].create(odd, CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true"}))
    items, _ = await world.services[Experiments].list(odd)
    assert [(item.id, item.may) for item in items] == [(mine.id, "own")]
    assert (await world.services[Experiments].get(odd, mine.id)).may == "own"
    assert made.task is not None
    assert (await world.services[UserTasks].get(odd, made.task.id)).id == made.task.id
    assert [item.mine for item in (await world.services[Jobs].list(odd)).items] == [True, True]
