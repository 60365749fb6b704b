"""Readers who share looks at the log are told what each may know (I9), also of what was just shared or deleted."""

from __future__ import annotations

import asyncio

import pytest
from services_scripted import ALICE, BOB, ROOT, config
from stream_reading import SlowLook, made_by_alice, members, reading, report, until

from detlab.errors import NotFound
from detlab.schemas.wire import GrantRequest, GrantTo
from detlab.schemas.wire.projects import MoveExperiment
from detlab.schemas.wire.workspaces import CreateWorkspace, MemberRequest
from detlab_hub.services import Caller
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.projects.members import MembersOfWorkspaces
from detlab_hub.services.projects.moves import Moves
from detlab_hub.services.projects.workspaces import Workspaces
from detlab_hub.services.streams import reads
from detlab_hub.services.streams.stream import Follow
from detlab_hub.store.tables import ExperimentRow

EVE = Caller("eve")


@pytest.mark.parametrize("of_all", [False, True])
async def test_i9_readers_who_share_a_look_are_told_what_each_may_know(make_world, of_all):
    world, mine = await made_by_alice(make_world)
    services = world.services
    hers = (await world.submit(config(name="hers"), BOB)).id
    await services[Grants].put(ALICE, mine, GrantRequest(kind="user", name="bob"))
    one = None if of_all else mine
    follows = (Follow(mine), Follow(hers))
    async with (
        reading(world, ALICE, one, follows=follows) as alice,
        reading(world, BOB, one, follows=follows) as bob,
        reading(world, ROOT, one, follows=follows) as root,
        reading(world, EVE, None, follows=follows) as eve,
    ):
        await until(lambda: members(world) == 4)
        await services[Experiments].pause(ALICE, mine)
        await report(world, hers, 5)
        await report(world, mine, 6)
        await until(lambda: all(6 in sink.steps for sink in (alice, bob, root)))
        may = {sink: [e.data["may"] for e in sink.got if e.kind == "experiment"][-1] for sink in (alice, bob, root)}
        assert may == {alice: "own", bob: "read", root: "own"}
        assert [sink.steps for sink in (alice, bob, root)] == ([[6], [5, 6], [5, 6]] if of_all else [[6]] * 3)
        # taken back: it ends the stream of that experiment, and is hidden on the stream of all
        await services[Grants].remove(ALICE, mine, GrantTo(kind="user", name="bob"))
        seen = len(bob.got)
        await report(world, mine, 7)
        await report(world, hers, 8)
        if of_all:
            await until(lambda: bob.steps[-1] == 8)
            assert mine not in {event.experiment_id for event in bob.got[seen:]}
            await services[Grants].put(ALICE, mine, GrantRequest(kind="user", name="bob", write=True))
            await report(world, mine, 9)
            await until(lambda: bob.steps[-1] == 9)
            assert [e.data["may"] for e in bob.got if e.experiment_id == mine and "may" in e.data][-1] == "write"
        else:
            with pytest.raises(NotFound):
                await asyncio.wait_for(bob.task, 20)
            assert bob.steps == [6]
        await until(lambda: 7 in alice.steps)
        assert not [event for event in eve.got if event.kind != "cluster"], "what is nothing of hers"


async def test_i9_a_right_is_that_of_the_snapshot_even_before_the_wake_up(make_world, monkeypatch):
    """The change is committed and seen by a look before anybody was told that grants have changed."""
    world, mine = await made_by_alice(make_world)
    services = world.services
    await services[Grants].put(ALICE, mine, GrantRequest(kind="user", name="bob"))

    async def told_nobody(found):
        return found

    async with reading(world, BOB, mine) as bob:
        await until(lambda: members(world) == 1)
        await report(world, mine, 1)
        await until(lambda: bob.steps == [1])
        monkeypatch.setattr(services[Grants], "_changed", told_nobody)
        await services[Grants].remove(ALICE, mine, GrantTo(kind="user", name="bob"))
        await report(world, mine, 2)
        with pytest.raises(NotFound):
            await asyncio.wait_for(bob.task, 20)
        assert bob.steps == [1]


@pytest.mark.parametrize("of_all", [False, True])
@pytest.mark.parametrize("told", [True, False])
async def test_i9_a_role_that_is_taken_away_while_a_view_is_open_ends_it(make_world, monkeypatch, of_all, told):
    """Also before anybody was told that members have changed, and whatever is remembered of the experiment."""
    world, mine = await made_by_alice(make_world)
    services = world.services
    await world.workspace("lab", bob="editor")
    await services[Moves].experiment(ALICE, mine, MoveExperiment(workspace="lab"))
    hers = (await world.submit(config(name="hers"), BOB)).id
    follows = (Follow(mine), Follow(hers))
    async with (
        reading(world, ALICE, None if of_all else mine, follows=follows) as alice,
        reading(world, BOB, None if of_all else mine, follows=follows) as bob,
        reading(world, EVE, None, follows=follows) as eve,
    ):
        await until(lambda: members(world) == 3)
        await report(world, mine, 1)
        await until(lambda: alice.steps == bob.steps == [1])
        await services[Experiments].pause(ALICE, mine)
        await until(lambda: [e.data["may"] for e in bob.got if e.kind == "experiment"][-1:] == ["write"])
        if not told:
            monkeypatch.setattr(services[MembersOfWorkspaces], "_changed", lambda found: found)
        await services[MembersOfWorkspaces].remove(ALICE, "lab", GrantTo(kind="user", name="bob"))
        if of_all:  # a look that found nothing but that change must forget, too
            await until(lambda: any(event.data.get("rights") for event in bob.got))
        seen = len(bob.got)
        await report(world, mine, 2)
        await report(world, hers, 3)
        if of_all:
            await until(lambda: bob.steps[-1] == 3)
            assert mine not in {event.experiment_id for event in bob.got[seen:]}
            assert bob.steps == [1, 3]
        else:
            with pytest.raises(NotFound):
                await asyncio.wait_for(bob.task, 20)
            assert bob.steps == [1]
        await until(lambda: 2 in alice.steps)
        assert not [event for event in eve.got if event.kind != "cluster"]
        assert {event.kind for event in [*alice.got, *bob.got]} <= {
            "experiment",
            "trial",
            "metrics",
            "cluster",
            "cursor",
        }


async def test_i9_a_member_is_told_of_what_was_moved_in_and_of_its_end(make_world):
    world, mine = await made_by_alice(make_world)
    services = world.services
    await world.workspace("lab", bob="viewer")
    async with reading(world, BOB, None) as bob, reading(world, EVE, None) as eve:
        await until(lambda: members(world) == 2)
        await services[Moves].experiment(ALICE, mine, MoveExperiment(workspace="lab"))
        await until(lambda: any(event.experiment_id == mine for event in bob.got))
        await services[Experiments].kill(ALICE, mine)
        await services[Experiments].delete(ALICE, mine)
        await until(lambda: any(e.experiment_id == mine and e.data.get("state") == "DELETED" for e in bob.got))
        assert not [event for event in eve.got if event.kind != "cluster"]


async def test_who_was_let_look_is_told_that_it_was_deleted(make_world):
    world, mine = await made_by_alice(make_world)
    services = world.services
    await services[Grants].put(ALICE, mine, GrantRequest(kind="user", name="bob"))
    async with (
        reading(world, ALICE, None) as alice,
        reading(world, BOB, None) as bob,
        reading(world, EVE, None) as eve,
    ):
        await until(lambda: members(world) == 3)
        await services[Experiments].kill(ALICE, mine)
        await until(lambda: any(event.kind == "experiment" for event in bob.got))
        await services[Experiments].delete(ALICE, mine)

        def deleted(sink):
            return any(e.experiment_id == mine and e.data.get("state") == "DELETED" for e in sink.got)

        await until(lambda: deleted(alice) and deleted(bob))
        assert not [event for event in eve.got if event.kind != "cluster"]


async def test_i9_who_was_let_look_after_a_look_was_taken_is_not_refused_by_it(make_world, monkeypatch):
    world, mine = await made_by_alice(make_world)
    slow = SlowLook(world, monkeypatch)
    async with reading(world, ALICE, mine) as first:
        await slow.after(world, mine, 1)
        await world.services[Grants].put(ALICE, mine, GrantRequest(kind="user", name="bob"))
        async with reading(world, BOB, mine) as late:
            await until(lambda: members(world) == 2)
            slow.go.set()
            await report(world, mine, 2)
            await until(lambda: first.steps == [1, 2] and late.steps == [2])


async def test_i9_a_right_taken_back_beyond_a_full_look_counts_in_it(make_world, monkeypatch):
    monkeypatch.setattr(reads, "BATCH", 3)
    world, mine = await made_by_alice(make_world)
    services = world.services
    await services[Grants].put(ALICE, mine, GrantRequest(kind="user", name="bob"))

    async def told_nobody(found):
        return found

    async with reading(world, BOB, mine) as bob:
        await until(lambda: members(world) == 1)
        await report(world, mine, 1)
        await until(lambda: bob.steps == [1])
        monkeypatch.setattr(services[Grants], "_changed", told_nobody)
        for step in (2, 3, 4):
            await report(world, mine, step, wake=False)
        await services[Grants].remove(ALICE, mine, GrantTo(kind="user", name="bob"))
        services.context.wakeups.wake("streams")
        with pytest.raises(NotFound):
            await asyncio.wait_for(bob.task, 20)
        assert bob.steps == [1]


async def test_i9_who_lost_the_right_before_it_was_deleted_is_not_told_of_that(make_world, monkeypatch):
    """Taken back and deleted within one look: it went by whom the tail remembered, and told them."""
    world, mine = await made_by_alice(make_world)
    services = world.services
    for name in ("bob", "carol"):
        await services[Grants].put(ALICE, mine, GrantRequest(kind="user", name=name))

    async def told_nobody(found):
        return found

    slow = SlowLook(world, monkeypatch)
    async with reading(world, BOB, None) as bob, reading(world, Caller("carol"), None) as carol:
        await until(lambda: members(world) == 2)
        await services[Experiments].kill(ALICE, mine)
        await until(lambda: told_of(bob, "CANCELED") and told_of(carol, "CANCELED"))
        await slow.after(world, mine, 1, readers=2)  # the next look sees all of this together
        monkeypatch.setattr(services[Grants], "_changed", told_nobody)
        await services[Grants].remove(ALICE, mine, GrantTo(kind="user", name="bob"))
        await services[Experiments].delete(ALICE, mine)
        await until_gone(world, mine)
        slow.go.set()
        await until(lambda: told_of(carol, "DELETED"))
        (gone,) = told_of(carol, "DELETED")
        assert gone.data == {"id": mine, "state": "DELETED", "owner": "alice"}, "not with whom it was shared"
        assert not told_of(bob, "DELETED")


def told_of(sink, state):
    return [event for event in sink.got if event.kind == "experiment" and event.data.get("state") == state]


async def until_gone(world, experiment):
    async with asyncio.timeout(20):
        while await world.services.context.read(lambda s: s.get(ExperimentRow, experiment)) is not None:
            await asyncio.sleep(0.005)


async def test_i9_who_loses_a_right_is_told_so_and_nobody_else(make_world):
    """A page that shows what was taken away has no other way to know: no event of it comes any more."""
    world, mine = await made_by_alice(make_world)
    services = world.services
    lab = await services[Workspaces].create(ALICE, CreateWorkspace(name="lab"))

    def told(sink):
        return [event for event in sink.got if event.data.get("rights")]

    async with reading(world, BOB, None) as bob, reading(world, EVE, None) as eve, reading(world, ALICE, None) as alice:
        await until(lambda: members(world) == 3)
        steps = [
            lambda: services[Grants].put(ALICE, mine, GrantRequest(kind="user", name="bob")),
            lambda: services[Grants].remove(ALICE, mine, GrantTo(kind="user", name="bob")),
            lambda: services[MembersOfWorkspaces].put(ALICE, "lab", MemberRequest(kind="user", name="bob")),
            lambda: services[Moves].experiment(ALICE, mine, MoveExperiment(workspace="lab")),
            lambda: services[Moves].experiment(ALICE, mine, MoveExperiment()),
            lambda: services[MembersOfWorkspaces].remove(ALICE, "lab", GrantTo(kind="user", name="bob")),
        ]
        expected = [1, 2, 3, 3, 4, 5]  # into the lab comes the experiment itself
        for step, count in zip(steps, expected, strict=True):
            await step()
            await report(world, mine, 10 + count)
            await until(lambda count=count: len(told(bob)) >= count)
            assert len(told(bob)) == count
        assert {event.kind for event in told(bob)} == {"cursor"}, "readers of before know this kind"
        assert all(event.data == {"rights": True} and event.experiment_id is None for event in told(bob))
        assert told(alice), "she is a member of the workspace whose members have changed"
        await services[Workspaces].delete(ALICE, str(lab.id))
        assert told(eve) == []
