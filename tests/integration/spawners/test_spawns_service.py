"""The master's side of servers: the lease, the environment, the Hub's list, the idle rules; on either database."""

import asyncio

import pytest
from services_scripted import ALICE, BOB, ROOT

from detlab.errors import ConfigError, Conflict, NotFound, StaleAttempt, Unavailable
from detlab.schemas.taskwire import ActivityReport, CreateTask, SpawnRequest, TaskKind
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.usertasks.hub_client import ServerOfHub
from detlab_hub.services.usertasks.servers import UNLISTED_SECONDS, Servers
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import UserTasks
from testbed.waiting import soon

HUB = HubCaller()
SECRET = {"JUPYTERHUB_API_TOKEN": "very-secret"}


def request(**more):
    given = {
        "owner": "alice",
        "server_name": "nb",
        "key": "k" * 16,
        "base_url": "/user/alice/nb/",
        "environment": SECRET,
    }
    return SpawnRequest(**{**given, **more})


async def spawn(world, **more):
    return await world.services[Spawns].post(HUB, request(**more))


async def look(world, view):
    return await world.services[Spawns].get(HUB, view.task_id)


async def running(world, **more):
    """A claimed server that runs."""
    view = await spawn(world, **more)
    await world.steps(3)
    return await world.services[Spawns].claim(HUB, view.task_id)


async def over(world, view):
    """Step until a spawn has ended; return its view."""

    async def ended():
        return (await look(world, view)).state.terminal

    await world.until(ended, 50)
    return await look(world, view)


async def test_a_form_is_told_what_no_agent_of_its_user_offers(make_world):
    world = await make_world()

    async def closed(owner="alice"):
        return (await world.services[Spawns].offers(HUB, owner)).closed

    assert await closed() == dict.fromkeys(("process", "docker"), "no node is connected now")
    agent = await world.add_agent()
    assert await closed() == {"docker": "no node has a container engine now"}
    agent.drop()
    await world.add_agent("other", serves_user="bob")
    assert await closed("bob") == {"docker": "no node has a container engine now"}


async def test_a_spawn_waits_with_place_and_reason_then_runs(make_world):
    world = await make_world()
    agent = await world.add_agent(slots=1)
    first = await spawn(world, config={"resources": {"slots": 1}})
    await world.steps(3)
    second = await spawn(world, server_name="nb-2", key="l" * 16, config={"resources": {"slots": 1}})
    await world.steps(2)
    waiting = await look(world, second)
    assert (waiting.allocation_state, waiting.place) == ("PENDING", 1)
    assert "slot" in waiting.reason
    await world.services[Spawns].delete(HUB, first.task_id)
    await over(world, first)
    await world.steps(3)
    assert (await look(world, second)).allocation_state == "RUNNING"
    (task,) = agent.tasks.values()
    assert task.launch.environment["JUPYTERHUB_API_TOKEN"] == "very-secret"
    assert task.launch.entrypoint[-2:] == ["--kind", "notebook"]
    assert not task.launch.holds
    assert task.launch.service is not None
    assert task.launch.user_home


async def test_the_same_key_is_the_same_task_and_another_servers_is_refused(make_world):
    world = await make_world()
    first = await spawn(world)
    assert (await spawn(world)).task_id == first.task_id
    with pytest.raises(Conflict):
        await spawn(world, server_name="other")


async def test_the_environment_is_nowhere_in_the_database_and_forgotten_once_it_runs(make_world):
    world = await make_world()
    await world.add_agent()
    view = await spawn(world)
    task = await world.services[UserTasks].get(ROOT, view.task_id)
    assert "very-secret" not in task.model_dump_json()
    assert world.services.context.spawn_secrets
    await world.steps(3)
    await world.services[Spawns].guard()
    assert not world.services.context.spawn_secrets


async def test_an_environment_that_comes_while_others_are_forgotten_is_kept(make_world):
    world = await make_world()
    secrets = world.services.context.spawn_secrets
    secrets["notebook-1a2b3c4d"] = SECRET  # kept in the transaction that writes its task, which no reader sees yet
    await world.services[Spawns].guard()
    assert secrets == {"notebook-1a2b3c4d": SECRET}


async def test_a_restarted_master_launches_when_the_environment_comes_again(make_world):
    world = await make_world()
    view = await spawn(world)
    await world.reboot()
    agent = await world.add_agent()
    await world.steps(3)
    assert not agent.tasks, "nothing is launched without its environment"
    assert (await look(world, view)).allocation_state == "ASSIGNED"
    assert (await spawn(world)).task_id == view.task_id
    await world.steps(3)
    (task,) = agent.tasks.values()
    assert task.launch.environment["JUPYTERHUB_API_TOKEN"] == "very-secret"


async def test_a_spawn_that_nobody_follows_is_given_up(make_world):
    world = await make_world(spawn_lease=30.0)
    view = await spawn(world)
    following = world.services[Spawns].follow(HUB, view.task_id)
    assert (await anext(following))[0].task_id == view.task_id
    for _ in range(3):
        world.now += 20
        await world.services[Spawns].guard()
    assert not (await look(world, view)).state.terminal, "it is followed"
    await following.aclose()
    await world.services[Spawns].guard()
    world.now += 29
    await world.services[Spawns].guard()
    assert not (await look(world, view)).state.terminal
    world.now += 2
    await world.services[Spawns].guard()
    assert (await look(world, view)).end_reason == "abandoned"


async def test_a_claimed_server_needs_no_reader(make_world):
    world = await make_world()
    await world.add_agent()
    view = await running(world)
    world.now += 20  # less than what an agent may be silent
    await world.services[Spawns].guard()
    world.now += 1000
    await world.services[Spawns].guard()
    assert not (await look(world, view)).state.terminal


async def test_the_stream_tells_every_change_and_ends_with_the_task(make_world):
    world = await make_world()
    await world.add_agent()
    view = await spawn(world)
    seen = []

    async def follow():
        async for batch in world.services[Spawns].follow(HUB, view.task_id):
            seen.extend(batch)

    following = asyncio.create_task(follow())
    await soon(lambda: seen)
    await world.steps(3)
    await soon(lambda: seen[-1].allocation_state == "RUNNING")
    await world.services[Spawns].delete(HUB, view.task_id)
    await over(world, view)
    await asyncio.wait_for(following, 10)
    assert seen[0].allocation_state == "PENDING"
    assert any(one.allocation_state == "RUNNING" for one in seen)
    assert seen[-1].state == "CANCELED"
    assert len(seen) == len({one.model_dump_json() for one in seen})


async def test_a_withdrawn_spawn_is_canceled_and_a_stopped_server_killed(make_world):
    world = await make_world()
    waiting = await spawn(world)
    assert (await world.services[Spawns].delete(HUB, waiting.task_id)).end_reason == "canceled"
    await world.add_agent()
    view = await running(world, key="l" * 16)
    await world.services[Spawns].delete(HUB, view.task_id)
    assert (await over(world, view)).end_reason == "killed"
    with pytest.raises(Conflict):
        await world.services[Spawns].claim(HUB, view.task_id)


async def test_a_second_start_of_a_server_ends_what_the_hub_has_lost(make_world):
    world = await make_world()
    lost = await spawn(world)
    await spawn(world, key="l" * 16)
    assert (await over(world, lost)).end_reason == "abandoned"


async def test_a_hold_runs_nothing_of_the_users(make_world):
    world = await make_world()
    agent = await world.add_agent()
    await spawn(world, hold=True, environment={}, config={"runtime": "docker", "environment": {"image": "x"}})
    await world.steps(3)
    (task,) = agent.tasks.values()
    assert task.launch.entrypoint[-2:] == ["--kind", "hold"]
    assert task.launch.holds
    assert task.launch.runtime == "process"


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": TaskKind.COMMAND, "config": {"entrypoint": "true"}},
        {"key": "short"},
        {"owner": ""},
        {"base_url": "http://elsewhere/"},
        {"environment": {"A=B": "x"}},
        {"environment": {"A": "x\0y"}},
        {"environment": {"A": "x" * 300_000}},
        {"config": {"resources": {"slots": -1}}},
        {"kind": TaskKind.TENSORBOARD, "experiment_ids": [99]},
    ],
)
async def test_bad_requests_are_refused(make_world, wrong):
    world = await make_world()
    with pytest.raises(ConfigError):
        await spawn(world, **wrong)


async def test_only_servers_are_spawns(make_world):
    world = await make_world()
    made = await world.services[UserTasks].create(
        ALICE, CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true"})
    )
    for call in (world.services[Spawns].get, world.services[Spawns].delete, world.services[Spawns].claim):
        with pytest.raises(NotFound):
            await call(HUB, made.task.id)


# --- what the Hub knows


class HubOf:
    """A Hub's list of servers; starting one makes its spawner ask the master, as the real one does."""

    def __init__(self, world):
        self.world = world
        self.servers = set()
        self.stopped = []
        self.away = False

    async def running(self):
        if self.away:
            raise Unavailable("away")
        return set(self.servers)

    async def start(self, owner, name, options, display_name=""):
        if self.away:
            raise Unavailable("the Hub does not answer")
        self.servers.add(ServerOfHub(owner, name))
        await spawn(self.world, owner=owner, server_name=name, key=f"key-of-{name}", kind=options["kind"])

    async def stop(self, owner, name, *, remove=False):
        self.stopped.append((owner, name, remove))


@pytest.fixture
async def hubbed(make_world):
    world = await make_world()
    await world.add_agent()
    hub = HubOf(world)
    world.services[Servers]._hub = hub
    return world, hub


async def test_a_server_that_the_hub_does_not_list_is_ended_after_a_while(hubbed):
    world, hub = hubbed
    view = await running(world)
    reconcile = world.services[Servers].reconcile
    await reconcile()
    world.now += UNLISTED_SECONDS - 1
    await reconcile()
    assert not (await look(world, view)).state.terminal
    hub.servers.add(ServerOfHub("alice", "nb"))
    await reconcile()
    hub.servers.clear()
    world.now += 5
    await reconcile()
    assert not (await look(world, view)).state.terminal, "the time counts anew"
    world.now += UNLISTED_SECONDS
    await reconcile()
    assert (await over(world, view)).end_reason == "abandoned"


async def test_a_hub_that_is_away_ends_nothing(hubbed):
    world, hub = hubbed
    view = await running(world)
    hub.away = True
    for _ in range(5):
        world.now += UNLISTED_SECONDS
        await world.services[Servers].reconcile()
    assert not (await look(world, view)).state.terminal


async def test_a_task_is_started_and_ended_through_the_hub_and_never_twice(hubbed):
    world, hub = hubbed
    asked = CreateTask(kind=TaskKind.NOTEBOOK, name="mine", idempotency_key="once")
    made = await world.services.start_task(ALICE, asked)
    assert made.created
    again = await world.services.start_task(ALICE, asked)
    assert not again.created
    assert again.task.id == made.task.id
    other = await world.services.start_task(BOB, asked)
    assert other.task.id != made.task.id
    await world.steps(3)
    await world.services[Spawns].claim(HUB, made.task.id)
    with pytest.raises(NotFound):
        await world.services.end_task(BOB, made.task.id)
    await world.services.end_task(ALICE, made.task.id)
    await asyncio.sleep(0)
    assert hub.stopped == [("alice", made.task.server_name, True)]


async def test_a_hub_that_is_away_is_said_when_a_notebook_is_started(hubbed):
    world, hub = hubbed
    hub.away = True
    with pytest.raises(Unavailable, match="Hub"):
        await world.services.start_task(ALICE, CreateTask(kind=TaskKind.NOTEBOOK))


async def test_mistakes_are_judged_before_the_hub_is_asked(hubbed):
    world, hub = hubbed
    with pytest.raises(ConfigError):
        await world.services.start_task(ALICE, CreateTask(kind=TaskKind.NOTEBOOK, config={"idle_timeout": "soon"}))
    with pytest.raises(ConfigError):
        await world.services.start_task(ALICE, CreateTask(kind=TaskKind.TENSORBOARD, experiment_ids=[7]))
    dry = await world.services.start_task(ALICE, CreateTask(kind=TaskKind.NOTEBOOK, dry_run=True))
    assert dry.task is None
    assert not hub.servers


# --- idle rules


async def idle_server(world, timeout=100):
    view = await running(world, config={"idle_timeout": timeout})
    (task,) = next(iter(world.agents.values())).tasks.values()
    return view, task.caller


async def view_of(world, view):
    return await world.services[UserTasks].get(ROOT, view.task_id)


async def report(world, caller, **more):
    return await world.services[Servers].idle.report(caller, ActivityReport(**{"last_activity": 0.0, **more}))


async def test_an_idle_server_is_warned_about_then_ended(hubbed):
    world, hub = hubbed
    view, caller = await idle_server(world)
    began = world.now
    reply = await report(world, caller, last_activity=began)
    assert (reply.idle_timeout, reply.cull_at) == (100.0, None)
    world.now = began + 74
    await report(world, caller, last_activity=began)
    await world.services[Servers].cull_idle()
    assert (await view_of(world, view)).cull_at is None
    world.now = began + 76
    await world.services[Servers].cull_idle()
    warned = await view_of(world, view)
    assert warned.cull_at == pytest.approx(began + 101, abs=2)
    assert (await report(world, caller, last_activity=began)).cull_at == warned.cull_at
    world.now = warned.cull_at + 1
    await world.services[Servers].cull_idle()
    assert (await over(world, view)).end_reason == "idle"
    assert [stopped[:2] for stopped in hub.stopped] == [("alice", "nb")]
    lines, _ = await world.services[UserTasks].logs(ALICE, view.task_id)
    assert ["unless it is used" in lines[0].text, "it is ended" in lines[-1].text] == [True, True]
    with pytest.raises(StaleAttempt):
        await report(world, caller)


async def test_use_after_the_warning_spares_the_server(hubbed):
    world, _ = hubbed
    view, caller = await idle_server(world)
    await report(world, caller, last_activity=world.now)
    world.now += 80
    await world.services[Servers].cull_idle()
    assert (await view_of(world, view)).cull_at is not None
    assert (await report(world, caller, busy=True)).cull_at is None
    world.now += 50
    await world.services[Servers].cull_idle()
    assert (await view_of(world, view)).end_reason is None


async def test_a_server_whose_watcher_is_not_heard_is_not_ended_at_once(hubbed):
    world, _ = hubbed
    view, _ = await idle_server(world)
    world.now += 300
    await world.services[Servers].cull_idle()
    assert (await view_of(world, view)).cull_at is None
    world.now += 600
    await world.services[Servers].cull_idle()
    assert (await view_of(world, view)).cull_at is not None, "its watcher is dead"


async def test_never_is_never_and_the_clusters_default_counts_for_the_rest(make_world):
    world = await make_world(idle_timeouts={"notebook": 50.0})
    await world.add_agent()
    never = await spawn(world, config={"idle_timeout": "never"})
    default = await spawn(world, key="l" * 16, server_name="nb-2")
    own = await spawn(world, key="m" * 16, server_name="nb-3", config={"idle_timeout": "2m"})
    timeouts = [(await view_of(world, view)).idle_timeout for view in (never, default, own)]
    assert timeouts == [None, 50.0, 120.0]
