"""Servers on other nodes: what a certificate that cannot be made ends, and how a server that runs is reached."""

from __future__ import annotations

from dataclasses import replace

import pytest
from services_scripted import World

from detlab.errors import Conflict
from detlab.schemas.taskwire import SpawnRequest
from detlab.schemas.wire import TaskStarted
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.base.server_certificates import ServerAuthority, make_authority
from detlab_hub.services.usertasks.spawns import Spawns

HUB = HubCaller()


def waits(launch):
    while True:
        yield ("wait",)


@pytest.fixture
def authority(tmp_path):
    found = ServerAuthority(tmp_path / "servers.pem", tmp_path / "servers.key")
    for path, text in zip((found.certificate_file, found.key_file), make_authority(), strict=True):
        path.write_text(text)
    return found


@pytest.fixture
async def world(tmp_path, authority):
    made = World(f"sqlite:///{tmp_path / 'det.sqlite'}", tmp_path, script=waits, server_authority=authority)
    await made.boot()
    yield made
    made.close()


async def spawn(world, owner):
    request = SpawnRequest(
        owner=owner,
        server_name="nb",
        key=f"key-of-{owner}",
        base_url=f"/user/{owner}/nb/",
        environment={"JUPYTERHUB_API_TOKEN": "x"},
        config={"resources": {"slots": 1}},
    )
    return (await world.services[Spawns].post(HUB, request)).task_id


async def view(world, task_id):
    return await world.services[Spawns].get(HUB, task_id)


async def up(world, task_id, address):
    """Its agent says where the server listens."""
    (agent,) = (one for one in world.agents.values() if any(key[0].startswith(task_id) for key in one.tasks))
    for name, run in agent.tasks:
        await agent.session.receive(TaskStarted(allocation_id=name, run=run, address=address, port=4242))
    return await view(world, task_id)


async def on(world, task_id, agent):
    return (await view(world, task_id)).agent_id == agent


@pytest.mark.parametrize("address", ["bücher.example", "a b", "node;rm", "x" * 254, "10.0.0.1:80"])
async def test_an_agent_whose_address_nobody_can_dial_is_refused(world, address):
    with pytest.raises(Conflict, match=r"is neither an IP address nor a host's name"):
        await world.add_agent("odd", address=address)


@pytest.mark.parametrize("address", ["10.0.0.7", "fd00::7", "node-7.cluster.local", "my_node", "xn--bcher-kva.example"])
async def test_an_agent_with_a_name_or_an_address_is_taken(world, address):
    await world.add_agent("far", address=address)
    task = await spawn(world, "alice")
    await world.steps(3)
    found = await up(world, task, address)
    assert (found.allocation_state, found.secure) == ("RUNNING", True)


async def test_a_certificate_that_cannot_be_made_ends_one_server_and_stops_nobody_else(world, authority):
    await world.add_agent("far", serves_user="alice", address="10.0.0.7")
    await world.add_agent("near", serves_user="bob")
    authority.key_file.write_text("")
    alice, bob = await spawn(world, "alice"), await spawn(world, "bob")
    await world.steps(3)
    ended = await view(world, alice)
    assert ended.end_reason == "failed"
    assert "the task could not be set up: the authority for servers on other nodes" in ended.reason
    assert (await view(world, bob)).allocation_state == "RUNNING"
    assert world.agents["far"].launches == []
    # its slot is free again, once there is an authority
    authority.certificate_file.write_text((pair := make_authority())[0])
    authority.key_file.write_text(pair[1])
    again = await world.services[Spawns].post(
        HUB, SpawnRequest(owner="alice", server_name="nb", key="another-key", base_url="/user/alice/nb/")
    )
    await world.steps(3)
    assert (await view(world, again.task_id)).allocation_state == "RUNNING"


async def test_an_address_from_before_the_check_ends_one_server_and_stops_nobody_else(world, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr("detlab_hub.services.agents.connection.check_address", lambda address: None)
        await world.add_agent("odd", serves_user="alice", address="bücher.example")
    await world.add_agent("near", serves_user="bob")
    alice, bob = await spawn(world, "alice"), await spawn(world, "bob")
    await world.steps(3)
    assert "no certificate can be made for the servers at bücher.example" in (await view(world, alice)).reason
    assert (await view(world, bob)).allocation_state == "RUNNING"


async def test_an_agent_that_returns_is_greeted_though_its_servers_certificate_cannot_be_made(world, authority):
    agent = await world.add_agent("far", address="10.0.0.7")
    task = await spawn(world, "alice")
    await world.services.schedule()
    agent.drop()  # the launch is lost
    authority.key_file.write_text("")
    await agent.connect()
    assert (await view(world, task)).end_reason == "failed"


async def test_a_server_from_before_tls_goes_on_by_plain_http(world):
    """A restart with the authority must not send the Hub to it by TLS: it would take it for dead, and end it."""
    settings = world.settings
    world.settings = replace(settings, server_authority=None)
    await world.reboot()
    await world.add_agent("far", slots=2, address="10.0.0.7")
    old = await spawn(world, "alice")
    await world.steps(3)
    assert (await up(world, old, "10.0.0.7")).secure is False
    world.settings = settings
    await world.reboot()
    await world.steps(3)
    found = await view(world, old)
    assert (found.allocation_state, found.port, found.secure) == ("RUNNING", 4242, False)
    new = await spawn(world, "bob")
    await world.steps(3)
    assert (await up(world, new, "10.0.0.7")).secure is True
    world.settings = replace(settings, server_authority=None)  # and the other way round
    await world.reboot()
    await world.steps(2)
    assert (await view(world, new)).secure is True


async def test_another_attempt_without_a_certificate_is_not_reached_by_the_first_ones(world):
    far = await world.add_agent("far", address="10.0.0.7")
    task = await spawn(world, "alice")
    await world.services.schedule()
    assert [message.service.certificate is not None for message in far.inbox if message.type == "launch"] == [True]
    far.drop()
    del world.agents["far"]
    await world.add_agent("near")
    await world.services[Spawns].claim(HUB, task)
    await world.until(lambda: on(world, task, "near"), 400)
    await world.steps(2)
    found = await up(world, task, "127.0.0.1")
    assert (found.allocation_state, found.agent_id, found.secure) == ("RUNNING", "near", False)
