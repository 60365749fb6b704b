"""An agent that was sent away stays away: not by the token it came by, and not by a connection that was half made."""

from __future__ import annotations

import hashlib

import pytest
from services_scripted import ALICE, ROOT, training

from detlab.errors import Conflict, Forbidden
from detlab.schemas.wire import EnrolRequest, Hello, SlotView
from detlab_hub.services import EnrolCaller
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.cluster.credentials import Credentials
from detlab_hub.services.ingest.tokens import Tokens

SECRET = "dtenrol_the-clusters-own"


async def invite(world):
    return (await world.services[Agents].create_enrolment(ROOT, 600)).token


async def enrol(world, token, name):
    caller = await world.services[Tokens].resolve(token)
    assert isinstance(caller, EnrolCaller)
    key = (await world.services[Agents].enrol(caller, EnrolRequest(agent_id=name))).token
    return await world.services[Tokens].resolve(key)


def hello(name):
    return Hello(uids={}, agent_id=name, slots=[SlotView(id=f"{name}-0")])


async def connect(world, agent):
    return await world.services[Agents].connect(agent, hello(agent.agent_id), lambda message: None)


async def names(world):
    return [view.id for view in await world.services[Agents].list(ALICE)]


async def test_a_removed_agent_cannot_come_back_by_the_token_it_came_by(make_world):
    world = await make_world(training(3))
    token, other = await invite(world), await invite(world)
    one = await enrol(world, token, "one")
    two = await enrol(world, token, "two")
    await connect(world, one)
    await connect(world, two)
    await world.services[Nodes].remove(ROOT, "one")
    assert await world.services[Tokens].resolve(token) is None, "void for all who hold it"
    assert await names(world) == ["two"], "who came by it before stays"
    page = await world.services[Audit].page(ROOT, action="token.revoke")
    (action,) = page.items
    assert (action.actor, action.subject) == ("root", f"token {hashlib.sha256(token.encode()).hexdigest()[:12]}")
    assert "agent one came by it" in action.detail
    await connect(world, await enrol(world, other, "one"))
    assert await names(world) == ["one", "two"], "a new invitation is one"


async def test_a_removed_agent_cannot_come_back_by_the_clusters_own_token(make_world):
    world = await make_world(training(3), enrolment_secret_hash=hashlib.sha256(SECRET.encode()).hexdigest())
    await connect(world, await enrol(world, SECRET, "one"))
    await world.services[Nodes].remove(ROOT, "one")
    for _ in range(2):
        with pytest.raises(Forbidden, match="removed agent one") as caught:
            await enrol(world, SECRET, "one")
        assert "det agent enrol" in caught.value.hint
        await world.reboot()
    assert await names(world) == []
    await connect(world, await enrol(world, SECRET, "two"))
    await connect(world, await enrol(world, await invite(world), "one"))
    assert await names(world) == ["one", "two"]


async def test_an_agent_whose_key_is_revoked_comes_back_by_a_new_invitation_only(make_world):
    world = await make_world(training(3), enrolment_secret_hash=hashlib.sha256(SECRET.encode()).hexdigest())
    token = await invite(world)
    for name, by in (("one", token), ("two", SECRET)):
        session = await connect(world, await enrol(world, by, name))
        session.on_hang_up(session.closed)
        (key,) = [item for item in (await world.services[Credentials].list(ROOT)).items if item.subject == name]
        await world.services[Credentials].revoke(ROOT, key.id)
        with pytest.raises(Forbidden, match=f"removed agent {name}"):
            await enrol(world, SECRET, name)
    assert await world.services[Tokens].resolve(token) is None, "what it came by is void"
    await connect(world, await enrol(world, await invite(world), "one"))


async def test_an_agent_removed_between_its_key_and_its_hello_leaves_no_ghost(make_world):
    world = await make_world(training(3))
    agent = await enrol(world, await invite(world), "one")  # authenticated: its WebSocket is open
    await world.services[Nodes].remove(ROOT, "one")
    with pytest.raises(Forbidden, match="not valid any more"):
        await connect(world, agent)
    assert await names(world) == []
    assert world.services.connections.nodes(world.now) == ()


@pytest.mark.parametrize("when", ["before the greeting", "after the greeting"])
async def test_an_agent_removed_while_it_is_greeted_leaves_no_ghost(make_world, monkeypatch, when):
    world = await make_world(training(3))
    agent = await enrol(world, await invite(world), "one")
    write = world.services.context.write
    removed = []

    async def and_remove(work):
        if removed:
            return await write(work)
        removed.append(True)
        if when == "after the greeting":
            welcome = await write(work)
            await world.services[Nodes].remove(ROOT, "one")
            return welcome
        await world.services[Nodes].remove(ROOT, "one")
        return await write(work)

    monkeypatch.setattr(world.services.context, "write", and_remove)
    with pytest.raises((Forbidden, Conflict)):
        await connect(world, agent)
    assert await names(world) == []
    assert world.services.connections.nodes(world.now) == ()
    assert world.services.connections.connected() == []


async def test_a_void_key_does_not_push_out_the_agent_that_enrolled_anew(make_world):
    world = await make_world(training(3))
    token = await invite(world)
    old = await enrol(world, token, "one")
    new = await enrol(world, token, "one")
    session = await connect(world, new)
    with pytest.raises(Forbidden):
        await connect(world, old)
    (connection,) = world.services.connections.connected()
    assert session._connection is connection


async def test_a_key_that_is_revoked_while_its_agent_connects_leaves_no_ghost(make_world):
    world = await make_world(training(3))
    agent = await enrol(world, await invite(world), "one")
    (key,) = [view for view in (await world.services[Credentials].list(ROOT)).items if view.kind == "agent"]
    await world.services[Credentials].revoke(ROOT, key.id)
    with pytest.raises(Forbidden):
        await connect(world, agent)
    assert world.services.connections.nodes(world.now) == ()
    (view,) = await world.services[Agents].list(ROOT)
    assert (view.state, view.slots) == ("lost", [])
