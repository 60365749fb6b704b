"""The master assigns each user one uid for all nodes, never again and never another; nodes that differ are refused."""

from __future__ import annotations

import asyncio

import pytest
from services_scripted import ALICE, BOB, ROOT, ScriptedAgent, config, training

from detlab.errors import Conflict, Forbidden
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.settings import UidPolicy
from detlab_hub.services.lifecycle.uids import UserUids, file_owner
from detlab_hub.store.tables import UidRow

CAROL = Caller("carol")


class Seen:
    """Launches, as agents got them."""

    def __init__(self):
        self.of = {}

    def __call__(self, launch):
        self.of.setdefault(launch.owner, set()).add((launch.info.agent_id, launch.uid, launch.account))
        return training(3)(launch)

    def uids(self, owner):
        return {uid for _, uid, _ in self.of[owner]}


async def assigned(world):
    def read(s):
        return {row.owner: row.uid for row in s.query(UidRow)}

    return await world.services.context.read(read)


async def node(world, name, uids):
    """An agent as it connects; not kept, so that it may be refused."""
    agent = ScriptedAgent(world, name, 1, uids=uids)
    await agent.connect()
    return agent


async def test_users_first_launched_on_different_nodes_have_different_uids_on_both(make_world):
    seen = Seen()
    world = await make_world(seen)
    for name in ("one", "two"):
        await world.add_agent(name)
    first = [await world.submit(config(), caller) for caller in (ALICE, BOB)]
    for one in first:
        await world.finish(one.id)
    assert {agent for of in seen.of.values() for agent, _, _ in of} == {"one", "two"}
    for caller in (BOB, ALICE, BOB, ALICE):  # now on whichever is free
        await world.finish((await world.submit(config(), caller)).id)
    assert len(seen.uids("alice")) == len(seen.uids("bob")) == 1
    assert seen.uids("alice") != seen.uids("bob")
    assert await assigned(world) == {owner: next(iter(seen.uids(owner))) for owner in ("alice", "bob")}


async def test_administrators_see_who_has_which_uid_and_nobody_else(make_world):
    world = await make_world(uids=UidPolicy(mapped={"bob": 1005}))
    for caller in (BOB, ALICE):
        await world.submit(config(), caller)
    found = await world.services[UserUids].list(ROOT)
    assert [(one.user, one.uid, one.account) for one in found.items] == [("bob", 1005, True), ("alice", 20_000, False)]
    with pytest.raises(Forbidden):
        await world.services[UserUids].list(ALICE)


async def test_a_uid_outlives_restarts(make_world):
    world = await make_world()
    await world.submit(config())
    before = await assigned(world)
    await world.reboot()
    await world.submit(config(), BOB)
    assert {**await assigned(world), **before} == await assigned(world) == {"alice": 20_000, "bob": 20_001}


async def test_users_who_come_at_once_have_different_uids(make_world):
    world = await make_world()
    callers = [Caller(f"user{number}") for number in range(12)]
    await asyncio.gather(*(world.submit(config(), caller) for caller in callers))
    found = await assigned(world)
    assert len(found) == len(set(found.values())) == 12


async def test_uids_of_accounts_and_of_the_map_are_passed_over_and_a_used_up_range_stops_newcomers_only(make_world):
    seen = Seen()
    policy = UidPolicy((20_000, 20_003), {"carol": 20_002}, taken=lambda uid: uid == 20_000)
    world = await make_world(seen, uids=policy)
    await world.add_agent("one")
    for caller in (ALICE, BOB, CAROL):
        await world.finish((await world.submit(config(), caller)).id)
    assert await assigned(world) == {"alice": 20_001, "bob": 20_003, "carol": 20_002}
    assert seen.of["carol"] == {("one", 20_002, True)}
    assert seen.of["alice"] == {("one", 20_001, False)}
    with pytest.raises(Conflict, match="no uid is left in 20000-20003") as refusal:
        await world.submit(config(), Caller("dora"))
    assert "uid_range" in refusal.value.hint
    await world.finish((await world.submit(config(), ALICE)).id)


async def test_an_operators_map_wins_later_too_and_the_uid_before_is_nobodys_for_ever(make_world):
    world = await make_world()
    await world.submit(config(), BOB)
    await world.submit(config(), ALICE)
    world.settings = world.services.settings = world.settings.__class__(
        **{**world.settings.__dict__, "uids": UidPolicy(mapped={"alice": 1005})}
    )
    await world.reboot()
    await world.submit(config(), ALICE)
    await world.submit(config(), CAROL)
    assert await assigned(world) == {"alice": 1005, "bob": 20_000, "carol": 20_002}
    (changed,) = (await world.services[Audit].page(ROOT, action="user.uid")).items
    assert changed.detail == "account 1005, before 20001"


async def test_nobody_is_mapped_to_the_uid_of_another_user(make_world):
    world = await make_world(uids=UidPolicy((1005, 1010)))
    await world.submit(config(), ALICE)
    world.settings = world.settings.__class__(
        **{**world.settings.__dict__, "uids": UidPolicy((1005, 1010), {"bob": 1005})}
    )
    await world.reboot()
    with pytest.raises(Conflict, match="'bob' the uid 1005, under which tasks of 'alice' ran"):
        await world.submit(config(), BOB)
    assert await assigned(world) == {"alice": 1005}


async def test_what_agents_of_an_earlier_version_kept_is_taken_over_once(make_world):
    given = {"bob": 20_000, "alice": 20_004}
    world = await make_world(uids=UidPolicy(given=given))
    assert await world.services.context.read(lambda s: file_owner(s, UidPolicy(given=given, checks_files=True), "bob"))
    await world.submit(config(), CAROL)
    assert await assigned(world) == {**given, "carol": 20_005}
    world.settings = world.settings.__class__(
        **{**world.settings.__dict__, "uids": UidPolicy(given={"carol": 20_009, "dora": 20_001})}
    )
    await world.reboot()
    await world.submit(config(), Caller("dora"))
    assert await assigned(world) == {**given, "carol": 20_005, "dora": 20_006}


async def test_a_node_that_has_given_uids_as_the_master_does_is_welcome(make_world):
    world = await make_world(uids=UidPolicy(given={"bob": 20_000, "alice": 20_001}))
    await node(world, "one", {"bob": 20_000, "alice": 20_001, "carol": 20_003})
    assert (await world.services[Agents].list(ROOT))[0].refused is None


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({"alice": 20_001}, ("'alice' has uid 20001 there and 20000 here", "chown -R", "users.json")),
        ({"carol": 20_000}, ("'carol' has uid 20000 there, which is that of 'alice' here", "chown -R", "--user-map")),
        (None, ("earlier version", "update detlab on that node")),
    ],
)
async def test_a_node_that_could_mix_users_is_refused_and_administrators_see_why(make_world, there, words):
    world = await make_world()
    await world.submit(config(), ALICE)
    await node(world, "one", {})
    world.services.connections.dismiss("one")
    for _ in range(3):  # it tries for ever
        with pytest.raises(Conflict) as refusal:
            await node(world, "one", there)
        assert all(word in str(refusal.value) for word in words)
    (view,) = await world.services[Agents].list(ROOT)
    assert (view.state, view.refused) == ("lost", str(refusal.value)), "not missed anew each time: its tasks go on"
    assert (await world.services[Agents].list(BOB))[0].refused is None, "it names users"
    (noted,) = (await world.services[Audit].page(ROOT, action="agent.refuse")).items
    assert words[0] in noted.detail
    await node(world, "one", {})
    assert (await world.services[Agents].list(ROOT))[0].refused is None


async def test_an_agent_of_the_version_before_that_serves_one_user_is_welcome(make_world):
    world = await make_world()
    agent = ScriptedAgent(world, "one", 1, "alice", uids=None)
    await agent.connect()
    world.agents["one"] = agent
    await world.finish((await world.submit(config(), ALICE)).id)


async def test_a_refused_node_takes_nothing_over_from_the_connection_that_is_there(make_world):
    world = await make_world()
    await world.submit(config(), ALICE)
    await world.add_agent("one")
    with pytest.raises(Conflict):
        await node(world, "one", {"alice": 1})
    assert (await world.services[Agents].list(ROOT))[0].state == "connected"
