"""What administrators do: agents disabled and sent away, tokens revoked, slot time, health."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, config, training

from detlab.errors import AuthError, Conflict, Forbidden, NotFound, StaleAttempt, Unavailable
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import EnrolRequest, ExperimentState, Heartbeat, Kill
from detlab_hub.services import AgentCaller, EnrolCaller
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.cluster.credentials import Credentials
from detlab_hub.services.cluster.health import Health
from detlab_hub.services.cluster.usage import Usage
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.queue.queue import Queue
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.queries import tokens

HOUR = 3600.0


async def actions(world, action):
    page = await world.services[Audit].page(ROOT, action=action)
    return [(item.actor, item.action, item.subject) for item in page.items]


# --- agents


async def test_faces_a_disabled_agent_gets_nothing_new_and_keeps_what_it_runs(make_world):
    world = await make_world(training(5))
    agent = await world.add_agent("one", slots=2)
    running = await world.submit(config())
    await world.steps(2)
    view = await world.services[Nodes].disable(ROOT, "one")
    assert (view.enabled, view.state, view.running) == (False, "connected", 1)
    waiting = await world.submit(config())
    assert (await world.finish(running.id)).state is ExperimentState.COMPLETED
    assert len(agent.launches) == 1
    (item,) = (await world.services[Queue].view(ALICE)).items
    assert item.reason == "agent one is disabled"
    assert (await world.services[Nodes].enable(ROOT, "one")).enabled is True
    assert (await world.finish(waiting.id)).state is ExperimentState.COMPLETED
    assert await actions(world, "agent") == [
        ("root", "agent.enable", "agent one"),
        ("root", "agent.disable", "agent one"),
    ]


async def test_faces_an_agent_stays_disabled_over_a_restart_and_a_new_connection(make_world):
    world = await make_world(training(5))
    agent = await world.add_agent("one")
    await world.services[Nodes].disable(ROOT, "one")
    await world.services[Nodes].disable(ROOT, "one")
    await world.reboot()
    await agent.turn()
    await world.submit(config())
    await world.steps(3)
    assert agent.launches == []
    (view,) = await world.services[Agents].list(ALICE)
    assert (view.enabled, view.state) == (False, "connected")
    assert len(await actions(world, "agent.disable")) == 1, "twice is one action"


async def test_faces_a_disabled_slot_is_shown_and_not_used(make_world):
    world = await make_world(training(3))
    agent = await world.add_agent("one", slots=2)
    agent.drop()
    plain = agent.hello

    def hello():
        said = plain()
        said.slots[0].enabled = False
        return said

    agent.hello = hello
    await agent.connect()
    await world.submit(config())
    await world.submit(config())
    await world.steps(2)
    (view,) = await world.services[Agents].list(ROOT)
    assert [(slot.id, slot.enabled, slot.allocation_id is None) for slot in view.slots] == [
        ("one-0", False, True),
        ("one-1", True, False),
    ]
    assert len(agent.launches) == 1


async def test_faces_an_agent_that_is_sent_away_is_gone_for_good(make_world):
    world = await make_world(training(200, save_every=1))
    enrolled = await world.services[Agents].enrol(EnrolCaller(), EnrolRequest(agent_id="one"))
    one = await world.add_agent("one")
    closed = []
    one.session.on_hang_up(lambda: closed.append(True))
    made = await world.submit(config())
    await world.steps(4)
    two = await world.add_agent("two")
    view = await world.services[Nodes].remove(ROOT, "one")
    assert (view.id, view.state, view.running) == ("one", "lost", 1)
    assert any(isinstance(message, Kill) for message in one.inbox), "its task is killed"
    assert closed == [True], "its connection is closed at once"
    assert await world.services[Tokens].resolve(enrolled.token) is None, "its key is void"
    with pytest.raises(Conflict):
        await one.session.receive(Heartbeat())
    assert [view.id for view in await world.services[Agents].list(ROOT)] == ["two"]
    one.online = False
    await world.steps(3)
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, trial.agent_id) == (2, 0, "two"), "an uncounted restart elsewhere"
    assert len(two.launches) == 1
    late = next(iter(one.tasks.values()))
    with pytest.raises(StaleAttempt):
        await late.send("logs")
    assert (await actions(world, "agent.revoke")) == [("root", "agent.revoke", "agent one")]


async def test_faces_agents_are_steered_by_administrators_only(make_world):
    world = await make_world()
    await world.add_agent("one")
    for action in ("enable", "disable", "remove"):
        with pytest.raises(Forbidden):
            await getattr(world.services[Nodes], action)(ALICE, "one")
        with pytest.raises(NotFound):
            await getattr(world.services[Nodes], action)(ROOT, "nobody\x00<b>")
    assert (await world.services[Agents].list(ALICE))[0].enabled is True
    assert await actions(world, "agent") == []


async def test_faces_enrolment_is_noted_with_who_invited(make_world):
    world = await make_world()
    invited = await world.services[Agents].create_enrolment(ROOT, 600)
    caller = await world.services[Tokens].resolve(invited.token)
    await world.services[Agents].enrol(caller, EnrolRequest(agent_id="one"))
    await world.services[Agents].enrol(EnrolCaller(), EnrolRequest(agent_id="two"))
    assert await actions(world, "agent") == [
        ("cluster", "agent.enrol", "agent two"),
        ("root", "agent.enrol", "agent one"),
        ("root", "agent.invite", "enrolment token"),
    ]


# --- tokens


async def test_faces_tokens_are_listed_without_their_text_and_can_be_revoked(make_world):
    world = await make_world(training(50))
    invited = await world.services[Agents].create_enrolment(ROOT, 600)
    caller = await world.services[Tokens].resolve(invited.token)
    key = (await world.services[Agents].enrol(caller, EnrolRequest(agent_id="one"))).token
    agent = await world.add_agent("one")
    closed = []
    agent.session.on_hang_up(lambda: closed.append(True))
    await world.submit(config())
    await world.steps(2)
    listed = await world.services[Credentials].list(ROOT)
    assert sorted(item.kind for item in listed.items) == ["agent", "enrol", "task"]
    for secret in (invited.token, key):
        assert secret[10:] not in listed.model_dump_json()
    (agent_key,) = [item for item in listed.items if item.kind == "agent"]
    assert (agent_key.subject, agent_key.expires_at, len(agent_key.id)) == ("one", None, 12)
    assert agent_key.id == tokens.digest(key)[:12]
    gone = await world.services[Credentials].revoke(ROOT, agent_key.id)
    assert gone == agent_key
    assert closed == [True]
    assert await world.services[Tokens].resolve(key) is None
    assert agent_key not in (await world.services[Credentials].list(ROOT)).items
    with pytest.raises(NotFound):
        await world.services[Credentials].revoke(ROOT, agent_key.id)
    void = (tokens.digest(invited.token)[:12], agent_key.id)
    assert await actions(world, "token.revoke") == [("root", "token.revoke", f"token {each}") for each in void]


async def test_faces_a_revoked_task_token_is_refused(make_world):
    world = await make_world(training(50))
    agent = await world.add_agent()
    await world.submit(config())
    await world.steps(2)
    (task,) = agent.tasks.values()
    (shown,) = (await world.services[Credentials].list(ROOT)).items
    assert shown.subject == task.caller.allocation_id
    await world.services[Credentials].revoke(ROOT, shown.id)
    assert await world.services[Tokens].resolve(task.launch.task_token) is None


async def test_faces_expired_tokens_are_not_listed(make_world):
    world = await make_world()
    await world.services[Agents].create_enrolment(ROOT, 10)
    world.now += 11
    assert (await world.services[Credentials].list(ROOT)).items == []


@pytest.mark.parametrize("wrong", ["", "%", "_" * 12, "a" * 11, "A" * 12, "g" * 12, "a" * 64, "a" * 12, "\x00" * 12])
async def test_faces_a_token_id_that_fits_nothing_is_not_found(make_world, wrong):
    world = await make_world()
    await world.services[Agents].create_enrolment(ROOT, 600)
    with pytest.raises(NotFound):
        await world.services[Credentials].revoke(ROOT, wrong)


async def test_faces_tokens_are_for_administrators(make_world):
    world = await make_world()
    with pytest.raises(Forbidden):
        await world.services[Credentials].list(ALICE)
    with pytest.raises(Forbidden):
        await world.services[Credentials].revoke(ALICE, "a" * 12)


# --- slot time


def noon(day: int) -> float:
    return datetime(2026, 3, day, 12, tzinfo=UTC).timestamp()


async def usage(world, caller, *days):
    view = await world.services[Usage].view(caller, *(date(2026, 3, day) for day in days))
    return [(item.day[-2:], item.user, item.kind, round(item.slot_hours, 3)) for item in view.items]


def patient(steps):
    """A task that takes so many turns of the world."""

    def script(launch):
        for _ in range(steps):
            yield ("wait",)
        yield ("exit", 0)

    return script


async def test_faces_usage_is_kept_by_day_user_and_kind(make_world):
    world = await make_world(patient(10_000))
    world.now = noon(1)
    world.store.renew_lease()
    agent = await world.add_agent(slots=3)
    mine = await world.submit(config(resources={"slots_per_trial": 2}))
    await world.services[UserTasks].create(
        BOB, CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": 1}})
    )
    await world.services[UserTasks].create(
        BOB, CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": 0}})
    )
    await world.step(0)
    await world.step(0)
    assert len(agent.tasks) == 3
    world.now = noon(2) + 6 * HOUR
    world.store.renew_lease()
    running = [
        ("01", "alice", "trial", 24.0),
        ("01", "bob", "command", 12.0),
        ("02", "alice", "trial", 36.0),
        ("02", "bob", "command", 18.0),
    ]
    assert await usage(world, ROOT, 1, 2) == running, "what runs counts until now"
    for task in agent.tasks.values():
        task._exit(0)
    await agent.turn()
    assert (await world.view(mine.id)).state.terminal
    assert await usage(world, ROOT, 1, 2) == running, "the same when it has ended: nothing lost, nothing twice"
    world.now += 100 * HOUR
    assert await usage(world, ROOT, 1, 31) == running
    assert await usage(world, ROOT, 2, 2) == running[2:]
    assert await usage(world, ALICE, 1, 2) == [running[0], running[2]], "one's own only"
    await world.services[Experiments].delete(ALICE, mine.id)
    assert await usage(world, ROOT, 1, 2) == running, "it outlives the experiment"


async def test_faces_usage_adds_up_over_attempts(make_world):
    world = await make_world(patient(10_000))
    world.now = noon(1)
    world.store.renew_lease()
    agent = await world.add_agent()
    made = await world.submit(config(max_restarts=5))
    for _ in range(3):
        await world.step(0)
        await world.step(0)
        world.now += HOUR
        world.store.renew_lease()
        for task in agent.tasks.values():
            task._exit(1)
        await agent.turn()
        await agent.turn()
    await world.services[Experiments].kill(ALICE, made.id)
    await world.steps(4, 0)
    assert await usage(world, ROOT, 1, 1) == [("01", "alice", "trial", 3.0)]


async def test_faces_usage_says_thirty_days_by_default(make_world):
    world = await make_world()
    world.now = noon(31)
    view = await world.services[Usage].view(ALICE)
    assert (view.first, view.last, view.items) == ("2026-03-02", "2026-03-31", [])
    assert (await world.services[Usage].view(ALICE, last=date(2026, 3, 10))).first == "2026-02-09"


# --- health


async def say() -> str:
    return "JupyterHub 5 answers"


async def test_faces_health_tells_of_every_part(make_world):
    world = await make_world(training(3))
    await world.add_agent("one")
    await world.services.start()
    try:
        view = await world.services[Health].view(ROOT, say)
    finally:
        await world.services.stop()
    said = {item.name: (item.ok, item.detail) for item in view.items}
    assert set(said) == {"database", "hub", "agents", "queue", "disk", "lease", "loops"}
    assert said["hub"] == (True, "JupyterHub 5 answers")
    assert said["agents"] == (True, "1 connected")
    assert said["queue"] == (True, "0 waiting")
    assert said["lease"] == (True, f"epoch {world.store.epoch}, held by master 1")
    assert said["loops"][0] is True
    assert "can write" in said["database"][1]
    assert "password" not in said["database"][1]
    assert view.ok is all(ok for ok, _ in said.values())


async def test_faces_health_names_what_is_wrong(make_world, monkeypatch):
    world = await make_world(training(50))
    agent = await world.add_agent("one")
    await world.add_agent("two")
    await world.submit(config(resources={"slots_per_trial": 1}))
    await world.submit(config())
    await world.submit(config())
    await world.steps(2)
    agent.drop()
    await world.services[Nodes].disable(ROOT, "two")
    world.now += 5
    await world.services[Cluster].drain(ROOT, 60)

    async def refuse() -> str:
        raise AuthError("no")

    monkeypatch.setattr("detlab_hub.services.cluster.health.LEAST_DISK", 1 << 62)
    view = await world.services[Health].view(ROOT, refuse)
    said = {item.name: (item.ok, item.detail) for item in view.items}
    assert view.ok is False
    assert said["hub"] == (False, "does not answer: no")
    assert said["agents"] == (False, "1 connected, 1 suspect, 1 disabled")
    assert said["queue"][0] is False
    assert said["queue"][1].startswith("1 waiting, the first for 6 s; the cluster is draining: nothing new starts")
    assert said["disk"][0] is False
    assert said["loops"][0] is False, "none was started"


async def test_faces_health_names_a_loop_that_fails(make_world, monkeypatch):
    world = await make_world(tick=0.01)

    async def broken() -> None:
        raise RuntimeError("a bug")

    broken.__name__ = "tick"
    monkeypatch.setattr(world.services, "tick", broken)
    await world.services.start()
    try:
        async with asyncio.timeout(10):
            while world.services.loops()["tick"]:
                await asyncio.sleep(0.01)
        view = await world.services[Health].view(ROOT, say)
    finally:
        await world.services.stop()
    (loops,) = [item for item in view.items if item.name == "loops"]
    assert not loops.ok
    assert loops.detail.endswith("ended or failing: tick")


async def test_faces_health_waits_for_no_part_for_ever(make_world, monkeypatch):
    world = await make_world()
    monkeypatch.setattr("detlab_hub.services.cluster.health.PATIENCE", 0.05)

    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    view = await world.services[Health].view(ROOT, never)
    (hub,) = [item for item in view.items if item.name == "hub"]
    assert hub.ok is False
    assert hub.detail


async def test_faces_readiness_needs_a_database_that_answers_and_asks_it_seldom(make_world, monkeypatch):
    world = await make_world()
    health, asked = world.services[Health], list[str]()
    write = world.services.context.write

    async def counted(fn: Any) -> Any:
        asked.append("write")
        return await write(fn)

    monkeypatch.setattr(world.services.context, "write", counted)
    assert await asyncio.gather(*(health.ready() for _ in range(50))) == [True] * 50
    assert asked == ["write"], "anybody may ask: it is one look for all"
    monkeypatch.setattr("detlab_hub.services.cluster.health.READY_SECONDS", 0.0)

    async def busy(fn: Any) -> Any:
        raise Unavailable("the database is locked")

    monkeypatch.setattr(world.services.context, "write", busy)
    assert await health.ready() is False

    async def hangs(fn: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr("detlab_hub.services.cluster.health.PATIENCE", 0.02)
    monkeypatch.setattr(world.services.context, "write", hangs)
    assert await health.ready() is False
    monkeypatch.setattr(world.services.context, "write", write)
    monkeypatch.setattr("detlab_hub.services.cluster.health.PATIENCE", 5.0)
    assert await health.ready() is True
    world.services.context.stopped = True
    assert await health.ready() is False


async def test_faces_health_is_for_administrators(make_world):
    world = await make_world()
    with pytest.raises(Forbidden):
        await world.services[Health].view(ALICE, say)
    assert await world.services[Tokens].resolve("dtagent_x") is None
    assert AgentCaller("x") != ALICE
