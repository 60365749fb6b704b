"""Quotas: who may set them and see them, what is used of them, and that they last."""

from __future__ import annotations

from dataclasses import replace

import pytest
from services_scripted import ALICE, BOB, ROOT, config, training

from detlab.errors import Forbidden, NotFound
from detlab.schemas.jobwire import QuotaRequest, QuotaTo
from detlab_hub.services.admission.quotas import Quotas, never
from detlab_hub.services.base.audit import Audit
from detlab_hub.store.queries import events

VERA = replace(BOB, name="vera", groups=frozenset({"vision", "staff"}))


def quota(kind: str, name: str, slots: int) -> QuotaRequest:
    return QuotaRequest.model_validate({"kind": kind, "name": name, "slots": slots})


async def cluster_events(world, cursor: int) -> int:
    def count(s):
        return sum(event.kind == "cluster" for event in events.after(s, cursor))

    return await world.services.context.read(count)


async def test_quotas_are_set_replaced_lifted_noted_and_last(make_world):
    world = await make_world(training(50))
    quotas, context = world.services[Quotas], world.services.context
    assert (await quotas.list(ROOT)).items == []
    cursor = await context.read(events.head)
    context.scheduler_kick.clear()
    await quotas.put(ROOT, quota("group", "vision", 8))
    assert context.scheduler_kick.is_set(), "it counts at once"
    assert await cluster_events(world, cursor) == 1
    found = await quotas.put(ROOT, quota("user", "alice", 4))
    assert [(one.kind, one.name, one.slots, one.set_by, one.set_at) for one in found.items] == [
        ("user", "alice", 4, "root", world.now),
        ("group", "vision", 8, "root", world.now),
    ]
    cursor = await context.read(events.head)
    world.now += 5
    again = await quotas.put(ROOT, quota("user", "alice", 4))
    assert again == found, "the same again changes nothing"
    assert await cluster_events(world, cursor) == 0
    await world.reboot()
    assert (await world.services[Quotas].list(ROOT)) == found
    await world.services[Quotas].put(ROOT, quota("user", "alice", 0))
    left = await world.services[Quotas].remove(ROOT, QuotaTo(kind="group", name="vision"))
    assert [(one.name, one.slots) for one in left.items] == [("alice", 0)]
    with pytest.raises(NotFound, match="has no quota"):
        await world.services[Quotas].remove(ROOT, QuotaTo(kind="group", name="vision"))
    page = await world.services[Audit].page(ROOT, action="quota")
    assert [(item.action, item.subject, item.detail) for item in page.items] == [
        ("quota.remove", "group vision", "no quota any more"),
        ("quota.set", "user alice", "0 slots, before 4"),
        ("quota.set", "user alice", "4 slots, before none"),
        ("quota.set", "group vision", "8 slots, before none"),
    ]


async def test_quotas_show_what_is_held_and_what_waits_under_them(make_world):
    world = await make_world(training(50))
    await world.add_agent(slots=2)
    many = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 3}
    await world.submit(config(many))
    world.now += 1
    await world.submit(config(), BOB)
    await world.steps(2)
    await world.services[Quotas].put(ROOT, quota("user", "bob", 3))
    (bob, alice) = (await world.services[Quotas].put(ROOT, quota("user", "alice", 1))).items[::-1]
    assert (alice.name, alice.held, alice.waiting) == ("alice", 2, 1), "more is held than it gives: nothing is ended"
    assert (bob.name, bob.held, bob.waiting) == ("bob", 0, 1)


async def test_I9_people_see_the_quotas_that_bind_them_and_set_none(make_world):
    world = await make_world()
    for one in (
        quota("user", "alice", 1),
        quota("user", "vera", 2),
        quota("group", "vision", 3),
        quota("group", "x", 4),
    ):
        await world.services[Quotas].put(ROOT, one)
    seen = {
        caller.name: [one.name for one in (await world.services[Quotas].list(caller)).items]
        for caller in (ALICE, VERA, BOB, ROOT)
    }
    assert seen == {"alice": ["alice"], "vera": ["vera", "vision"], "bob": [], "root": ["alice", "vera", "vision", "x"]}
    for refused in (
        world.services[Quotas].put(VERA, quota("user", "vera", 9)),
        world.services[Quotas].remove(VERA, QuotaTo(kind="user", name="vera")),
    ):
        with pytest.raises(Forbidden, match="only administrators"):
            await refused


async def test_quotas_say_what_they_never_give(make_world):
    world = await make_world()
    await world.services[Quotas].put(ROOT, quota("user", "vera", 4))
    await world.services[Quotas].put(ROOT, quota("group", "vision", 2))

    async def said(user: str, groups: set[str], slots: int) -> str | None:
        return await world.services.context.read(lambda s: never(s, user, groups, slots))

    assert await said("vera", set(), 4) is None
    assert await said("vera", set(), 5) == "needs 5 slots, more than the quota of user vera: 4 (0 held now)"
    assert await said("vera", {"vision"}, 3) == "needs 3 slots, more than the quota of group vision: 2 (0 held now)"
    assert await said("bob", set(), 99) is None
